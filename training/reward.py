"""The reward of an episode: named components that sum, each a small function of the facts.

An episode has one of five outcomes, and whatever the components say, outcomes keep
their order, from best to worst:

    correct   a right answer that the mails read support, or abstention where nothing answers
    abstained "I don't know", though something answers
    out       out of turns: neither an answer nor an abstention
    wrong     an answer that is wrong, or that no mail read supports
    lost      three malformed messages in a row

`RewardWeights` refuses weights under which a lesser outcome could earn more. The defaults are
the reference's bands: correct 1 to 2, abstained 0 to 1, wrong -1 to 0, lost -2 to -1; out of
turns stands between abstained and wrong. Knows nothing of models, groups and training.

On an unanswerable question abstention is the right answer, and has no mails to find, read or
cite: it earns those components in full, so that no kind of question is worth more.
"""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from art_e.episode import Rubric
from evals.judges.offline import Verdict

Outcome = Literal["correct", "abstained", "out", "wrong", "lost"]

# From best to worst.
OUTCOMES: tuple[Outcome, ...] = ("correct", "abstained", "out", "wrong", "lost")

# The facts that count malformed calls.
_MALFORMED = ("unparseable_calls", "unknown_tool_calls", "bad_argument_calls")

# Malformed calls beyond so many are charged no further: the component stays bounded.
CHARGED_CALLS = 3

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Base = Annotated[float, Field(allow_inf_nan=False)]


class RewardWeights(BaseModel):
    """What each component is worth at most.

    The first five are an outcome's own worth, which the others add to. Two schemes are there
    to be compared with: "binary" pays 1 for correct, else 0; "no-abstention-band" pays an
    abstention on an answerable question as a wrong answer. Raises pydantic's `ValidationError`
    where a worse outcome could earn as much as a better one, as far as the scheme tells them
    apart.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    scheme: Literal["composite", "no-abstention-band", "binary"] = "composite"
    correct: Base = 1.1
    abstained: Base = 0.1
    out: Base = -0.4
    wrong: Base = -0.9
    lost: Base = -1.9
    # Each malformed call takes away a third of it.
    format: Weight = 0.1
    # Of a right answer, at no effort; it falls evenly to 0 at as much effort as turns allowed.
    effort: Weight = 0.2
    sources: Weight = 0.3
    concision: Weight = 0.1
    found: Weight = 0.1
    read: Weight = 0.1
    # An answer that no mail read supports counts as wrong, however right it is.
    grounded_gate: bool = True

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        ranked = [each for each in OUTCOMES if self._paid_as(each) == each]
        for better, worse in itertools.pairwise(ranked):
            least, most = self.bounds(better)[0], self.bounds(worse)[1]
            if self.scheme != "binary" and least <= most:
                raise ValueError(
                    f"{worse!r} could earn {most:g}, and {better!r} as little as {least:g};"
                    f" raise {better} or lower {worse}"
                )
        return self

    def bounds(self, outcome: Outcome) -> tuple[float, float]:
        """The least and the most that an episode of that outcome can earn."""
        base = self.worth(outcome)
        extras = [getattr(self, name) for name in _EARNED[outcome]]
        return base - self.format, base + sum(extras)

    def worth(self, outcome: Outcome) -> float:
        """What the outcome earns by itself."""
        return float(getattr(self, self._paid_as(outcome)))

    def _paid_as(self, outcome: Outcome) -> Outcome:
        unbanded = self.scheme == "no-abstention-band" and outcome == "abstained"
        return "wrong" if unbanded else outcome


class Reward(NamedTuple):
    """An episode's reward: `total` is the sum of `components`."""

    total: float
    components: dict[str, float]

    def to_row(self) -> dict[str, Any]:
        """As trajectories hold it."""
        return {"total": self.total, "components": self.components}


# Which components an outcome can earn besides its own worth, and `format`, which only takes.
_EARNED: Mapping[Outcome, tuple[str, ...]] = {
    "correct": ("effort", "sources", "concision", "found", "read"),
    "abstained": ("found", "read"),
    "out": ("found", "read"),
    "wrong": ("found", "read"),
    "lost": ("found", "read"),
}


