"""`ask`, `runs` and `rate`: answers and their sources, failures, states of runs, ratings."""

import datetime as dt
import json
import re
import subprocess
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.cli.conversation import format_turn
from art_e.message import AssistantMessage
from art_e.models.base import Usage
from art_e.question import load_questions
from art_e.runs import read_trajectories
from art_e.trajectory import exchanges
from data_pipeline.golden.golden_set import GoldenSet
from tests.art_e.cli.conftest import QUESTION, READ, SEARCH
from tests.builders import WAIT_S, answer, call, message, read, search
from tests.command_line import ANN, HOSTILE, LEASE_ID, Process, Run, assert_safe, json_of, the_error
from tests.provider import openai, rate_limited, says

DONT_KNOW = message(answer("I don't know."))
WRONG = message(call("send_money", {}))
LATER_ID = "<lease.2@harbor.example>"
EARLY = ("--as-of", "2001-02-28")


def test_json_has_answer_sources_and_trajectory(ask: Any, home: Path) -> None:
    reply = json_of(ask(*EARLY, "--json"))
    source = {"message_id": LEASE_ID, "date": "2001-02-01T09:00Z", "subject": "Warehouse lease"}
    measured = ("seconds", "model_seconds", "tools_seconds", "call_seconds", "usage", "retries")
    expected = {
        "question": QUESTION, "inbox_address": ANN, "as_of": "2001-02-28", "kind": "answer",
        "answer": "March 31, 2002", "without_source": None, "abstained": False,
        "sources": [{**source, "from": "Bob Berg <bob@harbor.example>"}], "passages": [],
        "turns": 3, **dict.fromkeys(measured, ANY), "cost_usd": pytest.approx(0.006),
        "model": "scripted", "trajectory": ANY,
    }  # fmt: skip
    assert (list(reply), reply) == (list(expected), expected)
    path = Path(reply["trajectory"])
    assert path.parent.parent == home / "runs"
    assert (path.parent / "COMPLETE").exists()
    [trajectory] = read_trajectories(path)
    assert (trajectory.final_answer, trajectory.sources) == ("March 31, 2002", [LEASE_ID])


def test_dont_know_shows_the_best_passages(ask: Any) -> None:
    """Whatever the model searched for."""
    script = (message(search("giraffe")), DONT_KNOW)
    lines = ask(*EARLY, script=script).stdout.splitlines()
    assert lines[0] == "no answer: the model found no answer in this inbox; the best passages:"
    assert lines[1].startswith(" 1. 2001-02-01  Bob") and lines[1].endswith(LEASE_ID)
    assert lines[2:4] == ["    The warehouse lease ends on March 31, 2002.", "    Bob"]
    reply = json_of(ask(*EARLY, "--json", script=script))
    assert (reply["kind"], reply["abstained"], reply["sources"]) == ("none", True, [])
    passages = [(each["text"], each["message_id"]) for each in reply["passages"]]
    assert passages[0] == ("\n".join(line.strip() for line in lines[2:4]), LEASE_ID)
    assert len({each for each, _ in passages}) == len(passages) <= 3
    words = "I don't know: no mail names the giraffe's keeper."
    output = ask(*EARLY, script=(message(search("giraffe")), message(answer(words)))).stdout
    assert f"the model said: {words}" in output


@pytest.mark.parametrize(
    ("script", "options", "words"),
    [((SEARCH, READ, READ), ["--max-turns", "2"], "no answer: out of turns (2)"),
     ((WRONG, WRONG, WRONG), [], "no answer: too many wrong calls")],
)  # fmt: skip
def test_no_answer_is_explained(ask: Any, script: Any, options: list[str], words: str) -> None:
    result = ask(*options, script=script)
    assert result.exit_code == 0 and result.stdout.startswith(words)
    reply = json_of(ask(*options, "--json", script=script))
    assert (reply["abstained"], reply["sources"], reply["answer"]) == (False, [], None)


def test_failed_call_exits_with_1_and_is_stored(ask: Any) -> None:
    result = ask("--json", script=[SEARCH], cost=None)
    assert result.exit_code == 1
    reply = json.loads(result.stdout)
    assert (reply["answer"], reply["cost_usd"]) == (None, None)
    assert result.stderr == "Error: provider: the provider is down; try again\n"
    [trajectory] = read_trajectories(Path(reply["trajectory"]))
    assert trajectory.error is not None


