"""Which questions are asked again: those of groups that taught nothing are replaced.

A group whose rollouts all earned the same has no advantage to learn from, and one with an
unjudged member is left out: without the answers, abstentions alone would gain. Another question
takes its place: the hardest of those asked before whose group had spread, or else one that was
never asked. Knows nothing of models; a run that resumes goes on with what it knew.
"""

from collections.abc import Collection, Sequence
from random import Random
from typing import Any

from art_e.question import Question

# Rewards that differ by less are the same but for rounding.
FLAT = 1e-6


def is_flat(rewards: Sequence[float | None]) -> bool:
    """Whether a group teaches nothing: its rewards have no spread, or one of them is missing."""
    told = complete(rewards)
    return told is None or max(told) - min(told) < FLAT


def complete(rewards: Sequence[float | None]) -> list[float] | None:
    """The rewards of a group; None if a member has none, because its judge failed."""
    told = [each for each in rewards if each is not None]
    return told if len(told) == len(rewards) else None


class Curriculum:
    """What the questions have earned so far. `seed` decides the order of those never asked."""

    def __init__(self, questions: Sequence[Question], seed: int) -> None:
        self._by_id = {each.id: each for each in questions}
        self._fresh = sorted(self._by_id)
        Random(f"{seed}/fresh").shuffle(self._fresh)
        # The mean reward of the last group of each question that had spread in it.
        self._earned: dict[str, float] = {}
        self._asked: set[str] = set()

    def note(self, question: Question, rewards: Sequence[float | None]) -> None:
        """Remember what a group of the question earned; a group left out says nothing of it."""
        told = complete(rewards)
        if told is None:
            return
        self._asked.add(question.id)
        if is_flat(rewards):
            self._earned.pop(question.id, None)
        else:
            self._earned[question.id] = sum(told) / len(told)

    def replacement(self, besides: Collection[str]) -> Question | None:
        """Another question, none of those whose ids are `besides`; None where there is none."""
        hardest = sorted(self._earned, key=lambda each: (self._earned[each], each))
        candidates = (
            each
            for each in [*hardest, *self._fresh]
            if each not in besides and (each in self._earned or each not in self._asked)
        )
        chosen = next(candidates, None)
        return None if chosen is None else self._by_id[chosen]

    def to_row(self) -> dict[str, Any]:
        """What `restore` takes."""
        return {"earned": self._earned, "asked": sorted(self._asked)}

    def restore(self, row: dict[str, Any]) -> None:
        """Go on from what `to_row` gave."""
        self._earned = {name: float(earned) for name, earned in row["earned"].items()}
        self._asked = set(row["asked"])
