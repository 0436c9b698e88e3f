"""Malformed calls over the wire, by the real litellm client: what goes back to the provider."""

import asyncio
import json

import pytest

from art_e.agent import run_episode
from art_e.message import ToolCall
from art_e.models.base import ModelOptions
from art_e.models.hosted import LitellmPolicy
from art_e.trajectory import Trajectory
from tests.builders import Start, answer, call
from tests.provider import Provider, Request, says


def asked(
    monkeypatch: pytest.MonkeyPatch, start: Start, *calls: ToolCall
) -> tuple[Trajectory, Request]:
    """An episode whose first message makes these calls, and its second request."""
    first = says(None if calls else "The lease ends on May 3.", *calls)
    with Provider([first, says(None, answer("On May 3."))]) as provider:
        provider.stand_in_for_openai(monkeypatch)
        policy = LitellmPolicy("openai/gpt-4.1", ModelOptions())
        return asyncio.run(run_episode(start(), policy, "r")), provider.requests[1]


@pytest.mark.parametrize(
    "calls",
    [
        [call("delete_email", {})],
        [call("search_emails", '{"keywords": ["lease"')],
        [call("search_emails", '["lease"]')],
        [call("read_email", {"message_id": "m1", "inbox": "zoe@test.example"})],
        [],
    ],
    ids=["unknown tool", "not JSON", "no object", "extra argument", "text"],
)
def test_what_goes_back_is_lawful_and_what_is_kept_is_what_was_written(
    calls: list[ToolCall], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most providers refuse a conversation in which arguments are no JSON object."""
    trajectory, request = asked(monkeypatch, start, *calls)
    for each in request.messages:
        for sent in each.get("tool_calls") or ():
            assert isinstance(json.loads(sent["function"]["arguments"]), dict)
    for made, kept in zip(calls, trajectory.messages[2].get("tool_calls", ()), strict=True):
        assert kept["function"] == {"name": made.name, "arguments": made.arguments}
        answered = [each["tool_call_id"] for each in request.messages if each["role"] == "tool"]
        assert answered == [kept["id"]]


def test_a_name_that_no_provider_takes_is_not_sent_back(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = call("search emails!\u202e" + "x" * 100, {"keywords": ["lease"]})
    trajectory, request = asked(monkeypatch, start, odd)
    [sent] = request.messages[2]["tool_calls"]
    assert sent["function"]["name"] == "search_emails_" + "x" * 50
    assert trajectory.messages[2]["tool_calls"][0]["function"]["name"] == odd.name
    assert trajectory.rubric["unknown_tool_calls"] == 1
