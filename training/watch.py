"""The live view of a training run: its figures over the steps, validations and alarms.

On stderr. A terminal shows a table that stays in place; elsewhere a line comes now and then, and
one for each validation and alarm, so that a log tells how the run went. Only alarms contain text
of others, and terminal escapes are removed from it. It draws at most once a second.
"""

import itertools
import math
import sys
import time
from collections.abc import Callable, Sequence
from statistics import fmean
from types import TracebackType
from typing import NamedTuple, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from art_e.text import printable
from training.alarms import TrainingAlarm
from training.progress import Step, Validation
from training.run import View

# Seconds between lines, and between drawings on a terminal.
LINE_EVERY_S, DRAW_EVERY_S = 10.0, 1.0
# Steps in the means, in the speed and in the time to go.
RECENT = 10
# Validations to show.
LATEST = 5

# From low to high; the second for terminals without Unicode.
BLOCKS, ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.:-=+*#"
_BAR, _WIDEST, _LINE_WIDTH = 24, 80, 240
_LABEL, _NUMBER = 14, 8

Shown = Callable[[float], str]


class _Row(NamedTuple):
    label: str
    # One per step; None if unknown.
    values: list[float | None]
    shown: Shown


class Watch(View):
    """Shows a run of `total_steps`, by default on stderr."""

    def __init__(self, total_steps: int, title: str, *, console: Console | None = None) -> None:
        self._console = console or Console(
            stderr=True,
            width=None if sys.stderr.isatty() else _LINE_WIDTH,
            markup=False,
            emoji=False,
            highlight=False,
        )
        self._blocks = BLOCKS if self._console.encoding.startswith("utf") else ASCII_BLOCKS
        self._total = total_steps
        self._title = printable(title)
        self._steps: list[Step] = []
        self._validations: list[Validation] = []
        self._alarms: list[tuple[int, TrainingAlarm]] = []
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
            self._print(f"validation after step {validation.step}: " + ", ".join(cells))
        self._draw()

    def alarm(self, alarm: TrainingAlarm) -> None:
        """Print an alarm, which stays above the table, and keep its kind in view."""
        at = self._steps[-1].step if self._steps else 0
        self._alarms.append((at, alarm))
        self._print(f"ALARM at step {at}, {alarm.kind}: {alarm.message}", style="bold red")
        self._draw()

    def _print(self, line: str, style: str = "") -> None:
        self._console.print(Text(printable(line), style=style), soft_wrap=self._live is None)

    def _print_step(self) -> None:
        self._printed = time.monotonic()
        last = self._steps[-1:]
        self._last_printed = last[0].step
        figures = [
            f"{each.label} {each.shown(value)}"
            for each in [*_reward_rows(last)[:1], *_figure_rows(last)]
            if (value := each.values[-1]) is not None
        ]
        place = f"step {self._last_printed} of {self._total}"
        self._print(f"{place}: " + ", ".join([*figures, *self._pace()]))

    def _pace(self) -> list[str]:
        """Tokens a second, and time and cost so far and to go."""
        if not self._steps:
            return []
        last, first = self._steps[-1], self._steps[-RECENT - 1 :][0]
        to_go, made = self._total - last.step, last.step - first.step
        seconds = last.seconds - first.seconds
        more = to_go / made if made > 0 and to_go > 0 else None
        pace = []
        if seconds > 0:
            pace.append(f"{(last.tokens - first.tokens) / seconds:,.0f} tokens/s")
        left = "" if more is None else f", {_clock(seconds * more)} to go"
        pace.append(f"{_clock(last.seconds)}{left}")
        if last.cost_usd:
            cost = last.cost_usd - first.cost_usd
            left = "" if more is None else f", ${cost * more:,.2f} to go"
            pace.append(f"${last.cost_usd:,.2f}{left}")
        return pace

    def _draw(self) -> None:
        if self._live is not None:
            self._drawn = time.monotonic()
            self._live.update(self._view(), refresh=True)

    def _view(self) -> Text:
        """The whole view as lines: rich's tables take ten times as long."""
        at = self._steps[-1].step if self._steps else 0
        bar = round(_BAR * min(1.0, at / max(1, self._total)))
        lines = [
            Text.assemble(
                (self._title, "bold"),
                f"  step {at:,} of {self._total:,}  ",
                (self._blocks[-1] * bar, "cyan"),
                (self._blocks[0] * (_BAR - bar), "dim"),
            ),
            Text("   ".join(self._pace())),
        ]
        if self._alarms:
            kinds = ", ".join(f"{each.kind} (step {step})" for step, each in self._alarms)
            lines.append(Text(printable(f"alarms: {kinds}"), style="bold red"))
        for rows in (_reward_rows(self._steps), _figure_rows(self._steps)):
            lines += self._block(rows, min(self._console.width, _WIDEST))
        if self._validations:
            lines += [Text(), *_validation_lines(self._validations[-LATEST:])]
        view = Text("\n").join(lines)
        view.no_wrap, view.overflow = True, "ellipsis"
        return view

    def _block(self, rows: Sequence[_Row], width: int) -> list[Text]:
        """An empty line, a heading and a line for each figure; no lines without figures."""
        line = max(4, width - _LABEL - 2 * _NUMBER - 2)
        mean = f"mean {RECENT}"
        lines = [Text(), Text(f"{'':{_LABEL}}{'now':>{_NUMBER}}{mean:>{_NUMBER}}", "dim")]
        for row in rows:
            known = [value for value in row.values if value is not None]
            last = row.values[-1]
            now = "" if last is None else row.shown(last)
            drawn = sparkline(known, line, self._blocks)
            lines.append(
                Text.assemble(
                    f"{row.label[:_LABEL]:{_LABEL}}{now:>{_NUMBER}}",
                    f"{row.shown(fmean(known[-RECENT:])):>{_NUMBER}}  ",
                    (f"{drawn:{line}}", "cyan"),
                )
            )
        return lines if rows else []


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


