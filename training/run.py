"""A training run and its folder: steps, validations, alarms, episodes, checkpoints.

    config.json  steps.jsonl  trajectories.jsonl  metrics.json  checkpoints/  README.md  COMPLETE

A checkpoint holds the run's state at that step in `run.json`. A killed run resumes from its newest
checkpoint: what came later is deleted and repeated, with the same result."""

import contextlib
import dataclasses
import json
import math
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from statistics import fmean
from typing import Any

from art_e.cli.output import note
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.message import compact_json
from art_e.models.checkpoint import CHECKPOINTS, EPISODE, METRICS
from art_e.question import SPLITS
from art_e.runs import Run, locked_run, start_run
from art_e.storage import AppendLog, append_line, whole_lines, write_whole
from art_e.text import cut_line
from evals.hacking import detect
from evals.scored import Scored, load_run
from training.processes import ALONE, PausedError, Processes
from training.recipe import Setting

# The state of a checkpoint. It is written last: without it a checkpoint does not count.
STATE = "run.json"
# Minutes between checkpoints: a preempted machine loses no more training than that.
CHECKPOINT_MINUTES = 10.0
# File that marks a pause that the same command can resume. Launchers need it, because torchrun and
# accelerate replace the exit code of their processes by 1.
PAUSED = "PAUSED"
_PREFIX = "checkpoint-"


# ---- Rows: steps and validations.

# Files in a run's folder: the steps, and the episodes of the test.
STEPS, EPISODES = "steps.jsonl", "test.jsonl"


@dataclass(frozen=True, slots=True)
class Step:
    """One optimizer step, with the `seconds`, `tokens` (generated or trained on) and `cost_usd` so
    far. `accuracy` covers answerable questions. Of the `groups`, `flat_groups` had equal rewards,
    spare ones `replaced` some, and `unranked` were not compared; `unjudged` counts episodes.
    `entropy` is in nats per token, `ratio_mean` the mean of p_trainer / p_vllm over tokens."""

    step: int
    seconds: float
    tokens: int
    loss: float | None = None
    learning_rate: float | None = None
    grad_norm: float | None = None  # L2, before clipping
    reward: float | None = None
    components: dict[str, float] = field(default_factory=dict)
    accuracy: float | None = None
    hallucination: float | None = None
    abstention: float | None = None
    turns: float | None = None
    effort: float | None = None
    format_errors: float | None = None  # malformed calls per episode
    calls: float | None = None
    answer_words: float | None = None
    entropy: float | None = None
    ratio_mean: float | None = None
    groups: int | None = None
    flat_groups: int | None = None
    replaced: int | None = None
    unjudged: int | None = None
    unranked: int | None = None
    cost_usd: float = 0.0


@dataclass(frozen=True, slots=True)
class Validation:
    """Figures on held-out questions at one step, by the judge of validations (`reward`: by the
    reward's). `correct` includes right abstentions; `accuracy` covers answerable questions."""

    step: int
    n: int
    correct: float | None
    accuracy: float | None
    hallucination: float | None
    hallucination_unanswerable: float | None
    abstention: float | None
    turns: float | None
    effort: float | None
    turns_when_correct: float | None
    effort_when_correct: float | None
    format_errors: float | None
    reward: float | None

    @property
    def score(self) -> tuple[float, float]:
        """Rank checkpoints by their share correct, then by few hallucinations."""
        return self.correct or 0.0, -(self.hallucination or 0.0)


def mean_of(values: Sequence[float]) -> float | None:
    """Return the mean; None without values."""
    return fmean(values) if values else None


def with_second_judge(scored: Scored) -> Scored:
    """Return the episode as its second judge decides, if it has one."""
    if not (seconds := scored.trajectory.other_verdicts):
        return scored
    others = [*seconds[1:], *filter(None, [scored.trajectory.verdict])]
    trajectory = dataclasses.replace(scored.trajectory, verdict=seconds[0], other_verdicts=others)
    return Scored(scored.question, trajectory)


def read_steps(folder: Path) -> list[Step]:
    """Return the steps in a run's folder."""
    return [Step(**json.loads(line)) for line in whole_lines(folder / STEPS)]


