"""A training run's folder as it grows: steps, episodes, validations, checkpoints.

    config.json  steps.jsonl  trajectories.jsonl  metrics.json  checkpoints/  README.md  COMPLETE

A checkpoint holds the run's state of that step in `run.json`. A run that was killed continues
from its newest checkpoint: what came after is deleted and made again, with the same result.
"""

import contextlib
import dataclasses
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rich.console import Console
from rich.text import Text

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.message import compact_json
from art_e.models.checkpoint import CHECKPOINTS, EPISODE, METRICS
from art_e.question import SPLITS
from art_e.runs import Run, held, start_run
from art_e.storage import write_whole
from art_e.text import cut_line, printable
from evals.scored import Scored, load_run
from evals.verdict import Judge
from training.alarms import TrainingAlarm, alarms_of
from training.processes import ALONE, Processes
from training.progress import STEPS, Step, Validation, append_step, read_steps
from training.recipe import Setting

# The state of a checkpoint. It is written last, and a checkpoint counts once it is there.
STATE = "run.json"
_PREFIX = "checkpoint-"


class Ranker(Protocol):
    """Anything that compares the rollouts of a question."""

    async def rank(self, group: Sequence[Scored]) -> list[float] | None:
        """A score from 0 to 1 for each, in their order; None if that failed."""


class Judges(NamedTuple):
    """The judge that rewards in training, and the one of validations; what all have cost, whether
    one of them had to stop at its limit, the signs of reward hacking in all episodes, and the judge
    that compares the rollouts of a question, if one does."""

    reward: Judge
    validation: Judge
    cost_usd: Callable[[], float] = lambda: 0.0
    exhausted: Callable[[], bool] = lambda: False
    hacks: Callable[[Sequence[Scored]], list[TrainingAlarm]] = lambda _: []
    relative: Ranker | None = None


# ---- The view on stderr.

# Seconds between lines, and the steps from which speed and time to go are calculated.
LINE_EVERY_S, RECENT = 10.0, 10
# The figures in the lines of a step and of a validation.
_OF_EPISODES = ("reward", "accuracy", "hallucination", "abstention", "format_errors")
_OF_STEP = (*_OF_EPISODES, *"turns effort entropy unjudged loss grad_norm".split())
_OF_WHEN = "hallucination_unanswerable turns_when_correct effort_when_correct".split()
_OF_VALIDATION = ("n", *_OF_EPISODES, *_OF_WHEN)


class Watch:
    """Prints the steps, validations and alarms of a run of `total_steps`, a line each; nothing
    unless `shown`. Only alarms quote others, and terminal escapes are removed from them."""

    def __init__(
        self, total_steps: int, *, shown: bool = True, console: Console | None = None
    ) -> None:
        self._console = console or Console(
            stderr=True, markup=False, emoji=False, highlight=False, quiet=not shown
        )
        self._total = total_steps
        self._steps: list[Step] = []
        self._printed_at, self._printed = float("-inf"), 0

    def close(self) -> None:
        """Print the last step, if it was not printed."""
        if self._steps and self._steps[-1].step != self._printed:
            self._print_step()

    def step(self, step: Step) -> None:
        """Show a step."""
        self._steps = [*self._steps[-RECENT:], step]
        if time.monotonic() - self._printed_at >= LINE_EVERY_S or step.step >= self._total:
            self._print_step()

    def validation(self, validation: Validation) -> None:
        """Print a validation."""
        figures = ", ".join(_figures(validation, _OF_VALIDATION))
        self._print(f"validation after step {validation.step}: {figures}", "bold")

    def alarm(self, alarm: TrainingAlarm) -> None:
        """Print an alarm."""
        step = self._steps[-1].step if self._steps else 0
        self._print(f"ALARM at step {step}, {alarm.kind}: {alarm.message}", "bold red")

    def _print_step(self) -> None:
        first, last = self._steps[0], self._steps[-1]
        self._printed_at, self._printed = time.monotonic(), last.step
        cells = list(_figures(last, _OF_STEP))
        if last.flat_groups is not None and last.groups:
            cells.append(f"flat groups {last.flat_groups / last.groups:.0%}")
        steps, seconds = last.step - first.step, last.seconds - first.seconds
        pace = [_clock(last.seconds)]
        if steps and seconds > 0:
            to_go = _clock(seconds / steps * (self._total - last.step))
            speed = (last.tokens - first.tokens) / seconds
            pace = [f"{speed:,.0f} tokens/s", *pace, f"{to_go} to go"]
        cost = [f"${last.cost_usd:,.2f}"] if last.cost_usd else []
        self._print(f"step {last.step} of {self._total}: {', '.join([*cells, *pace, *cost])}")

    def _print(self, line: str, style: str = "") -> None:
        self._console.print(Text(printable(line), style=style), soft_wrap=True)


