"""`golden stats`: a set's figures in tables or as JSON, and plots in its folder."""

from pathlib import Path

import pytest

from art_e.question import Question
from data_pipeline.golden.golden_set import Check, GoldenSet, Rejected
from tests.command_line import HOSTILE, Run, assert_safe, json_of, the_error

FAILED = Check("duplicate", "filter", False, f"as {HOSTILE} q-1", "rule")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two rows kept of three; what can be hostile is."""
    rows = [
        Question(f"q-{n} {HOSTILE}", f"Why {HOSTILE}?", f"ann{HOSTILE}@test.example", None,
                 "Because [/bold] of it", ("<1>",), 0.8, "lookup", "easy", True, "test")
        for n in range(3)
    ]  # fmt: skip
    golden = GoldenSet(rows)
    golden.record("import", 3, {})
    golden.rejected = [Rejected.of(golden.questions.pop(), FAILED)]
    golden.record("filter", 3, {"unchecked": {"x": {f"no {HOSTILE}": 2}}})
    golden.save(tmp_path / "set")
    return tmp_path / "set"


def rows_of(printed: str) -> list[list[str]]:
    """The cells of the tables' rows."""
    return [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in printed.splitlines()
        if line.startswith("│")
    ]


def test_tables_tell_what_is_there_and_what_was_dropped(art_e: Run, folder: Path) -> None:
    result = art_e("golden", "stats", folder)
    assert result.exit_code == 0, result.output
    rows = rows_of(result.stdout)
    assert ["kind", "lookup", "2", "2", "100.0%"] in rows
    assert ["filter", "3", "2", "1", "0", "0"] in rows
    assert any(row[:3] == ["filter", "duplicate", "1"] for row in rows)
    assert "the sums of all steps balance" in result.stdout
    assert "art-e golden split" in result.stdout
    assert "4 plots" in result.stderr
    assert len(list((folder / "plots").glob("*.png"))) == 4
    # A set with plots in it is the same set.
    assert art_e("golden", "stats", folder).stdout == result.stdout


def test_hostile_text_is_only_text(art_e: Run, folder: Path) -> None:
    result = art_e("golden", "stats", folder)
    assert_safe(result.stdout)
    assert_safe(result.stderr)
    assert "Because" not in result.stdout
    assert "[bold]red[/bold]" in result.stdout


def test_json_is_data_alone(art_e: Run, folder: Path) -> None:
    told = json_of(art_e("golden", "stats", folder, "--json"))
    assert (told["set"], told["rows"], told["rejected"]) == (str(folder), 2, 1)
    assert told["drops"][0]["examples"][0]["reason"] == FAILED.reason
    assert told["unbalanced"] == []


def test_no_set_is_an_error_of_one_line(art_e: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    for nothing in ("none", "none/a/b", "file", "file/below"):
        assert "no golden set" in the_error(art_e("golden", "stats", tmp_path / nothing))
    assert not (tmp_path / "none").exists()


def test_a_set_that_can_not_be_written_has_figures_and_no_plots(art_e: Run, folder: Path) -> None:
    # As root may write anywhere, what is in the way is a file.
    (folder / "plots").write_text("", "utf-8")
    result = art_e("golden", "stats", folder)
    assert result.exit_code == 0, result.output
    assert "the sums of all steps balance" in result.stdout
    assert f"no plots: can't write to {folder / 'plots'}" in result.stderr
