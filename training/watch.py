"""The view of a training run on stderr: its steps, validations and alarms, a line each.

A step is printed at most every ten seconds, with speed, time to go and cost. Only alarms contain
text of others, and terminal escapes are removed from it.
"""

import time
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from art_e.text import printable
from training.alarms import TrainingAlarm
from training.progress import Step, Validation

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


class Watch:
    """Shows a run of `total_steps`, by default on stderr; nothing unless `shown`."""

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
        cells = _figures(validation, _OF_VALIDATION)
        self._print(f"validation after step {validation.step}: {', '.join(cells)}", "bold")

    def alarm(self, alarm: TrainingAlarm) -> None:
        """Print an alarm."""
        step = self._steps[-1].step if self._steps else 0
        self._print(f"ALARM at step {step}, {alarm.kind}: {alarm.message}", "bold red")

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


def _figures(row: Step | Validation, names: Sequence[str]) -> list[str]:
    """The figures of the row that are known, each with its name."""
    known = [(name, value) for name in names if (value := getattr(row, name)) is not None]
    return [f"{name.replace('_', ' ')} {value:.3g}" for name, value in known]


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
