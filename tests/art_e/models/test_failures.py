"""What fails on the way to a model: the kind it is given, and that nothing is lost by it."""

import asyncio
from pathlib import Path

import pytest

from art_e.agent import run_episode
from art_e.models.base import ModelOptions, PolicyError
from art_e.models.hosted import LitellmPolicy, Retries
from art_e.trajectory import Trajectory
from tests.builders import QUICK, Make, Start, act, answer, call
from tests.builders import search_episodes as search
from tests.provider import (
    FAILURES,
    Provider,
    Reply,
    Request,
    broken,
    cut,
    no_json,
    rate_limited,
    refuses,
    says,
    stalls,
)


@pytest.mark.parametrize(
    ("reply", "kind", "asked"),
    [
        (refuses(401, "Incorrect API key", code="invalid_api_key"), "auth", 1),
        (refuses(403, "no access to o3"), "auth", 1),
        (refuses(404, "no such model", code="model_not_found"), "no-model", 1),
        (refuses(400, "bad value"), "request", 1),
        (refuses(400, "maximum context length is 9", code="context_length_exceeded"), "context", 1),
        (refuses(429, "You exceeded your quota", code="insufficient_quota"), "no-credit", 1),
        (refuses(402, "Insufficient credits"), "no-credit", 1),
        (rate_limited("0"), "rate-limit", 3),
        (broken(500), "provider", 3),
        (broken(503), "provider", 3),
        (broken(504), "timeout", 3),
        (refuses(529, "overloaded"), "provider", 3),
        (cut(), "connection", 3),
        (cut(-1), "connection", 3),
        (stalls(), "timeout", 3),
        (no_json(), "provider", 3),
        (Reply(b"[1]"), "provider", 3),
        (Reply(b'{"choices": []}'), "provider", 3),
        (Reply(b'{"choices": [{"message": null}]}'), "provider", 3),
        (says(None, content=[{"type": "text", "text": "Hm."}]), "provider", 3),
    ],
)
# They go through different clients of litellm, which report failures in different ways.
@pytest.mark.parametrize("model", ["openai/o3", "hosted_vllm/qwen"])
def test_a_failure_has_a_kind_and_is_tried_again_where_that_may_help(
    make: Make,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    reply: Reply,
    kind: str,
    asked: int,
) -> None:
    with Provider([reply] * 3) as provider:
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", provider.base_url)
        policy = make(provider, model, timeout_s=2.0 if kind == "timeout" else 30.0)
        trajectory = asyncio.run(run_episode(start(), policy, "r"))
        assert len(provider.requests) == asked
    assert trajectory.error is not None
    assert trajectory.error["kind"] == kind
    assert trajectory.retries == asked - 1
    message = trajectory.error["message"]
    assert message.startswith(f"{model}: ")
    for frame in ("litellm", "Exception", '{"', "Traceback"):
        assert frame not in message
    assert "\n" not in message
    assert len(message) < 400


def test_a_key_appears_nowhere(
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    key = "sk-proj-Very0Secret1Value2" + "z" * 30
    echoes = refuses(401, f"Incorrect API key provided: {key}. Mend it", code="invalid_api_key")
    caplog.set_level(0)
    with Provider([says(None, search("lease")), cut(), echoes]) as provider:
        provider.stand_in_for_openai(monkeypatch, key)
        policy = LitellmPolicy("openai/o3", ModelOptions(cache=tmp_path), QUICK)
        trajectory = asyncio.run(run_episode(start(), policy, "r"))
        assert provider.requests[0].headers["authorization"] == f"Bearer {key}"
    assert trajectory.error is not None
    assert trajectory.error["kind"] == "auth"
    assert "Incorrect API key provided" in trajectory.error["message"]
    kept = [each.read_text() for each in tmp_path.rglob("*.json")]
    assert len(kept) == 1
    printed = capfd.readouterr()
    shown = [trajectory.to_line(), str(policy.settings), caplog.text, *printed, *kept]
    assert not any("Very0Secret" in each for each in shown)


def test_200_episodes_at_once_with_failures(make: Make, start: Start) -> None:
    """A third of the calls fails; each episode ends once, with the answer to its own question."""

    def reply(request: Request) -> Reply:
        question = request.messages[1]["content"]
        turn = sum(each["role"] == "assistant" for each in request.messages)
        chosen = [search("lease"), answer(f"To {question}", "m1")][turn]
        return says(None, call(chosen.name, chosen.arguments, f"reply-{request.number}"))

    # A stalled answer takes the whole timeout, so that they are the rarer ones.
    failures = [each for each in FAILURES if each is not stalls] * 3 + [stalls]
    patient = Retries(tries=25, base_s=0.01, longest_s=0.1)
    with Provider(reply, failure_rate=0.3, failures=failures, seed=4) as provider:
        policy = make(provider, retries=patient, concurrency=16, timeout_s=3.0)

        async def all_at_once() -> list[Trajectory]:
            started = (start(id=f"q{each}", question=f"Question {each}?") for each in range(200))
            return await asyncio.gather(*(run_episode(each, policy, "r") for each in started))

        made = asyncio.run(all_at_once())
        exchanges = provider.exchanges
        failed = provider.failed
    assert [each.final_answer for each in made] == [f"To Question {n}?" for n in range(200)]
    assert {each.question_id for each in made} == {f"q{n}" for n in range(200)}
    assert not any(each.error for each in made)
    assert sum(each.retries for each in made) == failed > 100
    used = [
        call["id"]
        for each in made
        for message in each.messages
        for call in message.get("tool_calls", ())
    ]
    served = [f"reply-{each.request.number}" for each in exchanges if not each.reply.fails]
    assert sorted(used) == sorted(served)
    assert len(served) == len(set(served)) == 400
    cost = 400 * (100 * 2e-6 + 10 * 8e-6)
    assert sum(each.cost_usd or 0 for each in made) == pytest.approx(cost)