# ---- Alarms: reasons to look at a run; they don't stop it.

# Batches in a mean. If a question's rollouts all end alike, a share p over a batch of 8 questions
# has the standard error sqrt(p (1 - p) / 8) <= 0.18, and over 8 batches 0.06.
WINDOW = 8
# Collapse needs at least this share of abstentions, this rise above the initial share (learning to
# abstain on unanswerable questions raises it by a quarter or a third), and this fall of accuracy.
NEARLY_ALL, FAR_ABOVE, FALLEN = 0.85, 0.35, 0.1
# Alarming shares of flat groups: if most episodes fail, and if more than MOSTLY_RIGHT are right
# (six successful runs of nano reached 0.73 to 0.82).
MOSTLY_FLAT, NEARLY_FLAT, MOSTLY_RIGHT = 2 / 3, 7 / 8, 0.5
# Limit of |mean ratio - 1|: for tokens sampled from p_vllm, E[p_trainer / p_vllm] = 1.
APART = 0.1


@dataclass(frozen=True, slots=True)
class TrainingAlarm:
    """The evidence and the remedy, in a line that may hold untrusted text."""

    kind: str
    message: str


def alarms_of(steps: Sequence[Step], validations: Sequence[Validation]) -> list[TrainingAlarm]:
    """Return the alarms at the last of `steps`, which has the last step of each batch."""
    looks = (collapse, no_spread, engines_differ)
    return [alarm for look in looks if (alarm := look(steps, validations)) is not None]


def collapse(steps: Sequence[Step], validations: Sequence[Validation]) -> TrainingAlarm | None:
    """Detect a policy that used to answer right and now abstains nearly always."""
    now, accuracy = _recent(steps, "abstention"), _recent(steps, "accuracy")
    if now is None or accuracy is None or not validations:
        return None
    # The first validation is at step 0.
    start, values = validations[0].abstention or 0.0, _values(steps, "accuracy")
    windows = (fmean(values[at : at + WINDOW]) for at in range(len(values) - WINDOW + 1))
    best = max([validations[0].accuracy or 0.0, *windows])
    if now < NEARLY_ALL or now - start < FAR_ABOVE or best - accuracy < FALLEN:
        return None
    rate = "" if steps[-1].learning_rate is None else f" (now {steps[-1].learning_rate:g})"
    return TrainingAlarm(
        "collapse to abstention",
        f"{now:.0%} of the episodes of the last {WINDOW} batches abstain, {start:.0%} did at the"
        f" start, and accuracy fell from {best:.0%} to {accuracy:.0%}: restart from the best"
        f" checkpoint with a lower grpo.rate{rate}, or with --init from a start that"
        " answers more right; a lower reward.abstained makes abstention pay less",
    )


def no_spread(steps: Sequence[Step], _: Sequence[Validation]) -> TrainingAlarm | None:
    """Detect that most groups have equal rewards, and so no gradient."""
    flat, groups = (sum(_values(steps[-WINDOW:], name)) for name in ("flat_groups", "groups"))
    accuracy = _recent(steps, "accuracy")
    right = accuracy is not None and accuracy >= MOSTLY_RIGHT
    if len(steps) < WINDOW or not groups or flat < (NEARLY_FLAT if right else MOSTLY_FLAT) * groups:
        return None
    share = "" if accuracy is None else f" (accuracy {accuracy:.0%})"
    advice = f"most fail{share}: ask easier questions, or train the start longer"
    if right:
        advice = f"most are right{share}: ask harder questions, or stop here"
    return TrainingAlarm(
        "no spread",
        f"{flat:g} of {groups:g} groups of the last {WINDOW} batches have no spread in reward;"
        f" {advice}; more grpo.rollouts per question help too",
    )


def engines_differ(steps: Sequence[Step], _: Sequence[Validation]) -> TrainingAlarm | None:
    """Detect that the sampling engine and the trainer compute different models."""
    ratio = _recent(steps, "ratio_mean")
    if ratio is None or abs(ratio - 1) < APART:
        return None
    return TrainingAlarm(
        "engine against trainer",
        f"a sampled token is {ratio:.2f} times as likely under the trainer as under vLLM (mean of"
        f" the last {WINDOW} batches): install the locked versions (make gpu), or turn vLLM off"
        " (--set grpo.vllm.mode=off)",
    )


