"""A training run's folder as it grows: steps, episodes, validations, checkpoints.

    config.json  steps.jsonl  trajectories.jsonl  metrics.json  checkpoints/  README.md  COMPLETE

A checkpoint holds what the run knew then (`training.run`). A run that was killed goes on
from its newest one: what came after is forgotten and made again, the same. Knows nothing of
trainers.
"""

import contextlib
import itertools
import json
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from art_e.errors import UserError
from art_e.runs import Run, held, start_run
from art_e.text import cut_line
from evals.scored import Scored, load_run
from training.alarms import TrainingAlarm, Watchdog, alarms_of, hacking_alarms
from training.export import write_card
from training.processes import ALONE, Processes
from training.progress import (
    CHECKPOINTS,
    METRICS,
    STATE,
    Step,
    Validation,
    append_step,
    checkpoint_of,
    keep_steps,
    newest_checkpoint,
    numbered,
    read_steps,
    step_of,
)
from training.recipe import Recipe
from training.watch import Watch

# ---- A training run's folder as it grows: steps, episodes, validations, checkpoints.

Kind = Literal["sft", "grpo"]

# Of what differs from the run that is to be resumed.
_TOLD, _TOLD_CHARS = 3, 80


class Setting(NamedTuple):
    """What a run is: its kind, recipe and seed, the folder of its start (`init`), and the
    metrics of the run that it is compared with (`baseline`), None where there is none."""

    kind: Kind
    recipe: Recipe
    seed: int
    init: str | None = None
    baseline: dict[str, Any] | None = None

    @property
    def chosen_from(self) -> int:
        """The first step whose checkpoint may be chosen."""
        table = self.recipe.sft
        return table.chosen_from if self.kind == "sft" and table is not None else 1

    def to_row(self) -> dict[str, Any]:
        """As config.json holds it."""
        row = self._asdict()
        return {**row, "recipe": self.recipe.to_row()}


