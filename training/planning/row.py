"""A plan as data, as `--json` gives it and as the tables show it. Knows nothing of how it came
about."""

from collections.abc import Sequence
from typing import Any

from training.planning.footprint import CONTEXT_BYTES, Phase
from training.planning.pace import ASSUMED
from training.planning.plan import Plan, StagePlan, with_another_search
from training.planning.remedies import Remedy
from training.planning.reported import Reported

_GB = 1e9


def row_of(planned: Plan, found: Sequence[Remedy] = ()) -> dict[str, Any]:
    """The plan, with ways to make it fit. Sizes are in bytes, times in seconds or hours."""
    model = planned.recipe.model
    shape = planned.shape
    made = model.scratch is not None
    return {
        "recipe": planned.recipe.name,
        "model": model.base or "made from nothing",
        "parameters": shape.parameters,
        "kv_bytes_per_token": shape.kv_bytes,
        "lora_parameters": planned.trained.lora_weights,
        "gpu": planned.card.name,
        "gpus": {"train": planned.gpus.train, "serve": planned.gpus.serve},
        "memory_bytes": planned.card.memory,
        "usd_per_hour": planned.usd_per_hour,
        "episode": {
            "turns": planned.episode.turns,
            "prompt_tokens": planned.episode.prompt,
            "own_tokens": planned.episode.own,
            "tokens": planned.episode.length,
            "source": planned.episode.source,
        },
        "stages": [_stage(each) for each in planned.stages],
        "hours": planned.hours,
        "gpu_usd": planned.gpu_usd,
        "hours_with_another_search": None if made else with_another_search(planned).hours,
        "judges": [each._asdict() for each in planned.fees],
        "judge_usd": planned.judge_usd,
        "max_cost_usd": planned.recipe.judging.max_cost_usd,
        "assumed": [f"CUDA and the allocator take {CONTEXT_BYTES / _GB:g} GB", *ASSUMED],
        "fits": not planned.faults,
        "faults": planned.faults,
        "warnings": planned.warnings,
        "remedies": [_remedy(each) for each in found],
    }


def compared(planned: Plan, reported: Reported) -> list[dict[str, Any]]:
    """What is planned beside what a run reported, line by line; None for what is not known."""
    stage = next((each for each in planned.stages if each.name == reported.kind), None)
    if stage is None:
        return []
    tokens = stage.generated if reported.kind == "grpo" else stage.trained_on
    said = "generated" if reported.kind == "grpo" else "trained on"
    most = max(phase.size for phase in stage.phases)
    # A run's seconds have its validations among them, and not yet its test.
    seconds = stage.step_seconds + stage.examining_seconds / stage.steps
    a_step = None if planned.judge_usd is None else planned.judge_usd / stage.steps
    return [
        _beside("steps", stage.steps, reported.steps),
        _beside(f"tokens a step, {said}", tokens, reported.tokens),
        _beside("seconds a step, with validations", seconds, reported.seconds),
        _beside("most memory in use, GB", most / _GB, _gb(reported.peak_memory)),
        _beside("judges a step, USD", a_step, reported.cost_usd),
    ]


def _beside(what: str, planned: float | None, reported: float | None) -> dict[str, Any]:
    return {"what": what, "planned": planned, "reported": reported}


def _gb(size: int | None) -> float | None:
    return None if size is None else size / _GB


def _stage(stage: StagePlan) -> dict[str, Any]:
    return {
        "stage": stage.name,
        "steps": stage.steps,
        "episodes": stage.episodes,
        "tokens_per_step": {
            "generated": stage.generated,
            "read": stage.read,
            "trained_on": stage.trained_on,
        },
        "seconds_per_step": dict(stage.seconds),
        "examinations": stage.examinations,
        "examining_seconds": stage.examining_seconds,
        "hours": stage.hours,
        "memory": [_phase(each) for each in stage.phases],
        "room": {
            "kv_tokens": stage.room.tokens,
            "whole_episodes": stage.room.episodes,
            "under_way": stage.room.wanted,
        },
    }


def _phase(phase: Phase) -> dict[str, Any]:
    return {
        "phase": phase.name,
        "lines": [line._asdict() for line in phase.lines],
        "bytes": phase.size,
        "left": phase.left,
    }


def _remedy(remedy: Remedy) -> dict[str, Any]:
    return {
        "options": remedy.options,
        "changes": list(remedy.changes),
        "gpu": remedy.plan.card.name,
        "hours": remedy.plan.hours,
        "gpu_usd": remedy.plan.gpu_usd,
    }
