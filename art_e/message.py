"""Chat messages, in the form of the OpenAI API. Knows nothing of who writes them."""

import json
from dataclasses import dataclass
from typing import Any

from art_e.text import encodable

# A message as every chat API takes it: role, content, tool_calls, tool_call_id.
ChatMessage = dict[str, Any]


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
