"""README, CONTRIBUTING and docs/ hold what is true: commands that parse, and run, as written.

Every command of a code block is parsed by the real parser of what it calls, or its program
stands in `NOT_PARSED` with the reason. Blocks marked `run` (see `tests.documented`) are run as
they are written, page by page from the top, each page in a folder of its own.
"""

import importlib.util
import io
import os
import re
import runpy
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from unittest import mock

import pytest

from data_pipeline.synthetic.world import WorldConfig, messages
from evals.report.tables import PUBLISHED, accuracy
from tests.builders import real_data
from tests.documented import (
    OFFLINE,
    PAGES,
    REAL,
    ROOT,
    Block,
    CommandLine,
    blocks,
    command_lines,
    parse_art_e,
)
from tests.formats import write_maildir, write_mbox
from training.planning import gpu_of, plan
from training.recipe import load_recipe, recipe_names
from training.reward import OUTCOMES, RewardWeights

SHELL = ("sh", "console")
# What else stands in code blocks: output, settings, queries, and what isn't typed.
OTHERS = ("text", "json", "toml", "sql", "diff", "python", "mermaid", "yaml")

# Programs whose commands are not parsed here, and why.
NOT_PARSED = {
    "pip": "not ours; what it installs is named in pyproject.toml, which is checked",
    "ollama": "not ours, and not installed where the tests run",
    "claude": "not ours, and not installed where the tests run",
    "sky": "not ours, and not installed where the tests run; the task file: test_launch.py",
    "aws": "not ours, and not installed where the tests run",
    "ruff": "not ours; as `make lint` calls it",
    "mypy": "not ours; as `make lint` calls it",
}
OUR_SCRIPTS = "training/launch/"

BLOCKS = [each for page in PAGES for each in blocks(page)]
SHELL_BLOCKS = [each for each in BLOCKS if each.language in SHELL]
COMMANDS = [(each, line) for each in SHELL_BLOCKS for line in command_lines(each.script)]


def named(block: Block, line: CommandLine) -> str:
    return f"{block.where} {' '.join(line.words)[:60]}"


@pytest.mark.parametrize("block", BLOCKS, ids=lambda each: each.where)
def test_blocks_say_what_they_are(block: Block) -> None:
    assert block.language in SHELL + OTHERS
    assert block.mark in ("", OFFLINE, REAL)
    assert not block.mark or block.language in SHELL
    # A command that no test sees would stand in a block of another kind.
    if block.language == "text":
        assert not re.search(r"^(\$ |art-e (?!report)\w+ -|make \w+$)", block.text, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda each: each.name)
def test_no_code_stands_outside_of_fences(page: Path) -> None:
    fenced = {
        number
        for each in blocks(page)
        for number in range(each.line, each.line + len(each.text.splitlines()) + 2)
    }
    lines = enumerate(page.read_text("utf-8").splitlines(), 1)
    assert [n for n, line in lines if line.startswith("    ") and n not in fenced] == []


@pytest.mark.parametrize(("block", "line"), COMMANDS, ids=[named(*each) for each in COMMANDS])
def test_commands_parse(block: Block, line: CommandLine) -> None:
    program, arguments = line.words[0], line.words[1:]
    if program.startswith(OUR_SCRIPTS):
        assert os.access(ROOT / program, os.X_OK)
        return
    name = program.rpartition("/")[2]
    if name in ("accelerate", "torchrun"):
        # Their own options: test_launch.py; what they start is ours.
        check_module(arguments[arguments.index("-m") + 1 :])
    elif name == "python":
        assert arguments[0] == "-m"
        check_module(arguments[1:])
    elif name in CHECKS:
        CHECKS[name](arguments)
    else:
        assert name in NOT_PARSED, f"{block.where}: how is {program!r} to be checked?"


def check_art_e(arguments: list[str]) -> None:
    parameters = parse_art_e(arguments)
    recipe = parameters.get("recipe")
    if recipe in recipe_names():
        load_recipe(recipe, parameters.get("changes") or ())


