"""How far a step is: a bar on a terminal, a line now and then elsewhere."""

import io
import sys
import time

import pytest

from data_pipeline.golden.cli import LINE_EVERY_S, live


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with live("batches", 3) as show:
        show("$0.01")
        show("$0.02 [bold]")
    said = terminal.getvalue()
    assert "2/3" in said
    assert "batches, $0.02 [bold]" in said


def test_a_log_is_told_the_cost_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with live("rows", 40) as show:
        for number in range(1, 41):
            now += LINE_EVERY_S / 4
            show(f"${number}\x1b[2J")
    out, err = capsys.readouterr()
    assert out == ""
    assert "\x1b" not in err
    assert [line.split(", ") for line in err.splitlines()] == [
        [f"{number} of 40 rows", f"${number}"] for number in range(4, 41, 4)
    ]


def test_what_is_quick_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with live("rows", 40) as show:
        for _ in range(40):
            show("$0.01")
    assert capsys.readouterr().err == ""
