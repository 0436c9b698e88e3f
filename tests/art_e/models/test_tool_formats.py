"""Tool calls as text, written and parsed: JSON for models without tools, and Qwen's forms."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from art_e.message import AssistantMessage, ChatMessage, ToolCall, compact_json
from art_e.models import tool_formats
from art_e.models.tool_formats import parse_reply, parse_text, partial_answer, render_calls
from art_e.text import digest, prompt_text
from art_e.tools import CallError, SearchEmails, parse_call, schemas
from evals.structured import unwrap_json
from tests.builders import LEASE, Make, Start, play, table, tries
from tests.provider import Provider, says

CASES = table(__file__, "tool_formats.toml")
SEARCH = {"name": "search_emails", "arguments": {"keywords": ["lease"]}}
READ = {"name": "read_email", "arguments": {"message_id": "m1"}}


def parsed(text: str) -> list[dict[str, Any]]:
    """Return the calls in a text in our JSON form."""
    calls = parse_text(text, 0).tool_calls
    return [{"name": each.name, "arguments": json.loads(each.arguments)} for each in calls]


@pytest.mark.parametrize(("text", "names"), CASES["calls"])
def test_calls_are_parsed_from_any_text(text: str, names: list[str]) -> None:
    calls = [each for each in (SEARCH, READ) if each["name"] in names]
    assert parsed(text) == calls
    ids = [each.id for number in (3, 4) for each in parse_text(text, number).tool_calls]
    assert len(set(ids)) == 2 * len(calls)


@pytest.mark.parametrize("text", [*CASES["texts"], "[" * 50_000])
def test_other_json_stays_text(text: str) -> None:
    assert parse_text(text, 0) == AssistantMessage(text or None)


@given(st.text(), st.lists(st.text(), max_size=2))
def test_partial_answer_only_grows(text: str, keywords: list[str]) -> None:
    arguments = json.dumps({"answer": text, "sources": ["m1"]})
    parts = [partial_answer(arguments[:end]) or "" for end in range(len(arguments) + 1)]
    # Half of a surrogate pair is completed later.
    so_far = [each.rstrip("".join(map(chr, range(0xD800, 0xDC00)))) for each in parts]
    assert all(text.startswith(each) for each in so_far) and so_far[-1] == text
    assert so_far == sorted(so_far, key=len)
    assert partial_answer(json.dumps({"keywords": keywords})) is None


def test_episode_with_calls_as_text(make: Make, start: Start) -> None:
    """Requests have no tool fields, and the trajectory is like any other."""
    final = {"name": "return_final_answer", "arguments": {"answer": "On May 3.", "sources": ["m1"]}}
    first = f"Let me see.\n```json\n{json.dumps(SEARCH)}\n```"
    script = [first, "It ends on May 3.", json.dumps(READ), json.dumps(final)]
    with Provider([says(each) for each in script]) as provider:
        trajectory = play(start(), make(provider, "openai/gpt-4.1", tool_calls="text"))
        requests = provider.requests
    for request in requests:
        assert not {"tools", "tool_choice"} & set(request.body)
        assert {each["role"] for each in request.messages} <= {"system", "user", "assistant"}
        assert not any("tool_calls" in each for each in request.messages)
    assert "no tool was called" in requests[2].messages[-1]["content"]
    assert (trajectory.final_answer, trajectory.sources) == ("On May 3.", [LEASE])
    assert trajectory.rubric["unparseable_calls"] == 1
    assert trajectory.messages[2]["tool_calls"][0]["function"]["name"] == "search_emails"
    assert trajectory.policy["text_calls_hash"] == digest(prompt_text("art_e", "text_calls"))


# Qwen's form


def tagged(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


Q_SEARCH = tagged("search_emails", '{"keywords": ["lease"]}')
Q_READ = tagged("read_email", '{"message_id":"m1"}')
Q_EMPTY = tagged("read_email", "{}")
BROKEN = Q_READ.replace("}}", "}")
SEVERAL = f"Let me look.\n\nThere:\n{Q_SEARCH}\n{Q_READ}"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.from_regex(r"[a-z_]{1,12}", fullmatch=True)


def replies(text: str) -> list[tuple[str, str]]:
    return [(each.name, each.arguments) for each in parse_reply(text, 0).tool_calls]


def round_trip(text: str) -> str:
    (written,) = render_calls([parse_reply(text, 0).to_chat()])
    return str(written["content"])


@pytest.mark.parametrize(("text", "arguments"), CASES["malformed"])
def test_malformed_call_stays_as_written(text: str, arguments: str) -> None:
    assert replies(text) == [("search_emails", arguments)]


def test_message_survives_a_round_trip_and_nameless_calls_stay_text() -> None:
    for text in (BROKEN, SEVERAL, "Text alone. \n"):
        assert round_trip(text) == text
    for inside in ("\n{}\n</tool_call>", "\nx(lease)\n</tool_call>", ""):
        text = f"<tool_call>{inside}"
        assert parse_reply(text, 0) == AssistantMessage(text)


@example([("x", {"</tool_call>": "<tool_call>"}), ("y", {"a": "</tool_call><|im_end|>"})])
@given(st.lists(st.tuples(NAMES, st.dictionaries(st.text(), JSON, max_size=3)), min_size=1))
def test_any_calls_survive_a_round_trip(calls: list[tuple[str, dict[str, Any]]]) -> None:
    text = "\n".join(tagged(name, json.dumps(arguments)) for name, arguments in calls)
    assert [(name, json.loads(arguments)) for name, arguments in replies(text)] == calls
    assert round_trip(text) == text


@pytest.mark.parametrize(
    "before", ["", "<tool_call>", '<tool_call>{"name": "x", "arguments": ', "```"]
)
@pytest.mark.parametrize("run", ["\n", " ", "\n \t", "}\n", "```\n"])
def test_runs_of_white_space_take_linear_time(before: str, run: str) -> None:
    call = '{"name": "x", "arguments": {}}'
    text = f"{before}{run * (tries(60_000, 600_000) // len(run))}x {call}"
    started = time.process_time()
    parse_reply(text, 0)
    parse_text(text, 0)
    unwrap_json(f"x{text}", SearchEmails)
    assert time.process_time() - started < tries(3, 30)


@given(st.text(alphabet='<>/tool_ca{}":,\nnmearguts '))
def test_no_text_breaks_the_parser(text: str) -> None:
    message = parse_reply(f"<tool_call>{text}", 0)
    assert message.content or message.tool_calls
    for call in message.tool_calls:
        with pytest.raises(CallError):
            parse_call(call)


# Since Qwen3.5 a call is <function=NAME> with a <parameter=NAME> for each argument.

PLAIN = st.text(st.characters(exclude_characters="<>", exclude_categories=["Cs"])).filter(
    lambda text: text == text.strip("\n") and text[:1] not in ("[", "{") and text != "null"
)
VALUES = PLAIN | st.lists(PLAIN) | st.dictionaries(PLAIN, JSON, max_size=2) | st.none()
WORDS = st.from_regex(r"[a-z_]+", fullmatch=True)


@given(st.lists(st.tuples(WORDS, st.dictionaries(WORDS, VALUES, max_size=3)), min_size=1))
def test_xml_calls_survive_a_round_trip(functions: list[tuple[str, dict[str, Any]]]) -> None:
    calls = [ToolCall("", name, compact_json(arguments)) for name, arguments in functions]
    text = "\n".join(tool_formats.format_call(each, "xml") for each in calls)
    assert "<function=" in text and '"arguments"' not in text
    assert [(name, json.loads(arguments)) for name, arguments in replies(text)] == functions


def test_tools_accept_xml_parameters() -> None:
    """Numbers and lists too, and those of a truncated call."""
    message = parse_reply(CASES["functions"], 0)
    search, answer = message.tool_calls
    assert (message.content or "").strip() == "I look."
    checked = parse_call(search)
    assert isinstance(checked, SearchEmails)
    assert (checked.keywords, checked.max_results) == (["lease"], 3)
    assert json.loads(answer.arguments) == {"answer": "On May 3.\nOr 4."}


@pytest.mark.parametrize(("name", "form"), CASES["families"])
def test_template_gives_the_call_form(name: str, form: str) -> None:
    """With TRL's templates."""
    tiny_qwen = pytest.importorskip("tests.tiny_qwen")
    trl = pytest.importorskip("trl")
    tokenizer = tiny_qwen.make_tokenizer(["a few words"])
    folder = Path(trl.__file__).parent / "chat_templates"
    tokenizer.chat_template = (folder / f"{name}.jinja").read_text("utf-8")
    tokenizer.bos_token = tokenizer.eos_token  # llama3's template needs it
    if form:
        assert tool_formats.call_form(tokenizer) == form
    else:
        with pytest.raises(ValueError, match="not one of Qwen's forms"):
            tool_formats.call_form(tokenizer)


def test_rendered_calls_equal_the_stock_templates() -> None:
    tiny_qwen = pytest.importorskip("tests.tiny_qwen")
    tokenizer = tiny_qwen.make_tokenizer(["a few words"])
    conversation: list[ChatMessage] = [
        {"role": "system", "content": "Search."},
        {"role": "user", "content": "When?"},
        parse_reply(f"{Q_SEARCH}\n{Q_EMPTY}", 0).to_chat(),
        {"role": "tool", "tool_call_id": "call_0_0", "content": '{"hits":[]}'},
        {"role": "tool", "tool_call_id": "call_0_1", "content": '{"error":"no"}'},
    ]
    prompts = []
    options: dict[str, Any] = {"tools": schemas(), "tokenize": False, "add_generation_prompt": True}
    for length in (2, 5):
        part = conversation[:length]
        prompts.append(str(tokenizer.apply_chat_template(render_calls(part), **options)))
        assert prompts[-1] == tiny_qwen.rendered(tokenizer, part, schemas(), to_go_on=True)
    # The second prompt extends the first, so that caches and training stay valid.
    assert prompts[1].startswith(f"{prompts[0]}{Q_SEARCH}\n{Q_EMPTY}<|im_end|>")
