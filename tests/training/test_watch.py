"""What a watcher sees: a line each, and no control sequence of others."""

import io
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.training.rows import validation
from training import run as running
from training.alarms import TrainingAlarm
from training.progress import Step
from training.run import Watch

HOSTILE = "\x1b[2J\x1b]0;title\x07\u202etxt [red]x[/] \r\n\x9b31m \ud800"
_STYLES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def step(number: int, **figures: Any) -> Step:
    shares = {"accuracy": 0.61, "hallucination": 0.21, "abstention": 0.11, "format_errors": 0.07}
    others = {"reward": 0.5, "turns": 2.9, "entropy": 0.2, "groups": 8, "flat_groups": 2}
    made: dict[str, Any] = {**shares, **others, "cost_usd": 0.01 * number}
    return Step(number, seconds=10.0 * number, tokens=5_000 * number, **{**made, **figures})


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=240, height=50, _environ={})


def log() -> Console:
    return Console(file=io.StringIO(), width=240, markup=False, highlight=False, _environ={})


def text_of(console: Console) -> str:
    """All that was printed, without rich's own codes."""
    assert isinstance(console.file, io.StringIO)
    return _STYLES.sub("", console.file.getvalue())


@pytest.fixture(autouse=True)
def each_step_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "LINE_EVERY_S", 0.0)


FIGURES = (
    "reward 0.5, accuracy 0.61, hallucination 0.21, abstention 0.11, format errors 0.07, turns 2.9,"
    " entropy 0.2, flat groups 25%"
)
LINES = [
    f"step 1 of 3: {FIGURES}, 0:00:10, $0.01",
    f"step 2 of 3: {FIGURES}, 500 tokens/s, 0:00:20, 0:00:10 to go, $0.02",
    "validation after step 2: n 200, accuracy 0.62, abstention 0.14, turns when correct 2.75",
    "ALARM at step 2, no spread: ask harder questions",
]


@pytest.mark.parametrize("console", [terminal(), log()])
def test_a_line_for_each_step_validation_and_alarm(console: Console) -> None:
    watch = Watch(3, console=console)
    watch.step(step(1))
    watch.step(step(2))
    watch.validation(validation(2, accuracy=0.62, abstention=0.14, turns_when_correct=2.75))
    watch.alarm(TrainingAlarm("no spread", "ask harder questions"))
    assert text_of(console).splitlines() == LINES


def test_few_of_many_steps_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "LINE_EVERY_S", 1e9)
    console = log()
    watch = Watch(1_000, console=console)
    for number in range(1, 100):
        watch.step(step(number))
    watch.close()
    assert re.findall(r"step (\d+) of 1000", text_of(console)) == ["1", "99"]


@pytest.mark.parametrize("console", [terminal(), log()])
def test_nothing_foreign_commands_the_terminal(console: Console) -> None:
    watch = Watch(10, console=console)
    watch.step(step(1, loss=float("nan")))
    watch.alarm(TrainingAlarm(f"hacking {HOSTILE}", f"says {HOSTILE}"))
    assert isinstance(console.file, io.StringIO)
    written = console.file.getvalue()
    assert not re.search("\x1b\\[2J|\x1b\\]|\x07|\x9b|\u202e|\ud800", written)
    assert "[red]x[/]" in written


@given(st.text(st.characters(codec=None, exclude_categories=[]), max_size=40))
def test_a_line_of_a_log_is_one_line_of_what_can_be_seen(text: str) -> None:
    console = log()
    watch = Watch(10, console=console)
    watch.alarm(TrainingAlarm("hacking", text + HOSTILE))
    [line] = text_of(console).removesuffix("\n").split("\n")
    assert line.isprintable()
