"""What a model says in the OpenAI form, as it becomes a message."""

import asyncio
from typing import Any

import pytest

from art_e.agent import run_episode
from tests.builders import HELLO, Make, Start, act, answer, call
from tests.builders import search_episodes as search
from tests.provider import (
    Provider,
    says,
)


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


@pytest.mark.parametrize(
    ("content", "text"),
    [(None, None), ("", None), ("Hm.", "Hm.")],
)
def test_the_text_of_a_message_may_be_missing(make: Make, content: Any, text: str | None) -> None:
    with Provider([says(None, search("lease"), content=content)]) as provider:
        message = act(make(provider)).message
    assert message.content == text
    assert [each.name for each in message.tool_calls] == ["search_emails"]


def test_huge_arguments_go_through(make: Make, start: Start) -> None:
    script = [says(None, search("harbor " * 100_000)), says(None, answer(None))]
    with Provider(script) as provider:
        trajectory = asyncio.run(run_episode(start(), make(provider), "r"))
    assert trajectory.error is None
    assert trajectory.rubric["abstained"]
    assert trajectory.rubric["tool_calls"] == 2
