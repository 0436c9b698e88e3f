"""Between the conversation of an episode and the OpenAI form as providers accept it.

What a model wrote wrong stays in the trajectory as it was; what is sent back to the
provider is mended, because most refuse a whole conversation for one such call. Knows
nothing of how a request is made.
"""

import copy
import json
import re
from typing import Any

from art_e.message import AssistantMessage, ChatMessage, ToolCall, compact_json
from art_e.policies.base import Usage

# Names that every provider takes.
_MAX_NAME_CHARS = 64
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")


def sendable(messages: list[ChatMessage], system_role: str) -> list[ChatMessage]:
    """A copy of the conversation in which each call has a lawful name and a JSON object.

    The system prompt is of the role that the model knows it by.
    """
    sent = copy.deepcopy(messages)
    for message in sent:
        if message["role"] == "system":
            message["role"] = system_role
        for call in message.get("tool_calls", ()):
            function = call["function"]
            name = _NOT_IN_NAMES.sub("_", function["name"])[:_MAX_NAME_CHARS]
            function["name"] = name or "unnamed"
            if not _is_object(function["arguments"]):
                function["arguments"] = compact_json({"malformed": function["arguments"]})
    return sent


def received(message: Any, messages: list[ChatMessage]) -> AssistantMessage:
    """The message of litellm's response to the conversation `messages`.

    Ids of calls are as given; missing ones are made up, and those seen before made distinct.
    """
    taken = {call["id"] for each in messages for call in each.get("tool_calls", ())}
    turn = sum(each["role"] == "assistant" for each in messages)
    calls = []
    for number, call in enumerate(message.tool_calls or ()):
        given = call.id or f"call_{turn}_{number}"
        call_id, copies = given, 1
        while call_id in taken:
            copies += 1
            call_id = f"{given}_{copies}"
        taken.add(call_id)
        function = call.function
        calls.append(ToolCall(call_id, function.name or "", function.arguments or ""))
    return AssistantMessage(message.content or None, tuple(calls))


def usage_of(response: Any) -> Usage | None:
    """The tokens of litellm's response; None where the provider did not tell.

    litellm writes zeros then, and no prompt has none.
    """
    usage = getattr(response, "usage", None)
    if usage is None or not usage.prompt_tokens:
        return None
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    cached = (prompt and prompt.cached_tokens) or 0
    reasoning = (completion and completion.reasoning_tokens) or 0
    # A part is never more than the whole, whatever a provider says: costs are worked out of it.
    return Usage(
        usage.prompt_tokens,
        min(cached, usage.prompt_tokens),
        usage.completion_tokens,
        min(reasoning, usage.completion_tokens),
    )


def _is_object(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False
