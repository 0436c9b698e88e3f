"""`art-e golden export`."""

import typer


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
