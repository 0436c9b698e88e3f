"""The live view of a training run: its figures, how they went, validations and alarms.

    with Watch(recipe.grpo.steps, "grpo nano") as watch:
        watch.step(step)
        watch.validation(validation)
        watch.alarm(alarm)

On stderr. A terminal shows a table that stays in its place; elsewhere a line is printed now
and then, and one for each validation and alarm, so that a log tells how the run went. What
others wrote gets in through alarms alone and loses what a terminal could obey. Knows nothing
of how training is done, and never slows it: it draws once a second at most.
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

# Without a terminal a line is printed so often at most.
LINE_EVERY_S = 10.0
# A terminal is drawn on so often at most.
DRAW_EVERY_S = 1.0
# Steps of the second column's means, of speed and of what is left.
RECENT = 10
# Validations that are shown.
LATEST = 5
# On a narrower screen the figures stand below the components of the reward.
BESIDE = 72

# From low to high, and for who can't write those.
BLOCKS, ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.:-=+*#"
# The progress bar, and the widest block of figures.
BAR, WIDEST = 24, 80

_LINE_WIDTH = 240
_LABEL, _NUMBER, _GAP = 14, 8, "   "

Shown = Callable[[float], str]


class _Row(NamedTuple):
    """A figure over the steps: what it is called, its values (None: not known), its form."""

    label: str
    values: list[float | None]
    shown: Shown


class Watch:
    """Shows a run of `total_steps`, by default on stderr. Steps before a resume may be given
    again first: they are drawn as if they had been made now."""

    def __init__(self, total_steps: int, title: str, *, console: Console | None = None) -> None:
        self._console = console or _stderr()
        self._blocks = BLOCKS if self._console.encoding.startswith("utf") else ASCII_BLOCKS
        self._total = total_steps
        self._title = printable(title)
        self._steps: list[Step] = []
        self._validations: list[Validation] = []
        self._alarms: list[tuple[int, TrainingAlarm]] = []
        self._drawn = self._printed = float("-inf")
        self._told = 0
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(
                console=self._console,
                auto_refresh=False,
                # What goes to a file or a pipe is not for this screen.
                redirect_stdout=sys.stdout.isatty(),
            )
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
        elif self._steps and self._steps[-1].step != self._told:
            self._print_step()

    def step(self, step: Step) -> None:
        """Show a step that was made."""
        self._steps.append(step)
        now = time.monotonic()
        if self._live is not None:
            if now - self._drawn >= DRAW_EVERY_S:
                self._draw()
        elif now - self._printed >= LINE_EVERY_S or step.step >= self._total:
            self._print_step()

    def validation(self, validation: Validation) -> None:
        """Show what a validation found."""
        self._validations.append(validation)
        if self._live is not None:
            self._draw()
        else:
            cells = [f"{name} {cell}" for name, cell in _cells(validation) if cell]
            self._print(f"validation after step {validation.step}: " + ", ".join(cells))

    def alarm(self, alarm: TrainingAlarm) -> None:
        """Print an alarm, which stays above the table, and keep its kind in view."""
        at = self._steps[-1].step if self._steps else 0
        self._alarms.append((at, alarm))
        self._print(f"ALARM at step {at}, {alarm.kind}: {alarm.message}", style="bold red")
        if self._live is not None:
            self._draw()

    def _print(self, line: str, style: str = "") -> None:
        self._console.print(Text(printable(line), style=style), soft_wrap=self._live is None)

    def _print_step(self) -> None:
        self._printed = time.monotonic()
        self._told = self._steps[-1].step
        rows = [*_reward_rows(self._steps[-1:])[:1], *_figure_rows(self._steps[-1:])]
        figures = [
            f"{each.label} {each.shown(last)}"
            for each in rows
            if (last := each.values[-1]) is not None
        ]
        self._print(f"step {self._told} of {self._total}: " + ", ".join([*figures, *self._pace()]))

    def _pace(self) -> list[str]:
        """Tokens a second, and time and cost so far and to go."""
        if not self._steps:
            return []
        last, recent = self._steps[-1], self._steps[-RECENT - 1 :]
        said = []
        to_go = self._total - last.step
        seconds = last.seconds - recent[0].seconds
        made = last.step - recent[0].step
        if seconds > 0:
            said.append(f"{(last.tokens - recent[0].tokens) / seconds:,.0f} tokens/s")
        left = f", {_clock(seconds / made * to_go)} to go" if made > 0 and to_go > 0 else ""
        said.append(f"{_clock(last.seconds)}{left}")
        if last.cost_usd:
            cost = (last.cost_usd - recent[0].cost_usd) / made * to_go if made > 0 else 0.0
            left = f", ${cost:,.2f} to go" if made > 0 and to_go > 0 else ""
            said.append(f"${last.cost_usd:,.2f}{left}")
        return said

    def _draw(self) -> None:
        if self._live is not None:
            self._drawn = time.monotonic()
            self._live.update(self._view(), refresh=True)

    def _view(self) -> Text:
        """The whole view, as lines of their own: rich's tables take ten times as long."""
        at = self._steps[-1].step if self._steps else 0
        bar = round(BAR * min(1.0, at / max(1, self._total)))
        lines = [
            Text.assemble(
                (self._title, "bold"),
                f"  step {at:,} of {self._total:,}  ",
                (self._blocks[-1] * bar, "cyan"),
                (self._blocks[0] * (BAR - bar), "dim"),
            ),
            Text("   ".join(self._pace())),
        ]
        if self._alarms:
            kinds = ", ".join(f"{each.kind} (step {step})" for step, each in self._alarms)
            lines.append(Text(printable(f"alarms: {kinds}"), style="bold red"))
        width = self._console.width
        beside = width >= BESIDE
        half = (width - len(_GAP)) // 2 if beside else width
        left, right = (
            self._block(rows, min(half, WIDEST))
            for rows in (_reward_rows(self._steps), _figure_rows(self._steps))
        )
        if beside and left:
            pairs = itertools.zip_longest(left, right, fillvalue=Text(" " * len(left[0])))
            lines += [Text(), *(Text(_GAP).join(pair) for pair in pairs)]
        else:
            lines += [each for block in (left, right) if block for each in (Text(), *block)]
        if self._validations:
            lines += [Text(), *_validation_lines(self._validations[-LATEST:])]
        view = Text("\n").join(lines)
        view.no_wrap, view.overflow = True, "ellipsis"
        return view

    def _block(self, rows: Sequence[_Row], width: int) -> list[Text]:
        """A heading and a line for each figure; nothing where there are no figures."""
        if not rows:
            return []
        line = max(4, width - _LABEL - 2 * _NUMBER - 2)
        mean = f"mean {RECENT}"
        lines = [Text(f"{'':{_LABEL}}{'now':>{_NUMBER}}{mean:>{_NUMBER}}  {'':{line}}", "dim")]
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
        return lines


