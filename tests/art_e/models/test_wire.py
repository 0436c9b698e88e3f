"""Errors and odd responses of providers: requests are corrected, failures have their kind."""

import asyncio
import contextlib
import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from art_e.message import AssistantMessage
from art_e.models.base import ModelOptions, PolicyError, Usage
from art_e.models.calls import CallLimiter, ProviderError, finish_failure, tokens_left
from art_e.models.hosted import LitellmPolicy, recover_calls
from art_e.models.model import full_name
from art_e.models.providers import KNOWN, Capabilities, capabilities, corrected, ending
from tests.builders import HELLO, QUICK, Make, Start, act, answer, play, search, table, table_rows
from tests.provider import MODELS, Provider, Reply, Request, json_server, refuses, says, stand_in

CASES = table(__file__, "wire.toml")
TEMPERATURE, MAX_TOKENS, FORCED = (words for words, _ in CASES["refusals"][:3])


def test_refusals_correct_requests(
    make: Make, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    def rule(request: Request) -> Reply:
        body = request.body
        for name, words in (("temperature", TEMPERATURE), ("max_tokens", MAX_TOKENS)):
            if name in body:
                return refuses(400, words)
        if body.get("tool_choice") == "required":
            return refuses(400, FORCED)
        return says(None, search("lease") if len(body["messages"]) < 3 else answer("May 3"))

    with Provider(rule) as provider:
        trajectory = play(start(), make(provider, "openai/gpt-4.1"))
        assert len(provider.requests) == 3 + 2
    assert (trajectory.final_answer, trajectory.retries) == ("May 3", 0)
    assert trajectory.policy["temperature"] is None
    assert trajectory.policy["tool_choice"] == "auto"
    assert capsys.readouterr().err.count("openai/gpt-4.1 refused a request") == 3


@pytest.mark.parametrize(("refusal", "changed"), CASES["refusals"])
def test_refusal_corrects_capabilities(refusal: str, changed: dict[str, Any]) -> None:
    now = Capabilities(tool_choice="required", reasoning_effort=True)
    correction = corrected(now, refusal)
    assert ({correction[1]: getattr(*correction)} if correction else {}) == changed
    # Repeated corrections by the same refusal end.
    for _ in range(3):
        correction = correction and corrected(correction[0], refusal)
    assert correction is None


def test_output_limit_shrinks_to_what_a_long_prompt_leaves(make: Make) -> None:
    refusal = (
        "'max_tokens' is too large: 4096. This model's maximum context length is 8192 tokens and"
        " your request has 5000 input tokens (4096 > 8192 - 5000)."
    )
    assert tokens_left(refusal) == 3192 and tokens_left(refusal.replace("5000", "8100")) is None
    with Provider([refuses(400, refusal), says("Hi")]) as provider:
        assert act(make(provider, "openai/gpt-4.1")).message.content == "Hi"
        assert [each.body["max_tokens"] for each in provider.requests] == [4096, 3192]


@pytest.mark.parametrize("cells", table_rows(__file__, "failures.tsv"))
def test_failures_in_providers_words(cells: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    kind, family, status, words = cells
    model = next(each for each in MODELS if each.startswith(family))
    error: Any = {"message": words, "type": words.rpartition(" code ")[2], "code": int(status)}
    if family == "openai":
        error["code"] = words.rpartition(" code ")[2]
    requests = []

    def refuse(_: str, path: str, *__: Any) -> tuple[int, Any]:
        requests.append(path)
        return int(status), {"error": words if family == "ollama" else error}

    with json_server(refuse) as url:
        stand_in(monkeypatch, model, url)
        with pytest.raises(PolicyError) as caught:
            act(LitellmPolicy(model, ModelOptions(), QUICK))
    print(f"{family:11} {len(requests)} requests, {kind}: {caught.value}")
    assert caught.value.kind == kind and words.partition(",")[0][:60] in str(caught.value)
    # Permanent failures are not retried, and refusals cost nothing.
    assert len(requests) == (3 if kind in ("rate-limit", "overload") else 1)
    assert caught.value.cost_usd == 0


@pytest.mark.parametrize("model", ["openai/gpt-4.1", "anthropic/claude-opus-4-6"])
@pytest.mark.parametrize(("body", "words"), CASES["bodies"])
def test_error_message_is_plain_text(
    model: str, body: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with json_server(lambda *_: (401, body)) as url:
        stand_in(monkeypatch, model, url)
        with pytest.raises(PolicyError) as caught:
            act(LitellmPolicy(model, ModelOptions(), QUICK))
    assert str(caught.value) == f"{model}: 401: {words}"


def test_failed_calls_cost_what_was_billed(make: Make) -> None:
    empty = says(None, usage=Usage(1_000, 0, 1_000))  # $0.01
    with Provider([empty] * 3) as provider, pytest.raises(PolicyError) as caught:
        act(make(provider, "openai/gpt-4.1"))
    assert caught.value.kind == "provider" and caught.value.cost_usd == pytest.approx(0.03)
    with Provider([empty, says("Hi", usage=Usage(1_000, 0, 1_000))]) as provider:
        assert act(make(provider, "openai/gpt-4.1")).cost_usd == pytest.approx(0.02)


@pytest.mark.parametrize(("reason", "empty", "kind"), CASES["endings"])
def test_finish_reason_gives_the_kind_of_failure(reason: str, empty: bool, kind: str) -> None:
    failure = finish_failure(reason or None, "gemini/m", empty=empty)
    assert (failure.kind if failure else "") == kind
    # A weak self-hosted model may write nothing.
    assert finish_failure("stop", "hosted_vllm/m", empty=True) is None


def test_concurrency_falls_with_rate_limits_and_rises_again() -> None:
    limiter, running, widths = CallLimiter(4), list[bool](), list[int]()

    async def call(refused: bool) -> None:
        with contextlib.suppress(ProviderError):
            async with limiter.slot():
                running.append(refused)
                widths.append(len(running))
                await asyncio.sleep(0)
                running.pop()
                if refused:
                    raise ProviderError("rate-limit", "too much", retryable=True)

    async def widest(calls: int, refused: bool) -> int:
        widths.clear()
        await asyncio.gather(*(call(refused) for _ in range(calls)))
        return max(widths)

    async def whole() -> list[int]:
        rounds = ((8, False), (4, True), (1, False), (9, False), (8, False))
        return [await widest(*each) for each in rounds]

    first, _, least, _, last = asyncio.run(whole())
    assert (first, least, last) == (4, 1, 4)


@pytest.mark.parametrize("frame", ["<tool_call>{}</tool_call>", "I search: {}"])
def test_calls_in_the_text_are_recovered(make: Make, frame: str) -> None:
    call = '{"name": "search_emails", "arguments": {"keywords": ["lease"]}}'
    text = frame.replace("{}", call)
    with Provider([says(text)]) as provider:
        [recovered] = act(make(provider, "openai/gpt-4.1")).message.tool_calls
    assert (recovered.name, recovered.parsed) == ("search_emails", {"keywords": ["lease"]})
    other = AssistantMessage(text.replace("search_emails", "send_money"))
    assert recover_calls(other, 0, {"search_emails"}) == other


def test_ollama_context_grows_with_the_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, Any]] = []
    streamed: list[str] = []
    final = {"name": "return_final_answer", "arguments": {"answer": "May 3", "sources": ["m1"]}}
    end = {"done": True, "done_reason": "stop", "prompt_eval_count": 900, "eval_count": 7}
    message: Any = {"content": "", "tool_calls": [{"function": final}]}
    lines = [{"message": {"content": ""}}, {"message": message, "model": "qwen", **end}]

    def reply(_: str, path: str, __: Any, body: bytes) -> Any:
        if path == "/api/show":
            return 200, {"model_info": {"qwen2.context_length": 40_000}}
        sent.append(json.loads(body))
        return Reply("".join(f"{json.dumps(line)}\n" for line in lines).encode())

    with json_server(reply) as url:
        monkeypatch.setenv("OLLAMA_API_BASE", url)
        options = ModelOptions(on_answer=streamed.append)
        policy = LitellmPolicy("ollama_chat/qwen2.5:14b", options, QUICK)
        step = act(policy)
        long = [*HELLO, {"role": "user", "content": "word " * 10_000}]
        with pytest.raises(PolicyError, match="cut the conversation") as error:
            act(policy, long)
    [call] = step.message.tool_calls
    assert {"name": call.name, "arguments": call.parsed} == final
    assert (step.cost_usd, step.served, {*streamed}) == (0.0, "qwen", {"May 3"})
    assert (step.usage.prompt_tokens, step.usage.completion_tokens) == (900, 7)
    # A step of 16,384, then twice that; at most the model's context.
    assert [each["options"]["num_ctx"] for each in sent] == [16_384, 32_768]
    assert sent[0]["options"]["num_predict"] == 4_096 and sent[0]["stream"] is True
    assert error.value.kind == "context"


def test_short_and_bare_names_become_full_names(monkeypatch: pytest.MonkeyPatch) -> None:
    full = ("openai/o3", "anthropic/claude-sonnet-5-5", "gemini/gemini-3.8-flash", "openai/gpt-5.4")
    names = {"local:x": "local:x", "groq/x": "groq/x"} | {each.split("/")[1]: each for each in full}
    assert {each: full_name(each) for each in names} == names
    tags = {"models": [{"name": "qwen3:14b"}, {"name": "qwen3:latest"}]}
    with json_server(lambda *_: (200, tags)) as url:
        monkeypatch.setenv("OLLAMA_API_BASE", url)
        assert full_name("qwen3:14b") == "ollama_chat/qwen3:14b"
        assert full_name("qwen3") == "ollama_chat/qwen3:latest"
    assert full_name("nobody-has-this") == "nobody-has-this"


def test_ending_model_is_reported_with_its_successor() -> None:
    day = dt.date(2026, 11, 27)
    assert ending("openai/o4-mini", day) == (
        "openai/o4-mini ended on 2026-10-23; run openai/gpt-5.4-mini instead"
    )
    assert str(ending("openai/o3", day)).startswith("openai/o3 ends on 2026-12-11; run ")
    assert ending("openai/o3", dt.date(2026, 9, 1)) is None
    # From litellm's list.
    assert str(ending("azure/o3", day)).startswith("azure/o3 ended on 2026-11-19")
    assert ending("hosted_vllm/mine", day) is None
    # Suggested models and successors have not ended.
    current = {each.followed_by for each in KNOWN.values() if each.ends} | {*[*KNOWN][:3]}
    assert not [each for each in current if ending(each, day)]


# Capabilities, without a call.


@pytest.mark.parametrize("cells", table_rows(__file__, "capabilities.tsv"))
def test_capabilities(cells: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    model, native, choice, _ = cells
    for provider in ("GEMINI", "ANTHROPIC", "DEEPSEEK"):
        monkeypatch.setenv(f"{provider}_API_KEY", "a-key-that-is-set")
    supports = capabilities(model)
    assert (supports.tools, supports.tool_choice or "-") == (native == "native", choice)


# ---- Reasoning, which is sent back to its own provider.

GEMINI, CLAUDE = json.loads(Path(__file__).with_name("reasoning.json").read_text("utf-8")).values()
DEEPSEEK = json.loads(says(None, search("x"), reasoning_content="signed: c2lnbmVk").body)


@pytest.mark.parametrize(
    ("model", "reply", "sent_back"),
    [
        ("gemini/gemini-2.5-pro", GEMINI, '"thoughtSignature": "c2lnbmVk"'),
        ("anthropic/claude-sonnet-4-5", CLAUDE, '"signature": "c2lnbmVk"'),
        ("deepseek/deepseek-chat", DEEPSEEK, '"reasoning_content": "signed: c2lnbmVk"'),
    ],
)
def test_reasoning_is_sent_back_to_its_provider_only(
    make: Make, start: Start, monkeypatch: pytest.MonkeyPatch,
    model: str, reply: dict[str, Any], sent_back: str,
) -> None:  # fmt: skip
    bodies: list[str] = []

    def reply_with(_: str, __: str, ___: Any, body: bytes) -> tuple[int, Any]:
        bodies.append(json.dumps(json.loads(body)))
        return 200, reply

    with json_server(reply_with) as url:
        stand_in(monkeypatch, model, url)
        trajectory = play(start(max_turns=2), LitellmPolicy(model, ModelOptions(), QUICK))
    assert "c2lnbmVk" not in bodies[0]
    assert sent_back in bodies[1]
    if reply is GEMINI:  # its signature is part of the call's id
        return
    with Provider([says("Done.")]) as other:
        act(make(other, "openai/gpt-4.1"), trajectory.messages)
    assert "c2lnbmVk" not in json.dumps(other.requests[0].body)
    assert "thoughts" not in json.dumps(other.requests[0].body["messages"])


def test_reasoning_counts_towards_the_cost_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    model = "anthropic/claude-sonnet-4-5"
    blocks = [{"type": "thinking", "thinking": "Hm. " * 250_000, "signature": "x"}]
    thoughts = {"model": model, "message": {"thinking_blocks": blocks}}
    reply = {"role": "assistant", "content": "Hm."}
    with json_server(lambda *_: (200, CLAUDE)) as url:
        stand_in(monkeypatch, model, url)
        policy = LitellmPolicy(model, ModelOptions(max_cost_usd=1.0), QUICK)
        act(policy, [*HELLO, reply])
        with pytest.raises(PolicyError, match="max-cost"):
            act(policy, [*HELLO, {**reply, "thoughts": thoughts}])
