"""`art-e golden stats`."""

import typer


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
