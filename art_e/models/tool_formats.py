"""Writing and parsing tool calls as text: in Qwen's forms, and as JSON for models without tools.

Trajectories store the OpenAI form. Qwen's forms are those of its chat templates: JSON up to Qwen3,
and since Qwen3.5 `<function=NAME>` with a `<parameter=NAME>` for each argument. For a model without
tool calls, `prompts/text_calls.txt` describes the tools: a call is `{"name": TOOL, "arguments":
{...}}`; a message may have several, alone, in a list, in code fences, and with prose around them.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from string import Template
from typing import Any, Literal

from art_e.message import AssistantMessage, ChatMessage, ToolCall, compact_json
from art_e.text import prompt_text

# Qwen's forms.

CallForm = Literal["json", "xml"]
# Argument of chat templates that turns thinking off, as in training.
NOT_THINKING: dict[str, Any] = {"enable_thinking": False}
_ENDS = r"<\|im_end\|>|<\|endoftext\|>"
# A call in the right form, followed by its arguments; or any other object with a name, which counts
# as the arguments. A match consumes leading white space, so that it is scanned only once.
_OPEN = (
    r"(?<!\s)\s*+<tool_call>\s*\{\s*"
    r'(?=(?:(?!</tool_call>).)*?"name"\s*:\s*"(?P<name>[^"\\]+)")'
    r'(?:"name"\s*:\s*"[^"\\]+"\s*,\s*"arguments"\s*:\s*)?'
)
_BRACE = re.compile(r"\s*+\}")  # a truncated reply has no end mark
_CLOSE = rf"(?:\}}\s*+|(?<!\s)\s++|)(?:</tool_call>|(?={_ENDS})|\Z)"
_PROBE = ToolCall("probe", "probe", '{"a": ["b", 1]}')

_FUNCTION = r"(?<!\s)\s*+<tool_call>\s*<function=(?P<function>[^>\s]+)>"
_FIRST = re.compile(rf"(?s)(?P<thought><think>)|(?P<xml>{_FUNCTION})|(?P<call>{_OPEN})|{_ENDS}")
_PARAMETER = re.compile(r"(?s)<parameter=(?P<name>[^>\s]+)>\n?(?P<value>.*?)\n?(?:</parameter>|\Z)")
_AFTER = {
    "thought": re.compile("</think>"),
    "xml": re.compile(rf"</tool_call>|(?={_ENDS})|\Z"),
    "call": re.compile(_CLOSE, re.DOTALL),
}


def parse_reply(text: str, turn: int) -> AssistantMessage:
    """Parse the text that a model wrote as its message number `turn`, with its calls."""
    prose: list[str] = []
    calls: list[ToolCall] = []
    place = 0
    while (mark := _FIRST.search(text, place)) is not None:
        prose.append(text[place : mark.start()])
        place = mark.end()
        if kind := mark.lastgroup:  # an end mark has no group
            begin = _value_end(text, place) if kind == "call" else place
            closed = _AFTER[kind].search(text, begin)
            inside, rest = (len(text),) * 2 if closed is None else closed.span()
            if kind != "thought":
                name, arguments = mark["name"], text[place:inside]
                if kind == "xml":
                    name, arguments = mark["function"], _arguments(arguments)
                calls.append(ToolCall(f"call_{turn}_{len(calls)}", name, arguments))
            place = rest
    prose.append(text[place:])
    return AssistantMessage("".join(prose) or None, tuple(calls))


def _value_end(text: str, start: int) -> int:
    """Return the end of the JSON arguments at `start`: a string in them may contain the mark that
    ends a call. Return `start` if they are not JSON, followed by the call's brace."""
    try:
        end = _decoder.raw_decode(text, start)[1]
    except (ValueError, RecursionError):
        return start
    return end if _BRACE.match(text, end) else start


def _arguments(written: str) -> str:
    """Return the parameters of a call as a JSON object. JSON lists, objects and null are parsed;
    other values stay text, which the tools convert to numbers if needed."""
    values: dict[str, Any] = {}
    for parameter in _PARAMETER.finditer(written):
        value = _as_json(parameter["value"])
        is_text = value is not None and not isinstance(value, list | dict)
        values[parameter["name"]] = parameter["value"] if is_text else value
    return compact_json(values)


def _as_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def render_calls(messages: Iterable[ChatMessage], form: CallForm = "json") -> list[ChatMessage]:
    """Return the conversation with the model's calls as text, for a chat template."""
    conversation = []
    for message in messages:
        functions = [each["function"] for each in message.get("tool_calls") or ()]
        calls = [ToolCall("", each["name"], each["arguments"]) for each in functions]
        texts = [message.get("content"), *(format_call(each, form) for each in calls)]
        rendered = {"role": "assistant", "content": "\n".join(filter(None, texts))}
        conversation.append(rendered if calls else message)
    return conversation