def _reward_rows(steps: Sequence[Step]) -> list[_Row]:
    """The reward and its components, in the order in which they came up."""
    rows = [_Row("reward", [each.reward for each in steps], _number)]
    for name in dict.fromkeys(name for each in steps for name in each.components):
        # Missing among others means that no episode of the step earned it.
        values = [each.components.get(name, 0.0) if each.components else None for each in steps]
        rows.append(_Row(printable(name), values, _number))
    return _known(rows)


def _figure_rows(steps: Sequence[Step]) -> list[_Row]:
    return _known(
        [
            _Row(label, [_value(each, name) for each in steps], form)
            for label, name, form in _FIGURES
        ]
    )


def _value(step: Step, name: str) -> float | None:
    value: float | None = getattr(step, name)
    if name == "flat_groups" and value is not None:
        return value / step.groups if step.groups else None
    return value


def _known(rows: Sequence[_Row]) -> list[_Row]:
    return [each for each in rows if any(value is not None for value in each.values)]


def _validation_lines(validations: Sequence[Validation]) -> list[Text]:
    shown = [_cells(each) for each in validations]
    widths = {name: max(4, len(name)) + 1 for name in shown[0]}
    heading = "".join(f"{name:>{width}}" for name, width in widths.items())
    lines = [Text(f"validation{heading}", style="dim")]
    for each, cells in zip(validations, shown, strict=True):
        figures = "".join(f"{cells[name]:>{width}}" for name, width in widths.items())
        lines.append(Text(f"{f'step {each.step}':10}{figures}"))
    return lines


def _cells(validation: Validation) -> dict[str, str]:
    """The figures of a validation as text; empty if unknown."""
    values = [(name, getattr(validation, field), shown) for name, field, shown in _VALIDATION]
    return {name: "" if value is None else shown(value) for name, value, shown in values}


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


# The name, the field of `Step`, and the format.
_FIGURES: tuple[tuple[str, str, Shown], ...] = (
    ("accuracy", "accuracy", _percent),
    ("hallucination", "hallucination", _percent),
    ("abstention", "abstention", _percent),
    ("turns", "turns", _number),
    ("effort", "effort", _number),
    ("format errors", "format_errors", _number),
    ("entropy", "entropy", _small),
    ("KL", "kl", _small),
    ("flat groups", "flat_groups", _percent),
    ("resampled", "resampled", _count),
    ("unjudged", "unjudged", _count),
    ("loss", "loss", _small),
    ("gradient", "grad_norm", _small),
)
# Likewise of `Validation`; "invented" are answers to unanswerable questions.
_VALIDATION: tuple[tuple[str, str, Shown], ...] = (
    ("n", "n", _count),
    ("accuracy", "accuracy", _percent),
    ("wrong", "hallucination", _percent),
    ("invented", "hallucination_unanswerable", _percent),
    ("abstained", "abstention", _percent),
    ("turns", "turns_when_correct", _number),
    ("effort", "effort_when_correct", _number),
    ("format", "format_errors", _number),
    ("reward", "reward", _number),
)
