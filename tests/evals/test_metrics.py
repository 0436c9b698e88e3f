"""Figures and comparisons of episodes against values computed by hand."""

import datetime as dt
import itertools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.question import Question
from evals import metrics
from evals.judges.labels import Case, ErrorCounts, JudgedCase, count_errors, rogan_gladen
from evals.metrics import STEPS, Serving, compare, ending_of, gpu_seconds, model_metrics
from evals.report.tables import differences, fewer_errors, percent, summary
from evals.scored import Scored, Verdict
from evals.statistics import UNKNOWN, Sample, holm
from tests.builders import table_rows, the_error
from tests.evals.runs import Outcome, changed, episode, question, write_run

JUDGE = "offline/9"
NUMBERS = itertools.count()
ITEMS = [question(number, kind="lookup") for number in range(12)]


def scored(outcome: Outcome, *, item: Question | None = None, **options: Any) -> Scored:
    """Return an episode, by default of a new lookup question; `facts` replace its rubric's."""
    item = item or question(next(NUMBERS), kind="lookup", inbox_address="bob@test.example")
    facts = options.pop("facts", {})
    return changed(Scored(item, episode(item, outcome, **options)), rubric=facts)


def unanswerable(outcome: Outcome, **options: Any) -> Scored:
    return scored(outcome, item=question(next(NUMBERS), kind="unanswerable"), **options)


def judged(*verdicts: bool | None, grounded: bool | None = None) -> Scored:
    """Return an answer with the verdicts of several judges."""
    first, *others = (
        {"correct": correct, "grounded": grounded, "judge": str(judge), "reason": ""}
        for judge, correct in enumerate(verdicts)
    )
    return scored("right", verdict=first, other_verdicts=others)


def figures_of(episodes: Sequence[Scored], **options: Any) -> dict[str, Any]:
    return model_metrics(episodes, [JUDGE], **options)


def share(figures: dict[str, Any], name: str) -> tuple[float | None, int]:
    return figures[name]["value"], figures[name]["n"]


def test_shares_are_over_their_questions_without_failed_episodes() -> None:
    answerable: list[Outcome] = ["right", "right", "wrong", "abstained", "out of turns", "failed"]
    others: list[Outcome] = ["abstained", "wrong", "failed"]
    figures = figures_of([*map(scored, answerable), *map(unanswerable, others)])
    assert figures["n"] == figures["turns"]["n"] == figures["latency_p50_s"]["n"] == 7
    shares = {"accuracy": (2 / 5, 5), "unanswerable_accuracy": (1 / 2, 2)}
    shares |= dict.fromkeys(("hallucination", "abstention"), (2 / 7, 7))
    assert {name: share(figures, name) for name in shares} == shares
    assert (figures["errors"], figures["errors_by_kind"]) == (2, {"provider": 2})
    by_kind = figures["by_kind"]
    assert list(by_kind) == ["lookup", "unanswerable"]
    assert [by_kind[kind]["n"] for kind in by_kind] == [5, 2]
    assert share(by_kind["lookup"], "accuracy") == (2 / 5, 5)
    assert share(by_kind["lookup"], "unanswerable_accuracy") == (None, 0)
    assert share(by_kind["unanswerable"], "hallucination") == (1 / 2, 2)
    # Kinds have a fixed order; questions without one come last.
    unlabelled = scored("right", item=Question("x", "?", "i", answer="x", answerable=True))
    later = scored("right", item=question(1, kind="count"))
    labels = figures_of([unlabelled, later, scored("right")])["by_kind"]
    assert list(labels) == ["lookup", "count", "unlabelled"]


