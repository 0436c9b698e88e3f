"""The scripted provider behaves to real clients as a provider does."""

import http.client
import json
import threading
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
from openai.types.chat import ChatCompletion

from art_e.models.base import Usage
from tests.builders import read_episodes as read
from tests.builders import search_episodes as search
from tests.provider import (
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


def ask(provider: Provider, text: str = "When?", key: str = "k") -> ChatCompletion:
    with openai.OpenAI(
        base_url=provider.base_url, api_key=key, max_retries=0, timeout=0.3
    ) as client:
        return client.chat.completions.create(
            model="scripted", messages=[{"role": "user", "content": text}]
        )


def test_a_script_is_served_in_order_and_recorded() -> None:
    calls = search("lease"), read("m1")
    script = [says("Hm.", *calls, usage=Usage(90, 60, 30, 20)), says("x", usage=None)]
    with Provider(script) as provider:
        first, second = ask(provider), ask(provider, "Why?")
        requests = provider.requests
    message = first.choices[0].message
    assert message.content == "Hm."
    names = [each.function.name for each in message.tool_calls or () if each.type == "function"]
    assert names == ["search_emails", "read_email"]
    usage = first.to_dict()["usage"]
    assert usage == {
        "prompt_tokens": 90,
        "completion_tokens": 30,
        "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 60},
        "completion_tokens_details": {"reasoning_tokens": 20},
    }
    assert (second.choices[0].message.content, second.usage) == ("x", None)
    assert [each.messages[0]["content"] for each in requests] == ["When?", "Why?"]
    assert requests[0].headers["authorization"] == "Bearer k"


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (rate_limited("7"), openai.RateLimitError),
        (broken(503), openai.InternalServerError),
        (refuses(401, "no", code="invalid_api_key"), openai.AuthenticationError),
        (refuses(400, "no"), openai.BadRequestError),
        (cut(), openai.APIConnectionError),
        (cut(-1), openai.APIConnectionError),
        (stalls(), openai.APITimeoutError),
        (no_json(), json.JSONDecodeError),
    ],
)
def test_clients_recognise_each_failure(reply: Reply, error: type[Exception]) -> None:
    with Provider([reply, says("x")]) as provider:
        with pytest.raises(error) as raised:
            ask(provider)
        assert ask(provider).choices[0].message.content == "x"
        assert provider.failed == 1
    if isinstance(raised.value, openai.RateLimitError):
        assert raised.value.response.headers["retry-after"] == "7"


def test_a_wrong_key_is_rejected() -> None:
    with Provider([says("x")], key="right") as provider:
        with pytest.raises(openai.AuthenticationError):
            ask(provider, key="wrong")
        assert ask(provider, key="right")


def test_a_rule_answers_many_threads() -> None:
    with Provider(lambda request: says(request.messages[0]["content"])) as provider:
        texts = [str(each) for each in range(20)]
        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(lambda text: ask(provider, text), texts))
    assert [each.choices[0].message.content for each in answers] == texts


def test_the_seed_draws_the_share_of_failures() -> None:
    def failures(seed: int) -> list[bool]:
        rule = Provider(lambda _: says("x"), failure_rate=0.3, failures=[broken], seed=seed)
        with rule:
            return [rule.reply_to("/v1/chat/completions", {}, {}).fails for _ in range(60)]

    assert failures(1) == failures(1) != failures(2)
    assert 8 <= Counter(failures(1))[True] <= 28


def failing_rule(request: Request) -> Reply:
    raise AssertionError("not as expected")


@pytest.mark.parametrize(
    ("replies", "error"), [(failing_rule, "not as expected"), ([], "no further reply")]
)
def test_an_error_of_a_rule_or_a_short_script_is_raised_at_the_end(
    replies: list[Reply], error: str
) -> None:
    with (
        pytest.raises(AssertionError, match=error),
        Provider(replies) as provider,
        pytest.raises(openai.BadRequestError),
    ):
        ask(provider)


def test_it_ends_while_clients_wait() -> None:
    def wait(base_url: str) -> None:
        body = json.dumps({"messages": []}).encode()
        with pytest.raises((OSError, http.client.HTTPException)):
            urllib.request.urlopen(f"{base_url}/chat/completions", body, timeout=30).read()

    with Provider([stalls()]) as provider:
        waiting = threading.Thread(target=wait, args=(provider.base_url,))
        waiting.start()
        while not provider.requests:
            pass
    waiting.join(5)
    assert not waiting.is_alive()