def sparkline(values: Sequence[float], width: int, blocks: str = BLOCKS) -> str:
    """`values` as at most `width` of `blocks`, each for the mean of a stretch, from the least
    to the greatest mean; the lowest block throughout where they are the same. What is no
    finite number is left out."""
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
    names = dict.fromkeys(name for each in steps for name in each.components)
    parts = [
        _Row(
            printable(name),
            # A step in which no episode earned it has it not: that is 0 where there are others.
            [each.components.get(name, 0.0) if each.components else None for each in steps],
            _number,
        )
        for name in names
    ]
    return _known([_Row("reward", [each.reward for each in steps], _number), *parts])


def _figure_rows(steps: Sequence[Step]) -> list[_Row]:
    def row(label: str, of: Callable[[Step], float | None], shown: Shown) -> _Row:
        return _Row(label, [of(each) for each in steps], shown)

    return _known(
        [
            row("accuracy", lambda each: each.accuracy, _percent),
            row("hallucination", lambda each: each.hallucination, _percent),
            row("abstention", lambda each: each.abstention, _percent),
            row("turns", lambda each: each.turns, _number),
            row("effort", lambda each: each.effort, _number),
            row("format errors", lambda each: each.format_errors, _number),
            row("entropy", lambda each: each.entropy, _small),
            row("KL", lambda each: each.kl, _small),
            row("flat groups", _flat_share, _percent),
            row("resampled", lambda each: each.resampled, _count),
            row("unjudged", lambda each: each.unjudged, _count),
            row("loss", lambda each: each.loss, _small),
            row("gradient", lambda each: each.grad_norm, _small),
        ]
    )


def _known(rows: Sequence[_Row]) -> list[_Row]:
    return [each for each in rows if any(value is not None for value in each.values)]


def _flat_share(step: Step) -> float | None:
    return step.flat_groups / step.groups if step.flat_groups is not None and step.groups else None


def _validation_lines(validations: Sequence[Validation]) -> list[Text]:
    shown = [_cells(each) for each in validations]
    names = [name for name, _ in shown[0]]
    widths = [max(4, len(name)) + 1 for name in names]
    heading = "".join(f"{name:>{width}}" for name, width in zip(names, widths, strict=True))
    lines = [Text(f"validation{heading}", style="dim")]
    for each, cells in zip(validations, shown, strict=True):
        figures = (f"{cell:>{width}}" for (_, cell), width in zip(cells, widths, strict=True))
        lines.append(Text(f"{f'step {each.step}':10}{''.join(figures)}"))
    return lines


def _cells(validation: Validation) -> list[tuple[str, str]]:
    """What is told of a validation; an empty text for what is not known."""
    figures: list[tuple[str, float | None, Shown]] = [
        ("n", validation.n, _count),
        ("accuracy", validation.accuracy, _percent),
        ("wrong", validation.hallucination, _percent),
        # Answers where there is none to give.
        ("invented", validation.hallucination_unanswerable, _percent),
        ("abstained", validation.abstention, _percent),
        ("turns", validation.turns_when_correct, _number),
        ("effort", validation.effort_when_correct, _number),
        ("format", validation.format_errors, _number),
        ("reward", validation.reward, _number),
    ]
    return [(name, "" if value is None else shown(value)) for name, value, shown in figures]


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


def _stderr() -> Console:
    return Console(
        stderr=True,
        width=None if sys.stderr.isatty() else _LINE_WIDTH,
        markup=False,
        emoji=False,
        highlight=False,
    )
