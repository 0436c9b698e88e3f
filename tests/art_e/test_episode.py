"""An episode from its first message to its end: turns, calls, answers, facts."""

import dataclasses
import itertools
import json
import urllib.parse
from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from art_e.episode import MAX_PROSE, MAX_WRONG_MESSAGES, Episode, EpisodeForm
from art_e.inbox.file import InboxFile
from art_e.message import AssistantMessage, ChatMessage
from art_e.tools import MAX_CALLS, View
from tests import builders as episodes
from tests.builders import LEASE, QUESTION, Start, answer, call, loads, message, read, search, step

LEASE_COPY, PRICE, CREW = episodes.LEASE_COPY, episodes.PRICE, episodes.CREW
TALK = AssistantMessage("Let me think.")
DONE = {"done": True}


def test_episode_begins_with_the_default_or_a_custom_prompt(
    start: Start, inbox_file: InboxFile
) -> None:
    episode = start(max_turns=7)
    system, user = episode.messages
    for text in (episodes.BOB, "2020-01-31", "7 turns"):
        assert text in system["content"]
    assert system["role"] == "system" and "$" not in system["content"]
    assert user == {"role": "user", "content": QUESTION.question}
    assert not episode.done
    inbox = inbox_file.open_inbox(episodes.BOB)
    custom = Episode(inbox, QUESTION, system_prompt="$inbox_address, $today, $5")
    assert custom.messages[0]["content"] == f"{episodes.BOB}, not given: all mail counts, $5"
    assert custom.prompt_hash != Episode(inbox, QUESTION).prompt_hash
    assert Episode(inbox, QUESTION).prompt_hash == Episode(inbox, QUESTION).prompt_hash


def test_a_form_of_episode_sets_the_view() -> None:
    assert EpisodeForm().model_dump() == {
        "max_turns": 10, "hits": 10, "turn_tokens": 2_048, "episode_tokens": 8_000, "prompt": None,
        "snippet_chars": None, "handles": True, "addresses": True, "spaced": False, "lean": True,
    }  # fmt: skip
    assert EpisodeForm(lean=False).view == View()
    settings = {"handles": False, "hits": 1, "snippet_chars": 1, "addresses": False, "spaced": True,
             "lean": False}  # fmt: skip
    assert EpisodeForm.model_validate(settings).view == View(**settings, utc=True)  # type: ignore[arg-type]
    for wrong in ({"hits": 0}, {"hits": 11}, {"max_turns": 0}, {"turns": 4}):
        with pytest.raises(ValidationError):
            EpisodeForm.model_validate(wrong)


def test_a_whole_episode(start: Start) -> None:
    episode = start()
    hits = step(episode, search("lease"))[0]["hits"]
    assert episode.rubric.found_gold is True
    assert episode.rubric.read_gold is False
    assert "May 3" in step(episode, read(hits[0]["message_id"]))[0]["body"]
    assert episode.rubric.read_gold is True
    assert step(episode, answer("May 3", hits[0]["message_id"])) == [DONE]
    assert (episode.done, episode.final_answer, episode.sources) == (True, "May 3", (LEASE,))
    right = ("answerable", "answered", "sources_correct", "found_gold", "read_gold")
    wrong = ("invalid_reads", "unparseable_calls", "unknown_tool_calls", "bad_argument_calls")
    assert dataclasses.asdict(episode.rubric) == {
        "max_turns": 10,
        **dict.fromkeys(right, True),
        **dict.fromkeys(("abstained", "lost_to_format", "ran_out_of_turns"), False),
        **dict.fromkeys(("num_gold_sources", "num_sources"), 1),
        **dict.fromkeys(("turns", "effort", "tool_calls"), 3),
        **dict.fromkeys((*wrong, "prompt_tokens", "completion_tokens"), 0),
    }
    with pytest.raises(RuntimeError, match="done"):
        episode.step(message(search("lease")))
    assert episode.rubric.turns == 3


def test_four_calls_of_a_message_run_and_the_fifth_is_refused(start: Start) -> None:
    episode = start()
    calls = [search("lease"), read(PRICE), read(CREW), search("crane"), read(LEASE)]
    observations = step(episode, *calls)
    assert ["hits" in each or "body" in each for each in observations] == [True] * 4 + [False]
    assert f"first {MAX_CALLS} calls" in observations[4]["error"]
    rubric = episode.rubric
    assert (rubric.turns, rubric.effort, rubric.tool_calls) == (1, 5, 5)
    assert rubric.read_gold is False
    # The fifth call was right in itself.
    assert rubric.bad_argument_calls + rubric.unparseable_calls + rubric.unknown_tool_calls == 0
    step(episode, *[search("lease")] * 4, answer("May 3"))
    assert not (episode.done or episode.rubric.answered)
    single = Episode(episode.tools.inbox, QUESTION, view=View(calls=1))
    second = step(single, search("lease"), read(LEASE))[1]
    assert "only the first call of a message can" in second["error"]
    episode = start()
    several = [search("a")] * 3, [search("d")], [call("x", "{}"), search("e")]
    for reply in (*(message(*each) for each in several), TALK):
        episode.step(reply)
    rubric = episode.rubric
    assert (rubric.turns, rubric.effort, rubric.tool_calls) == (4, 7, 6)


