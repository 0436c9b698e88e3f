"""The live view of a training run: its figures over the steps, validations and alarms.

On stderr. A terminal shows a table that stays in place; elsewhere a line comes now and then, and
one for each validation and alarm, so that a log tells how the run went. Only alarms contain text
of others, and terminal escapes are removed from it. It draws at most once a second.
"""

import itertools
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from art_e.text import printable
from training.alarms import TrainingAlarm
from training.progress import Step, Validation
from training.run import RunView

# Seconds between lines, and between drawings on a terminal.
LINE_EVERY_S, DRAW_EVERY_S = 10.0, 1.0
# Steps in the means, in the speed and in the time to go; validations to show.
RECENT, LATEST = 10, 5
# From low to high; the second for terminals without Unicode.
BLOCKS, ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.:-=+*#"
_BAR, _WIDEST, _LINE_WIDTH, _LABEL, _NUMBER = 24, 80, 240, 14, 8

Shown = Callable[[float], str]
# The values of a figure over the steps, None if unknown, with their format.
Rows = Mapping[str, tuple[list[float | None], Shown]]


class Watch(RunView):
    """Shows a run of `total_steps`, by default on stderr."""

    def __init__(self, total_steps: int, title: str, *, console: Console | None = None) -> None:
        width = None if sys.stderr.isatty() else _LINE_WIDTH
        self._console = console or Console(
            stderr=True, width=width, markup=False, emoji=False, highlight=False
        )
        self._blocks = BLOCKS if self._console.encoding.startswith("utf") else ASCII_BLOCKS
        self._total = total_steps
        self._title = printable(title)
        self._steps: list[Step] = []
        self._validations: list[Validation] = []
        self._alarms: list[str] = []
        self._drawn = self._printed = float("-inf")
        self._last_printed = 0
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            # Output to a file or a pipe is not for this screen.
            redirect = sys.stdout.isatty()
            self._live = Live(console=self._console, auto_refresh=False, redirect_stdout=redirect)
            self._live.start()
            self._draw()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._draw()
            self._live.stop()
            self._live = None
        elif self._steps and self._steps[-1].step != self._last_printed:
            self._print_step()

    def step(self, step: Step) -> None:
        """Show a step."""
        self._steps.append(step)
        now = time.monotonic()
        if self._live is not None:
            if now - self._drawn >= DRAW_EVERY_S:
                self._draw()
        elif now - self._printed >= LINE_EVERY_S or step.step >= self._total:
            self._print_step()

    def validation(self, validation: Validation) -> None:
        """Show a validation."""
        self._validations.append(validation)
        if self._live is None:
            cells = [f"{name} {cell}" for name, cell in _cells(validation).items() if cell]
            self._print(f"validation after step {validation.step}: {', '.join(cells)}")
        self._draw()

    def alarm(self, alarm: TrainingAlarm) -> None:
        """Print an alarm, which stays above the table, and keep its kind in view."""
        step = self._steps[-1].step if self._steps else 0
        self._alarms.append(f"{alarm.kind} (step {step})")
        self._print(f"ALARM at step {step}, {alarm.kind}: {alarm.message}", style="bold red")
        self._draw()

    def _print(self, line: str, style: str = "") -> None:
        self._console.print(Text(printable(line), style=style), soft_wrap=self._live is None)

    def _print_step(self) -> None:
        self._printed, last = time.monotonic(), self._steps[-1]
        self._last_printed = last.step
        rows = _rows([last])
        shown = [
            f"{name} {form(value)}"
            for name, (values, form) in rows.items()
            if name not in last.components and (value := values[-1]) is not None
        ]
        self._print(f"step {last.step} of {self._total}: {', '.join([*shown, *self._pace()])}")

    def _pace(self) -> list[str]:
        """Tokens a second, and time and cost so far and to go."""
        if not self._steps:
            return []
        last, first = self._steps[-1], self._steps[-RECENT - 1 :][0]
        to_go, made = self._total - last.step, last.step - first.step
        seconds, cost = last.seconds - first.seconds, last.cost_usd - first.cost_usd
        more = to_go / made if made > 0 and to_go > 0 else None
        left = ["", ""] if more is None else [_clock(seconds * more), f"${cost * more:,.2f}"]
        times, costs = (f", {each} to go" if each else "" for each in left)
        return [
            *([f"{(last.tokens - first.tokens) / seconds:,.0f} tokens/s"] if seconds > 0 else []),
            f"{_clock(last.seconds)}{times}",
            *([f"${last.cost_usd:,.2f}{costs}"] if last.cost_usd else []),
        ]

    def _draw(self) -> None:
        if self._live is not None:
            self._drawn = time.monotonic()
            self._live.update(self._view(), refresh=True)

    def _view(self) -> Text:
        """The whole view as lines: rich's tables take ten times as long."""
        step = self._steps[-1].step if self._steps else 0
        bar = round(_BAR * min(1.0, step / max(1, self._total)))
        lines = [
            Text.assemble(
                (self._title, "bold"),
                f"  step {step:,} of {self._total:,}  ",
                (self._blocks[-1] * bar, "cyan"),
                (self._blocks[0] * (_BAR - bar), "dim"),
            ),
            Text("   ".join(self._pace())),
        ]
        if self._alarms:
            lines.append(Text(printable(f"alarms: {', '.join(self._alarms)}"), style="bold red"))
        width = max(4, min(self._console.width, _WIDEST) - _LABEL - 2 * _NUMBER - 2)
        if rows := _rows(self._steps):
            mean = f"mean {RECENT}"
            lines.append(Text(f"{'':{_LABEL}}{'now':>{_NUMBER}}{mean:>{_NUMBER}}", "dim"))
        for name, (values, form) in rows.items():
            known = [value for value in values if value is not None]
            now = "" if values[-1] is None else form(values[-1])
            recent = form(fmean(known[-RECENT:]))
            label = f"{printable(name)[:_LABEL]:{_LABEL}}{now:>{_NUMBER}}{recent:>{_NUMBER}}  "
            lines.append(Text.assemble(label, (sparkline(known, width, self._blocks), "cyan")))
        view = Text("\n").join([*lines, *_validation_lines(self._validations[-LATEST:])])
        view.no_wrap, view.overflow = True, "ellipsis"
        return view