class TrainingRun:
    """A run that is being made. Use `opened`.

    Each process that trains has one, and knows the same; the one that leads writes the folder
    and shows the run. `paused` says why the run stops before its end, to go on with `--resume`.
    """

    def __init__(
        self,
        run: Run,
        setting: Setting,
        watch: Watch,
        state: dict[str, Any],
        processes: Processes = ALONE,
    ) -> None:
        self.run = run
        self.setting = setting
        self.state = state
        self.processes = processes
        self.paused: str | None = None
        self.validations = [Validation(**each) for each in state.get("validation", [])]
        self.alarms: list[dict[str, Any]] = list(state.get("alarms", []))
        self.steps = read_steps(run.folder)
        self._watch = watch
        self._log = run.log() if processes.leads else None
        away = state.get("dogs", {})
        self._dogs = {
            "steps": Watchdog(away=away.get("steps")),
            # Hacks are looked for at validations, which are few.
            "hacking": Watchdog(quiet=1, away=away.get("hacking")),
        }
        self._cost_before = float(state.get("cost_usd", 0.0))
        self._seconds_before = float(state.get("seconds", 0.0))
        self._peak_memory: int | None = state.get("peak_memory_bytes")
        self._begun = time.perf_counter()
        for step in self.steps:
            watch.step(step)
        for validation in self.validations:
            watch.validation(validation)
        for each in self.alarms:
            watch.alarm(TrainingAlarm(each["kind"], each["message"]))

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints are kept."""
        return self.run.folder / CHECKPOINTS

    @property
    def seconds(self) -> float:
        """How long the run has worked, with what it did before it was killed."""
        return self._seconds_before + time.perf_counter() - self._begun

    @property
    def cost_before(self) -> float:
        """USD that judges were paid before the run was resumed."""
        return self._cost_before

    @property
    def trained(self) -> bool:
        """Whether the checkpoint that is resumed was the last one."""
        return bool(self.state.get("over"))

    @property
    def tokens(self) -> int:
        """Tokens trained on and generated up to the last step."""
        return self.steps[-1].tokens if self.steps else 0

    def add_step(self, step: Step) -> None:
        """Keep and show a step, with the alarms that are new at it."""
        self.steps.append(step)
        if self.processes.leads:
            append_step(self.run.folder, step)
            self._watch.step(step)
            self._alarm("steps", step.step, alarms_of(self.steps, self.validations))

    def add_episodes(self, scored: Sequence[Scored]) -> None:
        """Keep episodes, of training or of a validation."""
        if self._log is not None:
            for each in scored:
                self._log.append(each.trajectory.to_line())

    def add_validation(self, validation: Validation, scored: Sequence[Scored]) -> None:
        """Keep and show a validation, with its episodes and what the detectors see in all."""
        self.add_episodes(scored)
        self.validations.append(validation)
        if self.processes.leads:
            self._watch.validation(validation)
            self._alarm("hacking", validation.step, hacking_alarms(load_run(self.run)))

    def note_memory(self, used: int | None) -> None:
        """Remember the most bytes that a GPU had in use; None where there is no GPU."""
        if used is not None:
            self._peak_memory = max(used, self._peak_memory or 0)

    def _alarm(self, dog: str, step: int, alarms: Sequence[TrainingAlarm]) -> None:
        for each in self._dogs[dog].new(alarms):
            self.alarms.append({"step": step, "kind": each.kind, "message": each.message})
            self._watch.alarm(each)

    @property
    def best(self) -> Validation | None:
        """The validation with most questions handled right, then fewest answered wrong: of
        those whose checkpoint the recipe wants, as far as there are any."""
        for first in (self.setting.chosen_from, 1):
            later = [each for each in self.validations if each.step >= first]
            if later:
                return max(later, key=_merit)
        return max(self.validations, key=_merit, default=None)

    def checkpoint_saved(self, step: int, **state: Any) -> None:
        """Make the checkpoint of `step` count, and take away those that nothing needs."""
        # Each process has a file of its own in it.
        self.processes.wait()
        if not self.processes.leads:
            return
        folder = checkpoint_of(self.run.folder, step)
        dogs = {name: dog.away for name, dog in self._dogs.items()}
        kept = {**self._facts(), "dogs": dogs, **state}
        Run(folder).write_json(STATE, kept)
        best = self.best
        needed = {step} | ({best.step} if best else set())
        for name, number in numbered(self.run.folder):
            if number not in needed:
                shutil.rmtree(name)
        self.run.write_json(METRICS, self.metrics)

    def finish(self, test: dict[str, Any] | None) -> dict[str, Any]:
        """The run's metrics with the figures of `test`; the folder then holds them, with the
        model card."""
        metrics = {**self.metrics, "test": test}
        if not self.processes.leads:
            return metrics
        self.run.write_json(METRICS, metrics)
        setting = self.setting
        write_card(
            self.run.folder,
            recipe=setting.recipe,
            kind=setting.kind,
            seed=setting.seed,
            metrics=metrics,
            baseline=setting.baseline,
        )
        self.run.finish()
        return metrics

    def close(self) -> None:
        """Close the file of trajectories."""
        if self._log is not None:
            self._log.close()

    def _facts(self) -> dict[str, Any]:
        return {
            "validation": [each.to_row() for each in self.validations],
            "alarms": self.alarms,
            "seconds": self.seconds,
            "tokens": self.tokens,
            "processes": self.processes.count,
            "peak_memory_bytes": self._peak_memory,
            "cost_usd": self.steps[-1].cost_usd if self.steps else self._cost_before,
        }

    @property
    def best_checkpoint(self) -> Path | None:
        """The folder of the best validation's checkpoint, as far as it has one."""
        best = self.best
        folder = None if best is None else checkpoint_of(self.run.folder, best.step)
        return folder if folder is not None and folder.is_dir() else None

    @property
    def metrics(self) -> dict[str, Any]:
        """The figures of the run so far, as `metrics.json` holds them."""
        folder = self.best_checkpoint
        named = None if folder is None else f"{CHECKPOINTS}/{folder.name}"
        return {**self._facts(), "best_checkpoint": named, "test": None}


