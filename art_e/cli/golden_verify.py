"""`art-e golden verify`."""

import typer


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
