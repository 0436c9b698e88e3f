"""On a real terminal (a pty): `chat`, status lines, and hostile text.

Only rich's colours may reach the terminal; those of the mail (`45;5`) differ."""

import os
import re
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from art_e.ratings import read_ratings
from art_e.runs import list_runs
from tests.art_e.cli.conftest import QUESTION
from tests.builders import WAIT_S, answer, call, make_inbox, message, raw, read, search
from tests.command_line import ANN, BOB, HOSTILE, HOSTILE_ID, LEASE_ID, assert_safe
from tests.formats import write_maildir
from tests.processes import at_terminal, on_terminal, sent
from tests.provider import openai, rate_limited, says

PROMPT = b"\x1b[?2004h"
SGR = re.compile(r"\x1b\[([0-9;]*)m")
ERASED = re.compile(r"[^\n]*(?:\n[^\n]*\x1b\[1A)?\x1b\[2K")
SEARCH, READ = says(None, search("warehouse", "lease")), says(None, read("m1"))


@contextmanager
def chatting(db: Path, home: Path, *options: str) -> Iterator[Callable[[str, str], str]]:
    """Start a chat; type a line, and get the output up to a text and the next prompt."""
    environment = {"ART_E_HOME": str(home), "PROMPT_TOOLKIT_NO_CPR": "1"}
    with at_terminal(["chat", "--db", db, *options], environment) as (process, terminal):

        def say(line: str, until: str) -> str:
            if line:
                os.write(terminal, f"{line}\r".encode())
            printed = b""
            # Input before the prompt may be lost, because the terminal's mode changes.
            while until.encode() not in printed or PROMPT not in printed.split(until.encode())[-1]:
                ready, _, _ = select.select([terminal], [], [], WAIT_S)
                assert ready, printed.decode("utf-8", "replace")
                printed += os.read(terminal, 65_536)
            return printed.decode("utf-8", "replace")

        say("", "/help lists the commands")
        yield say
        os.write(terminal, b"\x04")
        assert list(sent(terminal))
        assert process.wait(WAIT_S) == 0


@pytest.mark.usefixtures("ctrl_c")
def test_chat(owned_db: Path, home: Path) -> None:
    script = [
        SEARCH, rate_limited("0"), READ,
        says(None, answer("It ends on March 31, 2002.\x1b]0;owned\x07", LEASE_ID)),
        says(None, answer("Bob", LEASE_ID)), says(None, answer(None)),
        says(None, answer("A prize", HOSTILE_ID)),
    ]  # fmt: skip
    with openai(script) as provider:
        with chatting(owned_db, home, "--model", "gpt-4.1") as say:
            first = say(QUESTION, "1 retried, $")
            assert 'searched "warehouse lease"' in first and "waiting for openai/gpt-4.1" in first
            assert "trying again in 0 s, 2 of 3" in first
            # The answer is shown as it arrives, and the steps are erased at its end.
            assert first.count("It ends") > 3
            remaining = ERASED.sub("", first.replace("\r\n", "\n"))
            assert "It ends on March 31, 2002." in remaining and 'searched "' not in remaining
            assert "\x1b]0;" not in first
            # A source by its number, and its thread.
            say("1", "The warehouse lease ends on")
            say("t1", "Message-ID")
            say("/good", "kept: good")
            say("Who said so?", "tokens, $")
            say("/bad Ann", "kept: bad, Ann is right")
            assert "return_final_answer" not in say("/why", "answer   ")
            # Without an answer there are passages to open.
            assert "no answer: the model found no answer" in say("And when?", "tokens, $")
            say("99", "there is no mail 99")
            hits = say("/search noodles from:ann", "<lunch.1")
            assert " 1. 2001-03-06" in SGR.sub("", hits)
            say("1", "at noon?")
            say("/search in:attic", "in:attic is not one of")
            say("/nonsense", "there is no /nonsense")
            say("/new", "> ")
            prize = say("What is the prize?", "tokens, $")
            assert "\x1b]0;" not in prize and "\x1b[2J" not in prize
            say(f"/inbox {BOB}", f"the inbox of {BOB}")
            say("/inbox nobody@x.example", "no inbox 'nobody@x.example'")
            say("/why", "there is no answer yet")
            say("/model offline", "offline answers")
            assert "March 31, 2002" in say(QUESTION, "no cost, offline")
        questions = [request.body["messages"][1]["content"] for request in provider.requests]
    assert questions[4].startswith("Who said so?\n") and "March 31, 2002" in questions[4]
    assert questions[6] == "What is the prize?"
    ratings = [(each.rating, each.right_answer, each.talk) for each in read_ratings()]
    assert ratings == [("good", None, False), ("bad", "Ann", True)]
    runs = list_runs(home / "runs")
    assert len(runs) == 5 and all(run.complete for run in runs)
    assert "Who said so?" in (home / "chat_history").read_text()
    assert (home / "chat_history").stat().st_mode & 0o077 == 0