def test_figures_have_means_percentiles_and_sums() -> None:
    rows: list[tuple[Outcome, int, int, float, float, int]] = [
        ("right", 2, 5, 1.0, 0.001, 2), ("right", 3, 3, 2.0, 0.002, 0),
        ("wrong", 7, 8, 4.0, 0.006, 8),
    ]  # fmt: skip
    episodes = []
    for outcome, turns, effort, seconds, cost, retries in rows:
        facts = {"turns": turns, "effort": effort, "tool_calls": effort + 1}
        usage = {"prompt_tokens": 100 * turns, "completion_tokens": turns}
        known: dict[str, Any] = {"seconds": seconds, "cost": cost, "retries": retries}
        episodes.append(scored(outcome, facts=facts, usage=usage, **known))
    figures = figures_of(episodes)
    means = {name: figures[name]["value"] for name in ("turns", "turns_when_correct", "effort")}
    assert means == pytest.approx({"turns": 4, "turns_when_correct": 2.5, "effort": 16 / 3})
    assert figures["tool_calls"]["value"] == pytest.approx(19 / 3)
    assert figures["cost_per_1000_usd"]["value"] == pytest.approx(3.0)
    assert figures["cost_usd"] == pytest.approx(0.009)
    assert figures["cost_source"] == "price per token"
    assert figures["latency_p50_s"]["value"] == pytest.approx(2.0)
    assert figures["latency_p95_s"]["value"] == pytest.approx(3.8)
    parts = {name: each["value"] for name, each in figures["latency_parts_s"].items()}
    assert parts == pytest.approx({"model": 2.1, "tools": 7 / 60, "rest": 7 / 60})
    assert [each["value"] for each in figures["tokens"].values()] == [400, 0, 4, 0]
    assert figures["retries"] == 10


def test_unknown_cost_is_not_zero_and_is_not_compared() -> None:
    free, paid = scored("right", cost=0.0), scored("right", cost=0.5)
    assert share(figures_of([free]), "cost_per_1000_usd") == (0.0, 1)
    figures = figures_of([paid, scored("right", cost=None)])
    assert figures["cost_per_1000_usd"] == UNKNOWN
    assert figures["cost_usd"] is figures["cost_source"] is None
    figures = compare(A, B)["figures"]
    assert figures["cost_per_1000_usd"]["a"] == pytest.approx(2.0)
    assert figures["latency_mean_s"]["b"] == pytest.approx(2.0)
    unpriced = [changed(B[0], cost_usd=None), *B[1:]]
    assert "cost_per_1000_usd" not in compare(A, unpriced)["figures"]
    assert "cost_per_1000_usd" not in compare(unpriced, B)["figures"]


def test_unjudged_answers_make_figures_ranges_but_not_groundedness() -> None:
    # One has no verdict at all, one a verdict of None.
    silent = scored("right", verdict=None)
    figures = figures_of([scored("right"), scored("wrong"), silent, scored("unjudged")])
    for name in ("accuracy", "hallucination"):
        bounds = figures[name]
        assert (bounds["value"], bounds["range"], bounds["unjudged"]) == (None, [1 / 4, 3 / 4], 2)
        sample = Sample(["bob@test.example"] * 4, list("abcd"))
        worst, best = (sample.share([n < hits for n in range(4)]) for hits in (1, 3))
        assert (bounds["low"], bounds["high"], bounds["n"]) == (worst["low"], best["high"], 4)
    assert percent(figures["accuracy"]).brief == "25.0 to 75.0% [4.6, 95.4], 2 of 4 unjudged"
    assert (figures["turns"]["n"], figures["abstention"]["range"]) == (4, [0, 1 / 2])
    # "Always right" is unknown for a question with an unjudged answer and no wrong one.
    tries: list[list[Outcome]] = [["right", "unjudged"], ["right", "right"], ["wrong", "unjudged"]]
    repeats = [
        scored(outcome, item=ITEMS[number], repeat=repeat)
        for number, outcomes in enumerate(tries)
        for repeat, outcome in enumerate(outcomes)
    ]
    assert figures_of(repeats)["always_right"]["range"] == [1 / 3, 2 / 3]
    assert figures["unjudged"] == figures["funnel"]["unjudged"] == 2
    words = "unjudged: 1 (unparseable: no verdict); see art-e eval rejudge"
    assert figures["reservations"] == [words]
    answers = [judged(True, grounded=each) for each in (True, True, False, None)]
    assert share(figures_of([*answers, scored("failed")]), "grounded") == (2 / 3, 3)


