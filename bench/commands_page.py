"""Write docs/commands.md, the help of every command.

    python -m bench.commands_page        # a test fails if the page is out of date

The width is fixed, so that the page does not depend on the terminal."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup

from art_e.cli.main import app

PAGE = Path(__file__).parent.parent / "docs" / "commands.md"
COMMAND = "python -m bench.commands_page"
WIDTH = 96

# The head of the page explains these options.
_COMMON = (
    r"^  --(?:help|json|\w+-completion|db FILE +Inbox file \[default: the one"
    r"|out DIR +Folder of the run)\b.*\n?(?: {9,}.*\n)*"
)

_HEAD = f"""\
# Commands

What `--help` prints for each command; `{COMMAND}` writes this page. It leaves out
`--help`, `--json` (data alone on stdout, notes and progress on stderr; every command but `open`,
`web`, `mcp`, `serve` and `eval label` has it), `--db FILE` (the inbox file; default: the one
in `ART_E_HOME`) and `--out DIR` (the folder of the run; default: a new one there). Exit codes:
0 success, 1 an internal error, 2 a user error (one line says what to do), 75 a paused training that
`--resume` continues, 130 interrupted.
"""


class HelpPage(NamedTuple):
    """One command's help; `path` is the call, such as "art-e golden split"."""

    path: str
    text: str


def help_pages(command: Any = None, name: str = "art-e", parent: Any = None) -> Iterator[HelpPage]:
    """Yield the help of `art-e`, its groups and their commands, in the order of the help."""
    command = command or typer.main.get_command(app)
    context = command.context_class(
        command, info_name=name, parent=parent, terminal_width=WIDTH, max_content_width=WIDTH
    )
    yield HelpPage(context.command_path, command.get_help(context))
    if isinstance(command, TyperGroup):
        for child in command.list_commands(context):
            yield from help_pages(command.get_command(context, child), child, context)


def commands_page() -> str:
    """Return the page with the current output of `--help`."""
    page = _HEAD
    for path, text in help_pages():
        special = re.sub(_COMMON, "", text, flags=re.MULTILINE).strip().removesuffix("Options:")
        trimmed = re.sub(" +$", "", special.replace("Options:\n\n", ""), flags=re.MULTILINE)
        page += f"\n## {path}\n\n```text\n{trimmed.rstrip()}\n```\n"
    return page


if __name__ == "__main__":
    PAGE.write_text(commands_page(), encoding="utf-8")