def reward_of(rubric: Rubric, verdict: Verdict | None, weights: RewardWeights) -> Reward | None:
    """The reward of an episode that has ended by itself.

    None where it can't be told: the judge gave no verdict on an answer. Such a rollout leaves
    its group. Raises `ValueError` for an episode that has not ended.
    """
    outcome = outcome_of(rubric, verdict, weights)
    if outcome is None:
        return None
    if weights.scheme == "binary":
        right = 1.0 if outcome == "correct" else 0.0
        return Reward(right, {"correctness": right})
    components = {
        _NAMES[outcome]: weights.worth(outcome),
        "format": -weights.format * malformed_share(rubric),
    }
    shares = {
        "effort": effort_saved,
        "sources": sources_share,
        "concision": concision_share,
        "found": found_share,
        "read": read_share,
    }
    for name in _EARNED[outcome]:
        components[name] = getattr(weights, name) * shares[name](rubric)
    return Reward(sum(components.values()), components)


_NAMES: Mapping[Outcome, str] = {
    "correct": "correctness",
    "abstained": "abstention",
    "out": "out_of_turns",
    "wrong": "wrong_answer",
    "lost": "lost_to_format",
}


def outcome_of(rubric: Rubric, verdict: Verdict | None, weights: RewardWeights) -> Outcome | None:
    """How the episode ended; None where the judge gave no verdict on its answer.

    Raises `ValueError` for an episode that has not ended.
    """
    if rubric.lost_to_format:
        return "lost"
    if rubric.ran_out_of_turns:
        return "out"
    if rubric.abstained:
        return "correct" if rubric.answerable is False else "abstained"
    if not rubric.answered:
        raise ValueError("the episode has not ended: it has neither answered nor been cut off")
    if rubric.answerable is False:
        return "wrong"
    if verdict is None or verdict.correct is None:
        return None
    unsupported = weights.grounded_gate and verdict.grounded is False
    return "correct" if verdict.correct and not unsupported else "wrong"


def malformed_share(rubric: Rubric) -> float:
    """How much of the charge for malformed calls is due: 0 for none, 1 from `CHARGED_CALLS` on."""
    return min(malformed_calls(dataclasses.asdict(rubric)), CHARGED_CALLS) / CHARGED_CALLS


def malformed_calls(facts: Mapping[str, Any]) -> int:
    """How many calls could not be run as they were written, by a rubric as trajectories hold it."""
    return sum(int(facts[name]) for name in _MALFORMED)


def effort_saved(rubric: Rubric) -> float:
    """The share of the allowed turns that was not spent; calls beyond a message's first count."""
    return max(0.0, 1 - rubric.effort / rubric.max_turns)


def sources_share(rubric: Rubric) -> float:
    """1 where every gold mail was cited, and where there is none to cite."""
    return 1.0 if rubric.answerable is False or rubric.sources_correct else 0.0


def concision_share(rubric: Rubric) -> float:
    """The share of gold mails among the cited ones, were all of them cited: 1 for no more.

    The reference pays 0.1 / num_sources, which charges a question for having several gold
    mails; this charges what is cited beyond them.
    """
    if rubric.answerable is False:
        return 1.0 if rubric.num_sources == 0 else 0.0
    gold = rubric.num_gold_sources or 1
    return min(1.0, gold / rubric.num_sources) if rubric.num_sources else 0.0


def found_share(rubric: Rubric) -> float:
    """1 where a search gave every gold mail, and on a right abstention, which has none."""
    return _progress(rubric, rubric.found_gold)


def read_share(rubric: Rubric) -> float:
    """1 where every gold mail was read, and on a right abstention, which has none."""
    return _progress(rubric, rubric.read_gold)


def _progress(rubric: Rubric, reached: bool | None) -> float:
    if rubric.answerable is False:
        return 1.0 if rubric.abstained else 0.0
    return 1.0 if reached else 0.0
