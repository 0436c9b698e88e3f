"""The policy for hosted models: what is sent, what is accounted for, what it keeps to."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from art_e.agent import run_episode
from art_e.errors import UserError
from art_e.models.base import PolicyStep, Usage
from art_e.models.providers import load_litellm
from art_e.tools import schemas
from tests.builders import HELLO, LEASE, Make, Start, act, answer, call
from tests.builders import read_episodes as read
from tests.builders import search_episodes as search
from tests.provider import (
    Provider,
    broken,
    cut,
    rate_limited,
    says,
    stalls,
)


def test_o3_over_several_turns(make: Make, start: Start) -> None:
    """Tokens, cost, latency and retries of an episode, worked out by hand."""
    listed = load_litellm().model_cost["o3"]
    # Published: $2 a million tokens of prompt, $0.50 cached, $8 of completion with reasoning.
    assert listed["input_cost_per_token"] == 2e-6
    assert listed["cache_read_input_token_cost"] == 0.5e-6
    assert listed["output_cost_per_token"] == 8e-6
    script = [
        says(None, search("lease"), search("harbor"), usage=Usage(120_000, 0, 8_000, 5_000)),
        rate_limited("0"),
        says(None, read("m1"), read("m2"), usage=Usage(250_000, 102_400, 12_000, 6_400)),
        broken(),
        cut(),
        says(None, answer("On May 3.", "m1"), usage=Usage(300_000, 204_800, 20_000, 15_000)),
    ]
    with Provider(script) as provider:
        trajectory = asyncio.run(run_episode(start(), make(provider), "r"))
        requests = provider.requests
    # 0.24 + 0.064, then 0.2952 + 0.0512 + 0.096, then 0.1904 + 0.1024 + 0.16.
    assert trajectory.cost_usd == pytest.approx(0.304 + 0.4424 + 0.4528)
    assert f"{trajectory.cost_usd:.2f}" == "1.20"
    assert trajectory.usage == {
        "prompt_tokens": 670_000,
        "cached_prompt_tokens": 307_200,
        "completion_tokens": 40_000,
        "reasoning_tokens": 26_400,
    }
    assert trajectory.retries == 3
    assert len(trajectory.call_seconds) == 3
    calls = [each or 0 for each in trajectory.call_seconds]
    assert min(calls) > 0
    assert sum(calls) < trajectory.seconds["model"]
    assert (trajectory.final_answer, trajectory.sources) == ("On May 3.", [LEASE])
    assert (trajectory.rubric["turns"], trajectory.rubric["effort"]) == (3, 5)
    assert trajectory.error is None
    # Each turn is sent what the tools answered in the one before, retried or not.
    assert [len(each.messages) for each in requests] == [2, 5, 5, 8, 8, 8]
    sent = requests[-1].messages
    assert sent[0] == {"role": "developer", "content": trajectory.messages[0]["content"]}
    # The client leaves out what is null.
    said = [{k: v for k, v in each.items() if v is not None} for each in trajectory.messages]
    assert sent[1:] == said[1:8]


def test_a_reasoning_model_is_asked_without_temperature(make: Make) -> None:
    with Provider([says("x")] * 2) as provider:
        policy = make(provider, reasoning_effort="low", max_output_tokens=900)
        act(policy)
        act(make(provider, "openai/gpt-4.1", max_output_tokens=800))
        o3, gpt = (each.body for each in provider.requests)
    assert gpt.pop("messages") == HELLO
    assert o3.pop("messages") == [{**HELLO[0], "role": "developer"}, HELLO[1]]
    assert o3.pop("tools") == gpt.pop("tools") == schemas()
    assert o3 == {
        "model": "o3",
        "max_completion_tokens": 900,
        "reasoning_effort": "low",
        "tool_choice": "required",
    }
    assert gpt == {
        "model": "gpt-4.1",
        "max_tokens": 800,
        "temperature": 0.0,
        "tool_choice": "required",
    }
    assert policy.settings == {
        "temperature": None,
        "reasoning_effort": "low",
        "max_output_tokens": 900,
        "tool_calls": "native",
        "tool_choice": "required",
    }


@pytest.mark.parametrize(
    ("model", "options", "fix"),
    [
        ("openai/o3", {"temperature": 0.5}, "--temperature"),
        ("openai/gpt-4.1", {"reasoning_effort": "high"}, "--reasoning-effort"),
        ("deepseek/deepseek-reasoner", {"tool_calls": "native"}, "--tool-calls"),
        ("openai/of-our-own", {"max_cost_usd": 1.0}, "--max-cost"),
        ("gemini/gemini-2.5-pro", {}, "export GOOGLE_API_KEY or GEMINI_API_KEY"),
        ("hosted_vllm/qwen", {}, "HOSTED_VLLM_API_BASE"),
        ("openai/", {}, "openai/o3"),
    ],
)
def test_what_a_model_can_not_take_is_refused_before_any_call(
    make: Make, model: str, options: dict[str, Any], fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY", "HOSTED_VLLM_API_BASE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DEEPSEEK_API_KEY", "a-key-that-is-set")
    with Provider([]) as provider, pytest.raises(UserError) as error:
        make(provider, model, **options)
    assert provider.requests == []
    assert fix in str(error.value)
    assert "\n" not in str(error.value)


def test_a_call_without_usage_is_not_free(make: Make) -> None:
    with Provider([says("x", usage=None)]) as provider:
        step = act(make(provider))
    assert (step.usage, step.cost_usd) == (Usage(), None)


def test_only_so_many_calls_go_on_at_once(make: Make) -> None:
    with Provider(lambda _: says("x", delay_s=0.05)) as provider:
        policy = make(provider, concurrency=2)

        async def eight() -> None:
            await asyncio.gather(*(policy.act(HELLO, []) for _ in range(8)))

        started = time.perf_counter()
        asyncio.run(eight())
        assert time.perf_counter() - started >= 4 * 0.05
        assert provider.most_connections <= 2


def test_an_interrupt_passes_through_and_harms_nothing(make: Make) -> None:
    with Provider([stalls(), says("x")]) as provider:
        policy = make(provider, concurrency=1)

        async def interrupted() -> PolicyStep:
            task = asyncio.create_task(policy.act(HELLO, []))
            while not provider.requests:
                await asyncio.sleep(0.005)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return await policy.act(HELLO, [])

        assert asyncio.run(interrupted()).message.content == "x"


def test_the_budget_ends_the_episode_before_it_is_passed(make: Make, start: Start) -> None:
    dear = says(None, search("lease"), usage=Usage(1_000, 0, 1_000))  # $0.01
    with Provider([dear] * 9) as provider:
        policy = make(provider, max_cost_usd=0.05, max_output_tokens=1_000)
        first, second = (asyncio.run(run_episode(start(), policy, "r")) for _ in range(2))
        asked = len(provider.requests)
    made = [first, second]
    assert [each.error and each.error["kind"] for each in made] == ["budget", "budget"]
    assert sum(each.rubric["turns"] for each in made) == asked
    assert sum(each.cost_usd or 0 for each in made) == pytest.approx(0.01 * asked)
    assert 3 <= asked <= 5


def test_a_response_from_the_cache_is_not_paid_for_again(
    make: Make, start: Start, tmp_path: Path
) -> None:
    script = [says("Hm.", search("lease")), says(None, read("m1")), says(None, answer("May 3"))]
    with Provider([*script, says(None, answer(None))]) as provider:
        made = [
            asyncio.run(run_episode(start(), make(provider, cache=tmp_path), "r")) for _ in range(2)
        ]
        assert len(provider.requests) == 3
        act(make(provider, cache=tmp_path, max_output_tokens=77))
        assert len(provider.requests) == 4
    paid, kept = made
    assert kept.messages == paid.messages
    assert kept.usage == paid.usage
    assert kept.call_seconds == [None] * 3
    assert kept.cost_usd == 0.0
    assert paid.cost_usd == pytest.approx(3 * (100 * 2e-6 + 10 * 8e-6))


def test_ids_are_kept_and_made_distinct(make: Make) -> None:
    messages = [
        *HELLO,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "x", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "no"},
    ]
    given = [call("read_email", {}, each) for each in ("b", "a", "b", "", "c")]
    with Provider([says(None, *given)]) as provider:
        ids = [each.id for each in act(make(provider), messages).message.tool_calls]
    assert (ids[0], ids[4]) == ("b", "c")
    assert len({*ids, "a"}) == 6
    assert all(ids)


ROOT = Path(__file__).parents[3]

OFFLINE = """
import os, socket, sys

def refuse(*_):
    raise SystemExit("the network was used")

socket.socket.connect = socket.getaddrinfo = refuse
sys.path.insert(0, sys.argv[1])
from art_e.models.providers import load_litellm, warm_up

litellm = load_litellm()
warm_up()
messages = [{"role": "user", "content": "When does the lease end?"}]
for model in ("o3", "ollama_chat/qwen2.5:14b", "hosted_vllm/meta-llama/Llama-3-8B"):
    assert litellm.token_counter(model=model, messages=messages) > 5
assert litellm.model_cost["o3"]["input_cost_per_token"] > 0
assert "FROM_DOTENV" not in os.environ
"""

def test_loading_it_asks_nobody_says_nothing_and_reads_no_env_file(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("FROM_DOTENV=1\n")
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE, ROOT], cwd=tmp_path, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
