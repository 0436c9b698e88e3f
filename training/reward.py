"""The reward of an episode: a sum of named components.

An episode has one of five outcomes, which keep their order whatever the weights:

    correct   a right answer supported by a mail that was read, or abstention on an unanswerable
              question
    abstained "I don't know" to an answerable question
    out       out of turns: neither an answer nor an abstention
    wrong     a wrong answer, or one that no mail read supports
    lost      three malformed messages in a row

Its reward is the base of its outcome, minus `format` for malformed calls, plus sum_k w_k s_k over
the components k that the outcome can earn, with shares s_k from 0 to 1. `RewardWeights` rejects
weights under which a worse outcome could earn more. The defaults give the reference's bands:
correct 1 to 2, abstained 0 to 1, wrong -1 to 0, lost -2 to -1. A right abstention earns `found`,
`read` and `sources` in full, so that every kind of question is worth the same."""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import BaseModel, Field, model_validator

from art_e.episode import Rubric
from evals.scored import Verdict

Outcome = Literal["correct", "abstained", "out", "wrong", "lost"]
# From best to worst.
OUTCOMES: tuple[Outcome, ...] = ("correct", "abstained", "out", "wrong", "lost")
# Rubric fields that count malformed calls.
_MALFORMED = ("unparseable_calls", "unknown_tool_calls", "bad_argument_calls")
CHARGED_CALLS = 3  # further malformed calls are free, so that the component stays bounded
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Base = Annotated[float, Field(allow_inf_nan=False)]


class RewardWeights(BaseModel, extra="forbid", frozen=True):
    """The weights. Five are the bases of the outcomes, to which the other components add. `correct`
    and `concision` are fixed, because only differences between weights matter to GRPO."""

    correct: ClassVar[float] = 1.1  # with the default weights it earns 1.0 to 2.0
    abstained: Base = 0.1  # 0.0 to 0.3
    out: Base = -0.4  # -0.5 to -0.2
    wrong: Base = -0.9  # -1.0 to -0.7
    lost: Base = -1.9  # -2.0 to -1.7
    format: Weight = 0.1  # each malformed call costs a third of it
    effort: Weight = 0.2  # for a right answer; falls linearly to 0 at an effort of `max_turns`
    sources: Weight = 0.3
    concision: ClassVar[float] = 0.1
    length: Weight = 0.1  # for a right answer no longer than the gold answer needs (`brevity`)
    found: Weight = 0.1
    read: Weight = 0.1
    # For the relative judge's score among the question's rollouts.
    relative: Weight = 0.0

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        for better, worse in itertools.pairwise(OUTCOMES):
            low, high = self.bounds(better)[0], self.bounds(worse)[1]  # bands must not touch
            if low <= high:
                fault = f"{worse!r} could earn {high:g}, and {better!r} as little as {low:g}"
                raise ValueError(f"{fault}; lower {worse}, or weights that add to it")
        return self

    def bounds(self, outcome: Outcome) -> tuple[float, float]:
        # At worst `format` is charged in full and s_k = 0, at best it is not charged and s_k = 1.
        base = float(getattr(self, outcome))
        return base - self.format, base + sum(getattr(self, name) for name in _EARNED[outcome])


class Reward(NamedTuple):
    """An episode's reward: `total` is the sum of `components`."""

    total: float
    components: dict[str, float]


# The component of each outcome's base, and the other components that it can earn.
_NAMES: Mapping[Outcome, str] = {
    "correct": "correctness", "abstained": "abstention", "out": "out_of_turns",
    "wrong": "wrong_answer", "lost": "lost_to_format",
}  # fmt: skip
_PROGRESS = ("found", "read", "relative")
_EARNED: Mapping[Outcome, tuple[str, ...]] = {
    **dict.fromkeys(OUTCOMES, _PROGRESS),
    "correct": ("effort", "sources", "concision", "length", *_PROGRESS),
}
# Free words beyond three per word of the gold answer. A strong model's right answers to 73 public
# questions, 22 words on average, stay within it.
FREE_WORDS = 12


def brevity(answer: str | None, gold: str | None) -> float:
    """Return 1 for an answer within the free words, falling linearly to 0 at twice their number."""
    free = FREE_WORDS + 3 * len((gold or "").split())
    return min(1.0, max(0.0, 2 - len((answer or "").split()) / free))


def reward_of(
    rubric: Rubric, verdict: Verdict | None, weights: RewardWeights, relative: float | None = None,
    length: float = 1.0,
) -> Reward | None:  # fmt: skip
    """Return the reward of an episode that has ended; None without a verdict on its answer.
    `relative` is its score from 0 to 1 among the question's rollouts, if they were compared, and
    `length` the `brevity` of the answer."""
    outcome = outcome_of(rubric, verdict)
    if outcome is None:
        return None
    malformed = min(malformed_calls(dataclasses.asdict(rubric)), CHARGED_CALLS) / CHARGED_CALLS
    # base - format * malformed + sum_k w_k s_k; `malformed` is a share of CHARGED_CALLS
    components = {_NAMES[outcome]: getattr(weights, outcome), "format": -weights.format * malformed}
    shares = {**_shares(rubric, outcome), "length": length}
    shares |= {} if relative is None else {"relative": relative}
    earned = [name for name in _EARNED[outcome] if name in shares]
    components |= {name: getattr(weights, name) * shares[name] for name in earned}
    return Reward(sum(components.values()), components)


def outcome_of(rubric: Rubric, verdict: Verdict | None) -> Outcome | None:
    """Return the episode's outcome; None without a verdict on its answer."""
    if rubric.lost_to_format:
        return "lost"
    if rubric.ran_out_of_turns:
        return "out"
    if not (rubric.answered or rubric.abstained):
        raise ValueError("the episode has not ended: it has neither answered nor been cut off")
    attempted = verdict and verdict.attempted
    abstained = rubric.abstained if attempted is None else not attempted
    if rubric.answerable is False:
        return "correct" if abstained else "wrong"
    if abstained:
        return "abstained"
    if verdict is None or verdict.correct is None:
        return None
    return "correct" if verdict.correct and verdict.grounded is not False else "wrong"


def malformed_calls(facts: Mapping[str, Any]) -> int:
    """Count the malformed calls in the rubric of a stored trajectory."""
    return sum(int(facts[name]) for name in _MALFORMED)


def _shares(rubric: Rubric, outcome: Outcome) -> dict[str, float]:
    effort = max(0.0, 1 - rubric.effort / rubric.max_turns)  # each turn costs its calls, at least 1
    if rubric.answerable is False:
        progress, concision = float(outcome == "correct"), float(not rubric.num_sources)
        shares = {"sources": 1.0, "concision": concision, "found": progress, "read": progress}
        return {"effort": effort, **shares}
    # The reference pays 0.1 / num_sources, which penalizes questions with several gold mails; this
    # penalizes only citations beyond their number.
    gold = rubric.num_gold_sources or 1
    return {
        "effort": effort, "sources": 1.0 if rubric.sources_correct else 0.0,
        "concision": min(1.0, gold / rubric.num_sources) if rubric.num_sources else 0.0,
        "found": 1.0 if rubric.found_gold else 0.0, "read": 1.0 if rubric.read_gold else 0.0,
    }  # fmt: skip
