"""README, CONTRIBUTING and docs/ are right: commands parse and run as written; pictures, too.

The real parsers check every command of a code block, or `NOT_PARSED` says why not. Blocks marked
`run` (see `tests.documented`) are run page by page from the top, each page in a new folder."""

import functools
import importlib.util
import itertools
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from art_e import __version__
from bench import pictures
from bench.commands_page import COMMAND, PAGE, HelpPage, commands_page, help_pages
from data_pipeline.synthetic.world import WorldConfig, messages
from evals.report.tables import PUBLISHED, accuracy
from tests import documented
from tests.builders import real_data
from tests.documented import OFFLINE, PAGES, REAL, ROOT, blocks, command_lines, parse_art_e, tokens
from tests.formats import packed, write_maildir, write_mbox
from training.cli import rough
from training.planning import plan
from training.recipe import load_recipe, toml_names
from training.reward import OUTCOMES, RewardWeights

README = ROOT / "README.md"
SHELL = ("sh", "console")
# Other code blocks: output, settings, queries, code.
OTHERS = ("text", "json", "toml", "sql", "diff", "python", "mermaid", "yaml", "ini", "xml")
# Not our programs; most are not installed where the tests run. tests/evals runs the last two.
NOT_PARSED = set("cp hf pip pipx uv docker ollama claude sky aws ruff mypy inspect vf-eval".split())

PRINT_NO_DATA = ("mcp", "serve", "open", "web", "eval label")

BLOCKS = [each for page in PAGES for each in blocks(page)]
COMMANDS = [
    pytest.param(block, line, id=f"{block.where} {' '.join(line)[:60]}")
    for block in BLOCKS
    if block.language in SHELL
    for line in command_lines(block.script)
]


@pytest.mark.parametrize("page", PAGES, ids=lambda each: each.name)
def test_commands_are_in_shell_blocks(page: Path) -> None:
    assert [each.content for each in tokens(page) if each.type == "code_block"] == []
    for block in blocks(page):
        assert block.language in SHELL + OTHERS
        assert block.mark in ("", OFFLINE, REAL)
        assert not block.mark or block.language in (*SHELL, "python")
        commands = r"^(\$ |art-e (?!report)\w+ -|make \w+$)"
        assert block.language != "text" or not re.search(commands, block.text, re.MULTILINE)


@pytest.mark.parametrize(("block", "line"), COMMANDS)
def test_commands_parse(block: documented.Block, line: list[str]) -> None:
    program, *arguments = line
    name = program.rpartition("/")[2]
    if program.startswith("training/launch/"):
        assert os.access(ROOT / program, os.X_OK)
    elif name in ("accelerate", "torchrun", "python"):
        # test_launch.py checks the launchers' own options.
        module, *rest = arguments[arguments.index("-m") + 1 :]
        if module == "art_e":
            check_art_e(rest)
        assert importlib.util.find_spec(module) is not None, module
        assert (ROOT / module.partition(".")[0]).is_dir()
    elif name == "art-e":
        check_art_e(arguments)
    elif name == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
        assert set(arguments) <= set(targets)
    elif name == "pytest":
        assert all((ROOT / each).exists() for each in arguments if "/" in each)
    else:
        assert name in NOT_PARSED, f"{block.where}: add a check of {program!r}"


def check_art_e(arguments: list[str]) -> None:
    parameters = parse_art_e(arguments)
    if (recipe := parameters.get("recipe")) in toml_names("recipe"):
        load_recipe(recipe, parameters.get("changes") or ())


@pytest.mark.parametrize("page", list(help_pages()), ids=lambda each: each.path)
def test_help_pages_have_valid_examples_and_json(page: HelpPage) -> None:
    example = "\n".join(line[4:] for line in page.text.partition("Example:\n")[2].splitlines())
    is_group = "Commands:" in page.text
    assert page.path in example or is_group
    for line in command_lines(example):
        if line[0] == "art-e":
            parse_art_e(line[1:])
    # The others speak a protocol, or talk to a person.
    prints_no_data = page.path.partition(" ")[2] in PRINT_NO_DATA
    assert ("--json" in page.text) is not (is_group or prints_no_data)


def test_the_page_of_commands_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert PAGE.read_text("utf-8") == commands_page(), f"docs/commands.md is out of date: {COMMAND}"


