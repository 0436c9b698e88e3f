"""Tool calls as Qwen writes them, and as the OpenAI form stores them.

    <tool_call>
    {"name": "read_email", "arguments": {"message_id": "m1"}}
    </tool_call>

Arguments are kept as the model wrote them, so a malformed call is a call too, which the
episode can answer, and a message put back into the prompt is the text that the model
wrote. `RESPONSE_TEMPLATE` is transformers' description of how a reply is read:
`art-e serve` gives it to the server, so that both read alike. Knows nothing of models.
"""

import json
from collections.abc import Iterable
from typing import Any

from art_e.message import AssistantMessage, ChatMessage, ToolCall

_ENDS = r"<\|im_end\|>|<\|endoftext\|>"
# A call in the right form, whose arguments follow; or any other object that holds a name,
# all of which is taken for arguments. Without a name it is no call, and stays text.
_OPEN = (
    r"\s*<tool_call>\s*\{\s*(?:"
    r'"name"\s*:\s*"(?P<name>[^"\\]+)"\s*,\s*"arguments"\s*:\s*'
    r'|(?=(?:(?!</tool_call>).)*?"name"\s*:\s*"(?P<name>[^"\\]+)"))'
)
# A reply that was cut off has no end mark.
_CLOSE = rf"\}}?\s*(?:</tool_call>|(?={_ENDS})|\Z)"

RESPONSE_TEMPLATE: dict[str, Any] = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "reasoning_content": {"open": "<think>", "close": "</think>", "content": "text"},
        "tool_calls": {
            "open_pattern": _OPEN,
            "close_pattern": _CLOSE,
            "repeats": True,
            "content": "text",
            "content_args": {"strip": False},
            "transform": {
                "type": "function",
                "function": {"name": "{name}", "arguments": "{content}"},
            },
        },
        "content": {
            "close_pattern": _ENDS,
            "repeats": True,
            "join": "",
            "content": "text",
            "content_args": {"strip": False},
        },
    },
}

_PROBE = ToolCall("probe", "probe", '{"a": ["b", 1]}')


def parse_reply(text: str, turn: int) -> AssistantMessage:
    """What a model wrote in its message number `turn`, as text and calls."""
    from transformers.utils.chat_parsing import parse_response

    parsed = parse_response(text, RESPONSE_TEMPLATE, prefix="")
    calls = tuple(
        ToolCall(f"call_{turn}_{number}", function["name"], function["arguments"])
        for number, function in enumerate(each["function"] for each in parsed.get("tool_calls", ()))
    )
    return AssistantMessage(parsed.get("content") or None, calls)


def as_written(messages: Iterable[ChatMessage]) -> list[ChatMessage]:
    """The conversation with the model's calls as its own text, for a chat template."""
    return [_with_text(each) if each.get("tool_calls") else each for each in messages]


def template_fits(rendered: str) -> bool:
    """Whether a template wrote the call of `probe_conversation` in Qwen's form, with spaces in
    the arguments or without."""
    return written_call(_PROBE).replace(" ", "") in rendered.replace(" ", "")


def probe_conversation() -> list[ChatMessage]:
    """A conversation with one call, its arguments an object, as templates take it."""
    function = {"name": _PROBE.name, "arguments": json.loads(_PROBE.arguments)}
    return [
        {"role": "user", "content": "probe"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": _PROBE.id, "type": "function", "function": function}],
        },
    ]


def written_call(call: ToolCall) -> str:
    """One call as text."""
    return f'<tool_call>\n{{"name": "{call.name}", "arguments": {call.arguments}}}\n</tool_call>'


def _with_text(message: ChatMessage) -> ChatMessage:
    functions = [each["function"] for each in message["tool_calls"]]
    calls = [written_call(ToolCall("", each["name"], each["arguments"])) for each in functions]
    text = [message["content"]] if message.get("content") else []
    return {"role": "assistant", "content": "\n".join([*text, *calls])}
