"""What a watcher sees, on a terminal and in a log, and that nothing foreign gets through."""

import io
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.training.rows import validation
from training import watch as watching
from training.alarms import TrainingAlarm
from training.progress import Step, Validation
from training.watch import BLOCKS, Watch, sparkline

HOSTILE = "\x1b[2J\x1b]0;title\x07\u202etxt [red]x[/] \r\n\x9b31m \ud800"
_STYLES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def step(number: int, **figures: Any) -> Step:
    made: dict[str, Any] = {
        "reward": 0.5,
        "components": {"correctness": 0.55, "format": -0.05},
        "accuracy": 0.61,
        "hallucination": 0.21,
        "abstention": 0.11,
        "turns": 2.9,
        "effort": 3.1,
        "format_errors": 0.07,
        "entropy": 0.2,
        "kl": 0.004,
        "groups": 8,
        "flat_groups": 2,
        "cost_usd": 0.01 * number,
    }
    return Step(number, seconds=10.0 * number, tokens=5_000 * number, **{**made, **figures})


def checked(number: int) -> Validation:
    return validation(
        number,
        accuracy=0.62,
        hallucination=0.22,
        hallucination_unanswerable=0.43,
        abstention=0.14,
        turns_when_correct=2.75,
        format_errors=0.06,
        reward=0.56,
    )


def terminal(width: int = 120, **options: Any) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=True, width=width, height=50, _environ={}, **options
    )


def said(console: Console) -> str:
    """All that was printed, without rich's own codes."""
    assert isinstance(console.file, io.StringIO)
    return _STYLES.sub("", console.file.getvalue())


def log() -> Console:
    return Console(file=io.StringIO(), width=240, markup=False, highlight=False, _environ={})


@pytest.fixture(autouse=True)
def each_step_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LINE_EVERY_S", 0.0)
    monkeypatch.setattr(watching, "DRAW_EVERY_S", 0.0)


# --- on a terminal ---------------------------------------------------------------------------


def shown(console: Console) -> dict[str, str]:
    """The lines of the last picture that begin with a figure's name."""
    last = said(console).rpartition("grpo nano")[2]
    lines = (re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in last.splitlines())
    return {line[0]: line[1] if len(line) > 1 else "" for line in lines}


def test_every_figure_is_shown_with_its_course() -> None:
    screen = terminal(width=71)  # one below the other
    with Watch(100, "grpo nano", console=screen) as watch:
        watch.step(step(1, accuracy=0.41))
        watch.step(step(2, accuracy=0.51))
        watch.step(step(3))
    figures = shown(screen)
    assert re.match(r"0\.55\s+0\.55\s+▁▁▁$", figures["correctness"])
    assert re.match(r"61%\s+51%\s+▁▅█$|61%\s+51%\s+▁▄█$", figures["accuracy"])
    for name, value in {
        "reward": "0.50", "format": "-0.05", "hallucination": "21%", "abstention": "11%",
        "turns": "2.90", "effort": "3.10", "format errors": "0.07", "entropy": "0.200",
        "KL": "4.0e-03", "flat groups": "25%",
    }.items():  # fmt: skip
        assert figures[name].startswith(value), name
    assert not {"loss", "gradient", "unjudged"} & figures.keys()


def test_speed_time_and_cost_so_far_and_to_go() -> None:
    screen = terminal()
    with Watch(100, "grpo nano", console=screen) as watch:
        for number in range(1, 41):
            watch.step(step(number))
    text = said(screen)
    assert "step 40 of 100" in text
    # 10 seconds, 5,000 tokens and a cent a step; 60 steps are left.
    assert "500 tokens/s   0:06:40, 0:10:00 to go   $0.40, $0.60 to go" in text


def test_the_last_validations_are_shown() -> None:
    screen = terminal()
    with Watch(100, "grpo nano", console=screen) as watch:
        for number in range(0, 140, 20):
            watch.validation(checked(number))
    figures = shown(screen)
    assert [name for name in figures if re.fullmatch(r"step \d+", name)] == [
        f"step {number}" for number in range(40, 140, 20)
    ]
    assert figures["step 120"].split() == "200 62% 22% 43% 14% 2.75 0.06 0.56".split()