def test_two_judges_have_figures_and_an_agreement() -> None:
    # Of 10: right by both 4, wrong by both 3, right by the first only 2, by the second only 1.
    pairs = [(True, True)] * 4 + [(False, False)] * 3 + [(True, False)] * 2 + [(False, True)]
    both = [judged(one, other) for one, other in pairs]
    # A missing verdict is neither agreement nor disagreement.
    lacking = [judged(True, None), judged(None, True), scored("failed")]
    figures = model_metrics([*both, *lacking], [JUDGE, "other"])
    shares = ["accuracy", "unanswerable_accuracy", "hallucination"]
    assert [list(each) for each in figures["by_judge"].values()] == [shares, shares]
    assert figures["by_judge"][JUDGE]["accuracy"] == figures["accuracy"]
    assert figures["accuracy"]["range"] == [7 / 12, 8 / 12]
    assert figures["by_judge"]["other"]["accuracy"]["range"] == [6 / 12, 7 / 12]
    assert figures["by_judge"]["other"]["hallucination"]["range"] == [5 / 12, 6 / 12]
    agreement = figures["agreement"]
    assert (agreement["judges"], agreement["n"]) == ([JUDGE, "other"], 10)
    assert agreement["share"]["value"] == pytest.approx(0.7)
    # By chance 0.6 * 0.5 + 0.4 * 0.5 = 0.5.
    assert agreement["kappa"]["value"] == pytest.approx((0.7 - 0.5) / 0.5)
    assert figures["disputed"] == 3
    alone = figures_of(both)
    assert alone["agreement"] is None and list(alone["by_judge"]) == [JUDGE]


def test_repeats_are_one_cluster_and_show_what_is_always_right() -> None:
    rights = {"always": (1, 1, 1), "mostly": (1, 1, 0), "never": (0, 0, 0)}
    episodes = [
        scored("right" if right else "wrong", item=question(0, id=name, kind=None), repeat=repeat)
        for name, correct in rights.items()
        for repeat, right in enumerate(correct)
    ]
    figures = figures_of([*episodes, unanswerable("wrong", repeat=1)])
    assert figures_of(episodes[::-1]) == figures_of(episodes)
    assert share(figures, "always_right") == (1 / 3, 3)
    assert share(figures, "accuracy") == (5 / 9, 9)
    assert figures["accuracy"]["method"] == "Jeffreys over questions"
    assert figures_of([scored("right"), scored("wrong")])["always_right"] is None


def test_run_metrics_have_models_in_order_and_count_questions() -> None:
    items = [question(0), question(1), question(4)]
    strong = [scored("right", item=each, model="strong") for each in items]
    weak = scored("wrong", item=items[0], model="weak", repeat=1)
    figures = {"strong": figures_of(strong), "weak": figures_of([weak]), "absent": figures_of([])}
    whole = metrics.run_metrics([weak, *strong], [JUDGE], figures)
    assert whole["judges"] == [JUDGE]
    assert whole["questions"] == {"n": 3, "answerable": 2, "inboxes": 2, "repeats": 2}
    models = whole["models"]
    assert [each["n"] for each in models.values()] == [3, 1, 0]
    for name in ("accuracy", "cost_per_1000_usd", "turns", "latency_p50_s", "grounded"):
        assert models["absent"][name] == UNKNOWN
    # All values are JSON.
    assert json.loads(json.dumps(whole)) == whole


def ended(step: str, kind: str, outcome: str, options: str, _: str) -> tuple[str, Scored]:
    make: Any = scored if kind == "lookup" else unanswerable
    return step, make(outcome, **json.loads(options))


def test_funnel_counts_each_episode_once() -> None:
    rows = table_rows(__file__, "endings.tsv")
    steps, episodes = zip(*itertools.starmap(ended, rows), strict=True)
    assert tuple(map(ending_of, episodes)) == steps
    funnel = figures_of(episodes)["funnel"]
    assert list(funnel) == list(STEPS)
    assert funnel == {step: steps.count(step) for step in STEPS}
    assert all(n for step, n in funnel.items() if step != "failed")
    assert ending_of(scored("failed")) == "failed"
    assert figures_of([scored("right")])["funnel"] == dict.fromkeys(STEPS, 0) | {"right": 1}


def test_answers_without_the_payload_resist_attacks() -> None:
    planted = {"attack": "instruction", "planted": "Pay now"}
    episodes = [
        scored("wrong", item=question(0, id=answer, provenance=planted), final_answer=answer)
        for answer in ("Now, pay.", "pay, now!", "Payment now")
    ]
    assert [each.resisted for each in (*episodes, scored("wrong"))] == [True, False, True, None]
    assert list(figures_of(episodes)["by_attack"]) == ["instruction"]
    assert share(figures_of(episodes)["by_attack"], "instruction") == (2 / 3, 3)


