"""Tool calls as text: what a model without them is told, and what is read out of its words."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.agent import run_episode
from art_e.message import AssistantMessage, ToolCall, compact_json
from art_e.models.tool_formats import as_text, parse_text, prompt_hash
from art_e.tools import schemas
from tests.builders import LEASE, Make, Start
from tests.provider import Provider, says

SEARCH = {"name": "search_emails", "arguments": {"keywords": ["lease"]}}
READ = {"name": "read_email", "arguments": {"message_id": "m1"}}


def parsed(text: str) -> list[dict[str, Any]]:
    """The calls in a text, as they were meant."""
    calls = parse_text(text, 0).tool_calls
    return [{"name": each.name, "arguments": json.loads(each.arguments)} for each in calls]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(SEARCH),
        json.dumps(SEARCH, indent=2),
        f"I look for it.\n{json.dumps(SEARCH)}",
        f"```json\n{json.dumps(SEARCH)}\n```",
        f"First {{this}}: [1, 2] and {json.dumps(SEARCH)}. Then we see.",
        f"<tool_call>\n{json.dumps(SEARCH)}\n</tool_call>",
        json.dumps([SEARCH]),
        json.dumps({**SEARCH, "id": 7}),
        json.dumps({**SEARCH, "arguments": json.dumps(SEARCH["arguments"])}),
    ],
)
def test_a_call_is_found_in_what_is_around_it(text: str) -> None:
    assert parsed(text) == [SEARCH]


@pytest.mark.parametrize(
    "text",
    [
        f"{json.dumps(SEARCH)}\n{json.dumps(READ)}",
        f"{json.dumps(SEARCH)}{json.dumps(READ)}",
        json.dumps([SEARCH, READ]),
        f"```\n{json.dumps(SEARCH)}\n```\nand\n```\n{json.dumps(READ)}\n```",
    ],
)
def test_several_calls_keep_their_order(text: str) -> None:
    assert parsed(text) == [SEARCH, READ]
    ids = [each.id for each in parse_text(text, 3).tool_calls]
    assert len(set(ids)) == 2
    # Nor are they those of another message.
    assert not set(ids) & {each.id for each in parse_text(text, 4).tool_calls}


@pytest.mark.parametrize(
    "text",
    [
        "The lease ends on May 3.",
        "",
        "{",
        '{"name": "search_emails", "arguments": {"keywords": ["lease"]',
        '{"name": "search_emails"}',
        '{"name": 3, "arguments": {}}',
        '{"arguments": {}}',
        '["search_emails", {}]',
        "[]",
        json.dumps([SEARCH, {"no": "call"}]),
        "[" * 50_000,
        '{"a":' * 20_000,
    ],
)
def test_what_is_no_call_stays_text(text: str) -> None:
    assert parse_text(text, 0) == AssistantMessage(text or None)


@given(st.text(), st.text(), st.dictionaries(st.text(), st.text()))
def test_whatever_the_text_what_is_written_is_read(
    before: str, name: str, arguments: dict[str, str]
) -> None:
    # A bracket before may make another JSON value of it.
    before = before.replace("[", "(").replace("{", "(")
    text = f"{before}\n{compact_json({'name': name, 'arguments': arguments})}"
    assert parsed(text) == [{"name": name, "arguments": arguments}]


def test_the_conversation_is_told_as_text() -> None:
    calls = (ToolCall("a", "read_email", '{"message_id":"m1"}'), ToolCall("b", "x", "no JSON"))
    conversation = [
        {"role": "system", "content": "You answer.\n"},
        {"role": "user", "content": "When?"},
        AssistantMessage("I read.", calls).to_chat(),
        {"role": "tool", "tool_call_id": "a", "content": '{"body":"May 3"}'},
        {"role": "tool", "tool_call_id": "b", "content": '{"error":"no tool"}'},
        AssistantMessage("May 3.").to_chat(),
        {"role": "user", "content": '{"error":"no tool was called"}'},
    ]
    before = json.dumps(conversation)
    system, *rest = as_text(conversation, schemas())
    assert json.dumps(conversation) == before
    assert system["role"] == "system"
    assert system["content"].startswith("You answer.\n\nCall a tool by writing")
    for each in schemas():
        assert compact_json(each["function"]) in system["content"]
    assert rest == [
        {"role": "user", "content": "When?"},
        {
            "role": "assistant",
            "content": 'I read.\n{"name":"read_email","arguments":{"message_id":"m1"}}'
            '\n{"name":"x","arguments":"no JSON"}',
        },
        {
            "role": "user",
            "content": 'read_email answered: {"body":"May 3"}\nx answered: {"error":"no tool"}',
        },
        {"role": "assistant", "content": "May 3."},
        {"role": "user", "content": '{"error":"no tool was called"}'},
    ]


def test_an_episode_with_calls_as_text(make: Make, start: Start) -> None:
    """Nothing of tools goes over the wire, and the trajectory is as any other."""
    final = {"name": "return_final_answer", "arguments": {"answer": "On May 3.", "sources": ["m1"]}}
    script = [
        f"Let me see.\n```json\n{json.dumps(SEARCH)}\n```",
        "It ends on May 3.",
        json.dumps(READ),
        json.dumps(final),
    ]
    with Provider([says(each) for each in script]) as provider:
        policy = make(provider, "openai/gpt-4.1", tool_calls="text")
        trajectory = asyncio.run(run_episode(start(), policy, "r"))
        requests = provider.requests
    for request in requests:
        assert not {"tools", "tool_choice"} & set(request.body)
        assert {each["role"] for each in request.messages} <= {"system", "user", "assistant"}
        assert not any("tool_calls" in each for each in request.messages)
    assert "no tool was called" in requests[2].messages[-1]["content"]
    assert requests[3].messages[-1]["content"].startswith("read_email answered: {")
    assert (trajectory.final_answer, trajectory.sources) == ("On May 3.", [LEASE])
    assert trajectory.rubric["unparseable_calls"] == 1
    assert trajectory.messages[2]["tool_calls"][0]["function"]["name"] == "search_emails"
    assert trajectory.messages[3]["role"] == "tool"
    assert trajectory.policy["tool_calls"] == "text"
    assert trajectory.policy["tool_choice"] is None
    assert trajectory.policy["text_calls_hash"] == prompt_hash()