def _merit(validation: Validation) -> tuple[float, float]:
    return validation.correct or 0.0, -(validation.hallucination or 0.0)


@contextlib.contextmanager
def opened(
    setting: Setting,
    out: Path | None,
    parent: Path,
    watch: Watch,
    *,
    resume: bool,
    processes: Processes = ALONE,
) -> Iterator[tuple[TrainingRun, Path | None]]:
    """A new run's folder, or with `resume` that of `out` as its newest checkpoint left it.

    Gives the run and that checkpoint, to all processes the same: the folder has to be where all
    see it. Raises `UserError` where `out` holds something else, or another process works on it.
    """
    with contextlib.ExitStack() as stack:
        begun = (
            stack.enter_context(_begun(setting, out, parent, resume)) if processes.leads else None
        )
        told = processes.told(begun)
        assert told is not None
        run, checkpoint, state = told
        training = TrainingRun(run, setting, watch, state, processes)
        stack.callback(training.close)
        yield training, checkpoint


@contextlib.contextmanager
def _begun(
    setting: Setting, out: Path | None, parent: Path, resume: bool
) -> Iterator[tuple[Run, Path | None, dict[str, Any]]]:
    """The run, which is held, its newest checkpoint, and what it knew then."""
    if resume:
        run = _resumable(setting, out)
    else:
        name = f"{setting.kind}-{setting.recipe.name}"
        run = start_run(name, setting.to_row(), parent, out)
    with held(run):
        checkpoint = newest_checkpoint(run.folder)
        state: dict[str, Any] = {}
        if checkpoint is not None:
            state = json.loads((checkpoint / STATE).read_text("utf-8"))
        _forget(run, -1 if checkpoint is None else step_of(checkpoint))
        try:
            yield run, checkpoint, state
        except UserError:
            if not resume and not run.trajectories.stat().st_size:
                # Nothing was begun: once the input is mended, the same command begins it.
                shutil.rmtree(run.folder)
            raise


def _resumable(setting: Setting, out: Path | None) -> Run:
    if out is None:
        raise UserError("which run? --resume goes on with the one of --out")
    run = Run(out)
    if not run.begun:
        raise UserError(f"{out} holds no run to resume; leave out --resume to begin one there")
    if run.complete:
        raise UserError(f"{out} is complete; name a new folder with --out")
    had, mine = (_without_server(each) for each in (run.config, setting.to_row()))
    for key in ("kind", "recipe", "seed", "init"):
        if had.get(key) != mine[key]:
            told = ", ".join(itertools.islice(_was(had.get(key), mine[key], ""), _TOLD))
            raise UserError(
                f"{out} was begun with another {key} ({told}); resume it as it was begun"
            )
    return run


def _was(had: Any, mine: Any, name: str) -> Iterator[str]:
    """The values that were others, by their place in the recipe, as `--set` takes them."""
    if isinstance(had, dict) and isinstance(mine, dict):
        for each in sorted({*had, *mine}):
            yield from _was(had.get(each), mine.get(each), f"{name}.{each}" if name else each)
    elif had != mine:
        yield cut_line(f"{name}={had}" if name else str(had), _TOLD_CHARS)


def _without_server(row: dict[str, Any]) -> dict[str, Any]:
    """The configuration but for where vLLM's server is: a run goes on with another one."""
    content: dict[str, Any] = json.loads(json.dumps(row))
    grpo = content.get("recipe", {}).get("grpo")
    if grpo and grpo.get("vllm"):
        del grpo["vllm"]["server"]
    return content


def _forget(run: Run, last: int) -> None:
    """Take away what came after step `last`, which will be made again."""
    keep_steps(run.folder, last)
    for name, number in numbered(run.folder):
        if number > last:
            shutil.rmtree(name)
    # Episodes stand in the order of their steps.
    with run.trajectories.open("rb+") as lines:
        kept = 0
        for line in lines:
            if not line.endswith(b"\n") or json.loads(line)["policy"]["step"] > last:
                break
            kept += len(line)
        lines.truncate(kept)
