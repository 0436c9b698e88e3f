"""The GPU's price in `art-e eval run`: whose cost it measures, and what to write down of it.

Knows nothing of how a cost is measured. Heavy imports are made inside the functions.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from art_e.cli.models import is_self_hosted
from art_e.errors import UserError

GpuPriceOption = Annotated[
    float | None,
    typer.Option(
        "--gpu-usd-per-hour",
        metavar="USD",
        min=0,
        help="What the GPU of a model that you serve costs: its cost a question is measured.",
    ),
]
GpusOption = Annotated[
    int | None,
    typer.Option("--gpus", metavar="N", min=1, help="GPUs at that price that serve [default: 1]."),
]


def priced(
    gpu_usd_per_hour: float | None, gpus: int | None, models: Sequence[str], *, cache: bool
) -> dict[str, Any]:
    """What the run's configuration holds of the options. Raises `UserError` for what can't be
    measured."""
    if gpu_usd_per_hour is None:
        if gpus is not None:
            raise UserError("--gpus says how many have a price; add --gpu-usd-per-hour")
        return {"gpu_usd_per_hour": None, "gpus": None, "self_hosted": None}
    if not math.isfinite(gpu_usd_per_hour):
        raise UserError(f"--gpu-usd-per-hour {gpu_usd_per_hour} is no sum; write USD, such as 2.10")
    self_hosted = [each for each in models if is_self_hosted(each)]
    if not self_hosted:
        raise UserError(
            "--gpu-usd-per-hour is for a model that you serve yourself, and none of the run's is"
            " one: add -m hosted_vllm/NAME, ollama_chat/NAME or local:PATH, or leave it out"
        )
    if cache:
        raise UserError(
            "--gpu-usd-per-hour measures time, which is none where --cache answers; leave one out"
        )
    return {
        "gpu_usd_per_hour": gpu_usd_per_hour,
        "gpus": gpus or 1,
        "self_hosted": self_hosted,
    }


def note_entries(metrics: Mapping[str, Any]) -> None:
    """Say on stderr what to write into `prices.toml`, so that estimates know the measurement."""
    from art_e.cli.output import note
    from art_e.policies.prices import gpu_entry, prices_file

    for model, figures in metrics["models"].items():
        measured = figures["throughput"]
        if measured is None:
            continue
        if measured["left_out"] is not None:
            note(f"{model}: its cost was not measured, for {measured['left_out']}")
            continue
        try:
            lines = gpu_entry(
                model,
                measured["gpu_usd_per_hour"] * measured["gpus"],
                measured["seconds"],
                measured["prompt_tokens"],
                measured["completion_tokens"],
            )
        except ValueError:
            note(f"{model}: its server tells no tokens, so prices.toml can't have its cost")
            continue
        note(f"for estimates and --max-cost, {prices_file()} may have of this measurement:")
        for line in lines.splitlines():
            note(line)