def test_accuracy_is_corrected_for_the_judges_errors() -> None:
    # 200 questions are answered, 140 of them right; the judge misses 10 % and passes 20 %.
    sample = Sample(["bob"] * 200, [str(each) for each in range(200)])
    observed = sample.share([each < 140 * 0.9 + 60 * 0.2 for each in range(200)])
    true = rogan_gladen(observed, 1.0, ErrorCounts(1000, 900, 1000, 200))
    assert true["value"] == pytest.approx(0.7, abs=0.005)
    low, value, high = (true[name] or 0.0 for name in ("low", "value", "high"))
    assert low < (observed["low"] or 0.0) + 0.03 < value < high
    # Abstentions are not misjudged: they are not right.
    half = sample.share([each < 100 for each in range(200)])
    assert rogan_gladen(half, 0.5, ErrorCounts(100, 80, 100, 0))["value"] == 0.5
    # A perfect judge changes nothing; one that guesses leaves it unknown.
    same = rogan_gladen(observed, 1.0, ErrorCounts(10**6, 10**6, 10**6, 0))
    assert same["value"] == observed["value"]
    assert same["low"] == pytest.approx(observed["low"], abs=0.005)
    assert rogan_gladen(observed, 1.0, ErrorCounts(100, 30, 100, 30)) == UNKNOWN
    assert rogan_gladen(observed, 1.0, ErrorCounts(0, 0, 100, 30)) == UNKNOWN


def test_judge_errors_are_counted_on_answers_to_answerable_questions() -> None:
    item = Question("q", "When?", "b", answer="May 3", answerable=True)
    nothing = Question("n", "When?", "b", answerable=False)
    cases = [
        (Case(item, "May 3", True, "c"), True), (Case(item, "The 3rd of May", True, "c"), None),
        (Case(item, "May 4", False, "c"), True), (Case(item, "May 5", False, "c"), False),
        (Case(item, "I don't know", False, "c"), False),
        (Case(nothing, "May 5", False, "c"), False),
    ]  # fmt: skip
    rated = [JudgedCase(case, Verdict(correct, None, "j", "")) for case, correct in cases]
    assert count_errors(rated) == ErrorCounts(2, 1, 2, 1)


# ---- GPU time, cost and throughput against times counted by hand.


def timed(start: float, took: float, outcome: Outcome = "right", **options: Any) -> Scored:
    """Return an episode that started at second `start` and took `took` seconds."""
    started = dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=start)
    options = {"model": "own", "started_at": started.isoformat(), **options}
    return scored(outcome, seconds=took, **options)


# Whole seconds, so that they can be counted.
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), min_size=1, max_size=25))
def test_gpu_time_is_the_time_in_which_any_question_ran(times: list[tuple[int, int]]) -> None:
    busy = sum(any(start <= second < start + took for start, took in times) for second in range(40))
    assert sum(gpu_seconds([timed(*each) for each in times]).values()) == pytest.approx(busy)


def test_gpu_time_is_shared_by_episode_time_without_pauses() -> None:
    apart = gpu_seconds([timed(0, 2.0), timed(2.5, 1.0), timed(3_600, 4.0)])
    assert list(apart.values()) == pytest.approx([2.0, 1.0, 4.0])
    # Four seconds for episodes of six in all; time zones don't matter.
    middle = timed(1, 3.0, started_at="2026-01-01T05:00:01+05:00")
    times = gpu_seconds([middle, timed(0, 2.0), timed(1.5, 1.0)])
    assert list(times.values()) == pytest.approx([2.0, 4 / 3, 2 / 3])


def test_only_served_models_have_measured_costs(tmp_path: Path) -> None:
    episodes = [
        timed(0, 2.0, cost=9.0), timed(0, 2.0, model="hosted", cost=0.5),
        timed(1, 2.0, cost=None), timed(3, 1.0, "failed", cost=None),
    ]  # fmt: skip
    gpu: dict[str, Any] = {"gpu_usd_per_hour": 3.6, "concurrency": {"own": 4}}
    trajectories = [each.trajectory for each in episodes]
    run = write_run(tmp_path / "run", trajectories, self_hosted=["own"], **gpu)
    costs = [each.trajectory.cost_usd for each in metrics.load_with_costs(run)]
    # Three seconds, half for each episode: the hosted model did not use the GPU.
    assert costs == [pytest.approx(0.0015), 0.5, pytest.approx(0.0015), None]


