"""What people see of `metrics.json`: which rows the table of a model has."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from art_e.question import Question
from evals.cli import print_tables
from evals.metrics import run_metrics
from evals.scored import Scored
from tests.evals.runs import episode, question


def labelled(kind: str | None, difficulty: str | None) -> Question:
    row = question(0 if kind is None else 1).to_row()
    return Question.from_row({**row, "kind": kind, "difficulty": difficulty, "answerable": True})


def rows_printed(asked: Sequence[Question], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The first column of the table on these questions."""
    scored = [Scored(each, episode(each, "right", model="m")) for each in asked]
    metrics = run_metrics(scored, ["m"], ["judge"])
    metrics["models"]["m"] |= {"concurrency": 1, "not_asked": 0, "stopped": None}
    print_tables(metrics, Path("run"))
    printed = capsys.readouterr().out.splitlines()
    return [line.split()[1] for line in printed if line.startswith("│")]


@pytest.mark.parametrize(
    ("kind", "difficulty", "labels"),
    [
        (None, None, ["all"]),
        ("lookup", None, ["lookup", "all"]),
        (None, "hard", ["hard", "all"]),
        ("lookup", "hard", ["lookup", "hard", "all"]),
    ],
)
def test_there_are_rows_for_what_is_labelled(
    kind: str | None,
    difficulty: str | None,
    labels: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert rows_printed([labelled(kind, difficulty)], capsys) == labels


def test_what_has_no_kind_among_what_has_one_has_its_row(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = [labelled("lookup", None), labelled(None, None)]
    assert rows_printed(asked, capsys) == ["lookup", "unlabelled", "all"]
