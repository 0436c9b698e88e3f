"""docs/commands.md: the help page of every command.

    python -m bench.commands_page        writes it; a test fails when it is out of date

The width is fixed, so that the page is the same from any terminal.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup

from art_e.cli.main import app

PAGE = Path(__file__).parent.parent / "docs" / "commands.md"
COMMAND = "python -m bench.commands_page"
WIDTH = 96

_HEAD = f"""\
# Commands

The output of `--help`, command by command. `{COMMAND}` writes this page; a test
fails when it is out of date. Every command but `open`, `web`, `mcp`, `serve` and
`eval label` has `--json`, which prints data alone on standard output; notes and progress go to
standard error. Exit codes: 0 success, 1 an internal error, 2 a user error (one line says what to
do), 75 a paused training that `--resume` continues, 130 interrupted.
"""


class HelpPage(NamedTuple):
    """One command's help: `path` is how to call it, such as "art-e golden split"."""

    path: str
    text: str


def help_pages(command: Any = None, name: str = "art-e", parent: Any = None) -> Iterator[HelpPage]:
    """The help of `art-e`, its groups and their commands, in the order of the help pages."""
    command = command or typer.main.get_command(app)
    context = command.context_class(
        command, info_name=name, parent=parent, terminal_width=WIDTH, max_content_width=WIDTH
    )
    yield HelpPage(context.command_path, command.get_help(context))
    if isinstance(command, TyperGroup):
        for each in command.list_commands(context):
            yield from help_pages(command.get_command(context, each), each, context)


def commands_page() -> str:
    """The page, as `--help` prints it today."""
    index, sections = "", ""
    for path, text in help_pages():
        index += f"- [`{path}`](#{path.replace(' ', '-')})\n"
        trimmed = "\n".join(line.rstrip() for line in text.strip().splitlines())
        sections += f"\n## {path}\n\n```text\n{trimmed}\n```\n"
    return f"{_HEAD}\n{index}{sections}"


if __name__ == "__main__":
    PAGE.write_text(commands_page(), encoding="utf-8")