def sparkline(values: Sequence[float], width: int, blocks: str = BLOCKS) -> str:
    """`values` as at most `width` of `blocks`, each for the mean of a stretch, scaled from the
    least to the greatest mean; all the lowest block if they are equal. Skips non-finite values."""
    finite = [value for value in values if math.isfinite(value)]
    count = min(width, len(finite))
    edges = [len(finite) * place // count for place in range(count + 1)] if count else []
    means = [fmean(finite[start:end]) for start, end in itertools.pairwise(edges)]
    low, high = min(means, default=0.0), max(means, default=0.0)
    # Means of equal numbers differ in their last digits.
    if math.isclose(low, high, rel_tol=1e-9, abs_tol=1e-12) or not math.isfinite(high - low):
        return blocks[0] * count
    top = len(blocks) - 1
    return "".join(blocks[round((mean - low) / (high - low) * top)] for mean in means)


def _rows(steps: Sequence[Step]) -> Rows:
    """The reward, its components as they came up, and the other figures that are known."""
    rows: dict[str, tuple[list[float | None], Shown]] = {
        "reward": ([each.reward for each in steps], _number)
    }
    for name in dict.fromkeys(name for each in steps for name in each.components):
        # Missing among others means that no episode of the step earned it.
        values = [each.components.get(name, 0.0) if each.components else None for each in steps]
        rows[name] = values, _number
    rows |= {
        name: ([_value(each, name) for each in steps], form) for name, form in _FIGURES.items()
    }
    return {name: row for name, row in rows.items() if any(each is not None for each in row[0])}


def _value(step: Step, name: str) -> float | None:
    value: float | None = getattr(step, _FIELDS.get(name, name.lower().replace(" ", "_")))
    share = name == "flat groups" and value is not None
    return value / step.groups if share and value is not None and step.groups else value


def _validation_lines(validations: Sequence[Validation]) -> list[Text]:
    shown = {each.step: _cells(each) for each in validations}
    names = next(iter(shown.values()), {})
    widths = {name: max(4, len(name)) + 1 for name in names}
    heading = "".join(f"{name:>{width}}" for name, width in widths.items())
    lines = [Text(f"validation{heading}", style="dim")] if names else []
    for step, cells in shown.items():
        figures = "".join(f"{cells[name]:>{width}}" for name, width in widths.items())
        lines.append(Text(f"{f'step {step}':10}{figures}"))
    return lines


def _cells(validation: Validation) -> dict[str, str]:
    """The figures of a validation as text; empty if unknown."""
    values: dict[str, tuple[Any, Shown]] = {
        "n": (validation.n, _count),
        "accuracy": (validation.accuracy, _percent),
        "wrong": (validation.hallucination, _percent),
        # Answers to unanswerable questions.
        "invented": (validation.hallucination_unanswerable, _percent),
        "abstained": (validation.abstention, _percent),
        "turns": (validation.turns_when_correct, _number),
        "effort": (validation.effort_when_correct, _number),
        "format": (validation.format_errors, _number),
        "reward": (validation.reward, _number),
    }
    return {name: "" if value is None else form(value) for name, (value, form) in values.items()}


def _percent(value: float) -> str:
    return f"{value:.0%}"


def _number(value: float) -> str:
    return f"{value:.2f}"


def _small(value: float) -> str:
    return f"{value:.3f}" if abs(value) >= 0.01 or value == 0 else f"{value:.1e}"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


# Their order, formats, and fields of `Step` with another name.
_FIGURES: Mapping[str, Shown] = {
    **dict.fromkeys(("accuracy", "hallucination", "abstention"), _percent),
    **dict.fromkeys(("turns", "effort", "format errors"), _number),
    **dict.fromkeys(("entropy", "KL"), _small),
    "flat groups": _percent,
    **dict.fromkeys(("resampled", "unjudged"), _count),
    **dict.fromkeys(("loss", "gradient"), _small),
}
_FIELDS = {"gradient": "grad_norm"}
