"""The code blocks of README.md, docs/ and other pages, the commands in them, and their parsers.

Commands are in fenced blocks: `sh` holds only commands; in `console` they follow "$ ", with their
output below. A comment before a block says that a test runs it as written:

    <!-- run -->                            offline, in a new folder
    <!-- run with the Enron archive -->     where ART_E_REAL_DATA names it"""

import itertools
import re
import shlex
import string
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import typer
from markdown_it import MarkdownIt
from markdown_it.token import Token
from typer.core import TyperGroup

from art_e.cli.main import app

ROOT = Path(__file__).parent.parent
# The journal's pages name commands of their time.
JOURNAL = sorted((ROOT / "docs" / "journal").glob("*.md"))
# The page of commands has its own tests and examples.
PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "AGENTS.md",
    *sorted(set((ROOT / "docs").rglob("*.md")) - {*JOURNAL, ROOT / "docs" / "commands.md"}),
)
OFFLINE, REAL = "run", "run with the Enron archive"

_MARK = re.compile(r"<!-- (run\b.*?) -->")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_ENDS_A_COMMAND = {"&&", "||", "|", ";", "&"}


class Block(NamedTuple):
    """A code block: the line of its fence, and the comment before it ("" if there is none)."""

    page: Path
    line: int
    language: str
    text: str
    mark: str

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def script(self) -> str:
        """The input of a shell; in `console` the lines after "$ ", with continuations."""
        if self.language != "console":
            return self.text
        typed: list[str] = []
        for line in self.text.splitlines():
            if line.startswith("$ ") or (typed and typed[-1].endswith("\\")):
                typed.append(line.removeprefix("$ "))
            elif typed and typed[-1]:
                typed.append("")
        return "\n".join(typed)


def tokens(page: Path) -> list[Token]:
    return MarkdownIt("commonmark").parse(page.read_text("utf-8"))


def blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced code blocks of a page."""
    mark = ""
    for token in tokens(page):
        if token.type == "fence":
            assert token.map is not None
            yield Block(page, token.map[0] + 1, token.info.strip(), token.content, mark)
        comment = _MARK.search(token.content) if token.type == "html_block" else None
        mark = comment[1] if comment else ""


def command_lines(script: str) -> Iterator[list[str]]:
    """Yield the words of each simple command of a script, with the values of its variables."""
    values: dict[str, str] = {}
    for line in script.replace("\\\n", " ").splitlines():
        filled = string.Template(line).safe_substitute(values)
        lexer = shlex.shlex(filled, posix=True, punctuation_chars=";&|")
        lexer.whitespace_split = True
        for ends, words in itertools.groupby(lexer, _ENDS_A_COMMAND.__contains__):
            command = [] if ends else list(words)
            if command[:1] == ["export"]:
                command.pop(0)
            while command and (assignment := _ASSIGNMENT.fullmatch(command[0])):
                values[assignment[1]] = assignment[2]
                command.pop(0)
            if command:
                yield command


def parse_art_e(arguments: Sequence[str]) -> dict[str, Any]:
    """Parse arguments of `art-e` with the real command line, without running them. Raises typer's
    exceptions for an unknown command or option, and for an invalid value."""
    command: Any = typer.main.get_command(app)
    context: Any = None
    name: str | None = "art-e"
    rest = list(arguments)
    while isinstance(command, TyperGroup) and rest and not rest[0].startswith("-"):
        context = command.context_class(command, info_name=name, parent=context)
        name, command, rest = command.resolve_command(context, rest)
    if "--help" in rest:
        return {}
    return dict(command.make_context(name, rest, parent=context).params)