def test_the_first_answer_counts_after_the_other_calls(start: Start) -> None:
    episode = start()
    calls = [answer("May 3", "m1"), search("lease"), read("m1"), answer("June 9")]
    reply = message(*calls, text="I know.")
    done, hits, mail, refused = loads(episode.step(reply))
    assert done == DONE and "already" in refused["error"]
    assert hits["hits"][0]["message_id"] == "m1" and "May 3" in mail["body"]
    assert [event.get("cited") for event in episode.events[:3]] == [[LEASE], None, None]
    assert (episode.done, episode.final_answer, episode.sources) == (True, "May 3", (LEASE,))
    assert episode.rubric.read_gold is True
    assert episode.messages[2] == reply.to_chat()


def test_running_out_of_turns_is_neither_answer_nor_abstention(start: Start) -> None:
    episode = start(max_turns=3)
    for _ in range(3):
        assert not episode.done
        step(episode, search("lease"))
    rubric = episode.rubric
    assert episode.done and rubric.ran_out_of_turns and rubric.turns == 3
    assert not (rubric.answered or rubric.abstained or rubric.lost_to_format)
    assert episode.final_answer is None and rubric.sources_correct is False
    # Without room it is cut off, which is the same.
    episode = start()
    step(episode, search("lease"))
    episode.cut_off()
    assert episode.done and episode.rubric.ran_out_of_turns and episode.rubric.turns == 1
    with pytest.raises(RuntimeError, match="done"):
        episode.cut_off()


def test_the_last_turn_is_announced_once(start: Start) -> None:
    episode = start(max_turns=4)
    observations = [
        ["one turn left" in each["content"] for each in episode.step(reply)]
        for reply in (message(search("lease"), read("m1")), TALK, message(search("a"), read(CREW)))
    ]
    assert observations == [[False, False], [False], [False, True]]
    last = episode.messages[-1]["content"].split("\n")
    assert [next(iter(json.loads(line))) for line in last] == ["message_id", "note"]
    assert not any("one turn left" in each["content"] for each in episode.step(TALK))


# Wrong calls

