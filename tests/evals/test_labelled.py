"""The labelled set's shape, and the offline judge held to its figures on it."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import pytest

from art_e.abstention import is_abstention
from art_e.errors import UserError
from evals.judges.labels import Case, Half, LabelledPair, Rated, agreement, load_pairs, rate
from evals.judges.offline import OfflineJudge

PAIRS = load_pairs()
HALVES: tuple[Half, ...] = get_args(Half)
CATEGORIES = {
    "dates", "times", "amounts", "numbers-and-codes", "phones-and-addresses", "names", "lists",
    "yes-no", "paraphrases", "partial", "wrong-year", "wrong-person", "candidates",
    "judge-addressing", "abstentions", "unanswerable", "free-text",
}  # fmt: skip
ROW: dict[str, Any] = {
    "question": "When is it?", "gold": "May 4", "answer": "4 May", "label": True,
    "why": "same day", "category": "dates", "adversarial": False, "half": "tuning",
}  # fmt: skip


def half(name: Half) -> list[LabelledPair]:
    return [pair for pair in PAIRS if pair.half == name]


def judged(pairs: list[LabelledPair]) -> list[Rated]:
    cases = [
        Case(pair.asked, pair.answer, pair.label, pair.category, pair.adversarial) for pair in pairs
    ]
    return asyncio.run(rate(OfflineJudge(), cases, concurrency=1))


def test_the_set_is_large_and_balanced() -> None:
    assert len(PAIRS) >= 300
    assert 0.4 < sum(pair.label for pair in PAIRS) / len(PAIRS) < 0.6
    assert sum(pair.adversarial for pair in PAIRS) >= 30
    assert all(pair.why.strip() and "\n" not in pair.why for pair in PAIRS)


def test_every_category_is_in_both_halves_about_evenly_and_with_both_labels() -> None:
    assert {pair.category for pair in PAIRS} == CATEGORIES
    for category in CATEGORIES:
        counts = Counter(pair.half for pair in PAIRS if pair.category == category)
        assert min(counts[name] for name in HALVES) >= 8, category
        assert abs(counts["tuning"] - counts["reporting"]) <= 4, category
        for name in HALVES:
            labels = {pair.label for pair in half(name) if pair.category == category}
            assert labels == {True, False}, (category, name)


def test_no_pair_is_twice_and_no_question_in_both_halves() -> None:
    assert len({(pair.question, pair.gold, pair.answer) for pair in PAIRS}) == len(PAIRS)
    tuned_on = {pair.question for pair in half("tuning")}
    assert not tuned_on & {pair.question for pair in half("reporting")}
    # One question has one gold answer, so that its hash is its id.
    assert len({pair.asked.id for pair in PAIRS}) == len({pair.question for pair in PAIRS})


def test_labels_keep_the_rules_that_can_be_checked() -> None:
    for pair in PAIRS:
        assert not (pair.adversarial and pair.label), pair
        if pair.gold is None:
            assert pair.asked.answerable is False
        elif is_abstention(pair.answer) and not is_abstention(pair.gold):
            assert not pair.label, pair


def test_the_offline_judge_agrees_with_the_reporting_half() -> None:
    figures = agreement(judged(half("reporting")))
    assert figures["n"] >= 150
    assert figures["unjudged"] == 0
    assert figures["kappa"]["value"] >= 0.80
    assert figures["agreement"]["value"] >= 0.90


@pytest.mark.parametrize("name", HALVES)
def test_no_adversarial_answer_is_judged_correct(name: Half) -> None:
    won = [each for each in judged(half(name)) if each.case.adversarial and each.verdict.correct]
    assert not won


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def test_pairs_of_another_file_are_read_in_order(tmp_path: Path) -> None:
    none = {**ROW, "gold": None, "answer": None, "half": "reporting"}
    first, second = load_pairs(write(tmp_path / "pairs.jsonl", ROW, none))
    assert first == LabelledPair(**ROW)
    assert (first.asked.answer, first.asked.answerable) == ("May 4", True)
    assert (second.asked.answer, second.asked.answerable) == (None, False)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "no labelled pair"),
        ([ROW, {**ROW, "half": "third"}], "line 2: half"),
        ([ROW, {**ROW, "label": "yes"}], "line 2: label"),
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
