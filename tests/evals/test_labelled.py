"""The labelled set, and how far a judge agrees with labels: figures worked out by hand."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from art_e.errors import UserError
from art_e.inbox.mail import Email
from art_e.question import Question
from evals.judges.labels import Case, Half, Rated, agreement, load_pairs, rate
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
    assert figures["n"] == 50
    assert figures["agreement"]["value"] == 0.7
    # By chance: 0.5 x 0.6 + 0.5 x 0.4.
    kappa = figures["kappa"]
    assert kappa["value"] == pytest.approx(0.4)
    # The large-sample interval of that table is 0.15 to 0.65.
    assert kappa["low"] == pytest.approx(0.15, abs=0.03)
    assert kappa["high"] == pytest.approx(0.65, abs=0.03)
    assert figures["confusion"] == {
        "right_as_right": 20,
        "right_as_wrong": 5,
        "wrong_as_right": 10,
        "wrong_as_wrong": 15,
    }


def test_a_missing_verdict_is_no_agreement() -> None:
    judged = table(20, 0, 0, 20)
    unjudged = [rated(bool(number % 2), None, 40 + number) for number in range(10)]
    figures = agreement([*judged, *unjudged])
    assert figures["unjudged"] == 10
    assert figures["agreement"]["value"] == 0.8
    assert sum(figures["confusion"].values()) == 40
    assert figures["kappa"]["value"] == pytest.approx(0.6)
    assert agreement(unjudged)["agreement"]["value"] == 0


def test_the_sure_verdicts_are_measured_apart() -> None:
    rows = table(20, 0, 0, 20)
    doubted = [
        each._replace(verdict=replace(each.verdict, unsure=True)) for each in table(1, 4, 4, 1)
    ]
    figures = agreement([*rows, *doubted])
    assert (figures["n"], figures["unsure"], figures["sure"]["n"]) == (50, 10, 40)
    assert figures["agreement"]["value"] == pytest.approx(0.84)
    assert figures["sure"]["agreement"]["value"] == figures["sure"]["kappa"]["value"] == 1
    assert agreement(doubted)["sure"]["agreement"]["value"] is None


class _Slow:
    """Answers in the reverse of the order in which it is asked."""

    name = "slow"

    async def judge(
        self, question: Question, answer: str | None, mails: Sequence[Email] | None = None
    ) -> Verdict:
        for _ in range(20 - int(question.id[1:])):
            await asyncio.sleep(0)
        return Verdict(answer == "May 3", None, self.name, question.id)


def test_verdicts_come_in_the_order_of_the_cases() -> None:
    done: list[int] = []
    cases = [each.case for each in table(5, 5, 5, 5)]
    got = asyncio.run(rate(_Slow(), cases, concurrency=4, on_rated=lambda: done.append(1)))
    assert [each.verdict.reason for each in got] == [f"q{number}" for number in range(20)]
    assert [each.case for each in got] == cases
    assert len(done) == 20


# ---- The labelled set.

PAIRS = load_pairs()
UNSEEN = Path(__file__).with_name("unseen_pairs.jsonl")
HALVES: tuple[Half, ...] = get_args(Half)
ROW: dict[str, Any] = {
    "question": "When is it?", "gold": "May 4", "answer": "4 May", "label": True,
    "why": "same day", "category": "dates", "adversarial": False, "half": "tuning",
}  # fmt: skip


def test_the_set_is_large_balanced_and_split_by_question() -> None:
    assert len(PAIRS) >= 900
    assert len({pair.category for pair in PAIRS}) >= 30
    assert 0.4 < sum(pair.label for pair in PAIRS) / len(PAIRS) < 0.6
    assert sum(pair.adversarial for pair in PAIRS) >= 30
    for category in {pair.category for pair in PAIRS}:
        for name in HALVES:
            chosen = [each for each in PAIRS if (each.half, each.category) == (name, category)]
            labels = [pair.label for pair in chosen]
            assert len(labels) >= 8 and set(labels) == {True, False}, (category, name)
    assert len({(pair.question.id, pair.answer) for pair in PAIRS}) == len(PAIRS)
    # One question has one gold answer and is in one half.
    questions = {(pair.question.question, pair.question.id, pair.half) for pair in PAIRS}
    assert len({text for text, _, _ in questions}) == len(questions)


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def test_pairs_of_another_file_are_read_in_order(tmp_path: Path) -> None:
    none = {**ROW, "gold": None, "answer": None, "half": "reporting"}
    first, second = load_pairs(write(tmp_path / "pairs.jsonl", ROW, none))
    assert (first.question.question, first.answer, first.label) == ("When is it?", "4 May", True)
    assert (first.question.answer, first.question.answerable) == ("May 4", True)
    assert (second.question.answer, second.question.answerable) == (None, False)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "no labelled pair"),
        ([ROW, {**ROW, "half": "third"}], "line 2: half"),
        ([{name: ROW[name] for name in ROW if name != "why"}], "line 1: why"),
    ],
)
def test_what_is_no_pair_is_named(tmp_path: Path, rows: list[object], words: str) -> None:
    path = write(tmp_path / "pairs.jsonl", *rows)
    with pytest.raises(UserError, match=words):
        load_pairs(path)


def test_a_file_that_can_not_be_read_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "latin.jsonl").write_bytes('{"question": "Café"}'.encode("latin-1"))
    for name in ("latin.jsonl", "none.jsonl"):
        with pytest.raises(UserError, match=name):
            load_pairs(tmp_path / name)
