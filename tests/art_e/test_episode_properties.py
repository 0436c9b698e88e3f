"""Whatever a model says, an episode keeps its rules."""

import json
from datetime import date
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from art_e.message import AssistantMessage, ChatMessage
from tests import builders as episodes
from tests.builders import LEASE, LEASE_COPY, PRICE, Start, answer, call, message
from tests.builders import read_episodes as read
from tests.builders import search_episodes as search

SEARCH = "search_emails"
_words = st.sampled_from(
    ["crane", "harbor", "lease", "instructions", episodes.SECRET, episodes.FUTURE, "\ud800", ""]
)
_ids = st.sampled_from(
    [LEASE, LEASE_COPY, PRICE, episodes.HOSTILE, episodes.FOREIGN, episodes.LATER, "*", "\udfff"]
) | st.integers(1, 12).map(lambda number: f"m{number}")
_addresses = st.none() | st.sampled_from([episodes.BOB, "ann", "zoe@test.example", "%", "", "@"])
_days = st.none() | st.dates(date(2020, 1, 1), date(2020, 3, 1)).map(str)
_searches = st.builds(
    lambda keywords, **filters: search(*keywords, **filters),
    st.lists(_words, max_size=4),
    from_addr=_addresses,
    to_addr=_addresses,
    sent_after=_days,
    sent_before=_days,
    max_results=st.integers(-1, 12),
)
_answers = st.builds(
    lambda text, sources: answer(text, *sources),
    st.sampled_from([None, "May 3", "I don't know", "\ud800"]),
    st.lists(_ids, max_size=4),
)
_garbage = st.builds(
    call,
    st.sampled_from([SEARCH, "read_email", "return_final_answer", "sql", "\ud800", ""]),
    st.sampled_from(
        ["", "{", "[]", "{}", "null", '{"message_id": 1}', '{"answer": "x"}', "\ud800"]
    ),
)
_right = _searches | st.builds(read, _ids)
_messages = st.builds(
    lambda calls, text: message(*calls, text=text),
    # Answers are rare, or all episodes would be short.
    st.lists(_right | _right | _right | _garbage, max_size=6)
    | st.lists(_right | _garbage | _answers, max_size=3),
    st.none() | st.sampled_from(["", "Hm.", "\ud800"]),
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(_messages, min_size=8, max_size=8),
    st.integers(1, 8),
    st.booleans(),
    st.sampled_from([True, False, None]),
)
def test_whatever_a_model_says_the_episode_keeps_its_rules(
    start: Start,
    script: list[AssistantMessage],
    max_turns: int,
    handles: bool,
    answerable: bool | None,
) -> None:
    episode = start(max_turns=max_turns, handles=handles, answerable=answerable)
    for said in script[:max_turns]:
        if episode.done:
            break
        observations = episode.step(said)
        assert_answered(said, observations)
    assert episode.done, "it ends within its turns"
    rubric = episode.rubric
    ends = [rubric.answered, rubric.abstained, rubric.lost_to_format, rubric.ran_out_of_turns]
    assert sum(ends) == 1
    assert rubric.turns <= max_turns
    assert rubric.turns <= rubric.effort <= rubric.turns + rubric.tool_calls
    wrong = rubric.unparseable_calls + rubric.unknown_tool_calls + rubric.bad_argument_calls
    assert wrong + rubric.invalid_reads <= rubric.tool_calls + rubric.turns
    assert len(episode.sources) <= rubric.num_sources
    if answerable is False:
        assert rubric.found_gold is rubric.read_gold is rubric.sources_correct is None
    assert all(episode.tools.inbox.canonical_id(each) == each for each in episode.sources)
    assert_valid(episode.messages)
    json.dumps(episode.messages, ensure_ascii=False).encode()


def assert_answered(said: AssistantMessage, observations: list[ChatMessage]) -> None:
    """Each call is answered once, in order, by whole JSON objects that tell of no other mail."""
    if said.tool_calls:
        assert [each["tool_call_id"] for each in observations] == [
            each.id for each in said.tool_calls
        ]
    else:
        assert [each["role"] for each in observations] == ["user"]
    for each in observations:
        for line in each["content"].split("\n"):
            assert isinstance(json.loads(line), dict)
        # Only the bodies and subjects of mails that Bob must not see say these.
        assert f"a {episodes.SECRET}" not in each["content"]
        assert f"a {episodes.FUTURE}" not in each["content"]
        assert episodes.SECRET not in json.dumps(found(each["content"]))
        assert episodes.FUTURE not in json.dumps(found(each["content"]))


def found(content: str) -> list[Any]:
    """What an observation shows of mails, without the model's own words in it."""
    observation = json.loads(content.partition("\n")[0])
    if "body" in observation:
        return [observation]
    return [
        {key: value for key, value in hit.items() if key != "missing"}
        for hit in observation.get("hits", [])
    ]


def assert_valid(messages: list[ChatMessage]) -> None:
    """What the chat API asks of a conversation."""
    assert [each["role"] for each in messages[:2]] == ["system", "user"]
    open_calls: list[str] = []
    previous = "user"
    assert messages[2]["role"] == "assistant"
    for each in messages[2:]:
        role = each["role"]
        if role == "tool":
            assert each["tool_call_id"] == open_calls.pop(0)
            assert isinstance(each["content"], str)
        else:
            assert not open_calls, "every call is answered before the next message"
            assert (role == "assistant") == (previous != "assistant")
        if role == "assistant":
            assert set(each) <= {"role", "content", "tool_calls"}
            open_calls = [made["id"] for made in each.get("tool_calls", [])]
            assert each["content"] != "" or not open_calls
            assert open_calls or isinstance(each["content"], str)
            assert len(set(open_calls)) == len(open_calls)
        previous = role
    assert not open_calls
