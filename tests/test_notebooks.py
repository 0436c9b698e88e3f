"""The notebooks as files: whole, in order, and with nothing of a machine in them.

That they run, and that the kept outputs are what comes out, `make notebooks` checks.
"""

import copy
import re
import shlex
from pathlib import Path

import nbformat
import pytest
import typer
from nbformat.v4 import new_code_cell, new_notebook, new_output

from art_e.cli.main import app
from notebooks.execute import KEPT, Notebook, differences, main, notebooks, read, texts

NAMES = ("01_inbox", "02_golden_set", "03_baselines", "04_training", "05_results")
BIGGEST_PICTURE, BIGGEST_NOTEBOOK = 60_000, 400_000
# A folder of a home or of temporary files, wherever it is.
_PATH = re.compile(r"(?<![\w.])/(?:home|root|Users|tmp|var|private|usr|opt|work|mnt)/")
_COMMAND = re.compile(r"^ {4}art-e (.*)$", re.MULTILINE)
# What `art_e("...")` and `art_e_json("...")` run, whose strings may be put together of several.
_CALL = re.compile(r"\bart_e(?:_json)?\(\s*((?:f?\"[^\"]*\"\s*)+)\)")


@pytest.fixture(params=notebooks(), ids=lambda path: str(path.stem))
def path(request: pytest.FixtureRequest) -> Path:
    chosen: Path = request.param
    return chosen


def test_there_are_five_in_order() -> None:
    assert tuple(each.stem for each in notebooks()) == NAMES


def test_it_is_a_valid_notebook_with_ids(path: Path) -> None:
    notebook = read(path)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) >= (4, 5)
    assert notebook.metadata.kernelspec.name == "python3"
    ids = [each["id"] for each in notebook.cells]
    assert len(set(ids)) == len(ids)
    assert notebook.cells[0].source.startswith(f"# {int(path.name[:2])}. ")


def test_it_has_outputs_where_they_are_kept_and_none_elsewhere(path: Path) -> None:
    cells = [each for each in read(path).cells if each.cell_type == "code"]
    outputs = [output for each in cells for output in each.outputs]
    assert bool(outputs) is (path.name[:2] in KEPT)
    assert not [each for each in outputs if each.output_type == "error"]
    assert not [each for each in outputs if each.get("name") == "stderr"]
    sizes = [
        len(each.data["image/png"]) * 3 // 4
        for each in outputs
        if "image/png" in each.get("data", {})
    ]
    assert all(size < BIGGEST_PICTURE for size in sizes), sizes
    assert path.stat().st_size < BIGGEST_NOTEBOOK
    if path.name[:2] in KEPT:
        assert [each.execution_count for each in cells] == list(range(1, len(cells) + 1))


def test_nothing_of_a_machine_is_in_it(path: Path) -> None:
    notebook = read(path)
    said = [each.source for each in notebook.cells]
    said += [text for each in notebook.cells for text in texts(each)]
    assert not [found for text in said for found in _PATH.findall(text)]
    assert not [text for text in said if "\x1b" in text]


def test_its_commands_are_commands(path: Path) -> None:
    group = typer.main.get_command(app)
    for line in commands(read(path)):
        words = shlex.split(line.replace("$PWD", "."))
        # The longest way down the groups, then options and arguments by click's own parser.
        command, context = group, typer.Context(group, info_name="art-e")
        while words and hasattr(command, "get_command"):
            chosen = command.get_command(context, words[0])
            assert chosen is not None, line
            command, context = chosen, typer.Context(chosen, info_name=words[0], parent=context)
            words = words[1:]
        command.parse_args(context, words)


def commands(notebook: Notebook) -> list[str]:
    """The `art-e` commands of its text and of its code, without "art-e"."""
    found = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            found += _COMMAND.findall(cell.source)
        else:
            told = ["".join(re.findall(r'"([^"]*)"', each)) for each in _CALL.findall(cell.source)]
            found += [each for each in told if "{" not in each]
    return found


def test_commands_are_found_in_all_of_them() -> None:
    assert all(commands(read(each)) for each in notebooks())


def _notebook(text: str, picture: str = "AAAA") -> Notebook:
    outputs = [
        new_output("stream", name="stdout", text=text),
        new_output("display_data", data={"image/png": picture, "text/plain": "<Image>"}),
    ]
    return new_notebook(cells=[new_code_cell("1", id="one", outputs=outputs)])


def test_other_text_is_a_difference_and_other_pixels_are_none() -> None:
    kept = _notebook("a\nb\n")
    assert list(differences(kept, copy.deepcopy(kept))) == []
    assert list(differences(kept, _notebook("a\nb\n", "BBBB"))) == []
    [line] = differences(kept, _notebook("a\nc\n"))
    assert line == "cell 1 (one): kept 'b', now 'c'"


def test_a_picture_that_is_gone_is_a_difference() -> None:
    kept, made = _notebook("a\n"), _notebook("a\n")
    made.cells[0].outputs.pop()
    [line] = differences(kept, made)
    assert line == "cell 1 (one): kept 'image/png', now '(nothing)'"


def test_a_cell_that_fails_is_told_with_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = new_notebook(
        cells=[new_code_cell("print('so far')\nraise ValueError('it is broken')", id="bad")],
        metadata={"kernelspec": {"display_name": "Python 3", "name": "python3"}},
    )
    nbformat.write(notebook, tmp_path / "01_bad.ipynb")
    monkeypatch.setattr("notebooks.execute.FOLDER", tmp_path)
    monkeypatch.setattr("notebooks.execute.OUT", tmp_path / "out")
    for name in ("ART_E_HOME", "IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, "")
    assert main([]) == 1
    said = capsys.readouterr().err
    assert "01_bad.ipynb" in said
    assert "ValueError: it is broken" in said
    assert "\x1b" not in said
