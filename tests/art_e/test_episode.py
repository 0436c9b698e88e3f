"""An episode from its first message to its end: turns, calls, answers."""

import dataclasses
import json

import pytest

from art_e.episode import MAX_CALLS, Episode
from art_e.inbox.file import InboxFile
from art_e.message import AssistantMessage
from tests import builders as episodes
from tests.builders import CREW, LEASE, PRICE, QUESTION, Start, answer, call, message, step
from tests.builders import read_episodes as read
from tests.builders import search_episodes as search

TALK = AssistantMessage("Let me think.")
DONE = {"done": True}


# The start


def test_begins_with_the_owner_the_day_and_the_question(start: Start) -> None:
    episode = start(max_turns=7)
    system, user = episode.messages
    assert system["role"] == "system"
    for told in (episodes.BOB, "2020-01-31", "7 turns"):
        assert told in system["content"]
    assert "$" not in system["content"]
    assert user == {"role": "user", "content": QUESTION.question}
    assert not episode.done


def test_a_prompt_of_ones_own_has_its_own_hash(inbox_file: InboxFile) -> None:
    inbox = inbox_file.open_inbox(episodes.BOB)
    own = Episode(inbox, QUESTION, system_prompt="$inbox_address, $today, $5")
    assert own.messages[0]["content"] == f"{episodes.BOB}, not given: all mail counts, $5"
    assert own.prompt_hash != Episode(inbox, QUESTION).prompt_hash
    assert Episode(inbox, QUESTION).prompt_hash == Episode(inbox, QUESTION).prompt_hash


# Turns, calls and effort


def test_a_whole_episode(start: Start) -> None:
    episode = start()
    hits = step(episode, search("lease"))[0]["hits"]
    assert episode.rubric.found_gold is True
    assert episode.rubric.read_gold is False
    mail = step(episode, read(hits[0]["message_id"]))[0]
    assert "May 3" in mail["body"]
    assert episode.rubric.read_gold is True
    assert step(episode, answer("May 3", hits[0]["message_id"])) == [DONE]
    assert episode.done
    assert episode.final_answer == "May 3"
    assert episode.sources == (LEASE,)
    assert dataclasses.asdict(episode.rubric) == {
        "max_turns": 10,
        "answerable": True,
        "num_gold_sources": 1,
        "answered": True,
        "abstained": False,
        "sources_correct": True,
        "num_sources": 1,
        "found_gold": True,
        "read_gold": True,
        "turns": 3,
        "effort": 3,
        "tool_calls": 3,
        "invalid_reads": 0,
        "unparseable_calls": 0,
        "unknown_tool_calls": 0,
        "bad_argument_calls": 0,
        "lost_to_format": False,
        "ran_out_of_turns": False,
        "prompt_tokens": 0,
        "completion_tokens": 0,
    }
    with pytest.raises(RuntimeError, match="done"):
        episode.step(message(search("lease")))
    assert episode.rubric.turns == 3


def test_four_calls_of_a_message_run_and_the_fifth_is_refused(start: Start) -> None:
    episode = start()
    observations = step(
        episode, search("lease"), read(PRICE), read(CREW), search("crane"), read(LEASE)
    )
    assert ["hits" in each or "body" in each for each in observations] == [True] * 4 + [False]
    assert f"first {MAX_CALLS} calls" in observations[4]["error"]
    rubric = episode.rubric
    assert (rubric.turns, rubric.effort, rubric.tool_calls) == (1, 5, 5)
    assert rubric.read_gold is False
    # The fifth call was right in itself.
    assert rubric.bad_argument_calls + rubric.unparseable_calls + rubric.unknown_tool_calls == 0


def test_effort_charges_calls_beyond_the_first_of_each_message(start: Start) -> None:
    episode = start()
    step(episode, search("a"), search("b"), search("c"))
    step(episode, search("d"))
    episode.step(TALK)
    step(episode, call("x", "{}"), search("e"))
    assert (episode.rubric.turns, episode.rubric.effort) == (4, 7)
    assert episode.rubric.tool_calls == 6


def test_the_answer_ends_the_episode_after_the_other_calls(start: Start) -> None:
    episode = start()
    observations = step(episode, answer("May 3", "m1"), search("lease"), read("m1"))
    assert observations[0] == DONE
    assert observations[1]["hits"][0]["message_id"] == "m1"
    assert "May 3" in observations[2]["body"]
    assert episode.done
    assert episode.sources == (LEASE,)
    assert episode.rubric.read_gold is True


def test_of_two_answers_the_first_counts(start: Start) -> None:
    episode = start()
    observations = step(episode, answer("May 3", LEASE), answer("June 9"))
    assert observations[0] == DONE
    assert "already" in observations[1]["error"]
    assert episode.final_answer == "May 3"
    assert episode.sources == (LEASE,)


def test_an_answer_after_four_calls_is_refused(start: Start) -> None:
    episode = start()
    step(episode, *[search("lease")] * 4, answer("May 3"))
    assert not episode.done
    assert not episode.rubric.answered


def test_text_beside_calls_is_kept(start: Start) -> None:
    episode = start()
    episode.step(message(search("lease"), text="I search."))
    assert episode.messages[2]["content"] == "I search."
    assert len(episode.messages[2]["tool_calls"]) == 1


# The end


def test_running_out_of_turns_is_neither_answer_nor_abstention(start: Start) -> None:
    episode = start(max_turns=3)
    for _ in range(3):
        assert not episode.done
        step(episode, search("lease"))
    assert episode.done
    rubric = episode.rubric
    assert rubric.ran_out_of_turns
    assert rubric.turns == 3
    assert not (rubric.answered or rubric.abstained or rubric.lost_to_format)
    assert episode.final_answer is None
    assert rubric.sources_correct is False


def test_three_wrong_messages_at_the_limit_are_lost_to_format(start: Start) -> None:
    episode = start(max_turns=3)
    for _ in range(3):
        episode.step(TALK)
    assert episode.rubric.lost_to_format
    assert not episode.rubric.ran_out_of_turns


def test_the_last_turn_is_announced_once(start: Start) -> None:
    episode = start(max_turns=4)
    told = [
        ["one turn left" in each["content"] for each in episode.step(said)]
        for said in (message(search("lease"), read("m1")), TALK, message(search("a"), read(CREW)))
    ]
    assert told == [[False, False], [False], [False, True]]
    last = episode.messages[-1]["content"].split("\n")
    assert [next(iter(json.loads(line))) for line in last] == ["message_id", "note"]
    assert not any("one turn left" in each["content"] for each in episode.step(TALK))


def test_an_episode_without_room_is_cut_off_as_out_of_turns(start: Start) -> None:
    episode = start()
    step(episode, search("lease"))
    episode.cut_off()
    assert episode.done
    assert episode.rubric.ran_out_of_turns
    assert episode.rubric.turns == 1
    with pytest.raises(RuntimeError, match="done"):
        episode.cut_off()
