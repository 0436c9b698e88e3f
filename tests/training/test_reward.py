"""The reward: outcomes keep their order whatever the weights, and each component pays its fact."""

import dataclasses
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from art_e.episode import Rubric
from evals.judges.offline import Verdict
from training.reward import (
    CHARGED_CALLS,
    OUTCOMES,
    Outcome,
    RewardWeights,
    outcome_of,
    reward_of,
)

DEFAULT = RewardWeights()
RIGHT = Verdict(True, True, "test", "right")
WRONG = Verdict(False, True, "test", "wrong")
UNSUPPORTED = Verdict(True, False, "test", "right, and no mail says so")
UNJUDGED = Verdict(None, None, "test", "failed")

counts = st.integers(0, 40)


@st.composite
def rubrics(draw: st.DrawFn) -> Rubric:
    """Any facts that an episode of a question with known answerability can end with."""
    end = draw(st.sampled_from(("answered", "abstained", "lost_to_format", "ran_out_of_turns")))
    answerable = draw(st.booleans())
    max_turns = draw(st.integers(1, 12))
    turns = draw(st.integers(1, max_turns))
    facts: dict[str, Any] = {
        "turns": turns,
        "effort": turns + draw(counts),
        "invalid_reads": draw(counts),
        "unparseable_calls": draw(counts),
        "unknown_tool_calls": draw(counts),
        "bad_argument_calls": draw(counts),
        "num_sources": draw(counts),
    }
    if answerable:
        facts["num_gold_sources"] = draw(st.integers(1, 5))
        for name in ("found_gold", "read_gold", "sources_correct"):
            facts[name] = draw(st.booleans())
    return Rubric(max_turns=max_turns, answerable=answerable, **{end: True}, **facts)


verdicts = st.builds(
    Verdict, st.booleans(), st.sampled_from((True, False, None)), st.just("test"), st.just("")
)
weight = st.floats(0, 2)
base = st.floats(-4, 4)


@st.composite
def accepted_weights(draw: st.DrawFn) -> RewardWeights:
    """Weights that the model accepts: bases far enough apart, some only just."""
    extras = {
        name: draw(weight) for name in ("format", "effort", "sources", "concision", "found", "read")
    }
    gap = draw(st.floats(1e-6, 3))
    room = sum(extras.values())
    start = draw(base)
    bases = {name: start - place * (room + gap) for place, name in enumerate(OUTCOMES)}
    gate = draw(st.booleans())
    return RewardWeights.model_validate({**bases, **extras, "grounded_gate": gate})


@given(accepted_weights(), st.lists(st.tuples(rubrics(), verdicts), min_size=2, max_size=8))
def test_a_better_outcome_always_earns_more(
    weights: RewardWeights, episodes: list[tuple[Rubric, Verdict]]
) -> None:
    earned: dict[Outcome, list[float]] = {name: [] for name in OUTCOMES}
    for rubric, verdict in episodes:
        outcome = outcome_of(rubric, verdict, weights)
        reward = reward_of(rubric, verdict, weights)
        assert outcome is not None
        assert reward is not None
        least, most = weights.bounds(outcome)
        assert least - 1e-9 <= reward.total <= most + 1e-9
        earned[outcome].append(reward.total)
    ranked = [each for each in OUTCOMES if earned[each]]
    for better, worse in itertools.pairwise(ranked):
        assert min(earned[better]) > max(earned[worse])


@given(
    st.fixed_dictionaries(dict.fromkeys(OUTCOMES, base)),
    st.fixed_dictionaries(dict.fromkeys(("format", "effort", "sources", "found"), weight)),
)
def test_weights_that_break_the_order_are_refused(
    bases: dict[str, float], extras: dict[str, float]
) -> None:
    try:
        weights = RewardWeights.model_validate({**bases, **extras})
    except ValidationError as error:
        assert "could earn" in str(error)
        return
    bounds = [weights.bounds(each) for each in OUTCOMES]
    for (least, _), (_, most) in itertools.pairwise(bounds):
        assert least > most


@pytest.mark.parametrize("name", OUTCOMES[1:])
def test_raising_a_lesser_outcome_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match=f"'{name}' could earn"):
        RewardWeights.model_validate({name: 5.0})


@pytest.mark.parametrize("field", ["effort", "correct"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), "much"])
def test_a_weight_is_a_number(field: str, value: object) -> None:
    with pytest.raises(ValidationError):
        RewardWeights.model_validate({field: value})


def test_unknown_weights_are_refused() -> None:
    with pytest.raises(ValidationError, match="turns"):
        RewardWeights.model_validate({"turns": 1.0})


def test_the_defaults_lie_in_the_bands_of_the_reference() -> None:
    bands = {"correct": (1, 2), "abstained": (0, 1), "wrong": (-1, 0), "lost": (-2, -1)}
    for outcome, (low, high) in bands.items():
        least, most = DEFAULT.bounds(outcome)  # type: ignore[arg-type]
        assert low - 1e-9 <= least < most <= high


def answered(**facts: Any) -> Rubric:
    known: dict[str, Any] = {
        "max_turns": 10,
        "answerable": True,
        "num_gold_sources": 1,
        "answered": True,
        "found_gold": True,
        "read_gold": True,
        "sources_correct": True,
        "num_sources": 1,
        "turns": 3,
        "effort": 3,
    }
    return Rubric(**{**known, **facts})


def components(rubric: Rubric, verdict: Verdict = RIGHT) -> dict[str, float]:
    reward = reward_of(rubric, verdict, DEFAULT)
    assert reward is not None
    assert reward.total == pytest.approx(sum(reward.components.values()))
    return reward.components


