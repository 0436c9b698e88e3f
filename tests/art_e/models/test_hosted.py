"""Hosted models over the wire: requests, costs, retries, failures, cached replies, the budget."""

import asyncio
import datetime as dt
import email.utils
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from art_e.message import AssistantMessage, compact_json
from art_e.models import calls as module
from art_e.models.base import ModelOptions, PolicyError, PolicyStep, Usage
from art_e.models.calls import Calls, Retries, retry_after_s
from art_e.models.providers import load_litellm
from art_e.tools import schemas
from evals.structured import Response, ResponseCache, request_key
from tests import builders
from tests.builders import HELLO, LEASE, WAIT_S, Make, Start, act, answer, call, play, read, search
from tests.provider import Provider, Reply, broken, cut, rate_limited, refuses, says, stalls, torn


@pytest.mark.parametrize(
    ("model", "options", "fix"), builders.table(__file__, "requests.toml")["impossible"]
)
def test_unsupported_options_fail_before_any_call(
    make: Make, model: str, options: dict[str, Any], fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "a-key-that-is-set")
    with Provider([]) as provider:
        assert fix in builders.the_error(make, provider, model, **options)
    assert provider.requests == []


# Requests and costs


def test_o3_over_several_turns(make: Make, start: Start) -> None:
    """Tokens, cost, latency and retries of an episode, computed by hand, and the served model."""
    script = [
        says(None, search("lease"), search("harbor"), usage=Usage(120_000, 0, 8_000, 5_000)),
        rate_limited("0"),
        says(None, read("m1"), read("m2"), usage=Usage(250_000, 102_400, 12_000, 6_400)),
        broken(),
        cut(),
        says(None, answer("On May 3.", "m1"), usage=Usage(300_000, 204_800, 20_000, 15_000)),
    ]
    with Provider(script) as provider:
        trajectory = play(start(), make(provider))
        requests = provider.requests
    # $2 a million tokens of prompt, $0.50 cached, $8 of completion with reasoning:
    # 0.24 + 0.064, then 0.2952 + 0.0512 + 0.096, then 0.1904 + 0.1024 + 0.16.
    assert trajectory.cost_usd == pytest.approx(0.304 + 0.4424 + 0.4528)
    assert trajectory.usage == asdict(Usage(670_000, 307_200, 40_000, 26_400))
    assert (trajectory.retries, trajectory.error) == (3, None)
    assert (trajectory.served, trajectory.finished) == (["scripted"], ["tool_calls"] * 3)
    assert trajectory.policy["host"] == provider.base_url.removeprefix("http://")[:-3]
    calls = [each or 0 for each in trajectory.call_seconds]
    assert len(calls) == 3 and min(calls) > 0
    assert sum(calls) < trajectory.seconds["model"]
    assert (trajectory.final_answer, trajectory.sources) == ("On May 3.", [LEASE])
    assert (trajectory.rubric["turns"], trajectory.rubric["effort"]) == (3, 5)
    # Each request has the tool results of the turns before, retried or not.
    assert [len(each.messages) for each in requests] == [2, 5, 5, 8, 8, 8]
    sent = requests[-1].messages
    assert sent[0] == {"role": "developer", "content": trajectory.messages[0]["content"]}
    # The client leaves out what is null.
    whole = [{k: v for k, v in each.items() if v is not None} for each in trajectory.messages]
    assert sent[1:] == whole[1:8]


@pytest.mark.parametrize("form", ["native", "text"])
def test_answer_is_streamed(make: Make, start: Start, form: Any) -> None:
    """The episode is the same as without streaming, and an interrupted call is retried."""
    text = 'It ends "on May 3", \u2013 or so.'
    calls = [search("lease"), answer(text, "m1")]
    written = [compact_json({"name": c.name, "arguments": json.loads(c.arguments)}) for c in calls]
    script = [says(each) for each in written] if form == "text" else [says(None, c) for c in calls]
    episodes = []
    streamed: list[str] = []
    for listener, broken_off in ((None, cut()), (streamed.append, torn())):
        with Provider([broken_off, *script]) as provider:
            policy = make(provider, "openai/gpt-4.1", tool_calls=form, on_answer=listener)
            episodes.append(play(start(), policy))
            streams = {each.body.get("stream", False) for each in provider.requests}
            assert streams == {listener is not None}
    for episode in episodes:
        assert (episode.final_answer, episode.sources, episode.retries) == (text, [LEASE], 1)
    first, second = episodes
    assert (first.messages, first.usage) == (second.messages, second.usage)
    assert streamed[-1] == text and len(set(streamed)) > 3
    assert all(text.startswith(each) for each in streamed)