def test_question_is_read_from_stdin(process: Process, owned_db: Path) -> None:
    started = process("ask", "-", "--db", owned_db, "--json", stdin=subprocess.PIPE)
    stdout, stderr = started.communicate(f"{QUESTION}\n", timeout=WAIT_S)
    assert json.loads(stdout)["question"] == QUESTION, stderr


FIELDS = st.sampled_from("hits body error note keywords answer sources from".split())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4),
    max_leaves=8,
)
NAMES = st.sampled_from(["search_emails", "read_email", "return_final_answer", "other", ""])


@given(NAMES, JSON | st.text(max_size=20), JSON, st.text(max_size=5))
def test_any_call_is_printable(name: str, arguments: Any, observation: Any, suffix: str) -> None:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    content = json.dumps(observation) + suffix
    reply = {"role": "tool", "tool_call_id": "c1", "content": content}
    [exchange] = exchanges(
        [AssistantMessage(tool_calls=(call(name, text, "c1"),)).to_chat(), reply]
    )
    assert_safe(format_turn(1, exchange).plain)


# ---- `art-e runs`, and an answer without a model.


@pytest.fixture
def reply(art_e: Run, db: Path) -> dict[str, Any]:
    """Return the output of `ask --json` without a model, from the only run."""
    before = art_e("runs", "list")
    assert (before.exit_code, before.stdout) == (0, "") and "art-e ask" in before.stderr
    result = art_e("ask", QUESTION, "--inbox", ANN, *EARLY, "--db", db, "--json")
    [line] = result.stderr.splitlines()
    assert "--model" in line
    return dict(json_of(result))


def test_runs_are_listed_and_shown(art_e: Run, reply: dict[str, Any]) -> None:
    assert "March 31, 2002" in reply["answer"]
    assert [each["message_id"] for each in reply["sources"]] == [LEASE_ID]
    assert (reply["model"], reply["cost_usd"], reply["kind"]) == ("offline", 0.0, "passages")
    folder = Path(reply["trajectory"]).parent
    [listed] = json_of(art_e("runs", "list", "--json"))
    facts = {"run": folder.name, "name": "ask", "model": "offline", "episodes": 1}
    facts |= {"complete": True, "broken": None, "accuracy": {}, "cost_usd": 0}
    assert facts.items() <= listed.items()
    line = art_e("runs", "list").stdout.splitlines()[-1]
    started = dt.datetime.fromisoformat(listed["started_at"]).astimezone()
    assert folder.name in line and f"{started:%Y-%m-%d %H:%M}" in line and "$0.00" in line
    show = ("runs", "show", folder.name)
    record = json_of(art_e(*show, "--json"))
    [episode] = record["episodes"]
    assert (episode["question"], episode["answer"]) == (QUESTION, reply["answer"])
    assert record["config"]["question"] == QUESTION
    assert {"python", "art-e", "duckdb", "numpy"} <= set(record["config"]["versions"])
    text = art_e("runs", "show", folder).stdout
    assert "model: offline" in text and reply["answer"] in text
    start = ("--episode", episode["episode_id"][:6])
    text = art_e(*show, *start).stdout
    assert text.startswith(QUESTION)
    assert all(part in text for part in (" 1  search", "read     m1", LEASE_ID))
    whole = json_of(art_e(*show, *start, "--json"))
    assert whole["episode_id"] == episode["episode_id"]
    assert whole["messages"][1] == {"role": "user", "content": QUESTION}


def test_killed_and_broken_runs_are_listed(art_e: Run, reply: dict[str, Any], home: Path) -> None:
    path = Path(reply["trajectory"])
    (path.parent / "COMPLETE").unlink()
    whole = path.read_text()
    path.write_text(whole + '{"schema": "art-e/traj')
    [killed] = json_of(art_e("runs", "list", "--json"))
    assert (killed["episodes"], killed["complete"], killed["broken"]) == (1, False, None)
    assert "incomplete" in art_e("runs", "list").stdout
    path.write_text(whole + f"not json {HOSTILE}\n")
    garbled = home / "runs" / "garbled"
    garbled.mkdir()
    (garbled / "config.json").write_text("{")
    listed = {each["run"]: each for each in json_of(art_e("runs", "list", "--json"))}
    assert "line 2" in listed[path.parent.name]["broken"]
    assert listed[path.parent.name]["episodes"] == 1
    assert "config.json" in listed["garbled"]["broken"]
    result = art_e("runs", "list")
    assert result.exit_code == 0 and result.stdout.count("broken: ") == 2
    broken = art_e("runs", "show", path.parent.name)
    assert reply["answer"] in broken.stdout and "broken" in broken.stderr
    assert_safe(result.stdout + broken.output)
    # `ask -c` and `rate` skip damaged runs.
    path.write_text(whole)
    (path.parent / "COMPLETE").touch()
    assert art_e("ask", "-c", "Who said so?", "--json").exit_code == 0
    assert art_e("rate", "good").exit_code == 0