def safe_text(printed: str) -> str:
    """Return the output without colours, after a check that all of them are ours."""
    assert SGR.search(printed)  # rich detects a terminal
    codes = {code for codes in SGR.findall(printed) for code in codes.split(";")}
    assert codes <= {"0", "1", "2", "31", "32", "33", "36"}
    plain = SGR.sub("", printed)
    assert_safe(plain)
    return plain


OUTPUTS = {
    "search": ("zebra", "prize "), "read": (HOSTILE_ID, "The prize code is 7781"),
    "ask": (f"What is the zebra prize code? {HOSTILE}", "7781"),
}  # fmt: skip


@pytest.mark.parametrize("command", OUTPUTS)
def test_mail_sends_no_control_characters(home: Path, db: Path, command: str) -> None:
    argument, text = OUTPUTS[command]
    arguments = [command, argument, "--inbox", ANN, *["--trace"] * (command == "ask"), "--db", db]
    assert text in safe_text(on_terminal(arguments, {"ART_E_HOME": str(home)}))


def test_model_sends_no_control_characters(ask: Any, home: Path) -> None:
    script = [
        message(search("zebra", HOSTILE, from_addr="eve"), text=HOSTILE),
        message(read(HOSTILE_ID), read(HOSTILE), call(HOSTILE, HOSTILE)),
        message(answer(f"7781 {HOSTILE}", HOSTILE_ID, HOSTILE)),
    ]
    question = f"Which code? {HOSTILE}"
    assert ask(script=script, question=question, model=f"evil/{HOSTILE}").exit_code == 0

    def runs(*arguments: str) -> str:
        return safe_text(on_terminal(["runs", *arguments], {"ART_E_HOME": str(home)}))

    assert "evil/gpj.exe" in runs("list")
    overview = runs("show", "last")
    episode = re.search(r"^  ([0-9a-f]{8})  ", overview, re.MULTILINE)
    assert "7781" in overview and episode is not None
    trace = runs("show", "last", "--episode", episode[1])
    words = ("says", "search", "read", "answer", "not found in this inbox", "7781")
    assert [each for each in words if each not in trace] == []


def test_lines_break_at_spaces_only(home: Path, tmp_path: Path) -> None:
    url = f"https://lease.example/{'x' * 60}"
    body = f"{'The landlord answered at noon. ' * 6}{url} {'租约结束 ' * 12}"
    where = ["--inbox", "ann@test.example", "--db", tmp_path / "wide.duckdb"]
    make_inbox(tmp_path / "wide.duckdb", [raw("<1@test>", body=body)])

    def lines(*command: str) -> list[str]:
        printed = on_terminal([*command, *where], {"ART_E_HOME": str(home)}, 40)
        return SGR.sub("", printed).splitlines()

    mail = lines("read", "1@test")
    assert url in mail and max(cell_len(each) for each in mail if each != url) <= 40
    assert " ".join(body.split()) in " ".join(mail)
    first, *rest = lines("search", "landlord")
    assert first.startswith(" 1. 2020-01-06  Ann Alder") and len(rest) > 3
    assert all(each.startswith("    ") and cell_len(each) <= 40 for each in rest)


def test_ingest_asks_for_the_owner_without_a_bar(tmp_path: Path) -> None:
    mail = write_maildir(tmp_path, [raw(f"{n}@t", to=ANN).data for n in range(6)])
    words = ["ingest", mail, "--db", tmp_path / "inbox.duckdb"]
    with at_terminal(words, {"ART_E_HOME": str(tmp_path)}) as (process, terminal):
        output, printed = sent(terminal), b""
        while b"[y]es [n]o\r\n" not in printed:
            printed += next(output)
        assert f"is this the mail of {ANN} (6 mails)?" in printed.decode()
        # A bar is drawn ten times a second.
        assert select.select([terminal], [], [], 0.5) == ([], [], [])
        os.write(terminal, b"n")
        assert "no owner; set one" in b"".join(output).decode()
        assert process.wait(WAIT_S) == 0
