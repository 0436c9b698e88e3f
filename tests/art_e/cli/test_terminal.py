"""Hostile mail on a real terminal: `art-e` processes write to a pty.

The mail is as an attacker sends it: encoded words in its headers and a base64 body carry any byte.
Only rich's own colours may reach the terminal as sequences; the mail's colours (`45;5`) differ.
"""

import asyncio
import base64
import re
from pathlib import Path

import pytest

from art_e.agent import run_episode
from art_e.episode import Episode
from art_e.inbox.file import InboxFile
from art_e.question import Question
from art_e.runs import start_run
from data_pipeline.ingest.batch import Rules
from data_pipeline.ingest.records import RawMessage
from tests.builders import ScriptedPolicy, answer, call, make_inbox, message, read, search
from tests.command_line import assert_safe
from tests.processes import on_terminal

ANN = "ann@harbor.example"
SEQUENCES = {
    "title": "\x1b]0;owned\x07",
    "clipboard": "\x1b]52;c;b3duZWQ=\x07",
    "link": "\x1b]8;;https://evil.example\x1b\\",
    "colours": "\x1b[45;5m",
    "wipe": "\x1b[2J\x1b[3J\x1b[H",
    "screen": "\x1b[?1049h\x1b[?25l",
    "report": "\x1b[6n\x1b[21t\x1b[c",
    "reset": "\x1bc",
    "charset": "\x1b(0\x0e",
    "device": "\x1bP1;2q\x1b\\\x1b_owned\x1b\\",
    "c1": "\x9b2J\x9d0;owned\x9c\x90",
    "nested": "\x1b\x1b[0m[45;5m\x1b\x1b]0;x\x07]0;owned\x07",
    "overwrite": "\x08\x08\x08\x7f\rowned",
    "bell": "\x07\x05",
    "direction": "\u202egpj.exe\u2066\u200f\u061c",
}
HOSTILE = " ".join(f"{name}{sequence}" for name, sequence in SEQUENCES.items())
SGR = re.compile(r"\x1b\[([0-9;]*)m")
MESSAGE_ID = "<prize@evil.example>"


def encoded(text: str) -> str:
    """An encoded word of RFC 2047."""
    return f"=?utf-8?b?{base64.b64encode(text.encode()).decode()}?="


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("terminal") / "inbox.duckdb"
    body = f"The zebra prize {HOSTILE} is a yacht. The prize code is 7781 {HOSTILE}.\n{HOSTILE}\n"
    head = (
        f"Message-ID: {MESSAGE_ID}",
        "Date: Mon, 5 Mar 2001 10:00:00 +0000",
        f"From: {encoded(f'Eve {HOSTILE}')} <eve@evil.example>",
        f'To: {encoded(f"Ann {HOSTILE}")} <{ANN}>, "{HOSTILE}" <e\x1b[45;5mve\u202e@evil.example>',
        f"Subject: {encoded(f'Prize {HOSTILE}')}",
        "MIME-Version: 1.0",
        "Content-Type: text/plain; charset=utf-8",
        "Content-Transfer-Encoding: base64",
    )
    text = "\n".join(head).encode() + b"\n\n" + base64.encodebytes(body.encode())
    make_inbox(path, [RawMessage(f"mail/{HOSTILE}", text)], Rules(any_id=True))
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, db: Path) -> Path:
    """An ART_E_HOME with one run, of a model that writes what the mail does."""
    home = tmp_path_factory.mktemp("home")
    question = Question(id="ask", question=f"Which code? {HOSTILE}", inbox_address=ANN)
    script = [
        message(search("zebra", HOSTILE, from_addr="eve"), text=HOSTILE),
        message(read(MESSAGE_ID), read(HOSTILE), call(HOSTILE, HOSTILE)),
        message(answer(f"7781 {HOSTILE}", MESSAGE_ID, HOSTILE)),
    ]
    config = {"model": f"evil/{HOSTILE}", "question": question.question, HOSTILE: HOSTILE}
    run = start_run("ask", config, home / "runs", home / "runs" / "evil")
    with InboxFile(db) as file, run.log() as log:
        episode = Episode(file.open_inbox(ANN), question)
        policy = ScriptedPolicy(script, model=f"evil/{HOSTILE}")
        log.append(asyncio.run(run_episode(episode, policy, run.id)).to_line())
    run.finish()
    return home


def terminal(home: Path, *arguments: object) -> str:
    return on_terminal(arguments, {"ART_E_HOME": str(home)})


def assert_only_our_colours(printed: str) -> None:
    assert_safe(SGR.sub("", printed))
    assert not set(printed) & set("\u061c\u2067\u2068\u2069\u202a\u202b\u202c\u202d")
    codes = {code for codes in SGR.findall(printed) for code in codes.split(";")}
    assert codes <= {"0", "1", "2", "31", "32", "33", "36"}


def test_the_stored_mail_has_the_sequences(db: Path) -> None:
    # If ingest cleaned the mail, these tests would test nothing.
    with InboxFile(db) as file:
        mail = file.open_inbox(ANN).read(MESSAGE_ID)
        assert mail is not None
        for name, sequence in SEQUENCES.items():
            # A body's carriage returns are line ends.
            assert sequence.replace("\r", "\n") in mail.body, name
        # Of header lines ingest drops the characters below the space.
        for field in (mail.subject, mail.sender.name, mail.to[0].name):
            assert SEQUENCES["c1"] in field and SEQUENCES["direction"] in field


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["search", "zebra", "--inbox", ANN], "Prize title"),
        (["read", MESSAGE_ID, "--inbox", ANN], "The prize code is 7781"),
        (["ask", f"What is the zebra prize code? {HOSTILE}", "--inbox", ANN, "--trace"], "7781"),
        (["inboxes"], ANN),
    ],
    ids=["search", "read", "ask", "inboxes"],
)
def test_mail_moves_nothing_on_a_terminal(
    home: Path, db: Path, command: list[str], shown: str
) -> None:
    printed = terminal(home, *command, "--db", db)
    assert shown in SGR.sub("", printed)
    # rich takes the pty for a terminal.
    assert SGR.search(printed)
    assert_only_our_colours(printed)


def test_a_models_words_move_nothing_on_a_terminal(home: Path) -> None:
    listed = terminal(home, "runs", "list")
    assert "evil/title" in SGR.sub("", listed)
    overview = terminal(home, "runs", "show", "evil")
    found = re.search(r"^  ([0-9a-f]{8})  ", SGR.sub("", overview), re.MULTILINE)
    assert "7781" in overview and found is not None
    trace = terminal(home, "runs", "show", "evil", "--episode", found[1])
    words = ("says", "search", "read", "answer", "not found in this inbox", "7781")
    assert [each for each in words if each not in trace] == []
    for printed in (listed, overview, trace):
        assert SGR.search(printed)
        assert_only_our_colours(printed)
