"""docs/commands.md: the help page of every command, as the command line prints it.

    python -m tests.commands_page        writes it anew; a test says when that is due

The width is fixed, so that the page is the same from any terminal. Knows nothing of what the
commands do.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup

from art_e.cli.main import app

PAGE = Path(__file__).parent.parent / "docs" / "commands.md"
COMMAND = "python -m tests.commands_page"
WIDTH = 96

_HEAD = f"""\
# Commands

What `--help` prints, command by command. This page is written by `{COMMAND}`; a test
fails when it is behind. Every command but `mcp` and `serve` has `--json`, which prints data alone
on standard output; notes and progress go to standard error. Exit codes: 0 done, 2 your input (one
line says what to do), 1 our fault, 130 interrupted.
"""


class HelpPage(NamedTuple):
    """One command's help: `path` is how it is called, such as "art-e golden split"."""

    path: str
    text: str


def help_pages() -> Iterator[HelpPage]:
    """The help of `art-e`, its groups and their commands, in the order of the help pages."""
    yield from _pages(typer.main.get_command(app), "art-e", None)


def _pages(command: Any, name: str, parent: Any) -> Iterator[HelpPage]:
    context = command.context_class(
        command, info_name=name, parent=parent, terminal_width=WIDTH, max_content_width=WIDTH
    )
    yield HelpPage(context.command_path, command.get_help(context))
    if isinstance(command, TyperGroup):
        for each in command.list_commands(context):
            yield from _pages(command.get_command(context, each), each, context)


def commands_page() -> str:
    """The page."""
    pages = list(help_pages())
    index = "\n".join(f"- [`{each.path}`](#{each.path.replace(' ', '-')})" for each in pages)
    sections = (f"## {each.path}\n\n```text\n{_trimmed(each.text)}\n```\n" for each in pages)
    return "\n".join([_HEAD, f"{index}\n", *sections])


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


if __name__ == "__main__":
    PAGE.write_text(commands_page(), encoding="utf-8")