def test_a_right_answer_earns_every_component() -> None:
    assert components(answered()) == pytest.approx(
        {
            "correctness": 1.1,
            "format": 0.0,
            "effort": 0.2 * 0.7,
            "sources": 0.3,
            "concision": 0.1,
            "found": 0.1,
            "read": 0.1,
        }
    )


def test_a_wrong_answer_earns_progress_alone() -> None:
    assert components(answered(read_gold=False), WRONG) == pytest.approx(
        {"wrong_answer": -0.9, "format": 0.0, "found": 0.1, "read": 0.0}
    )


def test_an_answer_that_no_mail_supports_counts_as_wrong() -> None:
    gated = components(answered(), UNSUPPORTED)
    assert "correctness" not in gated
    assert gated["wrong_answer"] == -0.9
    open_gate = DEFAULT.model_copy(update={"grounded_gate": False})
    assert outcome_of(answered(), UNSUPPORTED, open_gate) == "correct"
    # Whether it is supported could not be told: no guess is made.
    assert outcome_of(answered(), Verdict(True, None, "test", ""), DEFAULT) == "correct"


def test_abstention_is_right_where_nothing_answers() -> None:
    empty = Rubric(max_turns=10, answerable=False, abstained=True, turns=2, effort=2)
    assert sum(components(empty).values()) == pytest.approx(1.1 + 0.2 * 0.8 + 0.6)
    missed = answered(answered=False, abstained=True, num_sources=0, sources_correct=False)
    assert components(missed) == pytest.approx(
        {"abstention": 0.1, "format": 0.0, "found": 0.1, "read": 0.1}
    )
    # A guess is wrong without a judge.
    assert outcome_of(
        dataclasses.replace(empty, abstained=False, answered=True), None, DEFAULT
    ) == ("wrong")


def test_thirty_searches_in_one_message_cost_thirty() -> None:
    many = answered(turns=2, effort=32)
    assert components(many)["effort"] == 0.0
    assert components(answered(turns=4, effort=4))["effort"] == pytest.approx(0.2 * 0.6)


def test_malformed_calls_cost_up_to_a_bound() -> None:
    costs = [
        components(answered(bad_argument_calls=count, unknown_tool_calls=count))["format"]
        for count in range(4)
    ]
    assert costs == pytest.approx([0.0, -0.1 * 2 / 3, -0.1, -0.1])
    assert components(answered(unparseable_calls=100))["format"] == -0.1
    assert CHARGED_CALLS == 3


@pytest.mark.parametrize(
    ("gold", "cited", "share"), [(1, 1, 1.0), (1, 4, 0.25), (2, 2, 1.0), (2, 1, 1.0), (1, 0, 0.0)]
)
def test_citing_more_than_the_gold_mails_costs(gold: int, cited: int, share: float) -> None:
    paid = components(answered(num_gold_sources=gold, num_sources=cited))["concision"]
    assert paid == pytest.approx(0.1 * share)


def test_without_a_verdict_there_is_no_reward() -> None:
    assert reward_of(answered(), UNJUDGED, DEFAULT) is None
    assert reward_of(answered(), None, DEFAULT) is None
    # What needs no judge has its reward.
    lost = answered(answered=False, lost_to_format=True, unparseable_calls=3)
    assert reward_of(lost, None, DEFAULT) is not None


def test_an_episode_that_goes_on_has_none() -> None:
    with pytest.raises(ValueError, match="not ended"):
        reward_of(answered(answered=False), RIGHT, DEFAULT)


def test_the_binary_reward_pays_for_correctness_alone() -> None:
    binary = RewardWeights(scheme="binary")
    slow = answered(effort=9, sources_correct=False, bad_argument_calls=2)
    for rubric, verdict, paid in (
        (answered(), RIGHT, 1.0),
        (slow, RIGHT, 1.0),
        (answered(), WRONG, 0.0),
        (answered(answered=False, abstained=True), None, 0.0),
    ):
        reward = reward_of(rubric, verdict, binary)
        assert reward is not None
        assert reward.total == paid
        assert reward.components == {"correctness": paid}


def test_without_its_band_an_abstention_is_paid_as_a_wrong_answer() -> None:
    unbanded = RewardWeights(scheme="no-abstention-band")
    for found, read in itertools.product((True, False), repeat=2):
        facts = {"found_gold": found, "read_gold": read, "bad_argument_calls": 1}
        withheld = reward_of(answered(answered=False, abstained=True, **facts), None, unbanded)
        wrong = reward_of(answered(**facts), WRONG, unbanded)
        assert withheld is not None
        assert wrong is not None
        assert withheld.total == wrong.total
        assert withheld.components["abstention"] == -0.9
    # Where nothing answers it is as right as ever, and out of turns is better than wrong.
    empty = Rubric(max_turns=10, answerable=False, abstained=True, turns=2, effort=2)
    for rubric in (empty, answered(), answered(answered=False, ran_out_of_turns=True)):
        assert reward_of(rubric, RIGHT, unbanded) == reward_of(rubric, RIGHT, DEFAULT)


def test_without_the_band_the_other_outcomes_keep_their_order() -> None:
    unbanded = RewardWeights(scheme="no-abstention-band", abstained=5.0)
    ranked: tuple[Outcome, ...] = ("correct", "out", "wrong", "lost")
    for better, worse in itertools.pairwise(ranked):
        assert unbanded.bounds(better)[0] > unbanded.bounds(worse)[1]
    assert unbanded.bounds("abstained") == unbanded.bounds("wrong")
    with pytest.raises(ValidationError, match="'out' could earn"):
        RewardWeights(scheme="no-abstention-band", out=5.0)
