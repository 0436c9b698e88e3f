"""`art-e runs`: lists finished, killed and broken runs, and shows one."""

from pathlib import Path
from typing import Any

import pytest

from tests.command_line import ANN, HOSTILE, LEASE_ID, Run, assert_safe, json_of

QUESTION = "When does the warehouse lease end?"


@pytest.fixture
def reply(art_e: Run, db: Path) -> dict[str, Any]:
    """The answer of `ask --json`, whose run is the only one."""
    answer: dict[str, Any] = json_of(
        art_e("ask", QUESTION, "--inbox", ANN, "--as-of", "2001-02-28", "--db", db, "--json")
    )
    return answer


def test_without_runs_there_is_a_word_on_stderr(art_e: Run) -> None:
    result = art_e("runs", "list")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "art-e ask" in result.stderr
    assert json_of(art_e("runs", "list", "--json")) == []


def test_list_and_show_tell_what_was_run(art_e: Run, reply: dict[str, Any]) -> None:
    folder = Path(reply["trajectory"]).parent
    [listed] = json_of(art_e("runs", "list", "--json"))
    assert listed["run"] == folder.name
    assert (listed["name"], listed["model"]) == ("ask", "offline")
    assert (listed["episodes"], listed["complete"], listed["broken"]) == (1, True, None)
    assert folder.name in art_e("runs", "list").stdout
    shown = json_of(art_e("runs", "show", folder.name, "--json"))
    [episode] = shown["episodes"]
    assert (episode["question"], episode["answer"]) == (QUESTION, reply["answer"])
    assert shown["config"]["question"] == QUESTION
    text = art_e("runs", "show", folder).stdout
    assert "model: offline" in text and reply["answer"] in text


def test_show_episode_gives_the_full_trace(art_e: Run, reply: dict[str, Any]) -> None:
    name = Path(reply["trajectory"]).parent.name
    [episode] = json_of(art_e("runs", "show", name, "--json"))["episodes"]
    start = episode["episode_id"][:6]
    shown = art_e("runs", "show", name, "--episode", start).stdout
    assert shown.startswith(QUESTION)
    assert " 1  search" in shown and "read     m1" in shown and LEASE_ID in shown
    whole = json_of(art_e("runs", "show", name, "--episode", start, "--json"))
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
