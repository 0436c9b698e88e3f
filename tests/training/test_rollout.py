"""Rollouts: what the model sampled stays as it was, and an episode stops where it ends."""

import threading
from collections.abc import Callable, Sequence
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import Qwen2Tokenizer

from art_e.episode import EpisodeForm
from art_e.errors import UserError
from art_e.message import AssistantMessage
from art_e.tools import schemas
from tests.builders import LEASE, WAIT_S, answer, message, read, search
from tests.tiny_qwen import END
from tests.training.conftest import Begin, whole, written
from tests.training.scripted import IDK, Script
from training.rollout import ChatTokens, Rollout, Turn, roll_out, side_by_side

ROOMY = EpisodeForm(turn_tokens=400, episode_tokens=20_000)
RIGHT = [message(search("lease")), message(read("m1"), read(LEASE)), message(answer("May", "m1"))]
WRONG = [AssistantMessage("Hm."), message(search("crew", max_results=3)), message(read("m9")), IDK]
SCRIPTS = {"right": RIGHT, "wrong": WRONG}


Rolled = tuple[Rollout, Script]
Roll = Callable[..., Rolled]


@pytest.fixture
def roll(begin: Begin, tokens: ChatTokens, tokenizer: Qwen2Tokenizer) -> Roll:
    """Rolls out one episode of what a model says."""

    def rolled(script: Sequence[AssistantMessage | str], form: EpisodeForm = ROOMY) -> Rolled:
        engine = Script(tokenizer, [[each] for each in script], logprob=-0.5)
        [rollout] = roll_out([begin()], tokens, engine, form)
        return rollout, engine

    return rolled


def texts(script: Sequence[AssistantMessage]) -> list[str]:
    return [written(each) + END for each in script]


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_turn_by_turn(
    script: list[AssistantMessage], roll: Roll, tokenizer: Qwen2Tokenizer
) -> None:
    (episode, transcript), engine = roll(script)
    at_once, ids = whole(tokenizer, episode.messages), transcript.ids
    assert ids == at_once[: len(ids)]
    # Behind the end mark a template may still write a line end.
    assert str(tokenizer.decode(at_once[len(ids) :])).strip() == ""
    pairs = list(zip(transcript.completion_ids, transcript.own, strict=True))
    turns = tokenizer.decode([each for each, own in pairs if own])
    assert turns == "".join(texts(script))
    others = tokenizer.decode([each for each, own in pairs if not own])
    assert not any(each in others for each in texts(script))
    assert others.count("<|im_start|>assistant") == len(script) - 1
    assert transcript.logprobs == [-0.5 if own else 0.0 for own in transcript.own]
    assert episode.rubric.prompt_tokens == sum(len(prompt) for [prompt] in engine.seen)
    assert episode.rubric.completion_tokens == sum(transcript.own)


def test_episodes_do_not_wait(begin: Begin, tokens: ChatTokens, tokenizer: Qwen2Tokenizer) -> None:
    """The first episode's first turn comes only when the second is over."""
    over = threading.Event()
    scripts = [texts(RIGHT), texts(WRONG)]

    def turn(place: int, ids: list[int]) -> Turn:
        if place == 0:
            assert over.wait(WAIT_S)
        written = tokenizer.encode(scripts[place].pop(0))
        if place == 1 and not scripts[1]:
            over.set()
        return Turn(list(written), None)

    engine = partial(side_by_side, turn, slots=2)
    first, second = roll_out([begin(), begin()], tokens, engine, ROOMY)
    assert first.episode.final_answer == "May"
    assert second.episode.rubric.abstained
    ids = whole(tokenizer, first.episode.messages)
    assert first.transcript.ids == ids[: len(first.transcript.ids)]


def test_a_failing_turn_ends_all_episodes(begin: Begin, tokens: ChatTokens) -> None:
    asked = []

    def turn(place: int, ids: list[int]) -> Turn:
        asked.append(place)
        if place == 1:
            raise UserError("the server is gone")
        return Turn([tokens.end_id], None)

    engine = partial(side_by_side, turn, slots=1)
    with pytest.raises(UserError, match="the server is gone"):
        roll_out([begin() for _ in range(30)], tokens, engine, ROOMY)
    # Two turns without a call end the first; none of the last is asked for.
    assert asked[:3] == [0, 0, 1]
    assert 29 not in asked


def test_we_end_cut_turns(roll: Roll, tokens: ChatTokens, tokenizer: Qwen2Tokenizer) -> None:
    cut = written(RIGHT[0])[:-20]
    (episode, transcript), _ = roll([cut, "", *map(written, RIGHT)])
    length = len(tokenizer.encode(cut))
    assert transcript.own[: length + 1] == [True] * length + [False]
    assert transcript.completion_ids[length] == tokens.end_id
    assert (episode.rubric.unparseable_calls, episode.final_answer) == (2, "May")


def test_no_room_for_another_turn_is_out_of_turns(roll: Roll, tokenizer: Qwen2Tokenizer) -> None:
    (_, full), _ = roll(RIGHT)
    turn = max(len(tokenizer.encode(each)) for each in texts(RIGHT))
    # One token too few for the last turn, and no room for the first one.
    for limit, most in ((len(full.ids) - 1, 2), (len(full.prompt_ids), 0)):
        (episode, _), engine = roll(RIGHT, EpisodeForm(turn_tokens=turn, episode_tokens=limit))
        assert episode.rubric.ran_out_of_turns
        assert episode.final_answer is None
        assert len(engine.seen) <= most


@given(st.integers(0, 4_000), st.sampled_from(sorted(SCRIPTS)))
def test_episodes_keep_to_limit(
    roll: Roll, tokenizer: Qwen2Tokenizer, room: int, name: str
) -> None:
    """Observations count too: a long mail used to pass the limit by any length."""
    (_, full), _ = roll(SCRIPTS[name])
    turn = max(len(tokenizer.encode(each)) for each in texts(SCRIPTS[name]))
    limits = EpisodeForm(turn_tokens=turn, episode_tokens=len(full.prompt_ids) + room)
    (episode, transcript), _ = roll(SCRIPTS[name], limits)
    assert len(transcript.ids) <= limits.episode_tokens
    assert transcript.own[-1:] in ([], [True])
    assert episode.done


def test_a_template_that_rewrites_the_past_is_refused(tokenizer: Qwen2Tokenizer) -> None:
    before = tokenizer.chat_template
    tokenizer.chat_template = (
        "{{ messages | length }}{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{{ m.content }}<|im_end|>\n{% endfor %}"
    )
    try:
        with pytest.raises(UserError, match="turn by turn"):
            ChatTokens(tokenizer, schemas(), tokenizer.get_vocab()[END])
    finally:
        tokenizer.chat_template = before
