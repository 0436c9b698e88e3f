"""One call to a model: what it gives, and what it counts for however it ends."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from art_e.models.base import PolicyError
from art_e.models.hosted import Called, Calls, ProviderError
from tests.provider import Provider, cut, refuses, says, stalls

Make = Callable[..., Calls]
HELLO = [{"role": "user", "content": "Hello"}]
FRAME = 1_000


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Make:
    """Makes calls to a provider, which have room for 1,000 tokens of completion."""
    monkeypatch.setenv("ART_E_HOME", str(tmp_path))

    def calls(
        provider: Provider,
        model: str = "openai/gpt-4.1",
        limit: float | None = None,
        timeout_s: float = 30.0,
    ) -> Calls:
        provider.stand_in_for_openai(monkeypatch)
        return Calls(model, limit, max_output_tokens=1_000, frame_tokens=FRAME, timeout_s=timeout_s)

    return calls


def call(calls: Calls, **more: Any) -> Called:
    request = {"model": "openai/gpt-4.1", "messages": HELLO, "max_tokens": 1_000, **more}
    return asyncio.run(calls.make(request))


def test_a_call_that_may_pass_the_limit_is_not_made(make: Make) -> None:
    # The completion and the frame alone can cost so much; a short prompt is a little more.
    least = 1_000 * 8e-6 + FRAME * 2e-6
    with Provider([says("Hi")]) as provider:
        with pytest.raises(PolicyError) as error:
            call(make(provider, limit=least))
        assert (error.value.kind, provider.requests) == ("budget", [])
        assert call(make(provider, limit=least + 100 * 2e-6)).message.content == "Hi"
        with pytest.raises(PolicyError):
            call(make(provider, limit=least + 100 * 2e-6), tools=[_tool("word " * 200)])


def test_a_call_that_fails_is_paid_for_where_the_provider_may_bill_it(make: Make) -> None:
    with Provider([refuses(401, "no such key"), cut(), stalls()]) as provider:
        calls = make(provider, limit=1.0, timeout_s=0.5)
        kinds, spent = [], []
        for _ in range(3):
            with pytest.raises(ProviderError) as error:
                call(calls)
            kinds.append(error.value.kind)
            spent.append(calls.spent_usd or 0.0)
    assert kinds == ["auth", "connection", "timeout"]
    assert spent[0] == 0
    assert spent[1] > 1_000 * 8e-6 + FRAME * 2e-6
    assert spent[2] == pytest.approx(2 * spent[1])


def _tool(description: str) -> dict[str, Any]:
    function = {"name": "find", "description": description, "parameters": {"type": "object"}}
    return {"type": "function", "function": function}
