"""Chat messages in the form of the OpenAI API, and JSON as models read it."""

import json
import re
from dataclasses import dataclass
from typing import Any

from art_e.text import encodable, visible

ChatMessage = dict[str, Any]  # as chat APIs accept it: role, content, tool_calls, tool_call_id

# The start of control tokens of Qwen and most other models.
_STEERING = re.compile(r"<(?=\||/?(?:tool_call|tool_response|think)>)")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call as a model wrote it; `arguments` should be a JSON object but may be any text."""

    id: str
    name: str
    arguments: str

    @property
    def parsed(self) -> dict[str, Any] | str:
        written = encodable(self.arguments)
        try:
            value = json.loads(written)
        except (ValueError, RecursionError):
            return written
        return value if isinstance(value, dict) else written


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """A model's text, calls, or both; `thoughts` go back to its provider (`from_provider`)."""

    content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    thoughts: dict[str, Any] | None = None

    def to_chat(self) -> ChatMessage:
        content = encodable(self.content or "")
        more = {"thoughts": self.thoughts} if self.thoughts else {}
        if not self.tool_calls:
            return {"role": "assistant", "content": content, **more}
        calls = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": encodable(call.name), "arguments": encodable(call.arguments)},
            }
            for call in self.tool_calls
        ]
        # For missing text, providers want null if there are calls, else "".
        return {"role": "assistant", "content": content or None, "tool_calls": calls, **more}


def compact_json(value: Any) -> str:
    """Return `value` as JSON without spaces or Unicode escapes, which saves tokens."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def observation_json(value: Any) -> str:
    """Return `value` as compact JSON without control tokens: a tokenizer reads "<|im_start|>" in a
    mail as the start of a message. The JSON escape of "<" means the same."""
    return visible(_STEERING.sub("\\\\u003c", compact_json(value)))


def without_markup(text: str) -> str:
    """Break control tokens in `text` with a space."""
    return _STEERING.sub("< ", text)