def test_throughput_is_questions_per_second_of_serving() -> None:
    # 20 questions of 2 s, two at a time: 20 seconds. Each has 1,000 and 100 tokens.
    episodes = [timed(2.0 * (number // 2), 2.0) for number in range(20)]
    serving = Serving(3.6, 4)  # a tenth of a cent per second
    figures = figures_of(episodes, serving=serving)
    measured = dict(figures["throughput"])
    assert measured.pop("questions_per_second")["value"] == pytest.approx(1)
    tokens = {"prompt_tokens": 20_000, "completion_tokens": 2_000}
    served = {"seconds": pytest.approx(20), "n": 20, "usd_per_hour": 3.6, "concurrency": 4}
    assert measured == served | tokens
    assert figures["cost_per_1000_usd"]["value"] == pytest.approx(1.0)
    assert figures["cost_usd"] == pytest.approx(0.02)
    assert figures["cost_source"] == "measured at $3.60 an hour, concurrency 4"
    other = figures_of(episodes)
    assert (other["throughput"], other["cost_source"]) == (None, "price per token")
    assert other["cost_usd"] == pytest.approx(20 * 0.002)
    failed = [timed(100 + n, 1.0, "failed") for n in range(20)]
    assert figures_of([*episodes, *failed], serving=serving)["throughput"]["n"] == 20
    nothing = figures_of(failed, serving=serving)
    assert nothing["cost_per_1000_usd"] == UNKNOWN
    assert nothing["throughput"] is nothing["cost_usd"] is nothing["cost_source"] is None


def test_reservations_name_another_model_that_answered() -> None:
    for model, same, other in table_rows(__file__, "served.tsv"):
        figures = figures_of([scored("right", model=model, served=[same, other])])
        assert figures["reservations"] == [f"answered by {other}"], model


# ---- Pairs of models: statistics against values counted by hand.


def side(
    outcomes: Sequence[Outcome], items: Sequence[Question] = ITEMS, *, repeat: int = 0
) -> list[Scored]:
    return [
        Scored(item, episode(item, outcome, repeat=repeat))
        for item, outcome in zip(items, outcomes, strict=False)
    ]


# Right in both: 0-3; only in B: 4-8; only in A: 9; in neither: 10 and 11.
FOUR_RIGHT: list[Outcome] = ["right"] * 4
FOUR_WRONG: list[Outcome] = ["wrong"] * 4
FOUR_OPEN: list[Outcome] = ["unjudged"] * 4
A = side([*FOUR_RIGHT, *FOUR_WRONG, "abstained", "right", "wrong", "out of turns"])
B = side([*FOUR_RIGHT, *FOUR_RIGHT, "right", "not found", "wrong", "abstained"])


def test_comparison_has_differences_errors_and_flips() -> None:
    result = compare(A, B)
    assert (result["n"], result["left_out"]) == (12, {"a": 0, "b": 0})
    hallucination = result["figures"]["hallucination"]
    assert (hallucination["a"], hallucination["b"]) == (5 / 12, 2 / 12)
    assert result["figures"]["abstention"]["difference"]["value"] == pytest.approx(0)
    assert (result["only_a"], result["only_b"]) == (1, 5)
    assert result["p"] == pytest.approx(14 / 64)
    # Seven errors become three.
    assert result["net_reduction"]["value"] == pytest.approx(4 / 7)
    assert (result["mended"]["value"], result["mended"]["n"]) == (5 / 7, 7)
    assert (result["broken"]["value"], result["broken"]["n"]) == (1 / 3, 3)
    flipped = {each["question_id"]: each["right"] for each in result["flipped"]}
    assert flipped == {"q4": "b", "q5": "b", "q6": "b", "q7": "b", "q8": "b", "q9": "a"}
    [first] = [each for each in result["flipped"] if each["question_id"] == "q4"]
    assert (first["gold"], first["a"], first["b"]) == ("On May 5.", "On December 31.", "On May 5.")
    assert compare(A[::-1], B) == result
    assert fewer_errors(result["net_reduction"], "A").startswith("57.1% [")
    # Three errors become seven, which is given as a factor.
    more = compare(B, A)["net_reduction"]
    assert re.fullmatch(r"2.33 \[.*\] times the errors of B", fewer_errors(more, "B"))
    assert (result["net_reduction"]["high"], more["high"]) == (1.0, 1.0)
    # Three times the errors in every inbox still have an interval.
    three = compare(side([*FOUR_WRONG, *FOUR_RIGHT, *FOUR_RIGHT]), side([*FOUR_WRONG] * 3))
    assert re.match(r"3.00 \[1\.\d\d, [4-9]", fewer_errors(three["net_reduction"], "A"))
    lone = compare(side(["wrong", *FOUR_RIGHT]), side(["right", *FOUR_RIGHT]))["net_reduction"]
    assert fewer_errors(lone, "A").endswith("(too few errors for an interval)")


def test_unanswerable_questions_do_not_count_for_accuracy() -> None:
    items = [question(number, kind="unanswerable") for number in range(20, 24)]
    one = [*A, *side(["abstained", "wrong", "wrong", "wrong"], items)]
    other = [*B, *side(["abstained"] * 4, items)]
    result, alone = compare(one, other), compare(A, B)
    assert "unanswerable_accuracy" not in alone["figures"]
    row = result["figures"]["unanswerable_accuracy"]
    assert (row["a"], row["b"]) == (0.25, 1.0)
    for name in ("p", "only_a", "only_b", "mended", "broken", "net_reduction", "flipped"):
        assert result[name] == alone[name]


def test_only_common_questions_are_compared() -> None:
    result = compare(A, B[:6])
    assert (result["n"], result["left_out"]) == (6, {"a": 6, "b": 0})
    result = compare(side(["failed", "right", "wrong"]), side(["right", "wrong", "failed"]))
    assert (result["n"], result["left_out"]) == (1, {"a": 2, "b": 2})
    for other in (side(["right"], [question(99, kind="lookup")]), side(["unjudged"] * 12)):
        assert "share no judged question" in the_error(compare, A, other)
    for one, other in ((A + B, B), (B, A + B)):
        assert "RUN:MODEL" in the_error(compare, one, other)


def test_difference_with_unjudged_answers_is_a_range() -> None:
    one = side([*FOUR_RIGHT, *FOUR_WRONG, *FOUR_WRONG])
    result, worst, best = (
        compare(one, side([*FOUR_RIGHT, *FOUR_RIGHT, *rest]))
        for rest in (FOUR_OPEN, FOUR_WRONG, FOUR_RIGHT)
    )
    row, *ends = (each["figures"]["accuracy"] for each in (result, worst, best))
    low, high = (each["difference"] for each in ends)
    assert (row["a"], row["b"], result["unjudged"]) == (4 / 12, [8 / 12, 1], 4)
    bounds = {"range": [low["value"], high["value"]], "low": low["low"], "high": high["high"]}
    assert {name: row["difference"][name] for name in bounds} == bounds
    assert (result["p"], result["only_b"], result["net_reduction"]) == (worst["p"], 4, UNKNOWN)
    assert "4 of 12 pairs are unjudged" in summary(result, "A", "B")[1]
    [line] = differences({"accuracy": row})
    assert [each.value for each in line.cells[1:]] == ["66.7 to 100.0%", "+33.3 to +66.7 pts"]
    # p is 1 if missing verdicts could reverse the difference.
    assert compare(A, side([*FOUR_OPEN, *FOUR_OPEN, *FOUR_RIGHT]))["p"] == 1


def test_repeats_are_paired_but_count_as_one_question() -> None:
    often, always = [], []
    for repeat in range(3):
        # Question 0 is right once in three repeats, 1 twice; 2 and 3 never.
        correct = [repeat == 0, repeat < 2, False, False]
        often += side(["right" if right else "wrong" for right in correct], repeat=repeat)
        always += side(["right"] * 4, repeat=repeat)
    result = compare(often, always)
    assert (result["n"], result["figures"]["accuracy"]["a"]) == (12, 3 / 12)
    assert (result["only_a"], result["only_b"]) == (0, 3)
    assert result["p"] == pytest.approx(2 / 8)
    difference = result["figures"]["accuracy"]["difference"]
    # Each question has an inbox of its own.
    assert difference["method"] == "t over inboxes"
    # One of two repeats is not a majority.
    twice = [each for each in often if each.trajectory.repeat < 2]
    assert compare(twice, always[:8])["only_b"] == 3


def test_holm_corrects_p_values() -> None:
    assert holm([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.09, 0.09, 0.5])
    assert holm([0.6, 0.7]) == [1, 1]
