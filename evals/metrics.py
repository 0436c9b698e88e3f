"""From trajectories with verdicts to figures with intervals.

Section 3 of the evaluation protocol: accuracy is over answerable questions,
hallucination (wrong answers given) and abstention over all; an episode that
failed for an outside reason stays in the denominator as unanswered.
Knows nothing of how episodes were run or judged.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import binomtest

from art_e.question import KINDS, Question
from art_e.trajectory import Trajectory

CONFIDENCE = 0.95
TOKENS = ("prompt_tokens", "cached_prompt_tokens", "completion_tokens", "reasoning_tokens")


@dataclass(frozen=True, slots=True)
class Scored:
    """An episode with its question; the trajectory has a verdict if it answered or abstained."""

    question: Question
    trajectory: Trajectory

    @property
    def correct(self) -> bool:
        """Whether the judge found the answer, or the abstention, right."""
        verdict = self.trajectory.verdict
        return verdict is not None and bool(verdict["correct"])

    @property
    def wrong(self) -> bool:
        """Whether an answer was given and is not right: a hallucination."""
        return bool(self.trajectory.rubric["answered"]) and not self.correct

    @property
    def cached(self) -> bool:
        """Whether responses that were paid for earlier answered it, in part at least."""
        asked_a_model = self.trajectory.usage["prompt_tokens"] > 0
        return asked_a_model and None in self.trajectory.call_seconds


def proportion(hits: int, n: int) -> dict[str, Any]:
    """A share with its 95 % Wilson interval; value and bounds are None where n is 0."""
    if n == 0:
        return {"value": None, "low": None, "high": None, "n": 0}
    interval = binomtest(hits, n).proportion_ci(CONFIDENCE, method="wilson")
    return {"value": hits / n, "low": float(interval.low), "high": float(interval.high), "n": n}


def model_metrics(scored: Sequence[Scored], *, timed: bool = True) -> dict[str, Any]:
    """All figures of one model's episodes, and the shares again by kind of question.

    Tokens are means a question. Latency is None where it was not measured (`timed` false);
    cost is None where a price is not known, or a cache had the answer.
    """
    facts = [each.trajectory.rubric for each in scored]
    answerable = [each for each in scored if each.question.answerable]
    seconds = [each.trajectory.seconds["total"] for each in scored] if timed else []
    costs = [None if each.cached else each.trajectory.cost_usd for each in scored]
    known = [cost for cost in costs if cost is not None]
    cost = _mean(known) if len(known) == len(costs) else None
    failures = [error["kind"] for each in scored if (error := each.trajectory.error)]
    found = [each["found_gold"] for each in facts if each["found_gold"] is not None]
    read = [each["read_gold"] for each in facts if each["read_gold"] is not None]
    cited = [each["sources_correct"] for each in facts if each["sources_correct"] is not None]
    kinds = [kind for kind in (*KINDS, None) if any(s.question.kind == kind for s in scored)]
    return {
        "n": len(scored),
        **_shares(scored),
        "found_gold": proportion(sum(found), len(found)),
        "read_gold": proportion(sum(read), len(read)),
        "sources_correct": proportion(sum(cited), len(cited)),
        "turns": _mean(each["turns"] for each in facts),
        "turns_when_correct": _mean(s.trajectory.rubric["turns"] for s in answerable if s.correct),
        "effort": _mean(each["effort"] for each in facts),
        "tokens": {
            name: _mean(each.trajectory.usage.get(name, 0) for each in scored) for name in TOKENS
        },
        "cost_per_1000_usd": None if cost is None else 1000 * cost,
        "latency_p50_s": float(np.percentile(seconds, 50)) if seconds else None,
        "latency_p95_s": float(np.percentile(seconds, 95)) if seconds else None,
        "retries": sum(each.trajectory.retries for each in scored),
        "errors": len(failures),
        "errors_by_kind": dict(Counter(failures)),
        "by_kind": {
            kind or "unlabelled": _shares([s for s in scored if s.question.kind == kind])
            for kind in kinds
        },
    }


def _shares(scored: Sequence[Scored]) -> dict[str, Any]:
    answerable = [each for each in scored if each.question.answerable]
    unanswerable = [each for each in scored if not each.question.answerable]
    return {
        "accuracy": proportion(sum(each.correct for each in answerable), len(answerable)),
        "unanswerable_accuracy": proportion(
            sum(each.correct for each in unanswerable), len(unanswerable)
        ),
        "hallucination": proportion(sum(each.wrong for each in scored), len(scored)),
        "abstention": proportion(
            sum(bool(each.trajectory.rubric["abstained"]) for each in scored), len(scored)
        ),
    }


def _mean(values: Iterable[float]) -> float | None:
    listed = list(values)
    return float(np.mean(listed)) if listed else None