@functools.cache
def reader_mails() -> list[bytes]:
    world = messages(WorldConfig(size=1000, seed=5))
    return [b"Delivered-To: you@example.com\n" + each.data for each in world]


def reader_environment(folder: Path) -> dict[str, str]:
    """Return a reader's environment, with a home in `folder` that holds mail."""
    home, mails = folder / "home", reader_mails()
    home.mkdir()
    packed(write_mbox, "zip")(home, mails).rename(home / "Downloads")
    write_maildir(home, mails).rename(home / "Maildir")
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT),
        "HOME": str(home), "ART_E_HOME": str(folder / "art-e"), "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1",
    }  # fmt: skip


MARKED = [
    (page, mark)
    for mark in (OFFLINE, REAL)
    for page in PAGES
    if any(each.mark == mark for each in blocks(page))
]


@pytest.mark.parametrize(("page", "mark"), MARKED, ids=lambda each: Path(each).name)
def test_marked_blocks_run_as_written(page: Path, mark: str, tmp_path: Path) -> None:
    for name in ("enron-maildir.tar.xz", "questions.jsonl") if mark == REAL else ():
        (tmp_path / name).symlink_to(real_data() / name)
    environment = reader_environment(tmp_path)
    for block in (each for each in blocks(page) if each.mark == mark):
        start = [sys.executable] if block.language == "python" else ["bash", "-euo", "pipefail"]
        ended = subprocess.run(
            [*start, "-c", block.script], cwd=tmp_path, env=environment,
            stdin=subprocess.DEVNULL, check=False, capture_output=True, text=True,
        )  # fmt: skip
        assert ended.returncode == 0, f"{block.where}\n{ended.stdout}\n{ended.stderr}"
        printed = untimed(ended.stdout).splitlines()
        typed = set(block.script.splitlines())
        for line in untimed(block.text).splitlines() if block.language == "console" else ():
            if line and line.removeprefix("$ ") not in typed:
                assert line in printed, f"{block.where}: {line}\n{printed}"


def untimed(text: str) -> str:
    return re.sub(r"\b[\d.]+ s\b", "N s", text)


def rows(page: Path, heading: str) -> list[list[str]]:
    """Return the rows of the first table below a heading, as cells without backticks."""
    below = f"\n{page.read_text('utf-8')}".partition(f"\n{heading}\n")[2]
    [table] = re.findall(r"(?:^\|.*\n)+", below, re.MULTILINE)[:1]
    lines = [line.strip("|").split("|") for line in table.splitlines()[2:]]
    return [[cell.strip().strip("`") for cell in line] for line in lines]


def test_readme_and_docs_are_short() -> None:
    assert len(README.read_text("utf-8").split()) <= 900
    pages = {*(ROOT / "docs").rglob("*.md")} - {*documented.JOURNAL}
    assert sum(len(page.read_text("utf-8").split()) for page in pages) <= 19_000


def test_the_table_of_rewards_agrees_with_the_code() -> None:
    page = ROOT / "docs" / "training.md"
    table = {row[0]: tuple(map(float, row[2:])) for row in rows(page, "## The reward")}
    weights = [name for name in RewardWeights.__annotations__ if name != "model_config"]
    assert list(table) == weights and tuple(weights[: len(OUTCOMES)]) == OUTCOMES
    schemes = RewardWeights(), load_recipe("nano").reward
    assert table == {name: tuple(getattr(each, name) for each in schemes) for name in weights}


def test_published_figures_equal_the_reports() -> None:
    page = (ROOT / "docs" / "reproduce.md").read_text("utf-8")
    published = page.partition("**Published**")[2]
    lines = [line for line in published.splitlines() if line.startswith("|")][2:]
    for figure, line in zip(PUBLISHED, lines[: len(PUBLISHED)], strict=True):
        estimate = accuracy(figure)
        assert estimate["low"] is not None and estimate["high"] is not None
        share = f"{100 * figure.accuracy:.0f} %"
        interval = f"[{100 * estimate['low']:.1f}, {100 * estimate['high']:.1f}]"
        assert line.startswith(f"| {figure.model} | {share} {interval} |")
        for value in (figure.seconds, figure.cost_per_1000_usd):
            assert value is None or f"{value}" in line


