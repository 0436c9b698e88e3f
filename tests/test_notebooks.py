"""The notebooks as files: valid, in order, and free of paths of a machine.

`make notebooks` checks that they run, and that their stored outputs are right."""

import itertools
import re
import shlex
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from notebooks.execute import KEPT, Notebook, differences, notebooks, read, texts
from tests.documented import parse_art_e

NAMES = ("01_inbox", "02_golden_set", "03_baselines", "04_training", "05_results")
MOST_CELLS, BIGGEST_PICTURE, BIGGEST_NOTEBOOK = 15, 60_000, 400_000
# An absolute path of some machine.
_PATH = re.compile(r"(?<![\w.])/(?:home|root|Users|tmp|var|private|usr|opt|work|mnt)/")
# `art_e("...")` and `art_e_json("...")`, whose string may have several parts.
_CALL = re.compile(r"\bart_e(?:_json)?\(\s*((?:f?\"[^\"]*\"\s*)+)\)")


each_notebook = pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)


@each_notebook
def test_notebooks_are_valid_short_and_clean(path: Path) -> None:
    assert tuple(each.stem for each in notebooks()) == NAMES
    notebook = read(path)
    nbformat.validate(notebook)
    ids = {each["id"] for each in notebook.cells}
    assert len(ids) == len(notebook.cells) < MOST_CELLS
    assert notebook.metadata.kernelspec.name == "python3"
    assert notebook.cells[0].source.startswith(f"# {int(path.name[:2])}. ")
    cells = [each for each in notebook.cells if each.cell_type == "code"]
    outputs = [output for each in cells for output in each.outputs]
    stored = path.name[:2] in KEPT
    assert bool(outputs) is stored
    assert not [o for o in outputs if o.output_type == "error" or o.get("name") == "stderr"]
    pictures = [each.data["image/png"] for each in outputs if "image/png" in each.get("data", {})]
    assert all(len(each) * 3 // 4 < BIGGEST_PICTURE for each in pictures)
    assert path.stat().st_size < BIGGEST_NOTEBOOK
    assert not stored or [each.execution_count for each in cells] == list(range(1, len(cells) + 1))
    for text in itertools.chain(*([each.source, *texts(each)] for each in notebook.cells)):
        assert not _PATH.findall(text) and "\x1b" not in text


@each_notebook
def test_commands_in_notebooks_parse(path: Path) -> None:
    commands = []
    for cell in read(path).cells:
        if cell.cell_type == "markdown":
            commands += re.findall(r"^ {4}art-e (.*)$", cell.source, re.MULTILINE)
        else:
            calls = ("".join(re.findall(r'"([^"]*)"', each)) for each in _CALL.findall(cell.source))
            commands += [each for each in calls if "{" not in each]
    assert commands
    for command in commands:
        parse_art_e(shlex.split(command.replace("$PWD", ".")))


def _notebook(text: str, *pictures: str) -> Notebook:
    outputs = [new_output("stream", name="stdout", text=text)]
    outputs += [new_output("display_data", data={"image/png": each}) for each in pictures]
    return new_notebook(cells=[new_code_cell("1", id="one", outputs=outputs)])


def test_text_may_not_differ_but_pixels_may() -> None:
    old = _notebook("a\nb\n", "AAAA")
    assert list(differences(old, _notebook("a\nb\n", "BBBB"))) == []
    [changed] = differences(old, _notebook("a\nc\n", "AAAA"))
    assert changed == "cell 1 (one): kept 'b', now 'c'"
    [missing] = differences(old, _notebook("a\nb\n"))
    assert missing == "cell 1 (one): kept 'image/png', now '(nothing)'"