# ---- Follow-ups, with a real client library and a provider on this machine.


def test_follow_up_gets_the_history(art_e: Run, db: Path) -> None:
    """The output says where mail goes, and the cost."""
    script = [
        says(None, search("warehouse", "lease"), usage=Usage(10_000, 0, 1_000, 600)),
        rate_limited("0"), says(None, read("m1"), usage=Usage(20_000, 8_000, 500)),
        says(None, answer("March 31, 2002", LEASE_ID), usage=Usage(30_000, 16_000, 250)),
        says(None, answer("Bob", LEASE_ID)), says(None, answer(None)),
    ]  # fmt: skip
    with openai(script) as provider:
        first = art_e("ask", QUESTION, "--inbox", ANN, *EARLY, "--db", db, "--model", "o3")
        second = json_of(art_e("ask", "-c", "Who said so?", "--json"))
        # "When?" matches nothing, so the passages match the earlier questions.
        nothing = json_of(art_e("ask", "--continue", "When?", "--json"))
        sent = [request.body["messages"][1]["content"] for request in provider.requests]
    assert first.exit_code == 0, first.output
    host = provider.base_url.removeprefix("http://").removesuffix("/v1")
    assert first.stderr.startswith(f"mail text stays on this machine ({host}, openai/o3)")
    text, source, cost_line = first.stdout.splitlines()
    assert text == "March 31, 2002"
    assert source.startswith(" 1. ") and source.endswith(LEASE_ID)
    assert re.match(r"3 turns, .* s \(model .* s, tools ", cost_line)
    # o3 costs $2 a million prompt tokens, $0.50 cached, $8 completion: 36,000 + 24,000 + 1,750.
    cost = 0.072 + 0.012 + 0.014
    tokens = f"60,000 (24,000 cached) + 1,750 tokens, 1 retried, ${cost:.4f}, openai/o3"
    assert cost_line.endswith(tokens)
    assert (second["question"], second["answer"]) == ("Who said so?", "Bob")
    assert (second["inbox_address"], second["as_of"]) == (ANN, "2001-02-28")
    assert LEASE_ID in [each["message_id"] for each in nothing["passages"]]
    earlier = f"- {QUESTION}\n  March 31, 2002"
    assert sent[4] == f"Who said so?\n\nIt follows up on:\n{earlier}"
    assert sent[5] == f"When?\n\nIt follows up on:\n{earlier}\n- Who said so?\n  Bob"
    listed = json_of(art_e("runs", "list", "--json"))
    assert [each["question"] for each in listed] == ["When?", "Who said so?", QUESTION]
    last = json_of(art_e("runs", "show", "last", "--json"))
    assert (last["run"], last["question"]) == (listed[0]["run"], "When?")


@pytest.mark.parametrize(
    ("question", "keywords"),
    [("And who is the landlord?", "landlord warehouse lease end"),
     ("How much is it?", "warehouse lease end"),
     ("Did Bob order noodles for lunch?", "bob order noodles lunch")],
)  # fmt: skip
def test_follow_up_searches(art_e: Run, owned_db: Path, question: str, keywords: str) -> None:
    """For earlier words too, unless it has enough; never for uninformative words."""
    assert art_e("ask", *QUESTION.split(), "--db", owned_db).exit_code == 0
    reply = json_of(art_e("ask", "-c", *question.split(), "--json"))
    [trajectory] = read_trajectories(Path(reply["trajectory"]))
    searched = " ".join(trajectory.events[0]["arguments"]["keywords"])
    assert (reply["question"], searched) == (question, keywords)
    if "lease" in keywords:
        assert {LEASE_ID, LATER_ID} == {each["message_id"] for each in reply["passages"]}