def check_module(arguments: list[str]) -> None:
    """`python -m MODULE ...`: of this project, and its own parser takes the arguments."""
    module, rest = arguments[0], arguments[1:]
    if module == "art_e":
        check_art_e(rest)
        return
    assert importlib.util.find_spec(module) is not None, module
    assert module.partition(".")[0] in ("tests", "training", "evals", "data_pipeline")
    if not rest:
        return
    # With a `--help` at its end argparse has checked what stands before it, and nothing is run.
    printed = io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["", *rest, "--help"]),
        redirect_stdout(printed),
        warnings.catch_warnings(action="ignore"),  # that it is imported already
        pytest.raises(SystemExit) as ended,
    ):
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    assert ended.value.code == 0, printed.getvalue()
    known = set(re.findall(r"--[\w-]+", printed.getvalue()))
    assert {each for each in rest if each.startswith("--")} <= known


def check_make(arguments: list[str]) -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in arguments:
        assert re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE), target


def check_pytest(arguments: list[str]) -> None:
    assert all((ROOT / each).exists() for each in arguments if not each.startswith("-"))


CHECKS: Mapping[str, Callable[[list[str]], None]] = {
    "art-e": check_art_e,
    "make": check_make,
    "pytest": check_pytest,
}


@pytest.mark.parametrize("arguments", ["ask", "ask x --no-such", "sarch x", "search --limit 0"])
def test_a_command_that_is_none_is_found(arguments: str) -> None:
    from typer.exceptions import TyperException

    with pytest.raises(TyperException):
        check_art_e(arguments.split())


def test_extras_that_are_installed_exist() -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    asked = {
        found
        for _, line in COMMANDS
        if line.words[0].endswith("pip")
        for found in re.findall(r"\.\[(\w+)\]", " ".join(line.words))
    }
    assert asked and all(re.search(rf"^{each} = \[", project, re.MULTILINE) for each in asked)


def pages_with(mark: str) -> list[Path]:
    return [page for page in PAGES if any(each.mark == mark for each in blocks(page))]


class Desk:
    """A folder of a reader's own, with mail at home, in which a page's blocks are run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        home = folder / "home"
        mails = [each.data for each in messages(WorldConfig(size=1000, seed=5))]
        takeout = home / "Takeout" / "Mail"
        takeout.mkdir(parents=True)
        write_mbox(takeout, mails)
        write_maildir(home, mails).rename(home / "Maildir")
        self.environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "HOME": str(home),
            "ART_E_HOME": str(folder / "art-e"),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONUTF8": "1",
        }

    def run(self, block: Block) -> str:
        """What the block prints on standard output."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.script],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{block.where}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def shown(block: Block) -> list[str]:
    """What a `console` block says that its commands print."""
    typed = set(block.script.splitlines())
    return [
        line for line in block.text.splitlines() if line.removeprefix("$ ") not in typed and line
    ]


def untimed(line: str) -> str:
    return re.sub(r"\b[\d.]+ s\b", "N s", line)


def run_page(page: Path, mark: str, folder: Path) -> None:
    desk = Desk(folder)
    for name in ("enron-maildir.tar.xz", "questions.jsonl"):
        if mark == REAL:
            (folder / name).symlink_to(real_data() / name)
    for block in blocks(page):
        if block.mark == mark:
            printed = [untimed(each) for each in desk.run(block).splitlines()]
            for line in shown(block):
                assert untimed(line) in printed, f"{block.where}: {line}\n{printed}"


@pytest.mark.parametrize("page", pages_with(OFFLINE), ids=lambda each: each.name)
def test_blocks_run_as_they_are_written(page: Path, tmp_path: Path) -> None:
    run_page(page, OFFLINE, tmp_path)


@pytest.mark.parametrize("page", pages_with(REAL), ids=lambda each: each.name)
def test_blocks_about_the_archive_run_as_they_are_written(page: Path, tmp_path: Path) -> None:
    real_data()  # skips where there is none
    run_page(page, REAL, tmp_path)


