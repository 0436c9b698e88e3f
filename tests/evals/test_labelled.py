"""The labelled set, and how far a judge agrees with labels: figures worked out by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from art_e.errors import UserError
from art_e.question import Question
from evals.judges.labels import Case, Rated, agreement, load_pairs
from evals.verdict import Verdict


def rated(label: bool, said: bool | None, number: int, category: str = "dates") -> Rated:
    question = Question(f"q{number}", "When?", "", answer="May 3")
    case = Case(question, "May 3", label, category, adversarial=category == "appeals")
    return Rated(case, Verdict(said, None, "a judge", "because"))


def table(both: int, missed: int, fooled: int, neither: int) -> list[Rated]:
    """So many right ones called right, right called wrong, wrong called right, wrong wrong."""
    cells = [(True, True)] * both + [(True, False)] * missed
    cells += [(False, True)] * fooled + [(False, False)] * neither
    return [rated(label, said, number) for number, (label, said) in enumerate(cells)]


def test_figures_worked_out_by_hand() -> None:
    """The example of Cohen's kappa that textbooks give: 20, 5, 10 and 15 of 50."""
    figures = agreement(table(20, 5, 10, 15))
    assert (figures["n"], figures["agreement"]["value"]) == (50, 0.7)
    assert figures["kappa"]["value"] == pytest.approx(0.4)
    assert list(figures["confusion"].values()) == [20, 5, 10, 15]


def test_a_missing_verdict_is_no_agreement() -> None:
    unjudged = [rated(bool(number % 2), None, 40 + number) for number in range(10)]
    figures = agreement([*table(20, 0, 0, 20), *unjudged])
    assert (figures["unjudged"], figures["agreement"]["value"]) == (10, 0.8)
    assert sum(figures["confusion"].values()) == 40
    assert figures["kappa"]["value"] == pytest.approx(0.6)
    assert agreement(unjudged)["agreement"]["value"] == 0


# ---- The labelled set.

ROW: dict[str, Any] = {
    "question": "When is it?", "gold": "May 4", "answer": "4 May", "label": True,
    "why": "same day", "category": "dates", "adversarial": False, "half": "tuning",
}  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "no labelled pair"),
        ([ROW, {**ROW, "half": "third"}], "line 2: half"),
        ([{name: ROW[name] for name in ROW if name != "why"}], "line 1: why"),
    ],
)
def test_what_is_no_pair_is_named(tmp_path: Path, rows: list[object], words: str) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    with pytest.raises(UserError, match=words):
        load_pairs(path)
