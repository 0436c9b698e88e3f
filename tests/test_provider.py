"""The scripted provider, asked by the clients that tests stand on."""

import http.client
import json
import threading
import urllib.request

import httpx
import openai
import pytest

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


def client(provider: Provider, key: str = "k") -> openai.OpenAI:
    return openai.OpenAI(base_url=provider.base_url, api_key=key, max_retries=0, timeout=0.3)


def ask(client: openai.OpenAI, text: str = "When?") -> openai.types.chat.ChatCompletion:
    return client.chat.completions.create(
        model="scripted", messages=[{"role": "user", "content": text}]
    )


def test_a_script_is_served_in_order_and_recorded() -> None:
    script = [
        says("Hm.", search("lease"), read("m1"), usage=Usage(90, 60, 30, 20)),
        says("x", usage=None),
    ]
    with Provider(script) as provider, client(provider) as asked:
        first, second = ask(asked), ask(asked, "Why?")
        requests = provider.requests
    message = first.choices[0].message
    assert message.content == "Hm."
    names = [each.function.name for each in message.tool_calls or () if each.type == "function"]
    assert names == ["search_emails", "read_email"]
    assert first.usage is not None
    assert (first.usage.prompt_tokens, first.usage.completion_tokens) == (90, 30)
    assert first.usage.prompt_tokens_details is not None
    assert first.usage.prompt_tokens_details.cached_tokens == 60
    assert first.usage.completion_tokens_details is not None
    assert first.usage.completion_tokens_details.reasoning_tokens == 20
    assert (second.choices[0].message.content, second.usage) == ("x", None)
    assert [each.messages[0]["content"] for each in requests] == ["When?", "Why?"]
    assert [each.number for each in requests] == [0, 1]
    assert requests[0].headers["authorization"] == "Bearer k"


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (rate_limited("7"), openai.RateLimitError),
        (broken(), openai.InternalServerError),
        (broken(503), openai.InternalServerError),
        (refuses(401, "no", code="invalid_api_key"), openai.AuthenticationError),
        (refuses(400, "no"), openai.BadRequestError),
        (cut(), openai.APIConnectionError),
        (cut(-1), openai.APIConnectionError),
        (stalls(), openai.APITimeoutError),
        (no_json(), json.JSONDecodeError),
    ],
)
def test_a_failure_is_what_a_client_takes_it_for(reply: Reply, error: type[Exception]) -> None:
    with Provider([reply, says("x")]) as provider, client(provider) as asked:
        with pytest.raises(error) as raised:
            ask(asked)
        assert provider.failed == 1
        # It goes on serving.
        assert ask(asked).choices[0].message.content == "x"
        assert provider.failed == 1
    if isinstance(raised.value, openai.RateLimitError):
        assert raised.value.response.headers["retry-after"] == "7"


def test_models_are_listed_and_keys_checked() -> None:
    with Provider([], models=("a", "b"), key="right") as provider:
        with client(provider, "right") as asked:
            assert [each.id for each in asked.models.list()] == ["a", "b"]
        with client(provider, "wrong") as asked, pytest.raises(openai.AuthenticationError):
            asked.models.list()


def test_a_rule_answers_what_it_is_asked_from_many_threads() -> None:
    def echo(request: Request) -> Reply:
        return says(request.messages[0]["content"])

    answers: dict[str, str | None] = {}
    with Provider(echo) as provider, client(provider) as asked:

        def one(text: str) -> None:
            answers[text] = ask(asked, text).choices[0].message.content

        threads = [threading.Thread(target=one, args=(str(each),)) for each in range(20)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert len(provider.requests) == 20
    assert answers == {str(each): str(each) for each in range(20)}


def test_the_share_of_failures_is_drawn_by_the_seed() -> None:
    def failures(seed: int) -> list[bool]:
        with (
            Provider(lambda _: says("x"), failure_rate=0.3, failures=[broken], seed=seed) as made,
            httpx.Client() as asked,
        ):
            for _ in range(60):
                asked.post(f"{made.base_url}/chat/completions", json={"messages": []})
            return [each.reply.fails for each in made.exchanges]

    assert failures(1) == failures(1) != failures(2)
    assert 8 <= sum(failures(1)) <= 28


def test_what_goes_wrong_in_a_rule_is_not_lost() -> None:
    def rule(request: Request) -> Reply:
        assert request.messages == [], "not what was expected"
        return says("x")

    with (
        pytest.raises(AssertionError, match="not what was expected"),
        Provider(rule) as provider,
        client(provider) as asked,
        pytest.raises(openai.BadRequestError),
    ):
        ask(asked)


def test_a_script_that_is_too_short_is_told() -> None:
    with (
        pytest.raises(AssertionError, match="no further reply"),
        Provider([]) as provider,
        client(provider) as asked,
        pytest.raises(openai.BadRequestError),
    ):
        ask(asked)


def test_it_ends_though_clients_wait() -> None:
    with Provider([stalls()]) as provider:
        waiting = threading.Thread(target=_wait, args=(provider.base_url,))
        waiting.start()
        while not provider.requests:
            pass
    waiting.join(5)
    assert not waiting.is_alive()


def _wait(base_url: str) -> None:
    body = json.dumps({"messages": []}).encode()
    with pytest.raises((OSError, http.client.HTTPException)):
        urllib.request.urlopen(f"{base_url}/chat/completions", body, timeout=30).read()
