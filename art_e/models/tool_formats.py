"""Tool calls as text, both ways: in Qwen's forms, and as JSON for models without tool calls.

Trajectories keep the OpenAI form. Qwen's forms are those of its chat templates: JSON up to Qwen3,
and since Qwen3.5 `<function=NAME>` with a `<parameter=NAME>` for each argument. For a model without
tool calls, `prompts/text_calls.txt` describes the tools: a call is `{"name": TOOL, "arguments":
{...}}`; a message may hold several, alone, in a list, in code fences, and with prose around them.
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
# To a chat template: the model writes no thoughts, as it is trained.
NOT_THINKING: dict[str, Any] = {"enable_thinking": False}
_ENDS = r"<\|im_end\|>|<\|endoftext\|>"
# A call in the right form, whose arguments follow; or any other object with a name, which counts as
# arguments as a whole. A match takes white space from its start, so that none is scanned twice.
_OPEN = (
    r"(?<!\s)\s*+<tool_call>\s*\{\s*"
    r'(?=(?:(?!</tool_call>).)*?"name"\s*:\s*"(?P<name>[^"\\]+)")'
    r'(?:"name"\s*:\s*"[^"\\]+"\s*,\s*"arguments"\s*:\s*)?'
)
_BRACE = re.compile(r"\s*+\}")  # a reply that was cut off has no end mark
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
    """The text and calls of what a model wrote as its message number `turn`."""
    prose: list[str] = []
    calls: list[ToolCall] = []
    place = 0
    while (found := _FIRST.search(text, place)) is not None:
        prose.append(text[place : found.start()])
        place = found.end()
        if kind := found.lastgroup:  # none where the message ends
            begin = _value_end(text, place) if kind == "call" else place
            closed = _AFTER[kind].search(text, begin)
            inside, rest = (len(text),) * 2 if closed is None else closed.span()
            if kind != "thought":
                name, arguments = found["name"], text[place:inside]
                if kind == "xml":
                    name, arguments = found["function"], _arguments(arguments)
                calls.append(ToolCall(f"call_{turn}_{len(calls)}", name, arguments))
            place = rest
    prose.append(text[place:])
    return AssistantMessage("".join(prose) or None, tuple(calls))


def _value_end(text: str, start: int) -> int:
    """Return where the arguments end that begin at `start`, for a string in them may hold the mark
    that ends a call; `start` if they are no JSON before the call's own brace."""
    try:
        end = _decoder.raw_decode(text, start)[1]
    except (ValueError, RecursionError):
        return start
    return end if _BRACE.match(text, end) else start


def _arguments(written: str) -> str:
    """Return the parameters of a call as a JSON object. JSON lists, objects and null are read;
    other values are text, which the tools take as numbers if they need one."""
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


def as_written(messages: Iterable[ChatMessage], form: CallForm = "json") -> list[ChatMessage]:
    """The conversation with the model's calls as its own text, for a chat template."""
    written = []
    for message in messages:
        functions = [each["function"] for each in message.get("tool_calls") or ()]
        calls = [ToolCall("", each["name"], each["arguments"]) for each in functions]
        texts = [message.get("content"), *(written_call(each, form) for each in calls)]
        said = {"role": "assistant", "content": "\n".join(filter(None, texts))}
        written.append(said if calls else message)
    return written


def call_form(tokenizer: Any) -> CallForm:
    """Return how the tokenizer's chat template writes calls, spaces aside. Raises `ValueError` for
    another form than Qwen's two, and jinja2's `TemplateError` if the template can't be used."""
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
        if written_call(_PROBE, form).replace(" ", "") in str(rendered).replace(" ", ""):
            return form
    raise ValueError("none of Qwen's forms")


def written_call(call: ToolCall, form: CallForm = "json") -> str:
    """One call as text; one whose arguments are no object is JSON in both forms."""
    arguments = call.parsed if form == "xml" else None
    inside = f'{{"name": "{call.name}", "arguments": {call.arguments}}}'
    if isinstance(arguments, dict):
        lines = [f"<function={call.name}>"]
        for name, value in arguments.items():
            text = value if isinstance(value, str) else compact_json(value)
            lines.append(f"<parameter={name}>\n{text}\n</parameter>")
        inside = "\n".join([*lines, "</function>"])
    return f"<tool_call>\n{inside}\n</tool_call>"


# The argument `answer` of a call in any form, as far as it is written, whole escapes alone.
_ANSWER = re.compile(r'"answer"\s*:\s*"((?:[^"\\]|\\[^u]|\\u[0-9a-fA-F]{4})+)')


def answer_so_far(written: str) -> str | None:
    """What the final answer says in a call that is being written; None before it says anything."""
    found = _ANSWER.search(written)
    try:
        return None if found is None else str(json.loads(f'"{found[1]}"', strict=False))
    except ValueError:  # an escape that JSON doesn't have
        return None


# JSON in the text.

_MOST_TRIED = 500  # brackets of a text; each may be read to the end before it is no JSON
_OPENING = re.compile(r"[\[{]")
_FENCE = re.compile(r"^\s{0,99}```\w*\s*$", re.MULTILINE)
_decoder = json.JSONDecoder()


def as_text(messages: list[ChatMessage], tools: list[dict[str, Any]]) -> list[ChatMessage]:
    """Return the conversation for a model without tool calls, with the tools described and their
    answers as user messages, which become one if they follow each other."""
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
    """Return the message that a model wrote as text, its message number `turn`, with the calls."""
    calls: list[ToolCall] = []
    prose: list[str] = []
    start = position = 0
    for _ in range(_MOST_TRIED):
        bracket = _OPENING.search(text, position)
        if bracket is None:
            break
        try:
            value, end = _decoder.raw_decode(text, bracket.start())
        except (ValueError, RecursionError):
            position = bracket.end()
            continue
        found = _calls_of(value)
        if found:
            calls += found
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
        found = [_calls_of(each) for each in value if isinstance(each, dict)]
        return [each for calls in found for each in calls] if all(found) else []
    if not isinstance(value, dict) or "arguments" not in value:
        return []
    name, arguments = value.get("name"), value["arguments"]
    if not isinstance(name, str):
        return []
    # Some models write the arguments as text, as the API does; the episode checks either.
    text = arguments if isinstance(arguments, str) else compact_json(arguments)
    return [ToolCall("", name, text)]
