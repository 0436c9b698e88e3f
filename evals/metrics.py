"""From trajectories with verdicts to figures with intervals.

`run_metrics` gives what `metrics.json` holds:

    {"judges": [names, the first decides],
     "questions": {"n", "answerable", "inboxes", "repeats"},
     "prompt": {"name", "hash"}          put in by the benchmark
     "models": {name: {
        "n":  episodes: questions times repeats
        "accuracy":                over answerable questions
        "unanswerable_accuracy":   abstentions on unanswerable ones
        "hallucination":           wrong answers given, over all
        "abstention":              over all
        "grounded":                of the answers that were judged for it
        "found_gold", "read_gold", "sources_correct":    where there is gold mail
        "always_right":            answerable questions right in every repeat; null without
        "turns", "turns_when_correct", "effort", "tool_calls":      means an episode
        "tokens": {"prompt_tokens", "cached_prompt_tokens", "completion_tokens",
                   "reasoning_tokens"}                             means an episode
        "cost_per_1000_usd", "latency_p50_s", "latency_p95_s"
        "latency_parts_s": {"model", "tools", "rest"}              means an episode
                                      all of the above: estimates
        "cost_usd":     of all episodes, null if a price is unknown or a cache answered
        "cost_source":  "price per token", or how it was measured; null if it is unknown
        "throughput":   of a self-hosted model whose GPU has a price: see evals/gpu_time.py;
                        null of others
        "retries", "errors", "unjudged":    counts
        "errors_by_kind": {kind: count}
        "funnel": {step: count}             see evals/metrics.py
        "agreement": {"judges": [first, other], "n", "share": estimate, "kappa": estimate}
                                            null unless two judges were asked
        "by_judge": {judge: {"accuracy", "unanswerable_accuracy", "hallucination"}}
        "by_kind", "by_difficulty": {label: {"n", "accuracy", "unanswerable_accuracy",
                                             "hallucination", "abstention"}}
        "concurrency":  questions at a time, put in by the benchmark, as the next two are
        "not_asked":    episodes that a refused key or a limit on cost left out of all figures
        "stopped":      {"kind", "message"} of the error that stopped it; null without one
     }}}

An estimate is {"value", "low", "high", "n", "method"}: see evals/statistics.py. An
episode that failed for an outside reason stays in the denominator as unanswered; one
whose verdict could not be had is not correct and not a hallucination, and is counted
as unjudged.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from art_e.question import DIFFICULTIES, KINDS
from evals.gpu_time import Serving, gpu_seconds, spans
from evals.scored import Scored
from evals.statistics import UNKNOWN, Estimate, Sample

# ---- Where each episode ended: right, or the step at which it went wrong.

STEPS = (
    "right",
    "not_found",
    "found_not_read",
    "read_but_wrong",
    "judges_disagree",
    "abstained_though_read",
    "gold_unknown",
    "made_up",
    "out_of_turns",
    "lost_to_format",
    "failed",
    "unjudged",
)


def funnel(scored: Iterable[Scored]) -> dict[str, int]:
    """How many episodes ended at each step, in the order of `STEPS`, zeros too."""
    counted = Counter(map(ended_at, scored))
    return {step: counted[step] for step in STEPS}


def ended_at(scored: Scored) -> str:
    """The step at which the episode ended."""
    rubric = scored.trajectory.rubric
    judges = range(len(scored.verdicts))
    disputed = any(map(scored.correct_by, judges)) and any(map(scored.wrong_by, judges))
    holds = {
        "failed": scored.trajectory.error is not None,
        "lost_to_format": rubric["lost_to_format"],
        "out_of_turns": not scored.ended,
        "unjudged": scored.unjudged,
        "judges_disagree": disputed,
        "right": scored.correct,
        "made_up": not scored.question.answerable,
        "gold_unknown": rubric["read_gold"] is None,
        # A mail can be read without a search, by an id that another mail names.
        "not_found": not (rubric["found_gold"] or rubric["read_gold"]),
        "found_not_read": not rubric["read_gold"],
        "abstained_though_read": rubric["abstained"],
        "read_but_wrong": True,
    }
    return next(step for step in holds if holds[step])


# ---- Figures with intervals.

TOKENS = ("prompt_tokens", "cached_prompt_tokens", "completion_tokens", "reasoning_tokens")


def run_metrics(
    scored: Sequence[Scored],
    models: Sequence[str],
    judges: Sequence[str],
    *,
    timed: bool = True,
    served: Mapping[str, Serving] = MappingProxyType({}),
) -> dict[str, Any]:
    """The metrics of the run's episodes, for `models` in that order.

    `judges` are the judges' names. With `timed` false latencies are left out. `served` are the
    models whose cost is measured; their episodes have it already.
    """
    questions = {each.question.id: each.question for each in scored}
    return {
        "judges": list(judges),
        "questions": {
            "n": len(questions),
            "answerable": sum(bool(each.answerable) for each in questions.values()),
            "inboxes": len({each.inbox_address for each in questions.values()}),
            "repeats": max((each.trajectory.repeat for each in scored), default=0) + 1,
        },
        "models": {
            model: model_metrics(
                [each for each in scored if each.trajectory.model == model],
                judges,
                timed=timed,
                serving=served.get(model),
            )
            for model in models
        },
    }


def model_metrics(
    episodes: Iterable[Scored],
    judges: Sequence[str],
    *,
    timed: bool = True,
    serving: Serving | None = None,
) -> dict[str, Any]:
    """All figures of one model's episodes; the order of the episodes makes no difference.

    With `serving` their cost is measured (`evals.gpu_time`).
    """
    scored = sorted(episodes, key=lambda each: (each.question.id, each.trajectory.repeat))
    sample = sample_of(scored)
    facts = [each.trajectory.rubric for each in scored]
    failures = [error["kind"] for each in scored if (error := each.trajectory.error)]
    answerable = [each for each in scored if each.question.answerable]
    right = [each for each in answerable if each.correct]
    return {
        "n": len(scored),
        **_shares(scored),
        "grounded": _known_share(
            scored,
            [each.verdicts[0]["grounded"] if each.verdicts else None for each in scored],
        ),
        **{
            name: _known_share(scored, [each[name] for each in facts])
            for name in ("found_gold", "read_gold", "sources_correct")
        },
        "always_right": _always_right(answerable),
        "turns": sample.mean([each["turns"] for each in facts]),
        "turns_when_correct": sample_of(right).mean(
            [each.trajectory.rubric["turns"] for each in right]
        ),
        "effort": sample.mean([each["effort"] for each in facts]),
        "tool_calls": sample.mean([each["tool_calls"] for each in facts]),
        "tokens": {
            name: sample.mean([each.trajectory.usage.get(name, 0) for each in scored])
            for name in TOKENS
        },
        **_costs(scored, serving),
        "throughput": None if serving is None else throughput(scored, sample, serving),
        **_latencies(scored if timed else []),
        "retries": sum(each.trajectory.retries for each in scored),
        "errors": len(failures),
        "errors_by_kind": dict(sorted(Counter(failures).items())),
        "unjudged": sum(each.unjudged for each in scored),
        "funnel": funnel(scored),
        "agreement": _agreement(scored, judges),
        "by_judge": {judge: _judged_shares(scored, number) for number, judge in enumerate(judges)},
        "by_kind": _by_label(scored, [each.question.kind for each in scored], KINDS),
        "by_difficulty": _by_label(
            scored, [each.question.difficulty for each in scored], DIFFICULTIES
        ),
    }


def sample_of(scored: Sequence[Scored]) -> Sample:
    """The episodes as a sample, for figures with intervals."""
    return Sample(
        [each.question.inbox_address for each in scored], [each.question.id for each in scored]
    )


def _judged_shares(scored: Sequence[Scored], judge: int) -> dict[str, Estimate]:
    answerable = [each for each in scored if each.question.answerable]
    unanswerable = [each for each in scored if not each.question.answerable]
    return {
        "accuracy": sample_of(answerable).share([each.correct_by(judge) for each in answerable]),
        "unanswerable_accuracy": sample_of(unanswerable).share(
            [each.correct_by(judge) for each in unanswerable]
        ),
        "hallucination": sample_of(scored).share([each.wrong_by(judge) for each in scored]),
    }


def _shares(scored: Sequence[Scored]) -> dict[str, Estimate]:
    abstained = [bool(each.trajectory.rubric["abstained"]) for each in scored]
    return {**_judged_shares(scored, 0), "abstention": sample_of(scored).share(abstained)}


def _known_share(scored: Sequence[Scored], facts: Sequence[bool | None]) -> Estimate:
    known = [each is not None for each in facts]
    return sample_of(scored).of(known).share([bool(each) for each in facts if each is not None])


def _by_label(
    scored: Sequence[Scored], labels: Sequence[str | None], order: Sequence[str]
) -> dict[str, Any]:
    groups: dict[str, list[Scored]] = {}
    for label in (*order, None):
        chosen = [each for each, its in zip(scored, labels, strict=True) if its == label]
        if chosen:
            groups[label or "unlabelled"] = chosen
    return {label: {"n": len(chosen), **_shares(chosen)} for label, chosen in groups.items()}


def _always_right(answerable: Sequence[Scored]) -> Estimate | None:
    if all(each.trajectory.repeat == 0 for each in answerable):
        return None
    first = {each.question.id: each for each in answerable}
    missed = {each.question.id for each in answerable if not each.correct}
    return sample_of(list(first.values())).share([each not in missed for each in first])


def _costs(scored: Sequence[Scored], serving: Serving | None) -> dict[str, Any]:
    # The measured cost of failed episodes is borne by the others.
    paid = [each for each in scored if serving is None or each.trajectory.error is None]
    costs = [None if each.cached else each.trajectory.cost_usd for each in paid]
    known = [cost for cost in costs if cost is not None]
    if len(known) < len(costs) or (serving is not None and not known):
        return {"cost_per_1000_usd": UNKNOWN, "cost_usd": None, "cost_source": None}
    return {
        "cost_per_1000_usd": sample_of(paid).mean([1000 * cost for cost in known]),
        "cost_usd": sum(known),
        "cost_source": "price per token" if serving is None else str(serving),
    }


def _latencies(scored: Sequence[Scored]) -> dict[str, Any]:
    sample = sample_of(scored)
    times = [each.trajectory.seconds for each in scored]
    total = [each["total"] for each in times]
    rest = [each["total"] - each["model"] - each["tools"] for each in times]
    return {
        "latency_p50_s": sample.percentile(total, 50),
        "latency_p95_s": sample.percentile(total, 95),
        "latency_parts_s": {
            "model": sample.mean([each["model"] for each in times]),
            "tools": sample.mean([each["tools"] for each in times]),
            "rest": sample.mean(rest),
        },
    }


def _agreement(scored: Sequence[Scored], judges: Sequence[str]) -> dict[str, Any] | None:
    """The agreement of the first two judges, on the episodes that both judged."""
    if len(judges) < 2:
        return None
    both = [
        each
        for each in scored
        if len(each.verdicts) > 1
        and None not in (each.verdicts[0]["correct"], each.verdicts[1]["correct"])
    ]
    first, second = ([each.correct_by(judge) for each in both] for judge in (0, 1))
    sample = sample_of(both)
    return {
        "judges": list(judges[:2]),
        "n": len(both),
        "share": sample.share([one == other for one, other in zip(first, second, strict=True)]),
        "kappa": sample.kappa(first, second),
    }


# ---- The throughput of a self-hosted model.

NOTHING_ENDED = "no question was worked on to its end"


def throughput(scored: Sequence[Scored], sample: Sample, serving: Serving) -> dict[str, Any]:
    """The figures of one model's episodes; `sample` is theirs."""
    trajectories = [each.trajectory for each in scored]
    times = gpu_seconds(trajectories)
    measured = [time is not None for time in times]
    seconds = [time for time in times if time is not None]
    used = [each.usage for each, ended in zip(trajectories, measured, strict=True) if ended]
    prompts, completions = (
        [float(usage[name]) for usage in used] for name in ("prompt_tokens", "completion_tokens")
    )
    of_measured = sample.of(measured)
    ran = spans(trajectories)
    whole = sum(seconds)
    hours = [1000 / 3600 * serving.gpus * time for time in seconds]

    def per_second(counts: Sequence[float]) -> Estimate:
        return of_measured.ratio(counts, seconds) if seconds else UNKNOWN

    return {
        "seconds": whole if seconds else None,
        "n": len(seconds),
        "at_once": float((ran.ends - ran.starts).sum()) / whole if seconds else None,
        "questions_per_second": per_second([1.0] * len(seconds)),
        "prompt_tokens_per_second": per_second(prompts),
        "completion_tokens_per_second": per_second(completions),
        "gpu_hours_per_1000": of_measured.mean(hours),
        "prompt_tokens": int(sum(prompts)),
        "completion_tokens": int(sum(completions)),
        **serving._asdict(),
        "left_out": None if seconds else NOTHING_ENDED,
    }
