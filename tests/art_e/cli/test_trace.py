"""The trace of an episode: searches, mails and whatever else a model writes."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from art_e.cli.trace import BODY_LINES
from art_e.cli.trace import shown_turn as shown_exchange
from art_e.message import AssistantMessage, ToolCall
from art_e.trajectory import exchanges
from tests.command_line import assert_safe


def shown_turn(number: int, message: dict[str, Any], observations: list[dict[str, Any]]) -> Any:
    [exchange] = exchanges([message, *observations])
    return shown_exchange(number, exchange)


def called(name: str, arguments: Any) -> dict[str, Any]:
    call = ToolCall("c1", name, arguments if isinstance(arguments, str) else json.dumps(arguments))
    return AssistantMessage(tool_calls=(call,)).to_chat()


def observed(value: Any) -> list[dict[str, Any]]:
    return [{"role": "tool", "tool_call_id": "c1", "content": json.dumps(value)}]


def test_a_search_shows_its_words_filters_and_hits() -> None:
    message = called(
        "search_emails",
        {"keywords": ["shari move", "portland"], "from_addr": "bob", "sent_after": "2000-01-01"},
    )
    hits = [
        {"message_id": "m1", "date": "2000-12-14", "from": "Bob", "subject": "One", "snippet": "x"},
        {"message_id": "m10", "date": "2000-12-15", "from": "A" * 90, "subject": "Two"},
    ]
    first, *rows = shown_turn(3, message, observed({"hits": hits})).plain.split("\n")
    assert first == ' 3  search   "shari move portland"  from bob  after 2000-01-01'
    assert [row.split()[0:2] for row in rows] == [["m1", "2000-12-14"], ["m10", "2000-12-15"]]
    assert rows[0].index("One") == rows[1].index("Two")


def test_a_read_shows_the_header_and_the_first_lines() -> None:
    body = "\n\n".join(f"line {number}" for number in range(BODY_LINES + 3))
    mail = {"message_id": "m1", "date": "2000-12-14T10:00Z", "from": "Bob", "subject": "S"}
    shown = shown_turn(
        1, called("read_email", {"message_id": "m1"}), observed(mail | {"body": body})
    )
    lines = shown.plain.split("\n")
    assert lines[0] == " 1  read     m1"
    assert lines[1].split() == ["2000-12-14", "Bob", "S"]
    assert lines[2].strip() == "| line 0"
    assert lines[-1].strip() == "| (3 more lines)"
    assert len(lines) == 2 + BODY_LINES + 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["hits", "body", "error", "note", "keywords", "answer", "sources", "from"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
NAMES = st.sampled_from(["search_emails", "read_email", "return_final_answer", "other", ""])


@given(NAMES, JSON | st.text(max_size=20), JSON, st.text(max_size=5))
def test_whatever_a_model_writes_can_be_shown(
    name: str, arguments: Any, observation: Any, behind: str
) -> None:
    [answer] = observed(observation)
    answer["content"] += behind
    assert_safe(shown_turn(1, called(name, arguments), [answer]).plain)
