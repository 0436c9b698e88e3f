"""`art-e` as a launcher starts it, with the stand-in for vLLM below TRL.

accelerate launch -m tests.training.launched train grpo ..."""

import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from art_e.cli.main import run
from tests import fake_vllm
from tests.processes import Moment, die_at
from training import run as training_run

MODULES = ["trl.trainer.sft_trainer", "trl.trainer.grpo_trainer", "peft", "datasets", "scipy.stats"]


def preloaded() -> ForkServerContext:
    """Return a context whose processes fork from a server that has imported the libraries."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(MODULES)
    return context


def art_e(
    arguments: Sequence[str], environment: Mapping[str, str], moment: Moment | None = None,
    checkpoint_minutes: float | None = None,
) -> None:  # fmt: skip
    """Run `art-e` in this process, which dies at `moment`."""
    import torch

    if moment is not None:
        die_at(moment)
    if checkpoint_minutes is not None:
        training_run.CHECKPOINT_MINUTES = checkpoint_minutes
    os.environ.update(environment)
    torch.set_num_threads(1)
    sys.argv = ["art-e", *arguments]
    run()


def art_e_with_vllm(
    arguments: Sequence[str], environment: Mapping[str, str], log: Path | None = None
) -> None:
    if log is not None:
        with log.open("ab") as output:
            os.dup2(output.fileno(), sys.stdout.fileno())
            os.dup2(output.fileno(), sys.stderr.fileno())
    with pytest.MonkeyPatch.context() as patch:
        fake_vllm.install(patch)
        art_e(arguments, environment)


if __name__ == "__main__":
    art_e_with_vllm(sys.argv[1:], {})