def test_history_scope(art_e: Run, owned_db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(owned_db.parent)
    ask = ("ask", QUESTION, "--db", owned_db.name)
    assert art_e(*ask, *EARLY).exit_code == 0
    other = ["--inbox", "bob@harbor.example"]
    for change, length in ([], 1), (["--as-of", "2001-02-02"], 0), (other, 0):
        assert art_e(*ask, "-c", *change).exit_code == 0
        assert len(json_of(art_e("runs", "show", "last", "--json"))["config"]["talk"]) == length


OPTIONS = {
    "recipe": None, "max_turns": 5, "effort": "low", "temperature": 0.5, "max_cost": 0.5,
    "tool_calls": "text", "junk": True, "timeout": 5.0, "retries": 1,
}  # fmt: skip
OF_MODEL = {"effort": None, "temperature": None, "tool_calls": "auto"}
RECIPE = {"recipe": "form.toml", "max_turns": None}


@pytest.mark.parametrize(
    ("more", "turns", "changed"),
    [
        ([], 5, {}),
        (["--max-turns", "3", "--temperature", "0"], 3, {"max_turns": 3, "temperature": 0.0}),
        (["--recipe", "form.toml"], 7, RECIPE),
        (["--model", "local:x"], 5, OF_MODEL),
    ],
)
def test_follow_up_keeps_options(
    ask: Any, art_e: Run, owned_db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    more: list[str], turns: int, changed: dict[str, Any],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("art_e.cli.model_options.episode_form", lambda _: None)
    Path("form.toml").write_text("[episode]\nmax_turns = 7\n")
    options = ("--reasoning-effort", "low", "--temperature", "0.5", "--tool-calls", "text")
    limits = ("--max-turns", "5", "--max-cost", "0.5", "--all", "--timeout", "5", "--retries", "1")
    assert art_e("ask", "When?", "--db", owned_db, *options, *limits).exit_code == 0
    assert ask("-c", *more).exit_code == 0
    config = json_of(art_e("runs", "show", "last", "--json"))["config"]
    assert config["options"] == OPTIONS | changed
    assert (config["max_turns"], len(config["talk"])) == (turns, 1)


def test_rating_has_question_answer_and_correction(art_e: Run, ask: Any) -> None:
    ask("--as-of", "2001-12-31")
    assert "good: When does" in art_e("rate", "good").stderr
    bad = ("rate", "bad", "--answer", "April 30, 2003", "--source")
    assert "no mail none@x in the inbox" in the_error(art_e(*bad, "none@x"))
    assert json_of(art_e(*bad, "1", "--json"))["right_sources"] == [LEASE_ID]
    saved = json_of(art_e(*bad, LATER_ID.strip("<>"), "--json"))
    assert (saved["rating"], saved["right_answer"]) == ("bad", "April 30, 2003")
    assert saved["right_sources"] == [LATER_ID]
    assert (saved["answer"], saved["sources"]) == ("March 31, 2002", [LEASE_ID])
    assert (saved["inbox_address"], saved["as_of"], saved["talk"]) == (ANN, "2001-12-31", False)


def test_ratings_become_questions(art_e: Run, ask: Any, owned_db: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    make = ("golden", "from-ratings", "--db", owned_db, "--out", folder, "--json")
    assert "nothing is rated yet" in the_error(art_e(*make))

    def rated(text: str | None, *rating: str, question: str = QUESTION, more: Any = ()) -> None:
        script = (SEARCH, READ, message(answer(text, LEASE_ID)))
        assert ask("--as-of", "2001-12-31", *more, script=script, question=question).exit_code == 0
        assert art_e("rate", *rating).exit_code == 0

    rated("March 31, 2002", "good")
    assert json_of(art_e(*make))["sums"]["kept"] == 1
    rated("May 3", "bad", "--answer", "April 30, 2003", "--source", LATER_ID)
    rated("May 4", "bad")
    rated("Bob", "good", question="Who said so?", more=("-c", "--model", "offline"))
    rated(None, "good", question="When does the lift open?")
    sums = json_of(art_e(*make))["sums"]
    assert (sums["in"], sums["kept"]) == (5, 3)
    rows = {each.question + str(each.answer): each for each in load_questions(str(folder))}
    good = rows[f"{QUESTION}March 31, 2002"]
    assert (good.message_ids, good.inbox_address) == ((LEASE_ID,), ANN)
    assert str(good.query_date) == "2001-12-31"
    assert rows[f"{QUESTION}April 30, 2003"].message_ids == (LATER_ID,)
    assert rows["When does the lift open?None"].answerable is False
    reasons = "\n".join(each.reason for each in GoldenSet.load(folder).rejected)
    assert "nobody said what is right" in reasons and "can't stand alone" in reasons
