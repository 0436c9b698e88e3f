"""How far a step is: a bar on a terminal, a line now and then elsewhere."""

import io
import sys

import pytest

from art_e.cli.golden_progress import live


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


@pytest.mark.parametrize(
    ("total", "told_at"),
    [(1, [1]), (4, [1, 2, 3, 4]), (499, [50, 100, 150, 200, 250, 300, 350, 400, 450, 499])],
)
def test_a_log_is_told_the_cost_now_and_then(
    capsys: pytest.CaptureFixture[str], total: int, told_at: list[int]
) -> None:
    with live("rows", total) as show:
        for number in range(1, total + 1):
            show(f"${number}\x1b[2J")
    out, err = capsys.readouterr()
    assert out == ""
    assert "\x1b" not in err
    lines = err.splitlines()
    assert [line.split(" of ")[0] for line in lines] == [str(each) for each in told_at]
    assert all(
        line.startswith(f"{n} of {total} rows, ${n}")
        for n, line in zip(told_at, lines, strict=True)
    )
