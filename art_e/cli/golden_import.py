"""`art-e golden import`."""

import typer


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
