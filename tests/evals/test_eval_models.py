"""`eval run` of a model behind the wire: what it counts, and what it does not measure."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from art_e.message import ToolCall
from art_e.models.base import Usage
from art_e.question import Question
from art_e.trajectory import read_trajectories
from data_pipeline.synthetic.world import WorldConfig, questions
from tests.command_line import Run, json_of
from tests.provider import Provider, Reply, Request, rate_limited, refuses, says

# litellm has it ignored when it is imported, which pytest undoes.

ASKED = questions(WorldConfig(size=1000))[:6]
FAILING = ASKED[2]
# 10,000 prompt tokens of which 2,000 cached, and 1,000 of completion, at o3's prices.
USAGE = Usage(10_000, 2_000, 1_000, 400)
COST = 0.016 + 0.001 + 0.008


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    path = tmp_path / "questions.jsonl"
    rows = [json.dumps(each.to_row()) for each in ASKED]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def asked_in(request: Request) -> Question:
    said = [each["content"] for each in request.messages]
    [question] = [each for each in ASKED if each.question in said]
    return question


def knows_all(request: Request) -> Reply:
    """The gold answer at once, but for one question, which the provider refuses."""
    question = asked_in(request)
    if question == FAILING:
        return refuses(400, "no such luck")
    arguments = {"answer": question.answer, "sources": list(question.message_ids)}
    return says(None, ToolCall("c", "return_final_answer", json.dumps(arguments)), usage=USAGE)


def run(art_e: Run, golden: Path, db: Path, provider: Provider, *more: object) -> Any:
    return art_e(
        "eval", "run", "-m", "openai/o3", "--questions", golden, "--db", db, "--limit", len(ASKED),
        *more,
    )  # fmt: skip


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789abcdef")
    return monkeypatch


def test_a_failed_question_is_unanswered_and_all_is_counted(
    art_e: Run, golden: Path, world_db: Path, key: pytest.MonkeyPatch
) -> None:
    refused: set[str] = set()

    def rule(request: Request) -> Reply:
        question = asked_in(request)
        if question == ASKED[0] and question.id not in refused:
            refused.add(question.id)
            return rate_limited("0")
        return knows_all(request)

    with Provider(rule) as provider:
        key.setenv("OPENAI_BASE_URL", provider.base_url)
        result = run(art_e, golden, world_db, provider, "--concurrency", 3, "--json")
    shown = json_of(result)
    assert "mail text stays on this machine" in result.stderr
    figures = shown["models"]["openai/o3"]
    n = len(ASKED)
    assert (figures["concurrency"], figures["n"], figures["errors"]) == (3, n, 1)
    assert figures["errors_by_kind"] == {"request": 1}
    assert figures["hallucination"]["value"] == 0
    answerable = [each for each in ASKED if each.answerable]
    right = sum(each != FAILING for each in answerable)
    assert figures["accuracy"]["value"] == pytest.approx(right / len(answerable))
    assert figures["retries"] == 1
    assert figures["tokens"]["prompt_tokens"]["value"] == pytest.approx(10_000 * (n - 1) / n)
    assert figures["cost_per_1000_usd"]["value"] == pytest.approx(1000 * COST * (n - 1) / n)
    assert 0 < figures["latency_p50_s"]["value"] <= figures["latency_p95_s"]["value"]
    trajectories = list(read_trajectories(Path(shown["run"]) / "trajectories.jsonl"))
    assert sorted(each.question_id for each in trajectories) == sorted(each.id for each in ASKED)
    [failed] = [each for each in trajectories if each.error]
    assert (failed.question_id, failed.verdict) == (FAILING.id, None)
    config = json.loads((Path(shown["run"]) / "config.json").read_text("utf-8"))
    assert (config["concurrency"], config["cache"]) == ({"openai/o3": 3}, False)


def test_hosted_models_are_asked_several_questions_at_a_time(
    art_e: Run, golden: Path, world_db: Path, key: pytest.MonkeyPatch
) -> None:
    key.setattr("art_e.models.model.on_this_machine", lambda _: False)
    # Each answer waits until another question has come, so the provider may not serve one
    # request after the other, as it does to keep a script's order.
    together = threading.Barrier(2)
    key.setattr("tests.provider.Provider.reply_to", _unlocked)

    def rule(request: Request) -> Reply:
        together.wait(20)
        return knows_all(request)

    with Provider(rule) as provider:
        key.setenv("OPENAI_BASE_URL", provider.base_url)
        shown = json_of(run(art_e, golden, world_db, provider, "--json"))
    figures = shown["models"]["openai/o3"]
    assert (figures["concurrency"], figures["n"]) == (8, len(ASKED))


def _unlocked(self: Any, path: str, headers: Any, body: dict[str, Any]) -> Reply:
    reply: Reply = self._replies(Request(0, path, headers, body))
    return reply


def test_people_see_cost_tokens_and_how_many_at_a_time(
    art_e: Run, golden: Path, world_db: Path, key: pytest.MonkeyPatch
) -> None:
    with Provider(knows_all) as provider:
        key.setenv("OPENAI_BASE_URL", provider.base_url)
        result = run(art_e, golden, world_db, provider, "-m", "offline")
    n = len(ASKED)
    [row] = [line for line in result.stdout.splitlines() if line.startswith("│ openai/o3")]
    assert row.split()[-2] == f"{1000 * COST * (n - 1) / n:.2f}"
    assert "tokens a question" in result.stdout and "retries 0, 1 at a time" in result.stdout
    assert "failed: 1 (request 1)" in result.stdout
    # Only of models that were asked: offline has neither tokens nor a price.
    assert result.stdout.count("tokens a question") == 1


def test_the_cache_pays_once_and_measures_nothing(
    art_e: Run, golden: Path, world_db: Path, key: pytest.MonkeyPatch
) -> None:
    with Provider(knows_all) as provider:
        key.setenv("OPENAI_BASE_URL", provider.base_url)
        first = json_of(run(art_e, golden, world_db, provider, "--cache", "--json"))
        paid = len(provider.requests)
        second = run(art_e, golden, world_db, provider, "--cache", "--json")
        again = json_of(second)
        shown = run(art_e, golden, world_db, provider, "--cache").stdout
        # What failed is asked again; what was answered is not.
        assert len(provider.requests) == paid + 2
    [row] = [line for line in shown.splitlines() if line.startswith("│ openai/o3")]
    assert row.replace("│", " ").split()[-2:] == ["-", "-"] and "cost unknown" in shown
    figures = [each["models"]["openai/o3"] for each in (first, again)]
    for each in figures:
        assert each["latency_p50_s"]["value"] is each["latency_p95_s"]["value"] is None
    assert figures[0]["cost_per_1000_usd"]["value"] > 0
    assert figures[1]["cost_per_1000_usd"]["value"] is None
    assert figures[0]["accuracy"] == figures[1]["accuracy"]


def test_a_limit_on_cost_ends_the_spending(
    art_e: Run, golden: Path, world_db: Path, key: pytest.MonkeyPatch
) -> None:
    with Provider(knows_all) as provider:
        key.setenv("OPENAI_BASE_URL", provider.base_url)
        # Two calls are paid for; a third could pass the limit, at up to 0.14 USD a call.
        shown = json_of(
            run(art_e, golden, world_db, provider, "--max-cost", COST + 0.145, "--json")
        )
        assert len(provider.requests) == 2
    figures = shown["models"]["openai/o3"]
    assert figures["stopped"]["kind"] == "budget"
    assert (figures["n"], figures["not_asked"]) == (2, len(ASKED) - 2)
    assert figures["errors_by_kind"] == {}


def test_a_second_judge_behind_the_wire_stands_beside_the_first(
    art_e: Run, golden: Path, world_db: Path, key: pytest.MonkeyPatch
) -> None:
    answerable = [each for each in ASKED if each.answerable]
    contested = answerable[0]
    judged: list[str] = []

    def rule(request: Request) -> Reply:
        if "tools" in request.body:
            question = asked_in(request)
            said = f"The mail says: {question.answer}" if question.answerable else None
            arguments: dict[str, Any] = {"answer": said, "sources": []}
            return says(None, ToolCall("c", "return_final_answer", json.dumps(arguments)))
        shown = json.dumps(request.messages)
        [about] = [each for each in ASKED if json.dumps(each.question)[1:-1] in shown]
        judged.append(about.id)
        verdict = "incorrect" if about == contested else "correct"
        return says(json.dumps({"reason": "so it is", "verdict": verdict}))

    judges = ("--judge", "offline", "--judge", "openai/gpt-4.1")
    with Provider(rule) as provider:
        key.setenv("OPENAI_BASE_URL", provider.base_url)
        result = run(art_e, golden, world_db, provider, *judges, "--json")
        shown = json_of(result)
        people = run(art_e, golden, world_db, provider, *judges)
    assert "(judge openai/gpt-4.1)" in result.stderr
    # Each verdict is paid for once, also over two runs; abstentions need none.
    assert sorted(judged) == sorted(each.id for each in answerable)
    first, second = shown["judges"]
    assert second.startswith("openai/gpt-4.1@")
    figures = shown["models"]["openai/o3"]
    n = len(answerable)
    by_judge = figures["by_judge"]
    assert by_judge[first]["accuracy"]["value"] == figures["accuracy"]["value"]
    assert by_judge[second]["accuracy"]["value"] == pytest.approx((n - 1) / n)
    agreed = figures["agreement"]
    assert agreed["judges"] == [first, second]
    trajectories = list(read_trajectories(Path(shown["run"]) / "trajectories.jsonl"))
    assert all(len(each.other_verdicts) == 1 for each in trajectories)
    assert "it agrees with offline/2 on" in people.stdout
