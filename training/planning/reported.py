"""What a training run has reported, to be put beside its plan: tokens, seconds, memory, fees.

Finished or not: what a run has not told yet is None. Knows nothing of plans.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, linear_regression

from art_e.errors import UserError
from art_e.runs import Run
from evals.scored import load_run
from training.planning.workload import EpisodeTokens
from training.progress import read_steps


@dataclass(frozen=True, slots=True)
class Reported:
    """A run of that `kind` ("sft" or "grpo") has done so many `steps`. Of a step in the mean,
    validations among them: the `tokens` (trained on in the warm start, generated in GRPO), the
    `seconds` and the `cost_usd` of judges. `peak_memory` is the most that was in use on its GPU,
    in bytes."""

    kind: str
    steps: int
    tokens: float | None
    seconds: float | None
    cost_usd: float | None
    peak_memory: int | None


def reported_by(run: Run) -> Reported:
    """The figures of a training run. Raises `UserError` for another run."""
    kind = run.config.get("kind")
    if kind not in ("sft", "grpo"):
        raise UserError(f"{run.folder} is no training run; art-e runs list shows what was run")
    try:
        peak = run.metrics.get("peak_memory_bytes")
    except (OSError, ValueError):  # not written yet
        peak = None
    steps = read_steps(run.folder)
    if not steps:
        return Reported(kind, 0, None, None, None, peak)
    last = steps[-1]
    each = (last.tokens / last.step, last.seconds / last.step, last.cost_usd / last.step)
    return Reported(kind, last.step, *each, peak)


def measured_in(run: Run) -> EpisodeTokens | None:
    """What the training episodes of a run had; None where it has none yet.

    An episode's length is not on record, but the sum of its turns' prompts is, and prompts grow
    about evenly from turn to turn: from longer and shorter episodes follows by how much.
    """
    if not run.trajectories.is_file() or not run.trajectories.stat().st_size:
        return None
    # Those of a validation are in no group.
    scored = [each for each in load_run(run) if "group" in each.trajectory.policy]
    scored = [each for each in scored if each.trajectory.rubric["turns"]]
    facts = [each.trajectory.rubric for each in scored]
    if not facts:
        return None
    turns = fmean(each["turns"] for each in facts)
    own = fmean(each["completion_tokens"] for each in facts)
    before = [(each["turns"] - 1) / 2 for each in facts]
    prompts = [each["prompt_tokens"] / each["turns"] for each in facts]
    # At least by what the model said itself; where all have as many turns no more is known.
    grows = max(own / turns, _slope(before, prompts))
    prompt = max(1.0, fmean(prompts) - grows * fmean(before))
    length = prompt + grows * (turns - 1) + own / turns
    reads = fmean(len(each.trajectory.mails_read) for each in scored)
    return EpisodeTokens(turns, prompt, own, length, reads, f"{len(facts)} episodes of the run")


def _slope(places: Sequence[float], values: Sequence[float]) -> float:
    """By how much the values rise from place to place."""
    return 0.0 if len(set(places)) == 1 else linear_regression(places, values).slope
