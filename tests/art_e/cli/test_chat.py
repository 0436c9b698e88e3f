"""`chat` on a real terminal: a question, its follow-up, sources, ratings, another inbox."""

import os
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from art_e.ratings import read_ratings
from art_e.runs import list_runs
from tests.builders import WAIT_S, answer, read, search
from tests.command_line import ANN, BOB, HOSTILE_ID, LEASE_ID, Run, the_error
from tests.processes import at_terminal, sent
from tests.provider import Provider, Reply, Request, rate_limited, says

ROOT = Path(__file__).parents[3]
PROMPT = b"\x1b[?2004h"
SCRIPT = [
    says(None, search("warehouse", "lease")), rate_limited("0"), says(None, read("m1")),
    says(None, answer("March 31, 2002", LEASE_ID)), says(None, answer("Bob", LEASE_ID)),
    says(None, answer(None)), says(None, answer("A prize", HOSTILE_ID)),
]  # fmt: skip


@contextmanager
def talking(db: Path, home: Path, *options: str) -> Iterator[Callable[[str, str], str]]:
    """Starts a chat; type a line, and get what is printed until a text and the next prompt."""
    environment = {"ART_E_HOME": str(home), "PYTHONPATH": str(ROOT), "PROMPT_TOOLKIT_NO_CPR": "1"}
    with at_terminal(["chat", "--db", db, *options], environment) as (process, terminal):

        def say(line: str, until: str) -> str:
            if line:
                os.write(terminal, f"{line}\r".encode())
            printed = b""
            # What is typed before the prompt may be lost: the terminal's mode changes.
            while until.encode() not in printed or PROMPT not in printed.split(until.encode())[-1]:
                ready, _, _ = select.select([terminal], [], [], WAIT_S)
                assert ready, printed.decode("utf-8", "replace")
                printed += os.read(terminal, 65_536)
            return printed.decode("utf-8", "replace")

        say("", "/help shows what there is")
        yield say
        os.write(terminal, b"\x04")
        assert list(sent(terminal))
        assert process.wait(WAIT_S) == 0


@pytest.mark.usefixtures("ctrl_c")
def test_a_conversation(owned_db: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replies = iter(SCRIPT)

    def reply(_: Request) -> Reply:
        return next(replies)

    monkeypatch.setenv("ART_E_HOME", str(home))
    with Provider(reply) as provider:
        provider.stand_in_for_openai(monkeypatch)
        with talking(owned_db, home, "--model", "o3") as say:
            first = say("When does the warehouse lease end?", "1 retried, $")
            assert 'searched "warehouse lease"' in first and "waiting for openai/o3" in first
            assert "openai/o3: trying again, 2 of 8" in first and "March 31, 2002" in first
            # A source by its number, and its conversation.
            say("1", "The warehouse lease ends on")
            say("t1", "Message-ID")
            say("/good", "kept: good")
            say("Who said so?", "tokens, $")
            say("/bad Ann", "kept: bad, Ann is right")
            assert "return_final_answer" not in say("/why", "answer   ")
            # Without an answer there are passages to open.
            assert "no answer: the model found none" in say("And when?", "tokens, $")
            say("99", "there is no source 99")
            say("/nonsense", "there is no /nonsense")
            say("/new", "> ")
            shown = say("What is the prize?", "tokens, $")
            assert "\x1b]0;" not in shown and "\x1b[2J" not in shown
            say(f"/inbox {BOB}", f"the inbox of {BOB}")
            say("/inbox nobody@x.example", "no inbox 'nobody@x.example'")
            say("/why", "nothing was asked yet")
            say("/model offline", "offline answers")
            assert "March 31, 2002" in say("When does the warehouse lease end?", "no cost, offline")
        asked = [request.body["messages"][1]["content"] for request in provider.requests]
    assert asked[4].startswith("Earlier in this talk:") and asked[4].endswith("Who said so?")
    assert asked[6] == "What is the prize?"
    given = [(each.rating, each.answer, each.right_answer, each.talk) for each in read_ratings()]
    assert given == [("good", "March 31, 2002", None, False), ("bad", "Bob", "Ann", True)]
    runs = list_runs(home / "runs")
    assert len(runs) == 5 and all(run.complete for run in runs)
    assert "Who said so?" in (home / "chat_history").read_text()
    assert (home / "chat_history").stat().st_mode & 0o077 == 0


def test_an_answer_is_shown_while_it_arrives(
    owned_db: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [says(None, answer("It ends on March 31, 2002.\x1b]0;owned\x07", LEASE_ID))]
    with Provider(script) as provider:
        provider.stand_in_for_openai(monkeypatch)
        with talking(owned_db, home, "--model", "gpt-4.1") as say:
            printed = say("When does the warehouse lease end?", "tokens, $")
    assert printed.count("It ends") > 3 and printed.count("It ends on March 31, 2002.") >= 1
    assert "\x1b]0;" not in printed


def test_it_needs_a_terminal(art_e: Run, owned_db: Path) -> None:
    assert "chat needs a terminal" in the_error(art_e("chat", "--db", owned_db, "--inbox", ANN))