def _figures(row: Step | Validation, names: Sequence[str]) -> Iterator[str]:
    """The figures of the row that are known, each with its name."""
    for name in names:
        if (value := getattr(row, name)) is not None:
            yield f"{name.replace('_', ' ')} {value:.3g}"


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


# ---- The run.


class TrainingRun:
    """A run in progress; `opened` makes one.

    Each training process has one with the same content; the leading process writes the folder
    and shows the run. `paused` says why the run stops before its end.
    """

    def __init__(
        self,
        run: Run,
        setting: Setting,
        state: dict[str, Any],
        processes: Processes = ALONE,
        minutes: float | None = None,
    ) -> None:
        self.run = run
        self.setting = setting
        self.state = state
        self.processes = processes
        self.paused: str | None = None
        self.validations = [Validation(**each) for each in state.get("validation", [])]
        self.alarms: list[dict[str, Any]] = list(state.get("alarms", []))
        self.steps = read_steps(run.folder)
        # USD that judges were paid before the run was resumed.
        self.cost_before = float(state.get("cost_usd", 0.0))
        self._view = Watch(setting.steps, shown=processes.leads)
        self._log = run.log() if processes.leads else None
        self._seconds_before = float(state.get("seconds", 0.0))
        self._peak_memory: int | None = state.get("peak_memory_bytes")
        self._begun, self._minutes = time.perf_counter(), minutes
        for step in self.steps:
            self._view.step(step)
        for validation in self.validations:
            self._view.validation(validation)
        for each in self.alarms:
            self._view.alarm(TrainingAlarm(each["kind"], each["message"]))

    def time_is_up(self) -> str | None:
        """Why to pause now, if its minutes are over."""
        if self._minutes is None or time.perf_counter() - self._begun < 60 * self._minutes:
            return None
        return f"{self._minutes:g} minutes are over"

    @property
    def seconds(self) -> float:
        """The time that the run has worked, kills included."""
        return self._seconds_before + time.perf_counter() - self._begun

    @property
    def tokens(self) -> int:
        """Tokens trained on and generated up to the last step."""
        return self.steps[-1].tokens if self.steps else 0

    @property
    def trained(self) -> bool:
        """Whether the checkpoint that is resumed was the last one."""
        return bool(self.state.get("over"))

    def add_step(self, step: Step) -> None:
        """Store and show a step, with its new alarms."""
        self.steps.append(step)
        if self.processes.leads:
            append_step(self.run.folder, step)
            self._view.step(step)
            grpo = self.setting.recipe.grpo if self.setting.kind == "grpo" else None
            size = grpo.minibatches if grpo else 1
            self._raise(step.step, alarms_of(self.steps[size - 1 :: size], self.validations))

    def add_episodes(self, scored: Sequence[Scored]) -> None:
        """Store episodes, of training or of a validation."""
        if self._log is not None:
            for each in scored:
                self._log.append(each.trajectory.to_line())

    def add_validation(
        self, validation: Validation, scored: Sequence[Scored], judges: Judges
    ) -> None:
        """Store and show a validation with its episodes, and look for reward hacking in all."""
        self.add_episodes(scored)
        self.validations.append(validation)
        if self.processes.leads:
            self._view.validation(validation)
            self._raise(validation.step, judges.hacks(load_run(self.run)))

    def note_memory(self, used: int | None) -> None:
        """Remember the peak of bytes in use on a GPU; None without a GPU."""
        if used is not None:
            self._peak_memory = max(used, self._peak_memory or 0)

    def _raise(self, step: int, alarms: Sequence[TrainingAlarm]) -> None:
        """Store and show the alarms whose kind this run has not raised before."""
        raised = {each["kind"] for each in self.alarms}
        for alarm in alarms:
            if alarm.kind not in raised:
                self.alarms.append({"step": step, "kind": alarm.kind, "message": alarm.message})
                self._view.alarm(alarm)

    @property
    def best(self) -> Validation | None:
        """The best validation of an allowed checkpoint, else the best of all."""
        table = self.setting.recipe.sft
        allowed = table.chosen_from if self.setting.kind == "sft" and table is not None else 1
        for first in (allowed, 1, 0):
            if later := [each for each in self.validations if each.step >= first]:
                return max(later, key=lambda each: each.merit)
        return None

    @property
    def best_checkpoint(self) -> Path | None:
        """The folder of the best validation's checkpoint, if it has one."""
        best = self.best
        folder = None if best is None else checkpoint_of(self.run.folder, best.step)
        return folder if folder is not None and folder.is_dir() else None

    def checkpoint_saved(self, step: int, *, over: bool = False) -> None:
        """Make the checkpoint of `step` count, and delete those that are no longer needed. With
        `over` it is the last one."""
        # Each process has a file of its own in it.
        self.processes.wait()
        if not self.processes.leads:
            return
        checkpoint = Run(checkpoint_of(self.run.folder, step))
        checkpoint.write_json(EPISODE, self.setting.recipe.episode.model_dump())
        checkpoint.write_json(STATE, {**self.metrics, "over": over})
        best = self.best
        kept = {step} if best is None else {step, best.step}
        _delete_checkpoints(self.run.folder, lambda each: each not in kept)
        self.run.write_json(METRICS, self.metrics)

    def finish(self, test: dict[str, Any] | None) -> dict[str, Any]:
        """Write the metrics with the figures of `test`, and return them."""
        metrics = {**self.metrics, "test": test}
        if self.processes.leads:
            self.run.write_json(METRICS, metrics)
        return metrics

    def close(self) -> None:
        """Close the file of trajectories, and show the last step."""
        self._view.close()
        if self._log is not None:
            self._log.close()

    @property
    def metrics(self) -> dict[str, Any]:
        """The figures of the run so far, as `metrics.json` holds them."""
        best = self.best_checkpoint
        return {
            "validation": [dataclasses.asdict(each) for each in self.validations],
            "alarms": self.alarms,
            "seconds": self.seconds,
            "tokens": self.tokens,
            "processes": self.processes.count,
            "peak_memory_bytes": self._peak_memory,
            "cost_usd": self.steps[-1].cost_usd if self.steps else self.cost_before,
            "best_checkpoint": None if best is None else f"{CHECKPOINTS}/{best.name}",
            "test": None,
        }


