"""Eight kinds of malformed calls, over the wire: each is answered with what helps, and counted.

The real litellm policy asks the scripted provider, so that what a model wrote wrong
goes through the client both ways.
"""

import asyncio
import json
from typing import Any, NamedTuple

import pytest

from art_e.agent import run_episode
from art_e.message import ToolCall
from art_e.models.base import ModelOptions
from art_e.models.hosted import LitellmPolicy
from art_e.trajectory import Trajectory
from tests.builders import Start, answer, call
from tests.provider import Provider, Reply, says


class Kind(NamedTuple):
    """A malformed call, or text in place of one; the fact that counts it; what the model is told"""

    call: ToolCall | None
    fact: str
    told: str


KINDS = {
    "unknown tool": Kind(
        call("delete_email", {}), "unknown_tool_calls", "use search_emails, read_email, return_fin"
    ),
    "not JSON": Kind(
        call("search_emails", '{"keywords": ["lease"'),
        "unparseable_calls",
        "the arguments of search_emails are not JSON",
    ),
    "no object": Kind(
        call("search_emails", '["lease"]'), "unparseable_calls", "search_emails are no JSON object"
    ),
    "wrong type": Kind(
        call("search_emails", {"keywords": "lease"}),
        "bad_argument_calls",
        "search_emails: keywords: Input should be a valid list",
    ),
    "missing argument": Kind(
        call("read_email", {}), "bad_argument_calls", "read_email: message_id: Field required"
    ),
    "extra argument": Kind(
        call("read_email", {"message_id": "m1", "inbox": "zoe@test.example"}),
        "bad_argument_calls",
        "read_email: inbox: Extra inputs are not permitted",
    ),
    "bad date": Kind(
        call("search_emails", {"keywords": ["lease"], "sent_after": "May 3"}),
        "bad_argument_calls",
        "sent_after: a date is written YYYY-MM-DD",
    ),
    "text": Kind(None, "unparseable_calls", "no tool was called; every message calls a tool"),
}


def wrong(kind: Kind) -> Reply:
    return says("The lease ends on May 3.") if kind.call is None else says(None, kind.call)


def run(provider: Provider, monkeypatch: pytest.MonkeyPatch, start: Start) -> Trajectory:
    provider.stand_in_for_openai(monkeypatch)
    policy = LitellmPolicy("openai/gpt-4.1", ModelOptions())
    return asyncio.run(run_episode(start(), policy, "r"))


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_what_goes_back_is_lawful_and_what_is_kept_is_what_was_written(
    kind: Kind, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most providers refuse a conversation in which arguments are no JSON object."""
    with Provider([wrong(kind), says(None, answer("On May 3."))]) as provider:
        trajectory = run(provider, monkeypatch, start)
        sent = provider.requests[1].messages
    assert all(isinstance(each, dict) for each in arguments_of(sent))
    if kind.call is not None:
        written = trajectory.messages[2]["tool_calls"][0]["function"]
        assert (written["name"], written["arguments"]) == (kind.call.name, kind.call.arguments)
        answered = [each["tool_call_id"] for each in sent if each["role"] == "tool"]
        assert answered == [trajectory.messages[2]["tool_calls"][0]["id"]]


def test_a_name_that_no_provider_takes_is_not_sent_back(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = call("search emails!\u202e" + "x" * 100, {"keywords": ["lease"]})
    with Provider([says(None, odd), says(None, answer(None))]) as provider:
        trajectory = run(provider, monkeypatch, start)
        (sent,) = provider.requests[1].messages[2]["tool_calls"]
    assert sent["function"]["name"] == "search_emails_" + "x" * 50
    assert trajectory.messages[2]["tool_calls"][0]["function"]["name"] == odd.name
    assert trajectory.rubric["unknown_tool_calls"] == 1


def arguments_of(messages: list[dict[str, Any]]) -> list[Any]:
    calls = [call for each in messages for call in each.get("tool_calls") or ()]
    return [json.loads(each["function"]["arguments"]) for each in calls]
