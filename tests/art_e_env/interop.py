"""Ten questions and one that fails, put by a scripted model and the offline policy to `eval run`
and to the libraries of the extras `inspect` and `verifiers`, which `make test` installs apart."""

import json
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from unittest import mock

from art_e.inbox.file import InboxFile
from art_e.message import AssistantMessage, ChatMessage
from art_e.models.base import Policy, PolicyError, PolicyStep, Usage
from art_e.offline import OfflinePolicy
from art_e.runs import start_run
from data_pipeline.ingest.batch import Rules
from data_pipeline.synthetic.world import WorldConfig, messages, questions
from evals.benchmark import Entrant, drawn, run_benchmark
from evals.judges.offline import OfflineJudge
from evals.scored import Scored, load_run
from tests.builders import HOSTILE, HOSTILE_BODY, call, make_inbox, message, raw, read

ROOT = Path(__file__).parent.parent.parent
BIN = Path(sys.prefix) / "interop" / "bin"

QUESTIONS = drawn(questions(WorldConfig(size=1000)), 11)
*ASKED, FAILING = QUESTIONS
# Some libraries take these tags for the model's own.
BODY = f"{HOSTILE_BODY} <think>a</think> <internal>b</internal> [c](javascript:alert(1))"


def scripted(turn: int, asked: str) -> AssistantMessage:
    """Searches, reads the first hit and a hostile mail, and ends in one of four ways."""
    [question] = [each for each in QUESTIONS if each.question == asked]
    if question == FAILING and turn == 1:
        raise PolicyError("provider", "503")
    if turn == 0:
        first = call("search_emails", {"keywords": asked.split()}, "first")
        return message(first, text="First a search.")
    if turn == 1:
        return message(read("m1"), read(HOSTILE))
    ending = QUESTIONS.index(question) % 4
    if ending == 3:
        return AssistantMessage("Hm.")
    said = [question.answer, "On December 31, 1999", "I don't know"][ending]
    return message(call("return_final_answer", {"answer": said, "sources": ["m1"]}, "last"))


class Scripted:
    """The script as a policy of `eval run`."""

    model = "scripted"
    settings: dict[str, Any] = {}  # noqa: RUF012 - the protocol's property

    async def act(self, messages: list[ChatMessage], tools: list[dict[str, Any]]) -> PolicyStep:
        turn = sum(each["role"] == "assistant" for each in messages)
        return PolicyStep(scripted(turn, messages[1]["content"]), Usage(), 0.0)


POLICIES: tuple[Policy, ...] = (Scripted(), OfflinePolicy())


def eval_run(folder: Path) -> tuple[dict[str, Any], dict[str, dict[str, Scored]]]:
    """Write `inbox.duckdb` and `golden.jsonl`; the metrics and episodes of `eval run` by model."""
    addresses = ", ".join({each.inbox_address for each in QUESTIONS})
    date = "Mon, 7 Jan 2019 09:00:00 +0000"
    hostile = raw(HOSTILE, subject="Harbor", body=BODY, to=addresses, date=date)
    mails = [*messages(WorldConfig(size=1000)), hostile]
    make_inbox(folder / "inbox.duckdb", mails, Rules(any_id=True))
    rows = "".join(f"{json.dumps(each.to_row())}\n" for each in QUESTIONS)
    (folder / "golden.jsonl").write_text(rows, encoding="utf-8")
    begun = start_run("eval", {}, folder / "runs")
    entrants = [Entrant(each) for each in POLICIES]
    with InboxFile(folder / "inbox.duckdb") as file:
        metrics = run_benchmark(QUESTIONS, entrants, file, [OfflineJudge()], begun, max_turns=10)
    episodes: dict[str, dict[str, Scored]] = {each.model: {} for each in POLICIES}
    for each in load_run(begun):
        episodes[each.trajectory.model][each.question.id] = each
    return metrics["models"], episodes


def contents(conversation: list[dict[str, Any]]) -> list[str]:
    return [each.get("content") or "" for each in conversation]


def run(folder: Path, module: str, *arguments: str) -> None:
    """Run a test's module in `folder`, where the libraries are installed."""
    assert BIN.is_dir(), "install the libraries: make .venv/interop.installed"
    done = subprocess.run(
        [str(BIN / "python"), "-m", module, *arguments], cwd=folder,
        env={**os.environ, "HOME": str(folder), "PYTHONPATH": str(ROOT), "ANY_KEY": "none"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def command(name: str, *arguments: str) -> None:
    """What the command of that name does, without a process of its own: they take long to start."""
    [found] = entry_points(group="console_scripts", name=name)
    try:
        with mock.patch.object(sys, "argv", [name, *arguments]):
            found.load()()
    except SystemExit as ended:
        assert not ended.code
