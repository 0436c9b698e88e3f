"""`art-e golden review`."""

import typer


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