def hacking_alarms(scored: Sequence[Scored]) -> list[TrainingAlarm]:
    """Return the alarms of `evals.hacking` on all episodes so far, one kind per detector. It takes
    seconds: call it at validations, not at steps."""
    return [
        TrainingAlarm(
            f"hacking: {hit.detector}",
            f"{hit.message}; look at its episodes with art-e runs show RUN --episode ID"
            + (f" (such as {hit.episodes[0]})" if hit.episodes else "")
            + "; if the answers are not honest, fix what judging.reward accepts",
        )
        for hit in detect(scored)
    ]


def _values(steps: Sequence[Step], name: str) -> list[float]:
    return [value for each in steps if (value := getattr(each, name)) is not None]


def _recent(steps: Sequence[Step], name: str) -> float | None:
    """Return the finite mean of the last `WINDOW` steps; None if fewer than half have it."""
    last = _values(steps[-WINDOW:], name)
    if len(steps) < WINDOW or 2 * len(last) < WINDOW:
        return None
    mean = fmean(last)
    return mean if math.isfinite(mean) else None


# ---- Lines on stderr.

# Seconds between lines; the number of steps that speed and time to go are calculated from.
LINE_EVERY_S, RECENT = 10.0, 10
_FIGURES = (
    "n reward accuracy hallucination hallucination_unanswerable abstention format_errors turns"
    " turns_when_correct effort effort_when_correct answer_words entropy unjudged loss grad_norm"
).split()


def line_of(steps: Sequence[Step], total: int) -> str:
    """Return the line of the last of `steps`; the run has `total`."""
    first, last = steps[-RECENT - 1 :][0], steps[-1]
    cells = [_figures(last)]
    if last.flat_groups is not None and last.groups:
        cells.append(f"flat groups {last.flat_groups / last.groups:.0%}")
    cells.append(_clock(last.seconds))
    if (seconds := last.seconds - first.seconds) > 0:
        to_go = seconds / (last.step - first.step) * (total - last.step)
        cells.append(f"{_clock(to_go)} to go")
        cells.append(f"{(last.tokens - first.tokens) / seconds:,.0f} tokens/s")
    if last.cost_usd:
        cells.append(f"${last.cost_usd:,.2f}")
    return f"step {last.step} of {total}: {', '.join(filter(None, cells))}"


def _figures(row: Step | Validation) -> str:
    figures = {name.replace("_", " "): getattr(row, name, None) for name in _FIGURES}
    return ", ".join(f"{name} {value:.3g}" for name, value in figures.items() if value is not None)


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


