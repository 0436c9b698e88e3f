"""What an episode writes down: wrong calls, gold found and read, sources cited."""

from typing import Any

import pytest

from art_e.episode import MAX_WRONG_MESSAGES
from art_e.message import AssistantMessage
from tests import builders as episodes
from tests.builders import CREW, LEASE, LEASE_COPY, PRICE, Start, answer, call, message, shown, step
from tests.builders import read_episodes as read
from tests.builders import search_episodes as search

SEARCH = "search_emails"
TALK = AssistantMessage("Let me think.")
UNKNOWN = message(call("think", {}))


# Wrong calls

WRONG: dict[str, tuple[AssistantMessage, str, str]] = {
    "unknown tool": (UNKNOWN, "unknown_tool_calls", "there is no tool 'think'"),
    "no call": (TALK, "unparseable_calls", "no tool was called"),
    "cut off": (message(call(SEARCH, '{"keywords": ["a')), "unparseable_calls", "not JSON"),
    "lacking": (message(call(SEARCH, {})), "bad_argument_calls", "keywords: Field required"),
    "unknown key": (message(search("a", limit=3)), "bad_argument_calls", "limit: Extra"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_message_is_answered_counted_and_costs_its_turn(start: Start, wrong: str) -> None:
    said, counter, helpful = WRONG[wrong]
    episode = start()
    observations = episode.step(said)
    assert helpful in shown(observations)[0]["error"]
    assert episode.messages[-1] == observations[-1]
    assert getattr(episode.rubric, counter) == 1
    counters = ("unknown_tool_calls", "unparseable_calls", "bad_argument_calls")
    assert sum(getattr(episode.rubric, each) for each in counters) == 1
    assert (episode.rubric.turns, episode.rubric.effort) == (1, 1)
    assert not episode.done
    for _ in range(MAX_WRONG_MESSAGES - 2):
        episode.step(said)
    assert not episode.done
    episode.step(said)
    assert episode.done
    assert episode.rubric.lost_to_format
    assert getattr(episode.rubric, counter) == 3
    assert not (episode.rubric.answered or episode.rubric.abstained)
    assert not episode.rubric.ran_out_of_turns


def test_a_right_message_between_wrong_ones_saves_the_episode(start: Start) -> None:
    episode = start()
    for said in (TALK, UNKNOWN, message(search("lease")), TALK, UNKNOWN):
        episode.step(said)
    assert not episode.done
    episode.step(message(call(SEARCH, "")))
    assert episode.rubric.lost_to_format


def test_one_right_call_makes_a_message_right(start: Start) -> None:
    episode = start(max_turns=5)
    for _ in range(4):
        step(episode, call("think", {}), search("lease"), call(SEARCH, "["))
    assert not episode.done
    assert episode.rubric.unknown_tool_calls == episode.rubric.unparseable_calls == 4


@pytest.mark.parametrize("missing", [episodes.FOREIGN, episodes.LATER, "m7", "<no@t>", "", "\0"])
def test_reading_what_is_not_there_is_answered_and_counted(start: Start, missing: str) -> None:
    episode = start()
    for _ in range(3):
        assert "not found in this inbox" in step(episode, read(missing))[0]["error"]
    assert episode.rubric.invalid_reads == 3
    assert not episode.done


# Gold and sources


def test_aliases_of_gold_are_gold(start: Start) -> None:
    episode = start(message_ids=(LEASE_COPY,))
    step(episode, search("lease"))
    assert episode.rubric.found_gold is True
    step(episode, read(LEASE))
    assert episode.rubric.read_gold is True
    step(episode, answer("May 3", LEASE_COPY))
    assert episode.sources == (LEASE,)
    assert episode.rubric.sources_correct is True


def test_copies_of_one_mail_are_one_gold_and_one_source(start: Start) -> None:
    episode = start(message_ids=(LEASE_COPY, LEASE))
    step(episode, read(LEASE_COPY))
    step(episode, answer("May 3", "m1", LEASE, LEASE_COPY, LEASE.strip("<>")))
    assert episode.rubric.num_gold_sources == 1
    assert episode.rubric.num_sources == 1
    assert episode.sources == (LEASE,)
    assert episode.rubric.sources_correct is True


def test_every_gold_mail_is_needed(start: Start) -> None:
    episode = start(message_ids=(PRICE, CREW))
    facts = []
    for said in (search("costs"), search("crew"), read(PRICE), read(CREW)):
        step(episode, said)
        facts.append((episode.rubric.found_gold, episode.rubric.read_gold))
    assert facts == [(False, False), (True, False), (True, False), (True, True)]
    step(episode, answer("4,000", PRICE))
    assert episode.rubric.num_gold_sources == 2
    assert episode.rubric.sources_correct is False
    complete = start(message_ids=(PRICE, CREW))
    step(complete, answer("4,000", CREW, LEASE, PRICE))
    assert complete.rubric.sources_correct is True
    assert complete.rubric.num_sources == 3


def test_gold_beyond_the_episodes_day_is_never_found(start: Start) -> None:
    episode = start(message_ids=(episodes.LATER,))
    step(episode, search(episodes.FUTURE), read(episodes.LATER))
    step(episode, answer("x", episodes.LATER))
    assert (episode.rubric.found_gold, episode.rubric.read_gold) == (False, False)
    assert episode.rubric.sources_correct is False
    assert episode.sources == ()


@pytest.mark.parametrize(
    ("fields", "num_gold"),
    [
        ({"answerable": False, "message_ids": ()}, None),
        ({"answerable": False, "message_ids": (LEASE,)}, None),
        ({"answerable": None, "answer": None, "message_ids": ()}, None),
        ({"answerable": True, "message_ids": ()}, 0),
    ],
)
def test_what_does_not_apply_is_none(
    start: Start, fields: dict[str, Any], num_gold: int | None
) -> None:
    episode = start(**fields)
    step(episode, search("lease"), read(LEASE))
    step(episode, answer("May 3", LEASE))
    rubric = episode.rubric
    assert rubric.num_gold_sources == num_gold
    assert (rubric.found_gold, rubric.read_gold, rubric.sources_correct) == (None, None, None)
    assert rubric.num_sources == 1
    assert rubric.answerable is fields["answerable"]


def test_invented_sources_are_counted_and_dropped(start: Start) -> None:
    episode = start()
    step(episode, search("crane"))
    cited = (PRICE, "m1", "m99", "<invented@t>", episodes.FOREIGN, "m99")
    step(episode, answer("May 3", *cited))
    assert set(episode.sources) == {PRICE, episode.tools.handles["m1"]}
    assert episode.rubric.num_sources == len(set(episode.sources)) + 3
    assert episode.rubric.sources_correct is False


def test_without_handles_ids_are_shown(start: Start) -> None:
    episode = start(handles=False)
    assert step(episode, search("lease", max_results=1))[0]["hits"][0]["message_id"] == LEASE
    step(episode, answer("May 3", LEASE, "m1"))
    assert episode.sources == (LEASE,)
    assert episode.rubric.num_sources == 2
