"""Figures against truth computed by hand."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from art_e.question import Kind, Question
from evals.metrics import Scored, model_metrics, proportion
from tests.episodes import trajectory

FACTS: dict[str, Any] = {
    "answered": False,
    "abstained": False,
    "found_gold": None,
    "read_gold": None,
    "sources_correct": None,
    "turns": 1,
    "effort": 1,
}


def scored(
    correct: bool | None,
    *,
    kind: Kind | None = "lookup",
    answerable: bool = True,
    cost: float | None = 0.0,
    seconds: float = 1.0,
    failed: bool = False,
    calls: list[float | None] | None = None,
    retries: int = 0,
    tokens: tuple[int, int] = (0, 0),
    **facts: Any,
) -> Scored:
    """An episode; `correct` None: it was not judged."""
    question = Question(
        "q", "What?", "bob@test.example", answer="x", kind=kind, answerable=answerable
    )
    made = trajectory(
        rubric={**FACTS, **facts},
        cost_usd=cost,
        seconds={"total": seconds, "model": 0.0, "tools": 0.0},
        usage={
            "prompt_tokens": tokens[0],
            "cached_prompt_tokens": tokens[0] // 2,
            "completion_tokens": tokens[1],
            "reasoning_tokens": tokens[1] // 4,
        },
        call_seconds=[seconds] if calls is None else calls,
        retries=retries,
        error={"kind": "provider", "message": "down"} if failed else None,
        verdict=None if correct is None else {"correct": correct},
    )
    return Scored(question, made)


RIGHT = scored(True, answered=True)
WRONG = scored(False, answered=True)
ABSTAINED = scored(False, abstained=True)
OUT_OF_TURNS = scored(None)
FAILED = scored(None, failed=True)
RIGHT_TO_ABSTAIN = scored(True, abstained=True, answerable=False, kind="unanswerable")
MADE_UP = scored(False, answered=True, answerable=False, kind="unanswerable")
FAILED_UNANSWERABLE = scored(None, failed=True, answerable=False, kind="unanswerable")


def share(figures: dict[str, Any], name: str) -> tuple[float | None, int]:
    return figures[name]["value"], figures[name]["n"]


# Known values of the interval, to four places.
@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (1, 5, 0.0362, 0.6245),
        (8, 10, 0.4902, 0.9433),
        (10, 20, 0.2993, 0.7007),
        (96, 100, 0.9016, 0.9843),
    ],
)
def test_wilson_bounds(hits: int, n: int, low: float, high: float) -> None:
    assert proportion(hits, n) == {
        "value": hits / n,
        "low": pytest.approx(low, abs=1e-4),
        "high": pytest.approx(high, abs=1e-4),
        "n": n,
    }


def test_a_share_of_nothing_is_not_known() -> None:
    assert proportion(0, 0) == {"value": None, "low": None, "high": None, "n": 0}


@settings(deadline=None)
@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_an_interval_holds_its_share(counts: tuple[int, int]) -> None:
    hits, n = counts
    figures = proportion(hits, n)
    tiny = 1e-12
    assert -tiny <= figures["low"] <= figures["value"] + tiny
    assert figures["value"] - tiny <= figures["high"] <= 1 + tiny
    z = 1.959963984540054
    # The bounds solve (p - hits/n)^2 = z^2 p (1 - p) / n.
    for bound in (figures["low"], figures["high"]):
        assert (bound - hits / n) ** 2 == pytest.approx(z * z * bound * (1 - bound) / n, abs=1e-9)


def test_accuracy_is_over_answerable_questions_hallucination_over_all() -> None:
    figures = model_metrics(
        [RIGHT, RIGHT, WRONG, ABSTAINED, OUT_OF_TURNS, RIGHT_TO_ABSTAIN, MADE_UP]
    )
    assert figures["n"] == 7
    assert share(figures, "accuracy") == (2 / 5, 5)
    assert share(figures, "unanswerable_accuracy") == (1 / 2, 2)
    assert share(figures, "hallucination") == (2 / 7, 7)
    assert share(figures, "abstention") == (2 / 7, 7)
    assert figures["errors"] == 0


def test_failed_episodes_stay_in_the_denominator() -> None:
    figures = model_metrics([RIGHT, FAILED, FAILED, FAILED_UNANSWERABLE])
    assert share(figures, "accuracy") == (1 / 3, 3)
    assert share(figures, "unanswerable_accuracy") == (0.0, 1)
    assert share(figures, "hallucination") == (0.0, 4)
    assert share(figures, "abstention") == (0.0, 4)
    assert figures["errors"] == 3
    assert figures["errors_by_kind"] == {"provider": 3}


def test_figures_by_kind() -> None:
    figures = model_metrics(
        [RIGHT, WRONG, RIGHT_TO_ABSTAIN, scored(True, answered=True, kind=None)]
    )
    by_kind = figures["by_kind"]
    assert list(by_kind) == ["lookup", "unanswerable", "unlabelled"]
    assert share(by_kind["lookup"], "accuracy") == (1 / 2, 2)
    assert share(by_kind["lookup"], "hallucination") == (1 / 2, 2)
    assert share(by_kind["lookup"], "unanswerable_accuracy") == (None, 0)
    assert share(by_kind["unanswerable"], "accuracy") == (None, 0)
    assert share(by_kind["unanswerable"], "unanswerable_accuracy") == (1.0, 1)
    assert share(by_kind["unlabelled"], "accuracy") == (1.0, 1)


def test_gold_and_sources_count_where_they_apply() -> None:
    figures = model_metrics(
        [
            scored(True, answered=True, found_gold=True, read_gold=True, sources_correct=True),
            scored(False, answered=True, found_gold=True, read_gold=False, sources_correct=False),
            scored(None, found_gold=False, read_gold=False, sources_correct=False),
            RIGHT_TO_ABSTAIN,
        ]
    )
    assert share(figures, "found_gold") == (2 / 3, 3)
    assert share(figures, "read_gold") == (1 / 3, 3)
    assert share(figures, "sources_correct") == (1 / 3, 3)


def test_means_and_percentiles() -> None:
    figures = model_metrics(
        [
            scored(True, answered=True, turns=2, effort=5, seconds=1.0, cost=0.001),
            scored(True, answered=True, turns=3, effort=3, seconds=2.0, cost=0.002),
            scored(False, answered=True, turns=7, effort=8, seconds=4.0, cost=0.006),
        ]
    )
    assert figures["turns"] == pytest.approx(4.0)
    assert figures["turns_when_correct"] == pytest.approx(2.5)
    assert figures["effort"] == pytest.approx(16 / 3)
    assert figures["cost_per_1000_usd"] == pytest.approx(3.0)
    assert figures["latency_p50_s"] == pytest.approx(2.0)
    assert figures["latency_p95_s"] == pytest.approx(3.8)


def test_a_cost_not_known_is_not_zero() -> None:
    assert (
        model_metrics([RIGHT, scored(True, answered=True, cost=None)])["cost_per_1000_usd"] is None
    )
    assert model_metrics([RIGHT])["cost_per_1000_usd"] == 0.0


def test_tokens_are_means_and_retries_a_sum() -> None:
    figures = model_metrics(
        [
            scored(True, answered=True, tokens=(100, 40), retries=2),
            scored(None, failed=True, tokens=(300, 0), retries=8),
        ]
    )
    assert figures["tokens"] == {
        "prompt_tokens": 200,
        "cached_prompt_tokens": 100,
        "completion_tokens": 20,
        "reasoning_tokens": 5,
    }
    assert figures["retries"] == 10


def test_a_cache_measures_neither_time_nor_cost() -> None:
    paid = scored(True, answered=True, tokens=(100, 40), cost=0.5)
    kept = scored(True, answered=True, tokens=(100, 40), cost=0.25, calls=[0.3, None])
    figures = model_metrics([paid, kept], timed=False)
    assert figures["latency_p50_s"] is figures["latency_p95_s"] is None
    assert figures["cost_per_1000_usd"] is None
    assert model_metrics([paid], timed=False)["cost_per_1000_usd"] == 500
    # A policy that asks no model has no calls to time, and costs what it says.
    offline = scored(True, answered=True, calls=[None, None])
    assert model_metrics([offline])["cost_per_1000_usd"] == 0.0


def test_figures_of_no_episodes() -> None:
    figures = model_metrics([])
    assert figures["n"] == 0
    assert share(figures, "accuracy") == (None, 0)
    assert figures["cost_per_1000_usd"] is figures["turns"] is figures["latency_p50_s"] is None
