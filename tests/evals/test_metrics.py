"""Figures against truth computed by hand."""

import dataclasses
import itertools
import json
from typing import Any

import pytest

from art_e.question import Kind, Question
from evals.metrics import model_metrics, run_metrics
from evals.scored import Scored
from evals.statistics import UNKNOWN
from tests.builders import trajectory

JUDGE = "offline/2"
FACTS: dict[str, Any] = {
    "answered": False,
    "abstained": False,
    "lost_to_format": False,
    "ran_out_of_turns": False,
    "found_gold": None,
    "read_gold": None,
    "sources_correct": None,
    "turns": 1,
    "effort": 1,
    "tool_calls": 1,
}


NUMBERS = itertools.count()


def verdict(correct: bool | None, judge: str = JUDGE, grounded: bool | None = None) -> Any:
    return {"correct": correct, "grounded": grounded, "judge": judge, "reason": "so"}


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
    id: str | None = None,  # noqa: A002 - the question's
    inbox: str = "bob@test.example",
    second: bool | None = None,
    repeat: int = 0,
    **facts: Any,
) -> Scored:
    """An episode; `correct` None: it was not judged."""
    question = Question(
        id or f"q{next(NUMBERS)}", "What?", inbox, answer="x", kind=kind, answerable=answerable
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
        verdict=None if correct is None else verdict(correct),
        other_verdicts=[] if second is None else [verdict(second, "other")],
        repeat=repeat,
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


def figures_of(scored: list[Scored], **options: Any) -> dict[str, Any]:
    return model_metrics(scored, [JUDGE], **options)


def share(figures: dict[str, Any], name: str) -> tuple[float | None, int]:
    return figures[name]["value"], figures[name]["n"]


def test_accuracy_is_over_answerable_questions_hallucination_over_all() -> None:
    figures = figures_of([RIGHT, RIGHT, WRONG, ABSTAINED, OUT_OF_TURNS, RIGHT_TO_ABSTAIN, MADE_UP])
    assert figures["n"] == 7
    assert share(figures, "accuracy") == (2 / 5, 5)
    assert share(figures, "unanswerable_accuracy") == (1 / 2, 2)
    assert share(figures, "hallucination") == (2 / 7, 7)
    assert share(figures, "abstention") == (2 / 7, 7)
    assert figures["errors"] == 0


def test_failed_episodes_stay_in_the_denominator() -> None:
    figures = figures_of([RIGHT, FAILED, FAILED, FAILED_UNANSWERABLE])
    assert share(figures, "accuracy") == (1 / 3, 3)
    assert share(figures, "unanswerable_accuracy") == (0.0, 1)
    assert share(figures, "hallucination") == (0.0, 4)
    assert share(figures, "abstention") == (0.0, 4)
    assert figures["errors"] == 3
    assert figures["errors_by_kind"] == {"provider": 3}


def test_figures_by_kind() -> None:
    figures = figures_of([RIGHT, WRONG, RIGHT_TO_ABSTAIN, scored(True, answered=True, kind=None)])
    by_kind = figures["by_kind"]
    assert list(by_kind) == ["lookup", "unanswerable", "unlabelled"]
    assert share(by_kind["lookup"], "accuracy") == (1 / 2, 2)
    assert share(by_kind["lookup"], "hallucination") == (1 / 2, 2)
    assert share(by_kind["lookup"], "unanswerable_accuracy") == (None, 0)
    assert share(by_kind["unanswerable"], "accuracy") == (None, 0)
    assert share(by_kind["unanswerable"], "unanswerable_accuracy") == (1.0, 1)
    assert share(by_kind["unlabelled"], "accuracy") == (1.0, 1)


def test_gold_and_sources_count_where_they_apply() -> None:
    figures = figures_of(
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
    figures = figures_of(
        [
            scored(True, answered=True, turns=2, effort=5, seconds=1.0, cost=0.001),
            scored(True, answered=True, turns=3, effort=3, seconds=2.0, cost=0.002),
            scored(False, answered=True, turns=7, effort=8, seconds=4.0, cost=0.006),
        ]
    )
    assert figures["turns"]["value"] == pytest.approx(4.0)
    assert figures["turns_when_correct"]["value"] == pytest.approx(2.5)
    assert figures["effort"]["value"] == pytest.approx(16 / 3)
    assert figures["cost_per_1000_usd"]["value"] == pytest.approx(3.0)
    assert figures["latency_p50_s"]["value"] == pytest.approx(2.0)
    assert figures["latency_p95_s"]["value"] == pytest.approx(3.8)


def test_a_cost_not_known_is_not_zero() -> None:
    unpriced = figures_of([RIGHT, scored(True, answered=True, cost=None)])
    assert unpriced["cost_per_1000_usd"] == UNKNOWN
    assert unpriced["cost_usd"] is None
    free = figures_of([RIGHT])
    assert (free["cost_per_1000_usd"]["value"], free["cost_usd"]) == (0.0, 0.0)


def test_tokens_are_means_and_retries_a_sum() -> None:
    figures = figures_of(
        [
            scored(True, answered=True, tokens=(100, 40), retries=2),
            scored(None, failed=True, tokens=(300, 0), retries=8),
        ]
    )
    assert {name: each["value"] for name, each in figures["tokens"].items()} == {
        "prompt_tokens": 200,
        "cached_prompt_tokens": 100,
        "completion_tokens": 20,
        "reasoning_tokens": 5,
    }
    assert figures["retries"] == 10


def test_a_cache_measures_neither_time_nor_cost() -> None:
    paid = scored(True, answered=True, tokens=(100, 40), cost=0.5)
    kept = scored(True, answered=True, tokens=(100, 40), cost=0.25, calls=[0.3, None])
    figures = figures_of([paid, kept], timed=False)
    for name in ("latency_p50_s", "latency_p95_s", "cost_per_1000_usd"):
        assert figures[name] == UNKNOWN
    assert all(part == UNKNOWN for part in figures["latency_parts_s"].values())
    assert figures_of([paid], timed=False)["cost_per_1000_usd"]["value"] == 500
    # A policy that asks no model has no calls to time, and costs what it says.
    offline = scored(True, answered=True, calls=[None, None])
    assert figures_of([offline])["cost_per_1000_usd"]["value"] == 0.0


def test_latency_is_split_into_model_tools_and_rest() -> None:
    def timed(total: float, model: float, tools: float) -> Scored:
        made = scored(True, answered=True).trajectory
        times = {"total": total, "model": model, "tools": tools}
        return dataclasses.replace(
            scored(True), trajectory=dataclasses.replace(made, seconds=times)
        )

    parts = figures_of([timed(2.0, 1.5, 0.25), timed(4.0, 2.5, 0.25)])["latency_parts_s"]
    assert {name: each["value"] for name, each in parts.items()} == {
        "model": 2.0,
        "tools": 0.25,
        "rest": 0.75,
    }


def test_the_unjudged_are_neither_right_nor_hallucinated_and_are_counted() -> None:
    # The judge failed on two: one has no verdict at all, one a verdict that says nothing.
    silent = scored(None, answered=True)
    unparseable = dataclasses.replace(
        silent, trajectory=dataclasses.replace(silent.trajectory, verdict=verdict(None))
    )
    figures = figures_of([RIGHT, WRONG, silent, unparseable])
    assert share(figures, "accuracy") == (1 / 4, 4)
    assert share(figures, "hallucination") == (1 / 4, 4)
    assert figures["unjudged"] == figures["funnel"]["unjudged"] == 2


def test_groundedness_is_of_those_that_were_judged_for_it() -> None:
    def grounded(found: bool | None) -> Scored:
        each = scored(True, answered=True)
        judged = dataclasses.replace(each.trajectory, verdict=verdict(True, grounded=found))
        return dataclasses.replace(each, trajectory=judged)

    figures = figures_of([grounded(True), grounded(True), grounded(False), grounded(None), FAILED])
    assert share(figures, "grounded") == (2 / 3, 3)


def test_two_judges_are_shown_beside_each_other() -> None:
    # Of 10: both right 4, both wrong 3, the first alone 2, the second alone 1.
    said = [(True, True)] * 4 + [(False, False)] * 3 + [(True, False)] * 2 + [(False, True)]
    judged = [scored(one, second=other, answered=True) for one, other in said]
    figures = model_metrics([*judged, FAILED], [JUDGE, "other"])
    assert share(figures["by_judge"][JUDGE], "accuracy") == share(figures, "accuracy")
    assert share(figures, "accuracy") == (6 / 11, 11)
    assert share(figures["by_judge"]["other"], "accuracy") == (5 / 11, 11)
    assert share(figures["by_judge"]["other"], "hallucination") == (5 / 11, 11)
    agreement = figures["agreement"]
    assert (agreement["judges"], agreement["n"]) == ([JUDGE, "other"], 10)
    assert agreement["share"]["value"] == pytest.approx(0.7)
    # By chance 0.6 * 0.5 + 0.4 * 0.5 = 0.5 of them.
    assert agreement["kappa"]["value"] == pytest.approx((0.7 - 0.5) / 0.5)
    assert figures["funnel"]["judges_disagree"] == 3
    assert figures_of([RIGHT])["agreement"] is None


def test_a_verdict_that_one_judge_lacks_is_no_disagreement() -> None:
    pairs = [(True, None), (None, True), (True, True)]
    made = [scored(True, second=True, answered=True) for _ in pairs]
    judged = [
        dataclasses.replace(
            each,
            trajectory=dataclasses.replace(
                each.trajectory, verdict=verdict(one), other_verdicts=[verdict(other, "other")]
            ),
        )
        for each, (one, other) in zip(made, pairs, strict=True)
    ]
    figures = model_metrics(judged, [JUDGE, "other"])
    assert figures["agreement"]["n"] == 1
    assert figures["agreement"]["share"]["value"] == 1
    assert figures["agreement"]["kappa"]["value"] is None
    assert figures["funnel"]["judges_disagree"] == 0


def test_with_repeats_it_counts_how_often_all_were_right() -> None:
    said = {"always": (True, True, True), "mostly": (True, True, False), "never": (False,) * 3}
    episodes = [
        scored(right, id=name, repeat=number, answered=True)
        for name, rights in said.items()
        for number, right in enumerate(rights)
    ]
    figures = figures_of(episodes)
    assert share(figures, "always_right") == (1 / 3, 3)
    assert share(figures, "accuracy") == (5 / 9, 9)
    # Three answers to one question are not three pieces of evidence.
    assert figures["accuracy"]["method"] == "bootstrap clustered by question"
    assert figures_of([RIGHT, WRONG])["always_right"] is None


def test_inboxes_are_the_clusters_where_there_are_enough() -> None:
    def over(inboxes: int) -> dict[str, Any]:
        return figures_of(
            [scored(n % 3 > 0, inbox=f"i{n % inboxes}@t", answered=True) for n in range(60)]
        )

    assert over(9)["accuracy"]["method"] == "wilson"
    assert over(9)["turns"]["method"] == "bootstrap"
    assert over(10)["accuracy"]["method"] == "bootstrap clustered by inbox"
    assert over(10)["turns"]["method"] == "bootstrap clustered by inbox"


def test_the_order_of_episodes_makes_no_difference() -> None:
    episodes = [
        scored(n % 3 > 0, answered=True, cost=0.1 * n, seconds=1.0 + n % 7, inbox=f"i{n % 12}@t")
        for n in range(40)
    ]
    assert figures_of(episodes) == figures_of(episodes[::-1])


def test_a_run_is_its_models_and_what_they_were_asked() -> None:
    strong = scored(True, id="1", answered=True)
    weak = scored(False, id="1", answered=True)
    other = scored(True, id="2", abstained=True, answerable=False, inbox="zoe@test.example")
    weak = dataclasses.replace(
        weak, trajectory=dataclasses.replace(weak.trajectory, model="weak", repeat=1)
    )
    metrics = run_metrics([weak, strong, other], ["scripted", "weak", "absent"], [JUDGE])
    assert metrics["judges"] == [JUDGE]
    assert metrics["questions"] == {"n": 2, "answerable": 1, "inboxes": 2, "repeats": 2}
    assert [(name, each["n"]) for name, each in metrics["models"].items()] == [
        ("scripted", 2),
        ("weak", 1),
        ("absent", 0),
    ]
    # Plain numbers and text: it is a JSON file.
    assert json.loads(json.dumps(metrics)) == metrics


def test_figures_of_no_episodes() -> None:
    figures = figures_of([])
    assert figures["n"] == 0
    for name in ("accuracy", "cost_per_1000_usd", "turns", "latency_p50_s", "grounded"):
        assert figures[name] == UNKNOWN
