"""Chat messages, in the form of the OpenAI API. Knows nothing of who writes them."""

import json
import re
from dataclasses import dataclass
from typing import Any

from art_e.text import encodable

# A message as every chat API takes it: role, content, tool_calls, tool_call_id.
ChatMessage = dict[str, Any]


# What starts such a token in Qwen's and most others' vocabularies.
_STEERING = re.compile(r"<(?=\||/?(?:tool_call|tool_response|think)>)")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call as a model wrote it: `arguments` is text that should be a JSON object."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """What a model said: text, calls, or both."""

    content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()

    def to_chat(self) -> ChatMessage:
        """The message as it goes back into the conversation."""
        content = encodable(self.content or "")
        if not self.tool_calls:
            return {"role": "assistant", "content": content}
        calls = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": encodable(call.name), "arguments": encodable(call.arguments)},
            }
            for call in self.tool_calls
        ]
        # No text is null beside calls, and "" without: other forms are refused.
        return {"role": "assistant", "content": content or None, "tool_calls": calls}


def compact_json(value: Any) -> str:
    """`value` as JSON in as few tokens as may be, characters as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def observation_json(value: Any) -> str:
    """`value` as `compact_json` writes it, without tokens that steer the model that reads it.

    A local model's tokenizer takes "<|im_start|>" in a mail for the start of a message. In
    JSON the first character can be written as an escape, which reads the same.
    """
    return _STEERING.sub("\\\\u003c", compact_json(value))
