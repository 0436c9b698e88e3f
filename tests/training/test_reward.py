"""The reward: outcomes keep their order for all weights, and each component pays its fact."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from art_e.episode import Rubric
from art_e.text import toml_table
from evals.scored import Verdict
from training.reward import OUTCOMES, Outcome, RewardWeights, brevity, outcome_of, reward_of

DEFAULT = RewardWeights()
RIGHT = Verdict(True, True, "test", "right")
# A right answer that no mail read supports is wrong.
UNSUPPORTED = Verdict(True, False, "test", "right, and no mail says so")
WRONG = Verdict(False, True, "test", "wrong")
VERDICTS = {"right": RIGHT, "unsupported": UNSUPPORTED, "wrong": WRONG}
TABLES = toml_table(__package__, "rewards.toml")

counts = st.integers(0, 40)


@st.composite
def rubrics(draw: st.DrawFn) -> Rubric:
    """Draw the rubric of an ended episode about a question of known answerability."""
    end = draw(st.sampled_from(("answered", "abstained", "lost_to_format", "ran_out_of_turns")))
    answerable = draw(st.booleans())
    max_turns = draw(st.integers(1, 12))
    turns = draw(st.integers(1, max_turns))
    names = ("invalid_reads", "unparseable_calls", "unknown_tool_calls", "bad_argument_calls")
    facts: dict[str, Any] = {name: draw(counts) for name in (*names, "num_sources")}
    facts |= {"turns": turns, "effort": turns + draw(counts)}
    if answerable:
        facts["num_gold_sources"] = draw(st.integers(1, 5))
        for name in ("found_gold", "read_gold", "sources_correct"):
            facts[name] = draw(st.booleans())
    return Rubric(max_turns=max_turns, answerable=answerable, **{end: True}, **facts)


verdicts = st.builds(
    Verdict, st.booleans(), st.sampled_from((True, False, None)), st.just("test"), st.just("")
)
weight = st.floats(0, 2)


@st.composite
def accepted_weights(draw: st.DrawFn) -> RewardWeights:
    """Draw valid weights: bases far enough apart, some only just."""
    names = ("format", "effort", "sources", "length", "found", "read", "relative")
    extras = {name: draw(weight) for name in names}
    step = sum(extras.values()) + draw(st.floats(1e-6, 3))
    lower = {name: DEFAULT.correct - place * step for place, name in enumerate(OUTCOMES) if place}
    return RewardWeights.model_validate({**lower, **extras})


compared = st.none() | st.floats(0, 1)  # with the other rollouts
texts = st.none() | st.integers(0, 200).map("word ".__mul__)
Earning = tuple[Rubric, Verdict, float | None, str | None, str | None]


@given(
    accepted_weights(),
    st.lists(st.tuples(rubrics(), verdicts, compared, texts, texts), min_size=2, max_size=8),
)
def test_a_better_outcome_always_earns_more(
    weights: RewardWeights, episodes: list[Earning]
) -> None:
    earned: dict[Outcome, list[float]] = {name: [] for name in OUTCOMES}
    for rubric, verdict, relative, *answers in episodes:
        outcome = outcome_of(rubric, verdict)
        reward = reward_of(rubric, verdict, weights, relative, brevity(*answers))
        assert outcome is not None
        assert reward is not None
        low, high = weights.bounds(outcome)
        assert low - 1e-9 <= reward.total <= high + 1e-9
        earned[outcome].append(reward.total)
    ranked = [each for each in OUTCOMES if earned[each]]
    for better, worse in itertools.pairwise(ranked):
        assert min(earned[better]) > max(earned[worse])


def test_invalid_weights() -> None:
    for field, value, words in TABLES["invalid"]:
        with pytest.raises(ValidationError, match=words):
            RewardWeights.model_validate({field: value})


def test_defaults_lie_in_the_references_bands() -> None:
    bands = {"correct": (1, 2), "abstained": (0, 1), "wrong": (-1, 0), "lost": (-2, -1)}
    for outcome, (low, high) in bands.items():
        lowest, highest = DEFAULT.bounds(outcome)  # type: ignore[arg-type]
        assert low - 1e-9 <= lowest < highest <= high


def answered(**facts: Any) -> Rubric:
    return Rubric(**{**TABLES["answered"], **facts})


def test_components() -> None:
    for base, facts, verdict, components in TABLES["components"]:
        reward = reward_of(Rubric(**{**TABLES[base], **facts}), VERDICTS.get(verdict), DEFAULT)
        assert reward is not None
        assert reward.components == pytest.approx(components)
        assert reward.total == pytest.approx(sum(components.values()))
    # An answer whose support is unknown counts.
    assert outcome_of(answered(), Verdict(True, None, "test", "")) == "correct"


def test_each_component_pays_its_fact() -> None:
    for name, facts, value in TABLES["facts"]:
        reward = reward_of(answered(**facts), RIGHT, DEFAULT)
        assert reward is not None
        assert reward.components[name] == pytest.approx(value), facts


def test_long_answers_earn_less() -> None:
    gold = "On May 3."
    for words, value in ((3, 1.0), (21, 1.0), (22, 20 / 21), (42, 0.0), (400, 0.0)):
        length = brevity("word " * words, gold)
        assert length == pytest.approx(value)
        reward = reward_of(answered(), RIGHT, DEFAULT, length=length)
        assert reward is not None
        assert reward.components["length"] == pytest.approx(0.1 * value)
    # A sentence is free where the gold answer is a word.
    assert brevity("The lease of the harbor office ends on May 3, 2001.", "May") == 1.0


def test_no_reward_without_a_verdict_or_an_end() -> None:
    assert reward_of(answered(), Verdict(None, None, "test", "failed"), DEFAULT) is None
    assert reward_of(answered(), None, DEFAULT) is None
    with pytest.raises(ValueError, match="not ended"):
        reward_of(answered(answered=False), RIGHT, DEFAULT)
