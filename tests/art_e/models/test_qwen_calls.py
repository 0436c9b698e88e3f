"""Qwen's tool calls as text and as data, and the stock template between them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("transformers", reason="local models need the extra: art-e[train]")

from art_e.message import AssistantMessage, ChatMessage, ToolCall
from art_e.models.tool_formats import as_written, parse_reply
from art_e.tools import CallError, parse_call, schemas
from tests import tiny_qwen
from tests.builders import Start

SEARCH = (
    '<tool_call>\n{"name": "search_emails", "arguments": {"keywords": ["lease"]}}\n</tool_call>'
)
READ = '<tool_call>\n{"name": "read_email", "arguments": {"message_id": "m1"}}\n</tool_call>'
COMPACT = '<tool_call>\n{"name": "read_email", "arguments": {"message_id":"m1"}}\n</tool_call>'
CUT = SEARCH.partition('se"]')[0]
BROKEN = '<tool_call>\n{"name": "read_email", "arguments": {"message_id": "m1"}\n</tool_call>'

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.from_regex(r"[a-z_]{1,12}", fullmatch=True)


def calls(text: str) -> list[tuple[str, str]]:
    return [(each.name, each.arguments) for each in parse_reply(text, 0).tool_calls]


def back(text: str) -> str:
    (message,) = as_written([parse_reply(text, 0).to_chat()])
    return str(message["content"])


def test_several_calls_and_the_text_around_them() -> None:
    message = parse_reply(f"Let me look.\n{SEARCH}\n{READ}\nThat is all.", 0)
    assert [each.name for each in message.tool_calls] == ["search_emails", "read_email"]
    assert len({each.id for each in message.tool_calls}) == 2
    assert message.content is not None
    assert message.content.startswith("Let me look.")
    assert message.content.endswith("That is all.")
    assert "tool_call" not in message.content


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        pytest.param(BROKEN, '{"message_id": "m1"', id="a brace is missing"),
        pytest.param(CUT, '{"keywords": ["lea', id="cut off"),
        pytest.param(
            SEARCH.replace('{"keywords": ["lease"]}', "{keywords: lease}"),
            "{keywords: lease}",
            id="no quotes",
        ),
        pytest.param(
            SEARCH.replace('{"keywords": ["lease"]}', '"lease"'), '"lease"', id="a string"
        ),
        pytest.param(
            SEARCH.replace(', "arguments": {"keywords": ["lease"]}', ""),
            '"name": "search_emails"',
            id="no arguments",
        ),
        pytest.param(
            SEARCH.replace("arguments", "parameters"),
            '"name": "search_emails", "parameters": {"keywords": ["lease"]}',
            id="under another name",
        ),
        pytest.param(f"{SEARCH[:-13]}<|im_end|>", '{"keywords": ["lease"]}', id="no end mark"),
    ],
)
def test_a_malformed_call_is_kept_as_it_was_written(text: str, arguments: str) -> None:
    ((name, raw),) = calls(text)
    assert name in ("search_emails", "read_email")
    assert raw == arguments


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\n{}\n</tool_call>",
        '<tool_call>\n{"tool": "search_emails"}\n</tool_call>',
        "<tool_call>\nsearch_emails(lease)\n</tool_call>",
        "<tool_call>",
    ],
)
def test_what_names_no_tool_stays_text(start: Start, text: str) -> None:
    message = parse_reply(text, 0)
    assert message == AssistantMessage(text)
    episode = start()
    episode.step(message)
    assert episode.rubric.unparseable_calls == 1


@pytest.mark.parametrize(
    "text",
    [
        SEARCH,
        COMPACT,
        UNICODE,
        EMPTY,
        BROKEN,
        f"{SEARCH}\n{READ}",
        f"Let me look.\n\nThere:\n{SEARCH}\n{COMPACT}",
        "Text alone, with its end. \n",
    ],
)
def test_a_message_goes_back_into_the_prompt_as_it_was_written(text: str) -> None:
    assert back(text) == text


@given(st.lists(st.tuples(NAMES, st.dictionaries(st.text(), JSON, max_size=3)), min_size=1))
def test_any_calls_survive_the_way_there_and_back(made: list[tuple[str, dict[str, Any]]]) -> None:
    text = "\n".join(
        f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'
        for name, arguments in made
    )
    read = [(name, json.loads(arguments)) for name, arguments in calls(text)]
    assert read == made
    assert back(text) == text


@given(st.text(alphabet='<>/tool_ca{}":,\nnmearguts '))
def test_no_text_breaks_the_parser(text: str) -> None:
    message = parse_reply(f"<tool_call>{text}", 0)
    assert message.content or message.tool_calls
    for call in message.tool_calls:
        with pytest.raises(CallError):
            parse_call(call)


def test_the_stock_template_writes_the_same() -> None:
    """Objects that the template writes as JSON, and our text, are the same prompt."""
    tokenizer = tiny_qwen.make_tokenizer(["a few words"])
    conversation: list[ChatMessage] = [
        {"role": "system", "content": "Search."},
        {"role": "user", "content": "When?"},
        parse_reply(f"{SEARCH}\n{READ}", 0).to_chat(),
        {"role": "tool", "tool_call_id": "call_0_0", "content": '{"hits":[]}'},
        {"role": "tool", "tool_call_id": "call_0_1", "content": '{"error":"no"}'},
        parse_reply(f"So.\n{EMPTY}", 1).to_chat(),
        {"role": "tool", "tool_call_id": "call_1_0", "content": "{}"},
    ]
    prompts = [
        tokenizer.apply_chat_template(
            as_written(conversation[:length]),
            tools=list[Any](schemas()),
            tokenize=False,
            add_generation_prompt=True,
        )
        for length in (2, 5, 7)
    ]
    for length, prompt in zip((2, 5, 7), prompts, strict=True):
        stock = tiny_qwen.rendered(tokenizer, conversation[:length], schemas(), to_go_on=True)
        assert prompt == stock
    # Each turn goes on where the one before ended: what was cached or trained on holds.
    assert str(prompts[1]).startswith(f"{prompts[0]}{SEARCH}\n{READ}<|im_end|>")
    assert str(prompts[2]).startswith(f"{prompts[1]}So.\n{EMPTY}<|im_end|>")
