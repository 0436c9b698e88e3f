"""What README.md and docs/ tell people to type: code blocks, the commands in them, their parsers.

Commands stand in fenced blocks: `sh` holds nothing else, `console` has them behind "$ " with
what they print below. A comment before a block says that a test runs it as it is written:

    <!-- run -->                            offline, in a folder of the page's own
    <!-- run with the Enron archive -->     where ART_E_REAL_DATA names it

Knows nothing of what the commands do.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup

from art_e.cli.main import app

ROOT = Path(__file__).parent.parent
# The command reference has a test of its own, and no command blocks.
PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(each for each in (ROOT / "docs").glob("*.md") if each.name != "commands.md"),
)
OFFLINE, REAL = "run", "run with the Enron archive"

_FENCE = re.compile(r"^( *)(```+)(.*)$")
_MARK = re.compile(r"<!-- (run\b.*?) -->")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_ENDS_A_COMMAND = {"&&", "||", "|", ";", "&"}


class Block(NamedTuple):
    """A code block: `line` is that of its fence, `mark` the comment before it, "" for none."""

    page: Path
    line: int
    language: str
    text: str
    mark: str

    @property
    def where(self) -> str:
        """What to call it: README.md:42."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def script(self) -> str:
        """What a shell would be given: in `console` the lines behind "$ ", with continuations."""
        if self.language != "console":
            return self.text
        typed, goes_on = [], False
        for line in self.text.splitlines():
            if line.startswith("$ ") or goes_on:
                typed.append(line.removeprefix("$ "))
                goes_on = line.endswith("\\")
        return "\n".join(typed)


class CommandLine(NamedTuple):
    """One simple command: its words, and the variables that are set for it alone."""

    words: list[str]
    variables: dict[str, str]


def blocks(page: Path) -> Iterator[Block]:
    """The code blocks of a page. Raises `AssertionError` for one that says no language."""
    lines = page.read_text("utf-8").splitlines()
    number = 0
    while number < len(lines):
        opened = _FENCE.match(lines[number])
        if opened is None:
            number += 1
            continue
        indent, fence, language = opened.groups()
        begin = number + 1
        end = next(n for n in range(begin, len(lines)) if lines[n].strip() == fence)
        where = f"{page.name}:{begin}"
        assert language.strip(), f"{where}: the block says no language"
        text = "\n".join(line.removeprefix(indent) for line in lines[begin:end])
        yield Block(page, begin, language.strip(), text, _mark(lines, number))
        number = end + 1


def _mark(lines: Sequence[str], fence: int) -> str:
    """The mark in the line before a block, an empty one between them allowed."""
    for line in reversed(lines[max(0, fence - 2) : fence]):
        found = _MARK.search(line)
        if found:
            return found[1]
        if line.strip():
            break
    return ""


def command_lines(script: str) -> Iterator[CommandLine]:
    """The simple commands of a script, without comments; variables set before are filled in."""
    known: dict[str, str] = {}
    for line in script.replace("\\\n", " ").splitlines():
        words: list[str] = []
        for word in [*_split(_filled(line, known)), ";"]:
            if word not in _ENDS_A_COMMAND:
                words.append(word)
                continue
            command = _without_variables(words)
            if command.words[:1] == ["export"]:
                known |= _without_variables(command.words[1:]).variables
            elif command.words:
                yield command
            else:
                known |= command.variables
            words = []


def _split(line: str) -> list[str]:
    words = shlex.shlex(line, posix=True, punctuation_chars=";&|")
    words.whitespace_split = True
    return list(words)


def _filled(line: str, known: dict[str, str]) -> str:
    return re.sub(r"\$(\w+)", lambda found: known.get(found[1], found[0]), line)


def _without_variables(words: Sequence[str]) -> CommandLine:
    variables: dict[str, str] = {}
    rest = list(words)
    while rest and (found := _ASSIGNMENT.fullmatch(rest[0])):
        variables[found[1]] = found[2]
        rest.pop(0)
    return CommandLine(rest, variables)


def parse_art_e(arguments: Sequence[str]) -> dict[str, Any]:
    """What the real command line makes of the arguments of `art-e`; nothing is run.

    Raises typer's exceptions for a command or option that isn't there and for a value that
    its option can't take.
    """
    command: Any = typer.main.get_command(app)
    context: Any = None
    name: str | None = "art-e"
    rest = list(arguments)
    while isinstance(command, TyperGroup) and rest and not rest[0].startswith("-"):
        context = command.context_class(command, info_name=name, parent=context)
        name, command, rest = command.resolve_command(context, rest)
    if "--help" in rest:
        return {}
    parameters: dict[str, Any] = command.make_context(name, rest, parent=context).params
    return parameters