SEARCH = "search_emails"
UNKNOWN = message(call("think", {}))
WRONG: dict[str, tuple[AssistantMessage, str, str]] = {
    "unknown tool": (UNKNOWN, "unknown_tool_calls", "there is no tool 'think'"),
    "no call": (TALK, "unparseable_calls", "no tool was called"),
    "cut off": (message(call(SEARCH, '{"keywords": ["a')), "unparseable_calls", "not JSON"),
    "lacking": (message(call(SEARCH, {})), "bad_argument_calls", "keywords: Field required"),
    "unknown key": (message(search("a", limit=3)), "bad_argument_calls", "limit: Extra"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_message_is_answered_counted_and_costs_its_turn(start: Start, wrong: str) -> None:
    reply, counter, helpful = WRONG[wrong]
    limit = MAX_WRONG_MESSAGES if reply.tool_calls else MAX_PROSE
    # The limit of turns comes at the same time, and doesn't count.
    episode = start(max_turns=limit)
    observations = episode.step(reply)
    assert helpful in loads(observations)[0]["error"]
    assert episode.messages[-1] == observations[-1]
    counters = ("unknown_tool_calls", "unparseable_calls", "bad_argument_calls")
    counted = {each: getattr(episode.rubric, each) for each in counters}
    assert counted == dict.fromkeys(counters, 0) | {counter: 1}
    assert (episode.rubric.turns, episode.rubric.effort) == (1, 1)
    for _ in range(limit - 1):
        assert not episode.done
        episode.step(reply)
    rubric = episode.rubric
    assert episode.done and rubric.lost_to_format and getattr(rubric, counter) == limit
    assert not (rubric.answered or rubric.abstained or rubric.ran_out_of_turns)


def test_a_right_call_saves_the_episode(start: Start) -> None:
    one_right = message(call("think", {}), search("lease"), call(SEARCH, "["))
    episode = start()
    for reply in (TALK, UNKNOWN, one_right, TALK, UNKNOWN):
        episode.step(reply)
    assert not episode.done
    assert episode.rubric.unknown_tool_calls == episode.rubric.unparseable_calls == 3
    episode.step(message(call(SEARCH, "")))
    assert episode.rubric.lost_to_format


def spellings(message_id: str) -> list[str]:
    """Return the id as one might write it to get around a check."""
    bare = message_id.strip("<>")
    wide = "".join(chr(ord(char) + 0xFEE0) for char in bare)
    return [
        message_id, bare, f" {message_id}\n", f"<{bare}", message_id.upper(), wide,
        f"<\u200b{bare}>", f"\ufeff{bare}", f"{message_id}\0", f"{LEASE}\0{message_id}",
        f"{LEASE},{message_id}", f"{LEASE}\n{message_id}", json.dumps([message_id]),
        urllib.parse.quote(message_id), f"zoe@test.example:{message_id}", f"%{bare[:4]}%",
        f"{LEASE}' UNION SELECT body FROM emails WHERE message_id = '{message_id}",
    ]  # fmt: skip


@pytest.mark.parametrize("handles", [True, False])
def test_missing_mails_are_neither_read_nor_cited(start: Start, handles: bool) -> None:
    hidden = [each for mail in (episodes.FOREIGN, episodes.LATER) for each in spellings(mail)]
    # Handles that were never given out, and names of rows.
    missing = [*hidden, "m0", "m7", "M1", "0", "-1", "*", "%", "", "null", "\0", "\ud800"]
    # Gold beyond the episode's day is never found either.
    gold = (episodes.LATER,)
    episode = start(max_turns=len(missing) + 2, handles=handles, message_ids=gold)
    step(episode, search(episodes.FUTURE))
    for reference in missing:
        assert "not found in this inbox" in step(episode, read(reference))[0]["error"]
    assert episode.rubric.invalid_reads == len(missing)
    assert not episode.done
    step(episode, answer("x", *missing))
    assert episode.sources == ()
    rubric = episode.rubric
    assert rubric.found_gold is rubric.read_gold is rubric.sources_correct is False


@pytest.mark.parametrize("gold", [(LEASE_COPY,), (LEASE_COPY, LEASE)])
def test_copies_of_one_mail_are_one_gold_and_source(start: Start, gold: tuple[str, ...]) -> None:
    episode = start(message_ids=gold)
    step(episode, search("lease"))
    assert episode.rubric.found_gold is True
    step(episode, read(LEASE))
    assert episode.rubric.read_gold is True
    step(episode, answer("May 3", "m1", LEASE, LEASE_COPY, LEASE.strip("<>")))
    assert (episode.rubric.num_gold_sources, episode.rubric.num_sources) == (1, 1)
    assert (episode.sources, episode.rubric.sources_correct) == ((LEASE,), True)


@pytest.mark.parametrize(
    ("gold", "read_mails", "correct"),
    [
        ((CREW,), (PRICE,), True),
        ((LEASE, PRICE), (LEASE, LEASE_COPY), False),
        # The equivalent mail is about the crane, and so counts as the price, not as the lease.
        ((LEASE, PRICE), (CREW, PRICE), False),
        ((LEASE, PRICE), (LEASE, CREW), True),
    ],
)
def test_an_equivalent_counts_as_its_gold_mail(
    start: Start, gold: tuple[str, ...], read_mails: tuple[str, ...], correct: bool
) -> None:
    equivalent = (PRICE,) if gold == (CREW,) else (CREW,)
    episode = start(message_ids=gold, equivalent_ids=equivalent)
    step(episode, search("costs"), *map(read, read_mails), answer("4,000", *read_mails))
    rubric = episode.rubric
    assert (rubric.num_gold_sources, rubric.found_gold) == (len(gold), gold == (CREW,))  # by PRICE
    assert rubric.read_gold is rubric.sources_correct is correct


def test_a_name_of_a_cited_mail_makes_an_answer(start: Start) -> None:
    text = "While the mails do not say so they show that it is Dora."
    for cited, answered in ((CREW, True), (PRICE, False)):
        episode = start()
        step(episode, read(cited), answer(text, cited))
        assert (episode.rubric.answered, episode.rubric.abstained) == (answered, not answered)


def test_every_gold_mail_is_needed(start: Start) -> None:
    episode = start(message_ids=(PRICE, CREW))
    facts = []
    for tool_call in (search("costs"), search("crew"), read(PRICE), read(CREW)):
        step(episode, tool_call)
        facts.append((episode.rubric.found_gold, episode.rubric.read_gold))
    assert facts == [(False, False), (True, False), (True, False), (True, True)]
    for cited, correct in (((PRICE,), False), ((CREW, LEASE, PRICE), True)):
        episode = start(message_ids=(PRICE, CREW))
        step(episode, read(PRICE), read(CREW), answer("4,000", *cited))
        rubric = episode.rubric
        assert (rubric.num_gold_sources, rubric.num_sources) == (2, len(cited))
        assert rubric.sources_correct is correct


@pytest.mark.parametrize(
    ("fields", "num_gold"),
    [({"answerable": False, "message_ids": ()}, None),
     ({"answerable": False, "message_ids": (LEASE,)}, None),
     ({"answerable": None, "answer": None, "message_ids": ()}, None),
     ({"answerable": True, "message_ids": ()}, 0)],
)  # fmt: skip
def test_gold_facts_are_none(start: Start, fields: Any, num_gold: int | None) -> None:
    episode = start(**fields)
    step(episode, search("lease"), read(LEASE))
    step(episode, answer("May 3", LEASE))
    rubric = episode.rubric
    assert (rubric.num_gold_sources, rubric.num_sources) == (num_gold, 1)
    assert rubric.found_gold is rubric.read_gold is rubric.sources_correct is None
    assert rubric.answerable is fields["answerable"]


def test_sources_never_shown_are_dropped_and_named(start: Start) -> None:
    episode = start()
    step(episode, search("crane"))
    never = ("m99", "<invented@t>", episodes.FOREIGN, LEASE)
    [done] = episode.step(message(answer("May 3", PRICE, "m1", *never, "m99")))
    assert set(episode.sources) == {PRICE, episode.tools.handles["m1"]}
    assert episode.rubric.num_sources == len(set(episode.sources)) + len(never)
    assert episode.rubric.sources_correct is False
    note = f"not accepted as sources, never shown: {', '.join(never)}"
    assert json.loads(done["content"].splitlines()[-1]) == {"note": note}
    assert episode.events[-1]["notes"] == [note]
    # Without handles ids are shown.
    episode = start(handles=False)
    assert step(episode, search("lease", max_results=1))[0]["hits"][0]["message_id"] == LEASE
    step(episode, answer("May 3", LEASE, "m1"))
    assert (episode.sources, episode.rubric.num_sources) == ((LEASE,), 2)


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
    **dict.fromkeys(("from_addr", "to_addr"), _addresses),
    **dict.fromkeys(("sent_after", "sent_before"), _days),
    max_results=st.integers(-1, 12),
)
_answers = st.builds(
    lambda text, sources: answer(text, *sources),
    st.sampled_from([None, "May 3", "I don't know", "\ud800"]),
    st.lists(_ids, max_size=4),
)
_odd = ["", "{", "[]", "{}", "null", '{"message_id": 1}', '{"answer": "x"}', "\ud800"]
_garbage = st.builds(
    call,
    st.sampled_from([SEARCH, "read_email", "return_final_answer", "sql", "\ud800", ""]),
    st.sampled_from(_odd),
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
def test_episode_keeps_its_rules_for_any_messages(
    start: Start, script: list[AssistantMessage],
    max_turns: int, handles: bool, answerable: bool | None,
) -> None:  # fmt: skip
    episode = start(max_turns=max_turns, handles=handles, answerable=answerable)
    for reply in script[:max_turns]:
        if episode.done:
            break
        assert_answered(reply, episode.step(reply))
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


def assert_answered(reply: AssistantMessage, observations: list[ChatMessage]) -> None:
    """Each call is answered once, in order, by whole JSON objects that tell of no other mail."""
    if reply.tool_calls:
        ids = [each.id for each in reply.tool_calls]
        assert [observation["tool_call_id"] for observation in observations] == ids
    else:
        assert [observation["role"] for observation in observations] == ["user"]
    for observation in observations:
        for line in observation["content"].split("\n"):
            assert isinstance(json.loads(line), dict)
        # Only the bodies and subjects of mails that Bob must not see say these.
        for before, word in itertools.product(("a", "Crane"), (episodes.SECRET, episodes.FUTURE)):
            assert f"{before} {word}" not in observation["content"]


def assert_valid(messages: list[ChatMessage]) -> None:
    assert [chat["role"] for chat in messages[:2]] == ["system", "user"]
    open_calls: list[str] = []
    previous = "user"
    for chat in messages[2:]:
        role = chat["role"]
        if role == "tool":
            assert chat["tool_call_id"] == open_calls.pop(0)
        else:
            assert not open_calls, "every call is answered before the next message"
            assert (role == "assistant") == (previous != "assistant")
        if role == "assistant":
            assert set(chat) <= {"role", "content", "tool_calls"}
            open_calls = [made["id"] for made in chat.get("tool_calls", [])]
            assert chat["content"] != "" or not open_calls
            assert open_calls or isinstance(chat["content"], str)
            assert len(set(open_calls)) == len(open_calls)
        previous = role
    assert not open_calls