# The GPUs that the tables of recipes are calculated for.
H100, RTX = ("h100-80gb", 1), ("rtx4090-24gb", 1)
PLANNED = {"mini": H100, "talk": H100, "talk-short": H100, "talk-probe": H100, "talk-24gb": RTX}
PLANNED |= {"talk-multi": ("h100-80gb", 4), "qwen3-4b": RTX, "qwen3-14b": H100}


def test_the_table_of_recipes_agrees_with_the_plan() -> None:
    page = ROOT / "docs" / "reproduce.md"
    table = {row[0]: row[-1] for row in rows(page, "## Training at full scale")}
    assert list(table) == list(PLANNED)
    assert set(table) == set(toml_names("recipe")) - {"nano"}
    for name, text in table.items():
        costs = plan(load_recipe(name), *PLANNED[name])
        figures = costs.hours["total"], costs.gpu_usd, sum(each.usd or 0 for each in costs.judges)
        if name == "mini":
            assert text == "minutes, below $1" and max(figures) < 1
        else:
            rest, batch = re.subn(f"{rough(costs.batch_seconds)} s a batch, ", "", text)
            assert re.findall(r"[\d.,]*\d", rest) == [rough(each) for each in figures], name
            assert batch == name.endswith(("talk", "multi"))


def test_the_skill_and_the_registry_entry_are_valid() -> None:
    skill = ROOT / "docs" / "skill" / "SKILL.md"
    lines = skill.read_text("utf-8").splitlines()
    front = dict(each.split(": ", 1) for each in lines[1 : lines.index("---", 1)])
    assert front["name"] == "art-e" and 50 < len(front["description"]) < 1_024
    assert len(lines) <= 60 and {each.mark for each in blocks(skill)} == {OFFLINE}
    entry = json.loads((ROOT / "server.json").read_text("utf-8"))
    [package] = entry["packages"]
    assert entry["version"] == package["version"] == __version__
    assert package["identifier"] == "art-e" and len(entry["description"]) <= 100
    assert f"<!-- mcp-name: {entry['name']} -->" in README.read_text("utf-8")


@pytest.mark.parametrize("page", [*PAGES, *documented.JOURNAL], ids=lambda each: each.name)
def test_links_have_targets(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text("utf-8")):
        name, _, anchor = target.partition("#")
        file = (page.parent / name) if name else page
        assert file.exists(), target
        if anchor:
            pairs = itertools.pairwise(tokens(file))
            headings = [text.content.lower() for each, text in pairs if each.type == "heading_open"]
            anchors = [re.sub(r"[^\w\- ]", "", each).replace(" ", "-") for each in headings]
            assert anchor in anchors, target


RECIPES = (ROOT / "CONTRIBUTING.md").read_text("utf-8").split("\n## ")[-3:]
PLACE = re.compile(r"^\| `([\w/]+\.(?:py|md))(?::(\w+))?` \|", re.MULTILINE)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda each: each.partition("\n")[0])
def test_recipes_name_existing_code_tests_and_pages(recipe: str) -> None:
    places = PLACE.findall(recipe)
    for path, name in places:
        text = (ROOT / path).read_text("utf-8")
        assert re.search(rf"^(class|def) {name}\b|^{name}\b", text, re.MULTILINE), (path, name)
    assert {path.partition("/")[0] for path, name in places if not name} & {"docs", "README.md"}
    assert "`tests/" in recipe and any(name for _, name in places)


def test_pictures_of_the_system_are_up_to_date(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "docs" / "pictures.py", tmp_path], check=True)
    for picture in tmp_path.iterdir():
        assert picture.read_text("utf-8") == (ROOT / "docs" / picture.name).read_text("utf-8")


def words(svg: str) -> str:
    """Return the text of a picture, with plain spaces and without seconds."""
    text = " ".join("".join(each.itertext()) for each in ET.fromstring(svg).iter() if each.text)
    return untimed(" ".join(text.replace("\xa0", " ").split()))


def test_the_terminal_picture_shows_current_output() -> None:
    svg = (pictures.DOCS / "terminal.svg").read_text("utf-8")
    assert words(svg) == words(pictures.terminal_picture()), "run python -m bench.pictures"
    for part in (f'$ art-e ask "{pictures.QUESTION}"', " search ", " read ", " answer "):
        assert part in words(svg)
    assert "3 turns, N s, no cost, offline" in words(svg)
    assert len(svg) < 300_000 and not re.search("@font-face|@import|href|url\\((?!#)", svg)