# ---- Its folder: begun or resumed, and its checkpoints.


@contextlib.contextmanager
def opened(
    setting: Setting,
    out: Path | None,
    parent: Path,
    resume: bool = False,
    processes: Processes = ALONE,
    minutes: float | None = None,
) -> Iterator[tuple[TrainingRun, Path | None]]:
    """A new run's folder, or with `resume` that of `out` as its newest checkpoint left it.

    Gives the run and that checkpoint, the same to all processes: all have to see the folder. The
    run pauses after so many minutes.
    Raises `UserError` if `out` holds something else, or another process works on it.
    """
    with contextlib.ExitStack() as stack:
        begun: tuple[Run, Path | None, dict[str, Any]] | None = None
        if processes.leads:
            name = f"{setting.kind}-{setting.recipe.name}"
            config = _config(setting)
            run = _resumable(config, out) if resume else start_run(name, config, parent, out)
            stack.enter_context(held(run))
            last, newest = max(_whole_checkpoints(run.folder).items(), default=(-1, None))
            _forget(run, last)
            state = {} if newest is None else json.loads((newest / STATE).read_text("utf-8"))
            begun = run, newest, state
        begun = processes.from_first(begun)
        assert begun is not None
        run, checkpoint, state = begun
        training = TrainingRun(run, setting, state, processes, minutes)
        stack.callback(training.close)
        try:
            yield training, checkpoint
        except UserError:
            if processes.leads and not resume and not run.trajectories.stat().st_size:
                # Delete the empty folder, so that the corrected command can reuse its name.
                shutil.rmtree(run.folder)
            raise


