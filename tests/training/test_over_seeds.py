"""Figures over seeds: whose verdict counts, how seeds are pooled, what is refused."""

import dataclasses
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from art_e.episode import Rubric
from art_e.errors import UserError
from art_e.question import Question
from art_e.trajectory import Trajectory
from tests import builders as episodes
from training.reproduction.report import MEASURES, episodes_of_test, over_seeds

# Made-up runs: question i is answerable but for every fourth one.
NUMBER = 24


def question(number: int) -> Question:
    answerable = number % 4 != 0
    return Question(
        id=f"q{number:03}",
        question="When does the lease end?",
        inbox_address=f"inbox{number % 3}@test.example",
        query_date=date(2020, 1, 31),
        answer="May 3" if answerable else None,
        message_ids=("<1@t>",) if answerable else (),
        answerable=answerable,
        kind="lookup" if answerable else "unanswerable",
    )


def episode(asked: Question, policy: dict[str, Any], *, right: bool) -> Trajectory:
    """An episode that is right, or gives a wrong answer."""
    abstains = right and not asked.answerable
    rubric = Rubric(
        max_turns=6,
        answerable=asked.answerable,
        answered=not abstains,
        abstained=abstains,
        turns=3,
        effort=3,
    )
    decided, paid = ({"correct": each, "grounded": True} for each in (right, not right))
    return episodes.trajectory(
        episode_id=f"{asked.id}-{policy}",
        question_id=asked.id,
        question=asked.to_row(),
        policy=policy,
        rubric=dataclasses.asdict(rubric),
        # The reward's judge says the opposite: the other one decides.
        verdict={**paid, "judge": "reward", "reason": ""},
        other_verdicts=[{**decided, "judge": "other", "reason": ""}],
    )


def made(folder: Path, right: int) -> Path:
    """A run's test, with its first `right` questions right."""
    folder.mkdir(parents=True)
    asked = [question(number) for number in range(NUMBER)]
    lines = [
        episode(each, {"temperature": heat, "seed": 0}, right=number < right).to_line()
        for heat in (1.0, 0.0)
        for number, each in enumerate(asked)
    ]
    # In another order than that of the ids.
    (folder / "test.jsonl").write_text("".join(f"{each}\n" for each in reversed(lines)))
    return folder


def test_answers_are_judged_by_the_judge_of_validations(tmp_path: Path) -> None:
    means = over_seeds([], [made(tmp_path / "run", 12)])["sampled"]["trained"]
    assert tuple(means) == MEASURES
    # Of the first twelve questions nine are answerable, and of all 24 eighteen.
    assert (means["accuracy"]["value"], means["accuracy"]["n"]) == (0.5, 18)
    assert means["unanswerable_accuracy"]["value"] == 0.5
    assert means["hallucination"]["value"] == 0.5
    assert (means["turns"]["value"], means["turns"]["n"]) == (3, 24)


def test_seeds_are_pooled_and_their_span_stands_beside(tmp_path: Path) -> None:
    starts = [made(tmp_path / f"start-{seed}", right) for seed, right in enumerate((8, 12))]
    ends = [made(tmp_path / f"end-{seed}", right) for seed, right in enumerate((16, 24))]
    figures = over_seeds(starts, ends)["greedy"]
    accuracy = {name: each["accuracy"] for name, each in figures.items()}
    # Right are 6 and 9 of 18 answerable questions, and later 12 and 18.
    assert [accuracy[name]["value"] for name in ("start", "trained", "gain")] == pytest.approx(
        [15 / 36, 30 / 36, 15 / 36]
    )
    assert accuracy["start"]["seeds"] == pytest.approx([6 / 18, 9 / 18])
    assert accuracy["gain"]["seeds"] == pytest.approx([6 / 18, 9 / 18])
    assert {each["n"] for each in accuracy.values()} == {36}
    # The unit is the inbox, and each of the three is there once.
    assert accuracy["start"]["method"] == "t over inboxes"
    assert (figures["gain"]["turns"]["n"], figures["gain"]["turns"]["value"]) == (48, 0)
    # Without a warm start there is nothing to gain from.
    assert set(over_seeds([], ends)["greedy"]) == {"trained"}


def test_a_test_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    folder = made(tmp_path / "run", 12)
    lines = (folder / "test.jsonl").read_text().split("\n")
    (folder / "test.jsonl").write_text("\n".join(lines[:NUMBER]) + "\n")
    with pytest.raises(UserError, match="not all of the test"):
        episodes_of_test(folder)
    (folder / "test.jsonl").write_text("{\n")
    with pytest.raises(UserError, match="can't be read"):
        episodes_of_test(folder)
