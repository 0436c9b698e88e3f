"""`art-e train`, killed with SIGKILL at chosen moments and resumed, gives the same run.

Each run is a process that kills itself when a function is called for the n-th time, which no
handler or `finally` survives; `--resume` then goes on in a normal process."""

import json
import signal
from pathlib import Path
from random import Random
from typing import Any

import pytest

from art_e.runs import Run
from tests.builders import tries
from tests.processes import Moment
from tests.training import tiny
from tests.training.launched import art_e, preloaded
from training.cli import PAUSE
from training.run import newest_checkpoint, read_steps

CHANGES = (*tiny.CHANGES, *tiny.SETS["killed"])
# A start that writes calls, so that the rollouts of a question don't all earn the same.
START = ("sft.stages=[{steps=40, batch=8, rate=1e-2}]", "sft.validate_every=40")


class Trainings:
    def __init__(self, home: Path, start: Path) -> None:
        self._environment = {"ART_E_HOME": str(home), "OMP_NUM_THREADS": "1"}
        self.start = start
        self.done("sft", start)
        self._whole: dict[str, dict[str, Any]] = {}

    def whole(self, kind: str) -> dict[str, Any]:
        """Return the files of an uninterrupted run of that kind."""
        if kind not in self._whole:
            self._whole[kind] = self.done(kind, self.start.parent / kind)
        return self._whole[kind]

    def train(
        self, kind: str, out: Path, *options: str, moment: Moment | None = None,
        checkpoint_minutes: float | None = None,
    ) -> int:  # fmt: skip
        """Return the exit code; below 0 it is the signal that killed the process."""
        arguments = ["train", kind, "--recipe", "nano", "--seed", "3", "--out", str(out), *options]
        if kind == "grpo":
            arguments += ["--init", str(self.start)]
        arguments += tiny.flags(*CHANGES, *(START if out == self.start else ()))
        process = preloaded().Process(target=art_e, args=(
            arguments, self._environment, moment, checkpoint_minutes,
        ))  # fmt: skip
        process.start()
        process.join()
        assert process.exitcode is not None
        return process.exitcode

    def done(self, kind: str, out: Path, *options: str) -> dict[str, Any]:
        assert self.train(kind, out, *options) == 0
        assert Run(out).complete
        return left(out)


def left(folder: Path) -> dict[str, Any]:
    """Return a run's files without times and episode ids, which always differ."""
    names = ("metrics.json", "steps.jsonl", "trajectories.jsonl", "test.jsonl")
    texts = {name: (folder / name).read_text("utf-8") for name in names}
    metrics = json.loads(texts.pop("metrics.json"))
    lines = {name: list(map(json.loads, text.splitlines())) for name, text in texts.items()}
    for row in (metrics, *(each for rows in lines.values() for each in rows)):
        for name in ("episode_id", "run_id", "seconds", "started_at", "call_seconds"):
            row.pop(name, None)
    return {"metrics": metrics, **lines}


@pytest.fixture(scope="module")
def trainings(training_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Trainings:
    return Trainings(training_home, tmp_path_factory.mktemp("whole") / "start")


RUN, LONG = "training.run:TrainingRun", pytest.mark.long


# `checkpoint` is the newest that counts then. Validations come after every second step; with a
# checkpoint after as many `minutes` there is one after each step.
@pytest.mark.parametrize(
    ("kind", "moment", "checkpoint", "minutes"),
    [
        pytest.param("sft", Moment("training.validation", "validation_of", 3), "checkpoint-2", None,
                     marks=LONG),
        ("grpo", Moment("training.roller", "figures", 3), "checkpoint-2", None),
        ("grpo", Moment("training.roller", "figures", 4), "checkpoint-3", 0.0),
        pytest.param("grpo", Moment(RUN, "checkpoint_saved", 1), None, None, marks=LONG),
        pytest.param("grpo", Moment(RUN, "finish", 1), "checkpoint-5", None, marks=LONG),
    ],
)  # fmt: skip
def test_killed_run_resumes_to_the_same_result(
    trainings: Trainings, tmp_path: Path,
    kind: str, moment: Moment, checkpoint: str | None, minutes: float | None,
) -> None:  # fmt: skip
    out = tmp_path / kind
    code = trainings.train(kind, out, moment=moment, checkpoint_minutes=minutes)
    assert code == -signal.SIGKILL and not Run(out).complete
    newest = newest_checkpoint(out)
    assert (newest and newest.name) == checkpoint
    # The best one and the last are kept.
    assert minutes is None or len(list(out.glob("checkpoints/checkpoint-*"))) == 2
    assert trainings.done(kind, out, "--resume") == trainings.whole(kind)


def test_each_restart_of_a_paused_run_makes_a_step(trainings: Trainings, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert trainings.train("grpo", out, "--minutes", "0") == PAUSE
    assert trainings.train("grpo", out, "--minutes", "0", "--resume") == PAUSE
    assert [each.step for each in read_steps(out)] == [1, 2]
    assert trainings.done("grpo", out, "--resume") == trainings.whole("grpo")


@pytest.mark.long
@pytest.mark.parametrize("seed", range(tries(1, 16)))
def test_run_killed_in_a_write_resumes(trainings: Trainings, tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    kind, out = rng.choice(("sft", "grpo")), tmp_path / "run"
    place = rng.choice(("os", "art_e.storage:AppendLog", "pathlib:Path"))
    name = {"os": "fsync", "pathlib:Path": "replace"}.get(place, "append")
    code = trainings.train(kind, out, moment=Moment(place, name, rng.randint(1, 24)))
    # A run that writes less often ends by itself.
    assert code in (0, -signal.SIGKILL)
    resumed = trainings.done(kind, out, "--resume") if code else left(out)
    assert resumed == trainings.whole(kind)