def _config(setting: Setting) -> dict[str, Any]:
    """What config.json holds: the settings, and the digest of the mail that questions are about
    (None without such a file, as for synthetic worlds alone)."""
    data, digest = setting.recipe.data, None
    if not all(map(data.has_worlds, SPLITS)) and data.inbox_file.is_file():
        with InboxFile(data.inbox_file) as file:
            digest = file.digest
    return {**setting.to_row(), "inbox": digest}


def _resumable(config: dict[str, Any], out: Path | None) -> Run:
    if out is None:
        raise UserError("--resume needs the folder of the run to continue: name it with --out")
    run = Run(out)
    if not run.begun:
        raise UserError(f"{out} holds no run to resume; leave out --resume to begin one there")
    if run.complete:
        raise UserError(f"{out} is complete; name a new folder with --out")
    before, now = (_flat(json.loads(json.dumps(each))) for each in (run.config, config))
    # Jobs of a cluster that begin again may have vLLM's server on another machine.
    free = {"recipe.grpo.vllm.server"} | {
        key for key in before if key.partition(".")[0] not in config
    }
    changed = [
        f"{key.removeprefix('recipe.')}={before.get(key)}"
        for key in sorted({*before, *now} - free)
        if before.get(key) != now.get(key)
    ]
    if changed:
        shown = ", ".join(cut_line(each, 80) for each in changed[:3])
        raise UserError(
            f"{out} was begun with {shown}; resume it with the settings, and the version of art-e,"
            " that began it"
        )
    return run


def _flat(row: Any, name: str = "") -> dict[str, Any]:
    """The values of a configuration, by their names as `--set` takes them."""
    if not isinstance(row, dict):
        return {name: row}
    inner = (_flat(value, f"{name}.{key}" if name else key) for key, value in row.items())
    return {key: value for values in inner for key, value in values.items()}


def _forget(run: Run, last: int) -> None:
    """Delete what came after step `last`: it will be made again."""
    kept = [each for each in read_steps(run.folder) if each.step <= last]
    lines = "".join(f"{compact_json(dataclasses.asdict(each))}\n" for each in kept)
    write_whole(run.folder / STEPS, lines)
    _delete_checkpoints(run.folder, lambda step: step > last)
    # Episodes stand in the order of their steps.
    with run.trajectories.open("rb+") as file:
        size = 0
        for line in file:
            if not line.endswith(b"\n") or json.loads(line)["policy"]["step"] > last:
                break
            size += len(line)
        file.truncate(size)


def checkpoint_of(run_folder: Path, step: int) -> Path:
    """The folder of the checkpoint of that step."""
    return run_folder / CHECKPOINTS / f"{_PREFIX}{step}"


def newest_checkpoint(run_folder: Path) -> Path | None:
    """The newest checkpoint of a run that is whole."""
    return max(_whole_checkpoints(run_folder).items(), default=(-1, None))[1]


def _whole_checkpoints(run_folder: Path) -> dict[int, Path]:
    folders = _checkpoints(run_folder).items()
    return {step: folder for step, folder in folders if (folder / STATE).is_file()}


def _checkpoints(run_folder: Path) -> dict[int, Path]:
    """The folders of checkpoints, by their steps."""
    folders = (run_folder / CHECKPOINTS).glob(f"{_PREFIX}*")
    steps = {each.name.removeprefix(_PREFIX): each for each in folders}
    return {int(step): folder for step, folder in steps.items() if step.isdigit()}


def _delete_checkpoints(run_folder: Path, of: Callable[[int], bool]) -> None:
    for step, folder in _checkpoints(run_folder).items():
        if of(step):
            shutil.rmtree(folder)
