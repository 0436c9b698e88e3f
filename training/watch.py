"""The view of a training run on stderr: its steps, validations and alarms, a line each.

A step is printed at most every ten seconds, with speed, time to go and cost. Only alarms contain
text of others, and terminal escapes are removed from it.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from art_e.text import printable
from evals.hacking import detect
from evals.scored import Scored
from training.alarms import SHOW, TrainingAlarm
from training.export import write_card
from training.progress import Step, Validation
from training.run import RunView, Setting

# Seconds between lines, and the steps from which speed and time to go are calculated.
LINE_EVERY_S, RECENT = 10.0, 10
# The figures in the lines of a step and of a validation.
_OF_EPISODES = ("reward", "accuracy", "hallucination", "abstention", "format_errors")
_OF_STEP = (*_OF_EPISODES, *"turns effort entropy kl unjudged loss grad_norm".split())
_OF_VALIDATION = (
    "n",
    *_OF_EPISODES,
    "hallucination_unanswerable",
    "turns_when_correct",
    "effort_when_correct",
)


class Watch(RunView):
    """Shows a run of `total_steps`, by default on stderr."""

    def __init__(self, total_steps: int, *, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, markup=False, emoji=False, highlight=False)
        self._total = total_steps
        self._steps: list[Step] = []
        self._printed_at, self._printed = float("-inf"), 0

    def __exit__(self, *_: object) -> None:
        if self._steps and self._steps[-1].step != self._printed:
            self._print_step()

    def step(self, step: Step) -> None:
        """Show a step."""
        self._steps = [*self._steps[-RECENT:], step]
        if time.monotonic() - self._printed_at >= LINE_EVERY_S or step.step >= self._total:
            self._print_step()

    def validation(self, validation: Validation) -> None:
        """Print a validation."""
        cells = _figures(validation, _OF_VALIDATION)
        self._print(f"validation after step {validation.step}: {', '.join(cells)}", "bold")

    def alarm(self, alarm: TrainingAlarm) -> None:
        """Print an alarm."""
        step = self._steps[-1].step if self._steps else 0
        self._print(f"ALARM at step {step}, {alarm.kind}: {alarm.message}", "bold red")

    def hacks(self, scored: Sequence[Scored]) -> list[TrainingAlarm]:
        """The signs of reward hacking in all episodes so far."""
        return hacking_alarms(scored)

    def finish(self, folder: Path, setting: Setting, metrics: dict[str, Any]) -> None:
        """Write the model card."""
        write_card(folder, setting, metrics)

    def _print_step(self) -> None:
        self._printed_at, last = time.monotonic(), self._steps[-1]
        self._printed = last.step
        shown = _figures(last, _OF_STEP)
        if last.flat_groups is not None and last.groups:
            shown.append(f"flat groups {last.flat_groups / last.groups:.0%}")
        self._print(f"step {last.step} of {self._total}: {', '.join([*shown, *self._pace()])}")

    def _print(self, line: str, style: str = "") -> None:
        self._console.print(Text(printable(line), style=style), soft_wrap=True)

    def _pace(self) -> list[str]:
        """Tokens a second, time so far and to go, and the cost so far."""
        first, last = self._steps[0], self._steps[-1]
        made, seconds = last.step - first.step, last.seconds - first.seconds
        pace = [_clock(last.seconds)]
        if made and seconds > 0:
            to_go = _clock(seconds / made * (self._total - last.step))
            speed = (last.tokens - first.tokens) / seconds
            pace = [f"{speed:,.0f} tokens/s", *pace, f"{to_go} to go"]
        return [*pace, f"${last.cost_usd:,.2f}"] if last.cost_usd else pace


def hacking_alarms(scored: Sequence[Scored]) -> list[TrainingAlarm]:
    """The alarms of `evals.hacking` on all episodes so far, one kind for each detector.

    Reading the 7,600 episodes of nano takes 2 s, so call it at validations, not at steps.
    """
    alarms = []
    for alarm in detect(scored):
        example = f" (such as {alarm.episodes[0]})" if alarm.episodes else ""
        advice = (
            f"{SHOW}{example}; if the answers are not honest, fix what judging.reward accepts"
            " and keep reward.grounded_gate on"
        )
        alarms.append(TrainingAlarm(f"hacking: {alarm.detector}", f"{alarm.message}; {advice}"))
    return alarms


def _figures(row: Step | Validation, names: Sequence[str]) -> list[str]:
    """The figures of the row that are known, each with its name."""
    known = [(name, value) for name in names if (value := getattr(row, name)) is not None]
    return [f"{name.replace('_', ' ')} {value:.3g}" for name, value in known]


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