@dataclass(eq=False)
class TrainingRun:
    """A run in progress (`open_training`), the same in each process; the leading one writes. It
    resumes from `checkpoint` with its `state`; `paused` is the reason why it ends early."""

    run: Run
    setting: Setting
    checkpoint: Path | None
    state: dict[str, Any]
    processes: Processes
    log: AppendLog | None
    minutes: float | None

    def __post_init__(self) -> None:
        self.paused: PausedError | None = None
        self.validations = [Validation(**each) for each in self.state.get("validation", [])]
        self.alarms: list[dict[str, Any]] = list(self.state.get("alarms", []))
        self.steps = read_steps(self.run.folder)
        # The judges' fees in USD before the run was resumed.
        self.cost_before = float(self.state.get("cost_usd", 0.0))
        self._seconds_before = float(self.state.get("seconds", 0.0))
        self._started, self._shown_at = time.perf_counter(), float("-inf")
        self._saved_at = self._started

    def time_is_up(self) -> PausedError | None:
        if self.minutes is None or time.perf_counter() - self._started < 60 * self.minutes:
            return None
        return PausedError(f"the {self.minutes:g} minutes are over")

    @property
    def checkpoint_due(self) -> bool:
        return time.perf_counter() - self._saved_at >= 60 * CHECKPOINT_MINUTES

    @property
    def seconds(self) -> float:
        return self._seconds_before + time.perf_counter() - self._started

    @property
    def tokens(self) -> int:
        return self.steps[-1].tokens if self.steps else 0

    def add_step(self, step: Step) -> None:
        self.steps.append(step)
        if self.processes.leads:
            append_line(self.run.folder / STEPS, compact_json(dataclasses.asdict(step)))
            if step.step == self.setting.steps or step.seconds > self._shown_at + LINE_EVERY_S:
                self._shown_at = step.seconds
                note(line_of(self.steps, self.setting.steps))
            grpo = self.setting.recipe.grpo if self.setting.kind == "grpo" else None
            size = grpo.minibatches if grpo else 1
            self._raise(step.step, alarms_of(self.steps[size - 1 :: size], self.validations))

    def add_episodes(self, scored: Sequence[Scored]) -> None:
        if self.log is not None:
            for episode in scored:
                self.log.append(episode.trajectory.to_line())

    def add_validation(self, validation: Validation, scored: list[Scored]) -> None:
        self.add_episodes(scored)
        self.validations.append(validation)
        if self.processes.leads:
            note(f"validation after step {validation.step}: {_figures(validation)}")
            self._raise(validation.step, hacking_alarms(load_run(self.run)))

    def _raise(self, step: int, alarms: Sequence[TrainingAlarm]) -> None:
        raised = {each["kind"] for each in self.alarms}
        for alarm in alarms:
            if alarm.kind not in raised:
                self.alarms.append({"step": step, "kind": alarm.kind, "message": alarm.message})
                note(f"ALARM at step {step}, {alarm.kind}: {alarm.message}")

    @property
    def best(self) -> Validation | None:
        """Return the best validation of an allowed checkpoint, else the best of all."""
        table = self.setting.recipe.sft if self.setting.kind == "sft" else None
        for first in (table.chosen_from if table else 1, 1, 0):
            if later := [each for each in self.validations if each.step >= first]:
                return max(later, key=lambda each: each.score)
        return None

    @property
    def best_checkpoint(self) -> Path | None:
        folder = checkpoint_of(self.run.folder, self.best.step) if self.best else None
        return folder if folder and folder.is_dir() else None

    def checkpoint_saved(self, step: int, *, over: bool = False) -> None:
        """Complete the checkpoint of `step` (`over`: the last one); keep only it and the best."""
        self.processes.gather([None])  # each process writes its own file in it
        self._saved_at = time.perf_counter()
        if not self.processes.leads:
            return
        checkpoint = Run(checkpoint_of(self.run.folder, step))
        checkpoint.write_json(EPISODE, self.setting.recipe.episode.model_dump())
        checkpoint.write_json(STATE, {**self.metrics, "over": over})
        for folder in _checkpoints(self.run.folder):
            if folder not in (checkpoint.folder, self.best_checkpoint):
                shutil.rmtree(folder)
        self.run.write_json(METRICS, self.metrics)

    def finish(self, test: dict[str, Any] | None) -> dict[str, Any]:
        metrics = {**self.metrics, "test": test}
        if self.processes.leads:
            self.run.write_json(METRICS, metrics)
        return metrics

    @property
    def metrics(self) -> dict[str, Any]:
        return {
            "validation": [dataclasses.asdict(each) for each in self.validations],
            "alarms": self.alarms, "seconds": self.seconds, "tokens": self.tokens,
            "processes": self.processes.count,
            "cost_usd": self.steps[-1].cost_usd if self.steps else self.cost_before,
            "best_checkpoint": (best := self.best_checkpoint) and f"{CHECKPOINTS}/{best.name}",
            "test": None,
        }  # fmt: skip


# ---- The folder: started or resumed, and its checkpoints.


