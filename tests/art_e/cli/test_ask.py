import datetime as dt
import json
from pathlib import Path
from typing import Any, ClassVar

import pytest

from art_e.message import AssistantMessage, ChatMessage, ToolCall
from art_e.models.base import PolicyError, PolicyStep, Usage
from art_e.trajectory import read_trajectories
from tests.command_line import (
    ANN,
    HOSTILE,
    HOSTILE_ID,
    LEASE_ID,
    Run,
    assert_safe,
    json_of,
    the_error,
)

QUESTION = "When does the warehouse lease end?"
KEYS = [
    "question", "inbox_address", "as_of", "kind", "answer", "abstained", "sources", "passages",
    "turns", "seconds", "model_seconds", "tools_seconds", "call_seconds", "usage", "retries",
    "cost_usd", "model", "trajectory",
]  # fmt: skip


class ScriptedPolicy:
    """Makes the calls it was given, one a turn; then fails as a provider does."""

    model = "scripted"
    settings: ClassVar[dict[str, Any]] = {}

    def __init__(self, *calls: tuple[str, dict[str, Any]], cost_usd: float | None = 0.002) -> None:
        self._calls = list(calls)
        self._cost_usd = cost_usd

    async def act(self, messages: list[ChatMessage], tools: list[dict[str, Any]]) -> PolicyStep:
        if not self._calls:
            raise PolicyError("provider", "the provider is down")
        name, arguments = self._calls.pop(0)
        call = ToolCall(f"call-{len(self._calls)}", name, json.dumps(arguments))
        return PolicyStep(AssistantMessage(tool_calls=(call,)), Usage(10, 0, 2), self._cost_usd)


SEARCH = ("search_emails", {"keywords": ["warehouse", "lease"]})
READ = ("read_email", {"message_id": "m1"})
ANSWER = ("return_final_answer", {"answer": "March 31, 2002", "sources": [LEASE_ID]})
DONT_KNOW = ("return_final_answer", {"answer": "I don't know.", "sources": []})


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Any:
    def use(*calls: tuple[str, dict[str, Any]], **options: Any) -> None:
        policy = ScriptedPolicy(*calls, **options)
        monkeypatch.setattr("art_e.models.model.Model.policy", lambda *_: policy)

    return use


def test_json_has_the_answer_its_sources_and_the_trajectory(
    art_e: Run, db: Path, scripted: Any, home: Path
) -> None:
    scripted(SEARCH, READ, ANSWER)
    result = art_e("ask", QUESTION, "--inbox", ANN, "--as-of", "2001-02-28", "--db", db, "--json")
    answer = json_of(result)
    assert list(answer) == KEYS
    assert answer["question"] == QUESTION
    assert (answer["inbox_address"], answer["as_of"]) == (ANN, "2001-02-28")
    assert (answer["answer"], answer["abstained"]) == ("March 31, 2002", False)
    assert (answer["kind"], answer["passages"]) == ("answer", [])
    assert answer["sources"] == [
        {
            "message_id": LEASE_ID,
            "date": "2001-02-01T09:00Z",
            "from": "Bob Berg <bob@harbor.example>",
            "subject": "Warehouse lease",
        }
    ]
    assert (answer["turns"], answer["model"]) == (3, "scripted")
    assert answer["cost_usd"] == pytest.approx(0.006)
    path = Path(answer["trajectory"])
    assert path.parent.parent == home / "runs"
    assert (path.parent / "COMPLETE").exists()
    [trajectory] = read_trajectories(path)
    assert (trajectory.final_answer, trajectory.sources) == ("March 31, 2002", [LEASE_ID])


def test_people_see_the_answer_and_its_sources(art_e: Run, db: Path, scripted: Any) -> None:
    scripted(SEARCH, READ, ANSWER)
    result = art_e("ask", QUESTION, "--inbox", ANN, "--db", db)
    answer, source, took = result.stdout.splitlines()
    assert answer == "March 31, 2002"
    assert source.split()[0] == "2001-02-01" and source.endswith(f"Warehouse lease  {LEASE_ID}")
    assert took.startswith("3 turns, ") and took.endswith("$0.0060, scripted")


