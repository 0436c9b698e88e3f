"""What a model of one's own gets through: questions and tokens a second, GPU hours.

    {"seconds":     in which it was being asked, see evals/gpu_time.py
     "n":           questions that it worked on to their end
     "at_once":     questions under way at a time, the mean over those seconds
     "questions_per_second", "prompt_tokens_per_second", "completion_tokens_per_second",
     "gpu_hours_per_1000":       of all GPUs together; estimates
     "prompt_tokens", "completion_tokens":    of those n questions, sums
     "gpu_usd_per_hour", "gpus", "concurrency":    as it was served
     "left_out":    why there is no measurement; null where there is one}

The intervals say what other questions of the kind would have given on the same server in
the same hour. One run has one wall time: how much the machine's speed differs from hour to
hour is not in them. Knows nothing of prices per token.
"""

from collections.abc import Sequence
from typing import Any

from evals.gpu_time import Serving, gpu_seconds, spans
from evals.intervals import UNKNOWN, Estimate, Sample
from evals.scored import Scored

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
