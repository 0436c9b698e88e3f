"""docs/commands.md says what the command line says, and the examples of every help page parse."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands_page import COMMAND, PAGE, HelpPage, commands_page, help_pages
from tests.documented import command_lines, parse_art_e

PAGES = list(help_pages())


def test_the_page_is_not_behind() -> None:
    assert PAGE.read_text("utf-8") == commands_page(), f"docs/commands.md is behind: {COMMAND}"


def test_it_holds_every_command_of_every_group() -> None:
    paths = [each.path for each in PAGES]
    assert len(set(paths)) == len(paths) > 30
    for group in ("runs", "golden", "eval", "train"):
        assert sum(each.startswith(f"art-e {group} ") for each in paths) >= 3


def test_it_does_not_depend_on_the_terminal() -> None:
    narrow = {**os.environ, "COLUMNS": "40", "LINES": "10", "TERM": "dumb"}
    printed = subprocess.run(
        [sys.executable, "-c", "import tests.commands_page as p; print(p.commands_page(), end='')"],
        cwd=Path(__file__).parent.parent,
        env=narrow,
        capture_output=True,
        text=True,
        check=True,
    )
    assert printed.stdout == commands_page()


@pytest.mark.parametrize("page", PAGES, ids=lambda each: each.path)
def test_examples_parse(page: HelpPage) -> None:
    examples = [line[4:] for line in page.text.partition("Example:\n")[2].splitlines()]
    lines = list(command_lines("\n".join(examples)))
    if not lines:
        # A group without an example says what is in it.
        assert "Commands:" in page.text
    for line in lines:
        if line.words[0] == "art-e":
            parse_art_e(line.words[1:])
