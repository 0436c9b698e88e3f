"""`art-e ask` and `art-e runs`: answers and their sources, the trace, failures, states of runs."""

import datetime as dt
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.cli.trace import shown_turn
from art_e.message import AssistantMessage
from art_e.models.base import PolicyError, Usage
from art_e.trajectory import exchanges, read_trajectories
from tests.builders import WAIT_S, ScriptedPolicy, answer, call, message, read, search
from tests.command_line import ANN, HOSTILE, LEASE_ID, Run, assert_safe, json_of, the_error
from tests.processes import at_terminal, sent
from tests.provider import Provider, Reply, Request, rate_limited, says

QUESTION = "When does the warehouse lease end?"
SEARCH = message(search("warehouse", "lease"))
READ = message(read("m1"))
ANSWER = message(answer("March 31, 2002", LEASE_ID))
DONT_KNOW = message(answer("I don't know."))
WRONG = message(call("send_money", {}))
KEYS = [
    "question", "inbox_address", "as_of", "kind", "answer", "abstained", "sources", "passages",
    "turns", "seconds", "model_seconds", "tools_seconds", "call_seconds", "usage", "retries",
    "cost_usd", "model", "trajectory",
]  # fmt: skip


@pytest.fixture
def ask(art_e: Run, db: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Asks a model that says the script, and fails after it as a provider does."""

    def run(*args: object, script: Any = (SEARCH, READ, ANSWER), cost: float | None = 0.002) -> Any:
        steps = [*script, PolicyError("provider", "the provider is down")]
        policy = ScriptedPolicy(steps, usage=Usage(10, 0, 2), costs=[cost] * len(steps))
        monkeypatch.setattr("art_e.models.model.Model.policy", lambda *_: policy)
        return art_e("ask", QUESTION, "--inbox", ANN, "--db", db, *args)

    return run


def test_json_has_the_answer_its_sources_and_the_trajectory(ask: Any, home: Path) -> None:
    reply = json_of(ask("--as-of", "2001-02-28", "--json"))
    assert list(reply) == KEYS
    assert reply["question"] == QUESTION
    assert (reply["inbox_address"], reply["as_of"]) == (ANN, "2001-02-28")
    assert (reply["answer"], reply["abstained"]) == ("March 31, 2002", False)
    assert (reply["kind"], reply["passages"]) == ("answer", [])
    assert reply["sources"] == [
        {
            "message_id": LEASE_ID,
            "date": "2001-02-01T09:00Z",
            "from": "Bob Berg <bob@harbor.example>",
            "subject": "Warehouse lease",
        }
    ]
    assert (reply["turns"], reply["model"]) == (3, "scripted")
    assert reply["cost_usd"] == pytest.approx(0.006)
    path = Path(reply["trajectory"])
    assert path.parent.parent == home / "runs"
    assert (path.parent / "COMPLETE").exists()
    [trajectory] = read_trajectories(path)
    assert (trajectory.final_answer, trajectory.sources) == ("March 31, 2002", [LEASE_ID])


def test_dont_know_shows_the_best_passages(ask: Any) -> None:
    """They are found whatever the model searched for."""
    script = (message(search("giraffe")), DONT_KNOW)
    shown = ask("--as-of", "2001-02-28", script=script).stdout.splitlines()
    assert shown[0] == "no answer: the model found none in this inbox; the best passages:"
    assert shown[1] == "The warehouse lease ends on March 31, 2002."
    assert shown[2].endswith(f"Warehouse lease  {LEASE_ID}")
    reply = json_of(ask("--as-of", "2001-02-28", "--json", script=script))
    assert reply["kind"] == "none"
    passages = [(each["text"], each["message_id"]) for each in reply["passages"]]
    assert passages[0] == (shown[1], LEASE_ID)
    assert len({each for _, each in passages}) == len(passages) <= 3


@pytest.mark.parametrize(
    ("script", "options", "abstained", "words"),
    [
        ((SEARCH, DONT_KNOW), [], True, "no answer: the model found none"),
        ((SEARCH, READ, READ), ["--max-turns", "2"], False, "no answer: out of turns (2)"),
        ((WRONG, WRONG, WRONG), [], False, "no answer: too many wrong calls"),
    ],
)
def test_a_missing_answer_is_explained_and_is_no_failure(
    ask: Any, script: Any, options: list[str], abstained: bool, words: str
) -> None:
    shown = ask(*options, script=script)
    assert shown.exit_code == 0
    assert shown.stdout.startswith(words)
    reply = json_of(ask(*options, "--json", script=script))
    assert (reply["abstained"], reply["sources"]) == (abstained, [])
    assert abstained or reply["answer"] is None


def test_a_failing_model_is_our_fault_and_is_kept(ask: Any) -> None:
    result = ask("--json", script=[SEARCH], cost=None)
    assert result.exit_code == 1
    reply = json.loads(result.stdout)
    assert (reply["answer"], reply["cost_usd"]) == (None, None)
    assert result.stderr == "Error: provider: the provider is down; try again\n"
    [trajectory] = read_trajectories(Path(reply["trajectory"]))
    assert trajectory.error is not None


def test_the_offline_policy_answers_end_to_end(art_e: Run, db: Path) -> None:
    asking = ("ask", QUESTION, "--inbox", ANN, "--as-of", "2001-02-28", "--db", db)
    result = art_e(*asking, "--json")
    reply = json_of(result)
    assert "March 31, 2002" in reply["answer"]
    assert [each["message_id"] for each in reply["sources"]] == [LEASE_ID]
    assert (reply["model"], reply["cost_usd"], reply["kind"]) == ("offline", 0.0, "passages")
    [line] = result.stderr.splitlines()
    assert "--model" in line
    shown = art_e(*asking).stdout
    assert shown.startswith("best passages, for no model was asked:\n")
    assert reply["passages"][0]["text"] in shown


# The trace


FIELDS = st.sampled_from("hits body error note keywords answer sources from".split())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4),
    max_leaves=8,
)
NAMES = st.sampled_from(["search_emails", "read_email", "return_final_answer", "other", ""])


@given(NAMES, JSON | st.text(max_size=20), JSON, st.text(max_size=5))
def test_whatever_a_model_writes_can_be_shown(
    name: str, arguments: Any, observation: Any, behind: str
) -> None:
    made = call(name, arguments if isinstance(arguments, str) else json.dumps(arguments), "c1")
    content = json.dumps(observation) + behind
    answered = {"role": "tool", "tool_call_id": "c1", "content": content}
    [exchange] = exchanges([AssistantMessage(tool_calls=(made,)).to_chat(), answered])
    assert_safe(shown_turn(1, exchange).plain)


# `art-e runs`


@pytest.fixture
def reply(art_e: Run, db: Path) -> dict[str, Any]:
    """The answer of `ask --json`, whose run is the only one."""
    before = art_e("runs", "list")
    assert (before.exit_code, before.stdout) == (0, "") and "art-e ask" in before.stderr
    answer: dict[str, Any] = json_of(
        art_e("ask", QUESTION, "--inbox", ANN, "--as-of", "2001-02-28", "--db", db, "--json")
    )
    return answer


def test_list_and_show_tell_what_was_run(art_e: Run, reply: dict[str, Any]) -> None:
    folder = Path(reply["trajectory"]).parent
    [listed] = json_of(art_e("runs", "list", "--json"))
    assert listed["run"] == folder.name
    assert (listed["name"], listed["model"]) == ("ask", "offline")
    assert (listed["episodes"], listed["complete"], listed["broken"]) == (1, True, None)
    assert (listed["accuracy"], listed["cost_usd"]) == ({}, 0)
    line = art_e("runs", "list").stdout.splitlines()[-1]
    begun = dt.datetime.fromisoformat(listed["started_at"]).astimezone()
    assert folder.name in line and f"{begun:%Y-%m-%d %H:%M}" in line and "$0.00" in line
    shown = json_of(art_e("runs", "show", folder.name, "--json"))
    [episode] = shown["episodes"]
    assert (episode["question"], episode["answer"]) == (QUESTION, reply["answer"])
    assert shown["config"]["question"] == QUESTION
    text = art_e("runs", "show", folder).stdout
    assert "model: offline" in text and reply["answer"] in text
    start = episode["episode_id"][:6]
    shown = art_e("runs", "show", folder.name, "--episode", start).stdout
    assert shown.startswith(QUESTION)
    assert " 1  search" in shown and "read     m1" in shown and LEASE_ID in shown
    whole = json_of(art_e("runs", "show", folder.name, "--episode", start, "--json"))
    assert whole["episode_id"] == episode["episode_id"]
    assert whole["messages"][1] == {"role": "user", "content": QUESTION}


def test_killed_and_broken_runs_are_listed_as_such(
    art_e: Run, reply: dict[str, Any], home: Path
) -> None:
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
    shown = art_e("runs", "show", path.parent.name)
    assert reply["answer"] in shown.stdout and "broken" in shown.stderr
    assert_safe(result.stdout + shown.output)
    # What looks for the last run passes a damaged one over.
    path.write_text(whole)
    (path.parent / "COMPLETE").touch()
    assert art_e("ask", "-c", "Who said so?", "--json").exit_code == 0
    assert art_e("rate", "good").exit_code == 0


# ---- Hosted models: the real client libraries against a provider on this machine.

ROOT = Path(__file__).parents[3]
KEY = "sk-test-0123456789abcdef"


PAID_SEARCH = says(None, search("warehouse", "lease"), usage=Usage(10_000, 0, 1_000, 600))
PAID_READ = says(None, read("m1"), usage=Usage(20_000, 8_000, 500))
PAID_ANSWER = says(None, answer("March 31, 2002", LEASE_ID), usage=Usage(30_000, 16_000, 250))
SCRIPT = [PAID_SEARCH, PAID_READ, PAID_ANSWER]
# o3 costs $2 a million prompt tokens, $0.50 cached, $8 completion: 36,000 + 24,000 + 1,750.
COST = 0.072 + 0.012 + 0.014


def asking(db: Path) -> list[object]:
    return ["ask", QUESTION, "--inbox", ANN, "--as-of", "2001-02-28", "--db", db, "--model", "o3"]


def assert_no_key(home: Path, *printed: str) -> None:
    """No part of the key is printed, or in any file of the home."""
    files = [each for each in home.rglob("*") if each.is_file()]
    for text in (*printed, *(each.read_text("utf-8", "replace") for each in files)):
        assert "0123456789" not in text
        assert KEY[-6:] not in text


def test_people_see_where_mail_goes_and_what_it_took(
    art_e: Run, db: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Provider([PAID_SEARCH, rate_limited("0"), PAID_READ, PAID_ANSWER]) as provider:
        provider.stand_in_for_openai(monkeypatch, KEY)
        host = provider.base_url.removeprefix("http://").removesuffix("/v1")
        result = art_e(*asking(db))
    assert result.exit_code == 0, result.output
    assert result.stderr == f"mail text stays on this machine ({host}, openai/o3)\n"
    found, source, took = result.stdout.splitlines()
    assert found == "March 31, 2002"
    assert source.endswith(LEASE_ID)
    assert took.startswith("3 turns, ")
    assert " s (model " in took and " s, tools " in took
    assert took.endswith(
        f"60,000 (24,000 cached) + 1,750 tokens, 1 retried, ${COST:.4f}, openai/o3"
    )
    assert_no_key(home, result.output)


def test_a_key_may_stand_in_the_env_file(
    db: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the environment sets wins over the file."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with Provider(SCRIPT, key=KEY) as provider:
        monkeypatch.setenv("OPENAI_BASE_URL", provider.base_url)
        (tmp_path / ".env").write_text(
            f"# X=1\nexport OPENAI_API_KEY='{KEY}'\nOPENAI_BASE_URL=http://127.0.0.1:9/v1\n"
        )
        done = subprocess.run(
            [sys.executable, "-m", "art_e", *map(str, asking(db))],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"ART_E_HOME": str(home), "PYTHONPATH": str(ROOT)},
        )
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "March 31, 2002"), done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert_no_key(home, done.stdout, done.stderr)


# ---- Going on, standard input, and what is shown while a model works.


def test_a_follow_up_knows_what_was_said(
    art_e: Run, db: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Provider(
        [*SCRIPT, says(None, answer("Bob", LEASE_ID)), says(None, answer(None))]
    ) as provider:
        provider.stand_in_for_openai(monkeypatch, KEY)
        assert json_of(art_e(*asking(db), "--json"))["answer"] == "March 31, 2002"
        second = json_of(art_e("ask", "-c", "Who said so?", "--json"))
        # The words of "When?" find nothing: the passages are those of what was said before.
        nothing = json_of(art_e("ask", "--continue", "When?", "--json"))
        assert LEASE_ID in [each["message_id"] for each in nothing["passages"]]
        sent = [request.body["messages"][1]["content"] for request in provider.requests]
    assert (second["question"], second["answer"]) == ("Who said so?", "Bob")
    assert (second["inbox_address"], second["as_of"]) == (ANN, "2001-02-28")
    assert sent[3] == (
        f"Earlier in this talk:\nQuestion: {QUESTION}\nAnswer: March 31, 2002\n\n"
        "The question now: Who said so?"
    )
    assert "Question: Who said so?\nAnswer: Bob\n\nThe question now: When?" in sent[4]
    listed = json_of(art_e("runs", "list", "--json"))
    assert [each["question"] for each in listed] == ["When?", "Who said so?", QUESTION]
    shown = json_of(art_e("runs", "show", "last", "--json"))
    assert (shown["run"], shown["question"]) == (listed[0]["run"], "When?")


OPTIONS = {
    "recipe": None, "max_turns": 5, "effort": "low", "temperature": 0.5, "max_cost": 0.5,
    "tool_calls": "text", "junk": True,
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
def test_a_follow_up_keeps_the_options(
    ask: Any, art_e: Run, db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    more: list[str], turns: int, changed: dict[str, Any],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("art_e.cli.model_options.episode_form", lambda _: None)
    Path("form.toml").write_text("[episode]\nmax_turns = 7\n")
    options = ("--reasoning-effort", "low", "--temperature", "0.5", "--tool-calls", "text")
    limits = ("--max-turns", "5", "--max-cost", "0.5", "--all")
    assert art_e("ask", "When?", "--inbox", ANN, "--db", db, *options, *limits).exit_code == 0
    assert ask("-c", *more).exit_code == 0
    config = json_of(art_e("runs", "show", "last", "--json"))["config"]
    assert config["options"] == OPTIONS | changed
    assert (config["max_turns"], len(config["talk"])) == (turns, 1)


def test_there_must_be_something_to_go_on_from(art_e: Run) -> None:
    assert "there is no question to go on from" in the_error(art_e("ask", "-c", "Who?"))
    assert "no run 'last'" in the_error(art_e("runs", "show", "last"))


def test_a_question_comes_from_standard_input(home: Path, owned_db: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "art_e", "ask", "-", "--db", str(owned_db), "--json"],
        input=f"{QUESTION}\n",
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"ART_E_HOME": str(home), "PYTHONPATH": str(ROOT)},
    )
    assert json.loads(done.stdout)["question"] == QUESTION


def test_a_terminal_shows_each_step_while_a_model_works(
    db: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = {
        "waiting for openai/o3": PAID_SEARCH,
        'searched "warehouse lease", 1 mail; waiting for openai/o3, turn 2': rate_limited("0.3"),
        "openai/o3: trying again, 2 of 8": PAID_READ,
        "read Bob Berg <bob@harbor.example>: Warehouse lease; waiting for openai/o3, turn 3":
            PAID_ANSWER,
    }  # fmt: skip
    left, printed = iter(steps.items()), bytearray()

    def once_shown(_: Request) -> Reply:
        step, reply = next(left)
        while step.encode() not in printed:
            time.sleep(0.01)
        return reply

    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
    with Provider(once_shown) as provider:
        provider.stand_in_for_openai(monkeypatch, KEY)
        with at_terminal(asking(db), {"ART_E_HOME": str(home)}, **pipes) as (process, terminal):
            for data in sent(terminal):
                printed += data
            assert process.wait(WAIT_S) == 0
            assert process.stdout is not None
            answered = process.stdout.read()
    assert b"loading what calls openai/o3" in printed
    assert next(left, None) is None
    # The time is all that a person waited.
    wall, model = re.search(r"([\d.]+) s \(model ([\d.]+) s", answered).groups()  # type: ignore[union-attr]
    assert float(wall) > float(model) > 0.3