def test_an_alarm_is_printed_whole_and_its_kind_stays_in_view() -> None:
    screen = terminal()
    message = "seen " * 60 + "do this"
    with Watch(100, "grpo nano", console=screen) as watch:
        watch.step(step(7))
        watch.alarm(TrainingAlarm("entropy gone", message))
        watch.step(step(8))
    text = " ".join(said(screen).split())
    assert f"ALARM at step 7, entropy gone: {message}" in text
    assert "alarms: entropy gone (step 7)" in text.rpartition("grpo nano")[2]


def test_a_terminal_is_not_drawn_on_at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "DRAW_EVERY_S", 1e9)
    screen = terminal()
    with Watch(100, "grpo nano", console=screen) as watch:
        for number in range(1, 100):
            watch.step(step(number))
    # At the begin and at the end; the screen of a run that stops shows its last step.
    assert re.findall(r"step (\d+) of 100", said(screen)) == ["0", "99", "99"]


# --- in a log --------------------------------------------------------------------------------


def test_elsewhere_lines_are_printed() -> None:
    console = log()
    with Watch(3, "grpo nano", console=console) as watch:
        watch.step(step(1))
        watch.step(step(2))
        watch.validation(checked(2))
        watch.alarm(TrainingAlarm("no spread", "ask harder questions"))
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().splitlines() == [
        "step 1 of 3: reward 0.50, accuracy 61%, hallucination 21%, abstention 11%, turns 2.90,"
        " effort 3.10, format errors 0.07, entropy 0.200, KL 4.0e-03, flat groups 25%, 0:00:10,"
        " $0.01",
        "step 2 of 3: reward 0.50, accuracy 61%, hallucination 21%, abstention 11%, turns 2.90,"
        " effort 3.10, format errors 0.07, entropy 0.200, KL 4.0e-03, flat groups 25%,"
        " 500 tokens/s, 0:00:20, 0:00:10 to go, $0.02, $0.01 to go",
        "validation after step 2: n 200, accuracy 62%, wrong 22%, invented 43%, abstained 14%,"
        " turns 2.75, format 0.06, reward 0.56",
        "ALARM at step 2, no spread: ask harder questions",
    ]


# --- what others wrote -----------------------------------------------------------------------


@pytest.mark.parametrize("to_terminal", [True, False])
def test_nothing_foreign_commands_the_terminal(to_terminal: bool) -> None:
    screen = terminal() if to_terminal else log()
    with Watch(10, f"grpo nano {HOSTILE}", console=screen) as watch:
        watch.step(step(1, components={HOSTILE: 0.5}))
        watch.alarm(TrainingAlarm(f"hacking {HOSTILE}", f"says {HOSTILE}"))
    assert isinstance(screen.file, io.StringIO)
    written = screen.file.getvalue()
    assert not re.search("\x1b\\[2J|\x1b\\]|\x07|\x9b|\u202e|\ud800", written)
    assert "[red]x[/]" in written


@given(
    text=st.text(st.characters(codec=None, exclude_categories=[]), max_size=40).map(
        lambda text: text + HOSTILE
    )
)
def test_a_line_of_a_log_is_one_line_of_what_can_be_seen(text: str) -> None:
    console = log()
    with Watch(10, "grpo nano", console=console) as watch:
        watch.alarm(TrainingAlarm("hacking", text))
    assert isinstance(console.file, io.StringIO)
    [line] = console.file.getvalue().removesuffix("\n").split("\n")
    assert line.isprintable()


# --- parts -----------------------------------------------------------------------------------


@given(
    values=st.lists(st.floats(-1e300, 1e300), max_size=200),
    width=st.integers(1, 60),
)
def test_a_sparkline_has_the_width_and_both_ends(values: list[float], width: int) -> None:
    line = sparkline(values, width)
    assert len(line) == min(width, len(values))
    assert set(line) <= set(BLOCKS)


def test_a_run_that_diverges_is_shown_too() -> None:
    screen = terminal(width=71)
    with Watch(10, "grpo nano", console=screen) as watch:
        for loss in (0.5, float("nan"), float("inf"), 0.7):
            watch.step(step(1, loss=loss, reward=float("nan")))
    assert shown(screen)["loss"].endswith("▁█")
    assert shown(screen)["reward"].startswith("nan")
