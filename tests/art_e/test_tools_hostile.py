"""Wrong and hostile calls: each is explained or bounded, none is anything else."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from art_e.inbox.file import InboxFile
from art_e.message import ToolCall
from art_e.tools import ARGUMENTS, CallError, SearchEmails, Tools, parse_call
from tests import builders as episodes
from tests.builders import LEASE, MOST_CHARS, call, run, search

DEEP = "[" * 100_000
HUGE = "x" * 1_000_000


@pytest.fixture(scope="module")
def tools(inbox_file: InboxFile) -> Tools:
    return Tools(inbox_file.open_inbox(episodes.BOB))


SEARCH = "search_emails"


def short(value: object) -> str:
    return repr(value)[:30]


@pytest.mark.parametrize(
    ("name", "arguments", "kind", "helpful"),
    [
        ("delete_emails", "{}", "unknown_tool_calls", "search_emails, read_email"),
        ("", "{}", "unknown_tool_calls", "no tool ''"),
        ("functions.search_emails", "{}", "unknown_tool_calls", "search_emails"),
        ("\ud800\x1b" * 5_000, "{}", "unknown_tool_calls", "use search_emails"),
        (SEARCH, "", "unparseable_calls", "not JSON"),
        (SEARCH, "keywords=crane", "unparseable_calls", "not JSON"),
        (SEARCH, '{"keywords": ["crane"', "unparseable_calls", "not JSON"),
        (SEARCH, DEEP, "unparseable_calls", "not JSON"),
        (SEARCH, '{"keywords":' + DEEP, "unparseable_calls", "not JSON"),
        (SEARCH, '{"max_results":' + "9" * 10_000 + "}", "unparseable_calls", "not JSON"),
        (SEARCH, '["crane"]', "unparseable_calls", "no JSON object"),
        (SEARCH, "null", "unparseable_calls", "no JSON object"),
        (SEARCH, '"crane"', "unparseable_calls", "no JSON object"),
        (SEARCH, {}, "bad_argument_calls", "keywords: Field required"),
        (SEARCH, {"keywords": "crane"}, "bad_argument_calls", "keywords: Input should be"),
        (SEARCH, {"keywords": [["crane"]]}, "bad_argument_calls", "keywords.0: "),
        (SEARCH, {"keywords": [1] * 1_000}, "bad_argument_calls", "keywords.0: "),
        (SEARCH, {"keywords": [], "query": "x"}, "bad_argument_calls", "query: Extra"),
        (SEARCH, {"keywords": [], HUGE: 1}, "bad_argument_calls", "xxx: Extra"),
        (SEARCH, '{"keywords": [], "\\ud800": 1}', "bad_argument_calls", "search_emails: "),
        (SEARCH, {"keywords": [], "from_addr": ["ann"]}, "bad_argument_calls", "from_addr: "),
        (SEARCH, {"keywords": [], "to_addr": HUGE}, "bad_argument_calls", "at most 320 char"),
        (SEARCH, {"keywords": [], "max_results": 1.5}, "bad_argument_calls", "max_results: "),
        (SEARCH, {"keywords": [], "max_results": float("nan")}, "bad_argument_calls", "max_res"),
        (SEARCH, {"keywords": [], "max_results": float("inf")}, "bad_argument_calls", "max_res"),
        (SEARCH, {"keywords": [], "sent_after": HUGE}, "bad_argument_calls", ": a date is written"),
        ("read_email", {"message_id": 1}, "bad_argument_calls", "message_id: "),
        ("read_email", {"message_id": None}, "bad_argument_calls", "message_id: "),
        ("return_final_answer", {"answer": "May 3"}, "bad_argument_calls", "sources: Field req"),
        ("return_final_answer", {"answer": 3, "sources": []}, "bad_argument_calls", "answer: "),
        ("return_final_answer", {"answer": "3", "sources": "m1"}, "bad_argument_calls", "sources"),
    ],
    ids=short,
)  # fmt: skip
def test_a_wrong_call_is_explained(name: str, arguments: Any, kind: str, helpful: str) -> None:
    with pytest.raises(CallError) as caught:
        parse_call(call(name, arguments))
    assert caught.value.kind == kind
    assert helpful in str(caught.value)
    assert len(str(caught.value)) < 1_000
    str(caught.value).encode()


@pytest.mark.parametrize(
    "keywords",
    [[HUGE], ["crane", HUGE], [f"word{number}" for number in range(20_000)] + ["crane"],
     ["crane"] * 50_000, ["\0", "crane\0"], ["\ud800crane"], ["", " ", "!?"]],
    ids=short,
)  # fmt: skip
def test_a_huge_search_is_bounded(tools: Tools, keywords: list[str]) -> None:
    observation = search(tools, *keywords)
    assert len(json.dumps(observation)) < MOST_CHARS
    assert ("only the first 50 words" in observation.get("note", "")) == (len(set(keywords)) > 50)


_numbers = st.integers() | st.floats() | st.integers().map(lambda number: 10 ** (number % 400))
_strings = st.text() | st.sampled_from(
    ["crane", "m1", "m2", LEASE, "2020-01-08", "\0", "\ud800", "%", "'; DROP TABLE emails; --", "<"]
)
_values = st.recursive(
    st.none() | st.booleans() | _numbers | _strings,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_strings, inner, max_size=3),
    max_leaves=8,
)
_names = sorted({name for model in ARGUMENTS.values() for name in model.model_fields})
_arguments = st.dictionaries(st.sampled_from(_names) | _strings, _values, max_size=6)
_nearly_right = st.fixed_dictionaries(
    {},
    optional={
        "keywords": st.lists(_strings, max_size=4),
        "from_addr": st.none() | _strings,
        "to_addr": st.none() | _strings,
        "sent_after": st.none() | st.dates().map(str),
        "sent_before": st.none() | st.dates().map(str),
        "max_results": _numbers,
        "message_id": _strings,
        "answer": st.none() | _strings,
        "sources": st.lists(_strings, max_size=4),
    },
)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([*ARGUMENTS, "other"]) | _strings,
    st.text() | (_arguments | _nearly_right | _values).map(json.dumps),
)
@example("read_email", '{"message_id": "\\ud800"}')
@example("search_emails", '{"keywords": ["\ud800"], "from_addr": "\\udfff"}')
def test_any_call_is_answered(tools: Tools, name: str, arguments: str) -> None:
    try:
        run(tools, ToolCall("1", name, arguments))
    except CallError as error:
        assert error.kind in ("unknown_tool_calls", "unparseable_calls", "bad_argument_calls")
        assert len(str(error)) < 1_000
        str(error).encode()


@settings(deadline=None)
@given(
    st.fixed_dictionaries(
        {"keywords": st.lists(st.text(), max_size=4)},
        optional={
            "from_addr": st.none() | st.text(max_size=300),
            "sent_after": st.none() | st.dates().map(str),
            "max_results": st.integers(),
        },
    )
)
def test_calls_by_the_schema_are_accepted(arguments: dict[str, Any]) -> None:
    parsed = parse_call(call(SEARCH, arguments))
    assert isinstance(parsed, SearchEmails)
    assert parsed.keywords == arguments["keywords"]
    assert parsed.from_addr == arguments.get("from_addr")
    assert parsed.max_results == arguments.get("max_results", 10)
    assert str(parsed.sent_after) == str(arguments.get("sent_after"))