def test_dont_know_shows_the_best_passages(art_e: Run, db: Path, scripted: Any) -> None:
    """Whatever the model looked at: here it searched for nothing that helps."""
    scripted(("search_emails", {"keywords": ["giraffe"]}), DONT_KNOW)
    asking = ("ask", QUESTION, "--inbox", ANN, "--as-of", "2001-02-28", "--db", db)
    shown = art_e(*asking).stdout.splitlines()
    assert shown[0] == "no answer: the model found none in this inbox; the best passages:"
    assert shown[1] == "The warehouse lease ends on March 31, 2002."
    assert shown[2].endswith(f"Warehouse lease  {LEASE_ID}")
    scripted(("search_emails", {"keywords": ["giraffe"]}), DONT_KNOW)
    answer = json_of(art_e(*asking, "--json"))
    assert answer["kind"] == "none"
    assert 1 <= len(answer["passages"]) <= 3
    first = answer["passages"][0]
    assert (first["text"], first["message_id"]) == (shown[1], LEASE_ID)
    ids = [each["message_id"] for each in answer["passages"]]
    assert len(set(ids)) == len(ids)


def test_trace_leaves_stdout_to_the_json(art_e: Run, db: Path, scripted: Any) -> None:
    scripted(SEARCH, READ, ANSWER)
    result = art_e("ask", QUESTION, "--inbox", ANN, "--db", db, "--trace", "--json")
    assert json_of(result)["turns"] == 3
    assert ' 1  search   "warehouse lease"' in result.stderr


@pytest.mark.parametrize(
    ("calls", "options", "abstained", "words"),
    [
        ([SEARCH, DONT_KNOW], [], True, "no answer: the model found none"),
        ([SEARCH, READ, READ], ["--max-turns", "2"], False, "no answer: out of turns (2)"),
        ([("send_money", {})] * 3, [], False, "no answer: too many wrong calls"),
    ],
)
def test_no_answer_is_said_plainly_and_is_no_failure(
    art_e: Run,
    db: Path,
    scripted: Any,
    calls: list[tuple[str, dict[str, Any]]],
    options: list[str],
    abstained: bool,
    words: str,
) -> None:
    scripted(*calls)
    shown = art_e("ask", QUESTION, "--inbox", ANN, "--db", db, *options)
    assert shown.exit_code == 0
    assert shown.stdout.startswith(words)
    scripted(*calls)
    answer = json_of(art_e("ask", QUESTION, "--inbox", ANN, "--db", db, *options, "--json"))
    assert answer["abstained"] is abstained
    assert answer["sources"] == []
    assert abstained or answer["answer"] is None


def test_a_failing_model_is_our_fault_and_is_kept(art_e: Run, db: Path, scripted: Any) -> None:
    scripted(SEARCH, cost_usd=None)
    result = art_e("ask", QUESTION, "--inbox", ANN, "--db", db, "--json")
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert (answer["answer"], answer["cost_usd"]) == (None, None)
    assert result.stderr == "Error: provider: the provider is down; try again\n"
    [trajectory] = read_trajectories(Path(answer["trajectory"]))
    assert trajectory.error is not None


@pytest.mark.parametrize("json_flag", [[], ["--json"]], ids=["text", "json"])
def test_hostile_mail_and_answers_are_only_text(
    art_e: Run, db: Path, scripted: Any, json_flag: list[str]
) -> None:
    scripted(
        ("search_emails", {"keywords": ["zebra", HOSTILE]}),
        ("read_email", {"message_id": "m1"}),
        ("read_email", {"message_id": HOSTILE}),
        (HOSTILE, {}),
        ("return_final_answer", {"answer": f"7781 {HOSTILE}", "sources": [HOSTILE_ID, HOSTILE]}),
    )
    result = art_e("ask", "Which code?", "--inbox", ANN, "--db", db, "--trace", *json_flag)
    assert result.exit_code == 0
    assert "7781" in result.stdout and "[bold]red[/bold]" in result.stdout
    assert_safe(result.stdout)
    assert_safe(result.stderr)


def test_the_offline_policy_answers_end_to_end(art_e: Run, db: Path) -> None:
    result = art_e("ask", QUESTION, "--inbox", ANN, "--as-of", "2001-02-28", "--db", db, "--json")
    answer = json_of(result)
    assert "March 31, 2002" in answer["answer"]
    assert [each["message_id"] for each in answer["sources"]] == [LEASE_ID]
    assert (answer["model"], answer["cost_usd"]) == ("offline", 0.0)
    [line] = result.stderr.splitlines()
    assert "floor" in line and "--model" in line
