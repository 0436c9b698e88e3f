import io
import sys

import pytest

from evals.cli import Tally, live
from evals.scored import Scored
from tests.evals.runs import Outcome, episode, question


def ended(outcome: Outcome, *, model: str = "m", cost: float | None = 0.002) -> Scored:
    asked = question(0, kind="lookup")
    return Scored(asked, episode(asked, outcome, model=model, cost=cost))


def test_accuracy_cost_and_failures_so_far() -> None:
    tally = Tally()
    assert str(tally) == "no answer yet, $0.0000"
    for outcome in ("right", "right", "wrong", "failed"):
        tally.count(ended(outcome))
    assert str(tally) == "50.0% right, $0.0080, 1 failed"
    # Questions that can't be answered are not what accuracy is over.
    asked = question(4, kind="unanswerable")
    tally.count(Scored(asked, episode(asked, "abstained")))
    assert str(tally).startswith("50.0% right, $0.0100")
    tally.count(ended("right", cost=None))
    assert "cost unknown" in str(tally)


def test_a_cost_that_is_measured_at_the_end_is_not_unknown() -> None:
    tally = Tally(measured=True)
    tally.count(ended("right", cost=None))
    assert str(tally) == "100.0% right, cost measured at the end"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_every_model(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with live(["m", "other\x1b[2J", "mine"], 2, ["mine"]) as show:
        show(ended("right"))
        show(ended("wrong"))
        show(ended("wrong", model="other\x1b[2J"))
        show(ended("right", model="mine", cost=None))
    said = terminal.getvalue()
    assert "2/2" in said and "50.0% right, $0.0040" in said
    assert "1/2" in said and "0.0% right, $0.0020" in said
    assert "100.0% right, cost measured at the end" in said
    assert "\x1b[2J" not in said


def test_elsewhere_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with live(["m"], 2) as show:
        show(ended("right"))
    assert capsys.readouterr() == ("", "")
