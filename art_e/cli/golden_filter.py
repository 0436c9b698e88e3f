"""`art-e golden filter`."""

import typer


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
