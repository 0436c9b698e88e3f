"""`eval run` where a model can't be asked on: what was not measured is not a zero."""

import json
from pathlib import Path
from typing import Any

import pytest

from art_e.message import ToolCall
from art_e.models.base import Usage
from art_e.trajectory import read_trajectories
from data_pipeline.synthetic.world import WorldConfig, questions
from tests.command_line import Run, json_of
from tests.provider import Provider, Reply, Request, refuses, says

ASKED = [each for each in questions(WorldConfig(size=1000)) if each.answerable][:8]
O3 = "openai/o3"
# At o3's prices 0.02 + 0.008 USD.
USAGE = Usage(10_000, 0, 1_000, 0)
NO_CREDIT = {"error": {"message": "You exceeded your quota.", "code": "insufficient_quota"}}
QUOTA = Reply(json.dumps(NO_CREDIT).encode(), 429, {"Content-Type": "application/json"})


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(f"{json.dumps(each.to_row())}\n" for each in ASKED), encoding="utf-8")
    return path


def knows_all(request: Request) -> Reply:
    said = [each["content"] for each in request.messages]
    [question] = [each for each in ASKED if each.question in said]
    arguments = {"answer": question.answer, "sources": list(question.message_ids)}
    return says(None, ToolCall("c", "return_final_answer", json.dumps(arguments)), usage=USAGE)


@pytest.fixture
def run(art_e: Run, golden: Path, world_db: Path, tmp_path: Path) -> Any:
    def command(*more: object) -> Any:
        out = ["--out", tmp_path / "run"]
        return art_e(
            "eval", "run", "-m", O3, "--questions", golden, "--db", world_db, *out,
            "--concurrency", 1, *more,
        )  # fmt: skip

    return command


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (refuses(401, "Incorrect API key provided."), "Incorrect API key provided."),
        (refuses(403, "Your country is not supported."), "Your country is not supported."),
        (refuses(404, "The model `o3` does not exist."), "The model `o3` does not exist."),
        (QUOTA, "You exceeded your quota."),
    ],
)
def test_a_model_that_refuses_every_call_is_stopped_and_not_measured(
    run: Any,
    art_e: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    refusal: Reply,
    words: str,
) -> None:
    with Provider(lambda _: refusal) as provider:
        provider.stand_in_for_openai(monkeypatch)
        result = run("-m", "offline")
        assert len(provider.requests) == 1
    assert result.exit_code == 1
    [line] = [each for each in result.stdout.splitlines() if each.startswith(f"{O3}:")]
    assert line.startswith(f"{O3}: not measured: ")
    assert words in line
    assert "--resume --out" in result.stderr
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    figures = metrics["models"][O3]
    assert (figures["n"], figures["not_asked"]) == (0, 8)
    assert words in figures["stopped"]["message"]
    for name in ("accuracy", "hallucination", "abstention", "turns", "cost_per_1000_usd"):
        assert figures[name]["value"] is None
    assert metrics["models"]["offline"]["n"] == 8
    assert not (tmp_path / "run" / "COMPLETE").exists()
    art_e("eval", "report", tmp_path / "run", "--out", tmp_path / "report")
    page = (tmp_path / "report" / "report.html").read_text()
    assert "Not asked" in page
    assert words.replace("`", "&#96;") in page or words in page
    # Nothing was asked of it, so that there is no episode to keep.
    assert len(list(read_trajectories(tmp_path / "run" / "trajectories.jsonl"))) == 8
    # With a key that is taken the same command asks what is left, and nobody else anew.
    with Provider(knows_all) as provider:
        provider.stand_in_for_openai(monkeypatch)
        again = json_of(run("-m", "offline", "--resume", "--json"))
        assert len(provider.requests) == 8
    assert again["models"][O3]["accuracy"]["value"] == 1.0
    assert again["models"][O3]["not_asked"] == 0
    assert (tmp_path / "run" / "COMPLETE").exists()
    assert len(list(read_trajectories(tmp_path / "run" / "trajectories.jsonl"))) == 8 + 8


def test_people_read_how_a_run_goes_on(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with Provider(lambda _: refuses(401, "No.")) as provider:
        provider.stand_in_for_openai(monkeypatch)
        result = run()
    assert result.exit_code == 1
    assert "0.0%" not in result.stdout + result.stderr
    assert "Traceback" not in result.stderr


def test_a_refusal_of_one_question_stops_nothing(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def rule(request: Request) -> Reply:
        asked = any(each["content"] == ASKED[1].question for each in request.messages)
        return refuses(400, "Content filter.") if asked else knows_all(request)

    with Provider(rule) as provider:
        provider.stand_in_for_openai(monkeypatch)
        figures = json_of(run("--json"))["models"][O3]
    assert (figures["n"], figures["errors"], figures["not_asked"]) == (8, 1, 0)
    assert figures["accuracy"]["value"] == 7 / 8


def test_what_a_limit_on_cost_stopped_is_not_asked_and_not_wrong(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Provider(knows_all) as provider:
        provider.stand_in_for_openai(monkeypatch)
        stopped = run("--max-cost", "0.2", "--json")
        asked = len(provider.requests)
        figures = json.loads(stopped.stdout)["models"][O3]
        assert stopped.exit_code == 0
        assert 0 < figures["n"] < 8
        assert figures["n"] + figures["not_asked"] == 8
        assert figures["stopped"]["kind"] == "budget"
        # All that were asked were answered right.
        assert (figures["accuracy"]["value"], figures["errors"]) == (1.0, 0)
        assert figures["accuracy"]["n"] == figures["n"]
        assert not (tmp_path / "run" / "COMPLETE").exists()
        assert "--max-cost USD --resume" in stopped.stderr
        again = json_of(run("--max-cost", "9", "--resume", "--json"))["models"][O3]
        assert (again["n"], again["not_asked"], again["stopped"]) == (8, 0, None)
        # Nothing was asked twice, and nothing is kept twice.
        assert len(provider.requests) == 8
        assert asked == figures["n"]
    assert (tmp_path / "run" / "COMPLETE").exists()
    with Provider(knows_all) as provider:
        provider.stand_in_for_openai(monkeypatch)
        whole = json_of(run("--json", "--out", tmp_path / "whole"))["models"][O3]
    assert len(list(read_trajectories(tmp_path / "run" / "trajectories.jsonl"))) == 8
    timeless = {name for name in whole if not name.startswith("latency")}
    assert {name: again[name] for name in timeless} == {name: whole[name] for name in timeless}


def test_questions_side_by_side_are_asked_as_far_as_the_money_goes(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is set aside for calls under way comes free again: up to 0.14 USD each, of which 0.028
    are spent."""
    with Provider(knows_all) as provider:
        provider.stand_in_for_openai(monkeypatch)
        figures = json_of(run("--max-cost", "0.25", "--concurrency", "4", "--json"))["models"][O3]
    # As many as one after the other: 4 x 0.028 and 0.133 set aside for a fifth are below 0.25.
    assert (figures["n"], figures["not_asked"]) == (5, 3)
    assert figures["cost_usd"] <= 0.25