def call_form(tokenizer: Any) -> CallForm:
    """Return the form in which the tokenizer's chat template writes calls, ignoring spaces. Raises
    `ValueError` if it is not Qwen's, and jinja2's `TemplateError` if the template is invalid."""
    # Templates expect a call's arguments as an object.
    function = {"name": _PROBE.name, "arguments": _PROBE.parsed}
    calls = [{"id": _PROBE.id, "type": "function", "function": function}]
    conversation = [
        {"role": "user", "content": "probe"},
        {"role": "assistant", "content": "", "tool_calls": calls},
    ]
    rendered = tokenizer.apply_chat_template(conversation, tokenize=False, **NOT_THINKING)
    forms: tuple[CallForm, ...] = ("json", "xml")
    for form in forms:
        if format_call(_PROBE, form).replace(" ", "") in str(rendered).replace(" ", ""):
            return form
    raise ValueError("not one of Qwen's forms")


def format_call(call: ToolCall, form: CallForm = "json") -> str:
    """Return a call as text; a call whose arguments are not an object is JSON in both forms."""
    arguments = call.parsed if form == "xml" else None
    inside = f'{{"name": "{call.name}", "arguments": {call.arguments}}}'
    if isinstance(arguments, dict):
        lines = [f"<function={call.name}>"]
        for name, value in arguments.items():
            text = value if isinstance(value, str) else compact_json(value)
            lines.append(f"<parameter={name}>\n{text}\n</parameter>")
        inside = "\n".join([*lines, "</function>"])
    return f"<tool_call>\n{inside}\n</tool_call>"


# The argument `answer` of an unfinished call in any form, up to the last complete escape.
_ANSWER = re.compile(r'"answer"\s*:\s*"((?:[^"\\]|\\[^u]|\\u[0-9a-fA-F]{4})+)')


def partial_answer(partial_call: str) -> str | None:
    """Return the final answer so far in a call that is still being written, or None."""
    answer = _ANSWER.search(partial_call)
    try:
        return None if answer is None else str(json.loads(f'"{answer[1]}"', strict=False))
    except ValueError:  # an escape that JSON doesn't have
        return None


# JSON in the text.

_MAX_BRACKETS = 500  # tries per text, because each may be parsed to the end before it fails
_OPENING = re.compile(r"[\[{]")
_FENCE = re.compile(r"^\s{0,99}```\w*\s*$", re.MULTILINE)
_decoder = json.JSONDecoder()


def to_text_messages(messages: list[ChatMessage], tools: list[dict[str, Any]]) -> list[ChatMessage]:
    """Return the conversation for a model without tool calls: the system prompt describes the
    tools, and their results are user messages, merged if they are adjacent."""
    schemas = "\n".join(compact_json(tool["function"]) for tool in tools)
    description = Template(prompt_text("art_e", "text_calls")).substitute(tools=schemas).strip()
    sent: list[ChatMessage] = []
    called: dict[str, str] = {}
    for message in messages:
        role, text = message["role"], message["content"] or ""
        if role == "assistant":
            lines = [text] if text else []
            for call in message.get("tool_calls", ()):
                name, arguments = call["function"]["name"], call["function"]["arguments"]
                called[call["id"]] = name
                # Arguments that are not JSON stay text.
                lines.append(compact_json({"name": name, "arguments": _as_json(arguments)}))
            text = "\n".join(lines)
        elif role == "tool":
            role, text = "user", f"{called[message['tool_call_id']]} answered: {text}"
        if sent and role == "user" == sent[-1]["role"]:
            sent[-1]["content"] += f"\n{text}"
        else:
            sent.append({"role": role, "content": text})
    if sent[0]["role"] == "system":
        description = f"{sent.pop(0)['content'].rstrip()}\n\n{description}"
    return [{"role": "system", "content": description}, *sent]


def parse_text(text: str, turn: int) -> AssistantMessage:
    """Parse the text that a model wrote as its message number `turn`, with calls in JSON."""
    calls: list[ToolCall] = []
    prose: list[str] = []
    start = position = 0
    for _ in range(_MAX_BRACKETS):
        bracket = _OPENING.search(text, position)
        if bracket is None:
            break
        try:
            value, end = _decoder.raw_decode(text, bracket.start())
        except (ValueError, RecursionError):
            position = bracket.end()
            continue
        calls_here = _calls_of(value)
        if calls_here:
            calls += calls_here
            prose.append(text[start : bracket.start()])
            start = end
        position = end
    if not calls:
        return AssistantMessage(text or None)
    content = _FENCE.sub("", "".join([*prose, text[start:]])).strip()
    numbered = (replace(call, id=f"call_{turn}_{number}") for number, call in enumerate(calls))
    return AssistantMessage(content or None, tuple(numbered))


def _calls_of(value: Any) -> list[ToolCall]:
    if isinstance(value, list):
        parts = [_calls_of(each) for each in value if isinstance(each, dict)]
        return [call for calls in parts for call in calls] if all(parts) else []
    if not isinstance(value, dict) or "arguments" not in value:
        return []
    name, arguments = value.get("name"), value["arguments"]
    if not isinstance(name, str):
        return []
    # Some models write the arguments as text, as the API does; the episode validates both.
    text = arguments if isinstance(arguments, str) else compact_json(arguments)
    return [ToolCall("", name, text)]