def rows(page: Path, heading: str) -> Iterator[list[str]]:
    """The rows of the first table below a heading, as cells without their marks."""
    below = f"\n{page.read_text('utf-8')}".partition(f"\n{heading}\n")[2].splitlines()
    start = next(n for n, line in enumerate(below) if line.startswith("|"))
    for line in below[start + 2 :]:
        if not line.startswith("|"):
            return
        yield [cell.strip().strip("`") for cell in line.strip("|").split("|")]


README = ROOT / "README.md"


def test_the_rewards_table_is_the_codes() -> None:
    table = {row[0]: tuple(map(float, row[2:])) for row in rows(README, "## The reward")}
    fields = RewardWeights.model_fields.items()
    weights = [name for name, field in fields if field.annotation is float]
    assert list(table) == weights and tuple(weights[: len(OUTCOMES)]) == OUTCOMES
    schemes = RewardWeights(), load_recipe("nano").reward
    assert table == {name: tuple(getattr(each, name) for each in schemes) for name in weights}


def test_published_figures_are_those_of_the_report() -> None:
    published = README.read_text("utf-8").partition("**Published**")[2]
    lines = [line for line in published.splitlines() if line.startswith("|")][2:]
    for figure, line in zip(PUBLISHED, lines[: len(PUBLISHED)], strict=True):
        estimate = accuracy(figure)
        assert estimate["low"] is not None and estimate["high"] is not None
        share = f"{100 * figure.accuracy:.0f} %"
        interval = f"[{100 * estimate['low']:.1f}, {100 * estimate['high']:.1f}]"
        assert line.startswith(f"| {figure.model} | {share} {interval} |")
        for value in (figure.seconds, figure.cost_per_1000_usd):
            assert value is None or f"{value}" in line


# What the tables of recipes are calculated for: card, and GPUs.
PLANNED = {
    "mini": ("h100-80gb", 1),
    "talk": ("h100-80gb", 1),
    "talk-24gb": ("rtx4090-24gb", 1),
    "talk-multi": ("h100-80gb", 4),
}


@pytest.mark.parametrize(
    ("page", "heading"),
    [("README.md", "## Train your own"), ("docs/scale.md", "# Training at full scale")],
)
def test_what_is_calculated_is_what_is_planned(page: str, heading: str) -> None:
    table = {row[0]: row[-1] for row in rows(ROOT / page, heading)}
    assert list(table) == list(PLANNED)
    assert set(table) == set(recipe_names()) - {"nano"}
    for name, said in table.items():
        card, gpus = PLANNED[name]
        made = plan(load_recipe(name), gpu_of(card), count=gpus)
        if name == "mini":
            assert said == "minutes, below $1" and made.hours < 1 and made.gpu_usd < 1
        else:
            figures = (made.hours, made.gpu_usd, sum(each.usd or 0 for each in made.judges))
            numbers = [float(each) for each in re.findall(r"\d+", said)]
            assert numbers == [round(each) for each in figures], name


def test_the_layout_is_the_trees() -> None:
    for row in rows(README, "## The code"):
        paths = row[0].replace("`", "").split(", ")
        folder = Path(paths[0]).parent
        assert (ROOT / paths[0]).exists(), paths[0]
        assert all((ROOT / folder / each).exists() or (ROOT / each).exists() for each in paths), row


@pytest.mark.parametrize("page", PAGES, ids=lambda each: each.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text("utf-8")):
        name, _, anchor = target.partition("#")
        file = (page.parent / name) if name else page
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file), target


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as code-hosting sites make them."""
    fenced = {
        number
        for each in blocks(page)
        for number in range(each.line, each.line + len(each.text.splitlines()) + 2)
    }
    found = set()
    for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
        if line.startswith("#") and number not in fenced:
            words = re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower())
            found.add(words.replace(" ", "-"))
    return found


def test_what_is_not_parsed_is_written_somewhere() -> None:
    written = {line.words[0].rpartition("/")[2] for _, line in COMMANDS}
    assert set(NOT_PARSED) <= written