@contextlib.contextmanager
def open_training(
    setting: Setting, out: Path | None, parent: Path, resume: bool = False,
    processes: Processes = ALONE, minutes: float | None = None,
) -> Iterator[TrainingRun]:  # fmt: skip
    """Start a run, or with `resume` continue that of `out` from its newest checkpoint; it pauses
    after `minutes`. All processes must see its folder. Raises `UserError` if `out` holds something
    else or another process works on it."""
    with contextlib.ExitStack() as stack:
        shared: Any = None
        if processes.leads:
            name, config = f"{setting.kind}-{setting.recipe.name}", _config(setting)
            run = _resumable(config, out) if resume else start_run(name, config, parent, out)
            stack.enter_context(locked_run(run))
            newest = newest_checkpoint(run.folder)
            state = json.loads((newest / STATE).read_text("utf-8")) if newest else {}
            _forget(run, _step_of(newest) if newest else -1)
            (run.folder / PAUSED).unlink(missing_ok=True)
            shared = run, newest, state
        run, checkpoint, state = processes.from_first(shared)
        log = stack.enter_context(run.log()) if processes.leads else None
        try:
            yield TrainingRun(run, setting, checkpoint, state, processes, log, minutes)
        except UserError:
            if processes.leads and not resume and not run.trajectories.stat().st_size:
                # Delete the empty folder, so that the corrected command can reuse its name.
                shutil.rmtree(run.folder)
            raise


def _config(setting: Setting) -> dict[str, Any]:
    data, digest = setting.recipe.data, None
    if not all(map(data.has_worlds, SPLITS)) and data.inbox_file.is_file():
        with InboxFile(data.inbox_file) as file:
            digest = file.digest
    recipe = setting.recipe.model_dump(mode="json")
    return {**setting._asdict(), "recipe": recipe, "inbox": digest}


def _resumable(config: dict[str, Any], out: Path | None) -> Run:
    if out is None or not (run := Run(out)).started:
        raise UserError("no run to resume: name its folder with --out, or leave out --resume")
    if run.complete:
        raise UserError(f"{out} is complete; name a new folder with --out")
    row = {name: value for name, value in run.config.items() if name in config}
    before, now = _flat(row), _flat(json.loads(json.dumps(config)))
    # The budget may rise, and a cluster's next job has vLLM's server elsewhere.
    names = {*before, *now} - {"recipe.judging.max_cost_usd", "recipe.grpo.vllm.server"}
    if changed := sorted(name for name in names if before.get(name) != now.get(name)):
        values = (f"{each.removeprefix('recipe.')}={before.get(each)}" for each in changed[:3])
        settings = ", ".join(cut_line(each, 80) for each in values)
        remedy = "resume it with the same settings and version of art-e"
        raise UserError(f"{out} was started with {settings}; {remedy}")
    return run


def _flat(row: Any, name: str = "") -> dict[str, Any]:
    if not isinstance(row, dict):
        return {name: row}
    inner = (_flat(value, f"{name}.{key}" if name else key) for key, value in row.items())
    return {key: value for values in inner for key, value in values.items()}


def _forget(run: Run, last: int) -> None:
    steps = [each for each in read_steps(run.folder) if each.step <= last]
    lines = "".join(f"{compact_json(dataclasses.asdict(each))}\n" for each in steps)
    write_whole(run.folder / STEPS, lines)
    for checkpoint in _checkpoints(run.folder):
        if _step_of(checkpoint) > last:
            shutil.rmtree(checkpoint)
    # Episodes are in the order of their steps.
    with run.trajectories.open("rb+") as file:
        size = 0
        for line in file:
            if not line.endswith(b"\n") or json.loads(line)["policy"]["step"] > last:
                break
            size += len(line)
        file.truncate(size)


def checkpoint_of(run_folder: Path, step: int) -> Path:
    """Return the folder of the checkpoint of that step."""
    return run_folder / CHECKPOINTS / f"{_PREFIX}{step}"


def newest_checkpoint(run_folder: Path) -> Path | None:
    """Return a run's newest complete checkpoint."""
    whole = (each for each in _checkpoints(run_folder) if (each / STATE).is_file())
    return max(whole, key=_step_of, default=None)


def _checkpoints(run_folder: Path) -> list[Path]:
    folders = (run_folder / CHECKPOINTS).glob(f"{_PREFIX}*")
    return [each for each in folders if each.name.removeprefix(_PREFIX).isdigit()]


def _step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix(_PREFIX))