def test_reasoning_model_gets_no_temperature(make: Make) -> None:
    with Provider([says("x", usage=None), says("x")]) as provider:
        # OpenAI streams reasoning models only to verified organisations.
        policy = make(provider, reasoning_effort="low", max_output_tokens=900, on_answer=print)
        # A call without usage is not free.
        assert act(policy).cost_usd is None
        act(make(provider, "openai/gpt-4.1", max_output_tokens=800))
        o3, gpt = (each.body for each in provider.requests)
    assert gpt.pop("messages") == HELLO
    assert o3.pop("messages") == [{**HELLO[0], "role": "developer"}, HELLO[1]]
    assert o3.pop("tools") == gpt.pop("tools") == schemas()
    assert o3.pop("tool_choice") == gpt.pop("tool_choice") == "required"
    assert o3 == {"model": "o3", "max_completion_tokens": 900, "reasoning_effort": "low"}
    assert gpt == {"model": "gpt-4.1", "max_tokens": 800, "temperature": 0.0}


MALFORMED = {
    "no object": (call("search_emails", '["lease"]'), "search_emails"),
    "not JSON": (call("search_emails", '{"keywords": ["lease"'), "search_emails"),
    "odd name": (call("search emails!\u202e" + "x" * 100, {}), "search_emails_" + "x" * 50),
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_malformed_calls_are_sent_back_valid(make: Make, start: Start, kind: str) -> None:
    """Most providers reject invalid tool names, and arguments that are not an object."""
    malformed, name = MALFORMED[kind]
    with Provider([says(None, malformed), says(None, answer("On May 3."))]) as provider:
        trajectory = play(start(), make(provider, "openai/gpt-4.1"))
        request = provider.requests[1]
    [sent] = request.messages[2]["tool_calls"]
    assert sent["function"]["name"] == name
    assert isinstance(json.loads(sent["function"]["arguments"]), dict)
    [stored] = trajectory.messages[2]["tool_calls"]
    assert stored["function"] == {"name": malformed.name, "arguments": malformed.arguments}
    assert [each.get("tool_call_id") for each in request.messages[3:]] == [stored["id"]]


def test_call_ids_become_unique(make: Make) -> None:
    before = AssistantMessage(tool_calls=(call("x", {}, "a"),)).to_chat()
    messages = [*HELLO, before, {"role": "tool", "tool_call_id": "a", "content": "no"}]
    calls = [call("read_email", {}, each) for each in ("b", "a", "b", "", "c")]
    with Provider([says(None, *calls)]) as provider:
        ids = [each.id for each in act(make(provider), messages).message.tool_calls]
    assert (ids[0], ids[4]) == ("b", "c")
    assert len({*ids, "a"}) == 6 and all(ids)


def test_concurrency_is_limited_after_an_interrupt_too(make: Make) -> None:
    with Provider([stalls(), *[says("x", delay_s=0.01)] * 8]) as provider:
        policy = make(provider, concurrency=2)

        async def interrupted() -> list[PolicyStep]:
            task = asyncio.create_task(policy.act(HELLO, []))
            while not provider.requests:
                await asyncio.sleep(0.005)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return await asyncio.gather(*(policy.act(HELLO, []) for _ in range(8)))

        assert {each.message.content for each in asyncio.run(interrupted())} == {"x"}
        # Plus the interrupted one, which the server keeps open.
        assert provider.most_connections <= 3


def test_budget_ends_the_episode_before_the_limit(make: Make, start: Start) -> None:
    dear = says(None, search("lease"), usage=Usage(1_000, 0, 1_000))  # $0.01
    with Provider([dear] * 9) as provider:
        policy = make(provider, max_cost_usd=0.05, max_output_tokens=1_000)
        episodes = [play(start(), policy) for _ in range(2)]
        requests = len(provider.requests)
    assert [each.error and each.error["kind"] for each in episodes] == ["budget", "budget"]
    assert sum(each.rubric["turns"] for each in episodes) == requests
    assert sum(each.cost_usd or 0 for each in episodes) == pytest.approx(0.01 * requests)
    assert 3 <= requests <= 5


def test_failed_call_counts_if_it_may_be_billed(monkeypatch: pytest.MonkeyPatch) -> None:
    request = {"model": "openai/gpt-4.1", "messages": HELLO, "max_tokens": 1_000}
    minimum = 1_000 * 8e-6 + 600 * 2e-6  # only the completion and the frame
    replies = [refuses(401, "no such key"), cut(), stalls(), says("Hi")]

    def calls_of(limit: float) -> Calls:
        options = ModelOptions(max_cost_usd=limit, max_output_tokens=1_000, timeout_s=WAIT_S)
        return Calls("openai/gpt-4.1", options, Retries(tries=1))

    with Provider(replies) as provider:
        provider.stand_in_for_openai(monkeypatch)
        with pytest.raises(PolicyError, match="--max-cost"):
            asyncio.run(calls_of(minimum).make(lambda _: request))
        assert provider.requests == []
        calls, kinds, spent = calls_of(1.0), [], []
        for timeout_s in (WAIT_S, WAIT_S, 0.5):
            monkeypatch.setattr(calls, "_timeout_s", timeout_s)
            with pytest.raises(PolicyError) as error:
                asyncio.run(calls.make(lambda _: request))
            kinds.append(error.value.kind)
            spent.append(calls.spent_usd or 0.0)
    assert kinds == ["auth", "connection", "timeout"]
    assert spent[0] == 0 and spent[1] > minimum
    assert spent[2] == pytest.approx(2 * spent[1])


IMPOSSIBLE = (-1, -(10**10), float("nan"), float("inf"), "many", None, [1], 3.5, 10**9, 10**30)


@pytest.mark.parametrize("streams", [False, True])
def test_impossible_token_counts_are_replaced(
    make: Make, capsys: pytest.CaptureFixture[str], streams: bool
) -> None:
    """By our own count, with one warning, and the budget is unaffected."""
    module._warn_once.cache_clear()
    pairs = [(100, each) for each in IMPOSSIBLE] + [(each, 10) for each in IMPOSSIBLE if each]
    script = []
    for prompt, completion in pairs:
        sent = json.loads(says("On May 3, or " + "so " * 100).body)
        sent["usage"] = {"prompt_tokens": prompt, "completion_tokens": completion}
        script.append(Reply(json.dumps(sent).encode()))
    options: dict[str, Any] = {"on_answer": lambda _: None} if streams else {}
    with Provider(script) as provider:
        policy = make(provider, "openai/gpt-4.1", max_cost_usd=1.0, **options)
        usages, spent = set(), 0.0
        for _ in script:
            step = act(policy)
            usages.add(step.usage)
            assert step.cost_usd is not None and 0 < step.cost_usd < 0.01
            spent += step.cost_usd
    [usage] = usages
    assert 20 < usage.prompt_tokens < 2_000 and 100 < usage.completion_tokens < 300
    assert policy._calls.spent_usd == pytest.approx(spent)
    notes = capsys.readouterr().err
    assert notes.count("openai/gpt-4.1 reports impossible numbers of tokens") == 1


# Failures and retries


@pytest.mark.parametrize(
    ("reply", "kind", "tries"),
    [
        (refuses(400, "bad value"), "request", 1),
        (rate_limited("0"), "rate-limit", 3),
        (broken(500), "provider", 3),
        (broken(504), "timeout", 3),
        (cut(-1), "connection", 3),
        (stalls(), "timeout", 3),
        (Reply(b"<html>Bad gateway", fails=True), "provider", 3),
        (Reply(b'{"choices": [{"message": null}]}'), "provider", 3),
        (says(None, content=[{"type": "text", "text": "Hm."}]), "provider", 3),
    ],
)
# They use different clients, which report failures differently.
@pytest.mark.parametrize("model", ["openai/o3", "hosted_vllm/qwen"])
def test_failure_has_a_kind_and_is_retried_if_transient(
    make: Make, start: Start, monkeypatch: pytest.MonkeyPatch,
    model: str, reply: Reply, kind: str, tries: int,
) -> None:  # fmt: skip
    with Provider([reply] * 3) as provider:
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", provider.base_url)
        policy = make(provider, model, timeout_s=0.2 if reply.delay_s else WAIT_S)
        trajectory = play(start(), policy)
        # On a busy machine a client may give up before it has sent its request.
        assert len(provider.requests) == tries or reply.delay_s
    assert trajectory.error is not None
    assert (trajectory.error["kind"], trajectory.retries) == (kind, tries - 1)
    message = trajectory.error["message"]
    assert message.startswith(f"{model}: ") and len(message) < 400
    assert not any(each in message for each in ("litellm", "Exception", '{"', "Traceback", "\n"))


DELAY = '"details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "%ss"}]'


def test_waits_double_with_full_jitter_and_obey_retry_after() -> None:
    retries = Retries(base_s=1.0, max_wait_s=6.0, max_retry_after_s=60.0)
    for failures, limit in [(1, 1.0), (2, 2.0), (3, 4.0), (9, 6.0)]:
        waits = [retries.wait_s(failures, None) for _ in range(300)]
        # Concurrent failures are not retried together.
        assert 0 <= min(waits) < 0.2 * limit
        assert 0.8 * limit < max(waits) <= limit
    assert all(7.0 <= retries.wait_s(1, 7.0) <= 8.0 for _ in range(100))
    assert 60.0 <= retries.wait_s(1, 86_400.0) <= 61.0
    headers = {" 0.25 ": 0.25, "-3": 0.0, "nan": None, "Sat, 32 Foo 2026 00:00:00 GMT": None}
    assert {each: retry_after_s({"retry-after": each}) for each in headers} == headers
    in_body = {DELAY % "46": 46, "Please retry in 46.4s.": 46.4, "Try later": None}
    assert {each: retry_after_s({}, each) for each in in_body} == in_body
    assert retry_after_s({"retry-after": "2"}, DELAY % "46") == 2
    date = email.utils.format_datetime(dt.datetime.now(dt.UTC) + dt.timedelta(hours=1))
    assert 3_000 < (retry_after_s({"retry-after": date}) or 0) <= 3_600


OFFLINE = """
import os, socket, sys

def refuse(*_):
    raise SystemExit("the network was used")

socket.socket.connect = socket.getaddrinfo = refuse
sys.path.insert(0, sys.argv[1])
from art_e.models.base import ModelOptions
from art_e.models.clients import warm_up
from art_e.models.hosted import LitellmPolicy
from art_e.models.providers import load_litellm

warm_up("openai/o3")
assert "litellm" not in sys.modules
# A cost limit counts prompts; its tokenizer is loaded before the first question.
os.environ["OPENAI_API_KEY"] = "sk-test"
LitellmPolicy("openai/o3", ModelOptions(max_cost_usd=5.0))
assert "litellm" in sys.modules
litellm = load_litellm()
warm_up("gemini/gemini-2.5-pro")
messages = [{"role": "user", "content": "When does the lease end?"}]
for model in ("o3", "ollama_chat/qwen2.5:14b", "hosted_vllm/meta-llama/Llama-3-8B"):
    assert litellm.token_counter(model=model, messages=messages) > 5
assert "FROM_DOTENV" not in os.environ
"""


def test_litellm_loads_offline_silently_and_without_env_files(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("FROM_DOTENV=1\n")
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE, root], cwd=tmp_path, capture_output=True, check=False
    )
    # The line is ours.
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (0, b"", 1)
    assert done.stderr.startswith(b".env may set only keys") and b"FROM_DOTENV" in done.stderr
    assert load_litellm().model_cost["o3"]["input_cost_per_token"] == 2e-6


def test_stored_response_is_read_unless_truncated(tmp_path: Path) -> None:
    key = request_key({"model": "openai/o3", "messages": HELLO})
    # A surrogate, which UTF-8 cannot hold, and no usage.
    for response in (Response("Zürich \ud800", Usage(4, 3, 2, 1)), Response("", None)):
        ResponseCache(tmp_path / "new" / "folder").put(key, response)
        responses = ResponseCache(tmp_path / "new" / "folder")
        assert responses.get(key) == response
        (file,) = tmp_path.rglob("*.json")
        whole = file.read_bytes()
        for length in range(len(whole)):
            file.write_bytes(whole[:length])
            assert responses.get(key) is None
