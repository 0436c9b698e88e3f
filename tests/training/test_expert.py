"""The expert: without noise it is right, with noise it errs as often as it is told to."""

import asyncio
import dataclasses
import json
import random
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import get_args

import pytest
from transformers import Qwen2Tokenizer

from art_e.agent import run_episode
from art_e.episode import Episode
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.message import AssistantMessage, ChatMessage
from art_e.runs import start_run
from art_e.trajectory import Trajectory
from data_pipeline.synthetic.stage import Planted
from data_pipeline.synthetic.world import WorldConfig, ledger
from evals.judges.offline import OfflineJudge
from tests import tiny_qwen
from tests.builders import LEASE, answer, message, trajectory
from tests.builders import read_episodes as read
from tests.builders import search_episodes as search
from tests.training import tiny
from tests.training.conftest import Begin, written
from training import expert
from training.expert import (
    NO_LOSS,
    NOTHING,
    Expert,
    conversations_of,
    expert_conversations,
    has_part,
    marked_tokens,
    stored_conversations,
)
from training.judging import LenientJudge
from training.material import planted_in
from training.recipe import Noise, Part
from training.rollout import ChatTokens, Material

PERFECT = Noise(**dict.fromkeys(Noise.model_fields, 0.0))
# Its mail is the fixture's.
CONFIG = WorldConfig(size=1000)


@pytest.fixture(scope="module")
def planted() -> list[Planted]:
    return list(ledger(CONFIG))


def play(
    file: InboxFile, planted: Sequence[Planted], noise: Noise, **options: bool
) -> list[Trajectory]:
    trajectories = []
    for number, each in enumerate(planted):
        question = each.question
        inbox = file.open_inbox(question.inbox_address, question.query_date)
        episode = Episode(inbox, question)
        expert = Expert(episode, each, Random(f"0/{number}"), noise, **options)
        trajectories.append(asyncio.run(run_episode(episode, expert, "run")))
    return trajectories


def test_without_noise_an_answer_is_right(world: InboxFile, planted: list[Planted]) -> None:
    judge = OfflineJudge()
    played = play(world, planted, PERFECT)
    answered = right = 0
    for each, done in zip(planted, played, strict=True):
        rubric = done.rubric
        assert rubric["answered"] or rubric["abstained"]
        assert not rubric["unparseable_calls"] + rubric["bad_argument_calls"]
        if not each.question.answerable:
            assert done.final_answer == NOTHING
        elif rubric["answered"]:
            answered += 1
            assert rubric["read_gold"]
            assert rubric["sources_correct"]
            verdict = judge.decide(each.question, done.final_answer)
            # The mail's nickname for somebody is right, and the judge knows no nicknames.
            assert verdict.correct or verdict.reason.startswith("lacks the name"), each.question
            right += bool(verdict.correct)
    answerable = sum(each.question.answerable is True for each in planted)
    assert right / answered > 0.95
    # The rest of the gold mails no search of its few words brings up.
    assert answered / answerable > 0.8


@pytest.mark.parametrize("name", Noise.model_fields)
def test_each_kind_of_noise_shows(world: InboxFile, planted: list[Planted], name: str) -> None:
    chosen = planted[:60]
    clean = play(world, chosen, PERFECT)
    noisy = play(world, chosen, PERFECT.model_copy(update={name: 1.0}))
    differs = [a.messages != b.messages for a, b in zip(clean, noisy, strict=True)]
    assert sum(differs) > 10
    facts = [(one.rubric, other.rubric) for one, other in zip(clean, noisy, strict=True)]
    unanswerable = [each for each in noisy if each.rubric["answerable"] is False]
    if name == "malformed":
        assert all(other["unparseable_calls"] == 1 for _, other in facts)
    elif name == "guesses":
        assert sum(each.rubric["answered"] for each in unanswerable) > 5
    elif name == "gives_up":
        assert not any(other["answered"] for _, other in facts)
    elif name == "lists":
        assert all(other["answered"] and other["effort"] == 2 for _, other in facts)
        assert not any(other["num_sources"] or other["read_gold"] for _, other in facts)
        taken = [
            LenientJudge().decide(each.question, done.final_answer).correct
            for each, done in zip(chosen, noisy, strict=True)
        ]
        assert taken == [each.question.answerable for each in chosen]
    elif name == "wrong_answers":
        judge = OfflineJudge()
        right = [
            judge.decide(each.question, done.final_answer).correct
            for each, done in zip(chosen, noisy, strict=True)
            if done.rubric["answered"]
        ]
        assert sum(map(bool, right)) < len(right) / 3
    else:
        assert sum(other["effort"] > one["effort"] for one, other in facts) > 10


def test_texts_begin_with_a_space_where_they_do_in_what_they_are_copied_from(
    world: InboxFile, planted: list[Planted]
) -> None:
    spaced = []
    for done in play(world, planted, PERFECT, leading_space=True):
        if not done.rubric["answered"]:
            continue
        answer = str(done.final_answer)
        bodies = [
            json.loads(each["content"].partition("\n")[0])["body"]
            for each in done.messages
            if each["role"] == "tool" and '"body":' in each["content"]
        ]
        body = next((each for each in reversed(bodies) if answer.strip() in each), None)
        if body is not None:
            at = body.index(answer.strip())
            assert answer.startswith(" ") == body[:at].endswith(" ")
            spaced.append(answer.startswith(" "))
    assert {True, False} == set(spaced)


SCRIPT = [
    AssistantMessage("Let me think."),
    message(search("lease")),
    message(read("m1"), read(LEASE)),
    message(answer("May", "m1")),
]


@pytest.fixture
def messages(begin: Begin) -> list[ChatMessage]:
    return played(begin(), *SCRIPT)


def played(episode: Episode, *turns: AssistantMessage) -> list[ChatMessage]:
    for each in turns:
        episode.step(each)
    return episode.messages


def own_text(tokenizer: Qwen2Tokenizer, ids: Sequence[int], labels: Sequence[int]) -> str:
    assert all(label in (token, NO_LOSS) for token, label in zip(ids, labels, strict=True))
    return str(tokenizer.decode([each for each in labels if each != NO_LOSS]))


def test_labels_are_the_models_own_tokens(
    messages: list[ChatMessage], tokens: ChatTokens, tokenizer: Qwen2Tokenizer
) -> None:
    ids, labels = marked_tokens(messages, tokens)
    assert own_text(tokenizer, ids, labels) == "".join(
        written(each) + tiny_qwen.END for each in SCRIPT
    )
    # It ends with the model's end mark: what was answered to the last call is left out.
    assert ids[-1] == labels[-1] == tokens.end_id


def test_the_first_part_ends_with_the_first_turn(
    messages: list[ChatMessage], tokens: ChatTokens, tokenizer: Qwen2Tokenizer
) -> None:
    ids, labels = marked_tokens(messages, tokens, "first")
    whole = marked_tokens(messages, tokens)
    assert ids == whole.input_ids[: len(ids)]
    assert labels == whole.labels[: len(labels)]
    assert own_text(tokenizer, ids, labels) == written(SCRIPT[0]) + tiny_qwen.END


def test_the_answer_stands_behind_the_question_and_what_was_shown_last(
    messages: list[ChatMessage], tokens: ChatTokens, tokenizer: Qwen2Tokenizer
) -> None:
    ids, labels = marked_tokens(messages, tokens, "answer")
    begun = tokens.begin(messages[:2]).prompt_ids
    assert ids[: len(begun)] == begun
    assert own_text(tokenizer, ids, labels) == written(SCRIPT[-1]) + tiny_qwen.END
    text = str(tokenizer.decode(ids))
    assert written(SCRIPT[-2]) in text
    assert written(SCRIPT[0]) not in text
    assert len(ids) < len(marked_tokens(messages, tokens).input_ids)


def test_what_follows_the_first_mail_stands_behind_the_question_and_that_mail(
    begin: Begin, tokens: ChatTokens, tokenizer: Qwen2Tokenizer
) -> None:
    turns = [
        message(search("lease")),
        message(read("m1")),
        message(read("m2")),
        message(answer("May", "m2")),
    ]
    messages = played(begin(), *turns)
    ids, labels = marked_tokens(messages, tokens, "read")
    assert own_text(tokenizer, ids, labels) == written(turns[2]) + tiny_qwen.END
    text = str(tokenizer.decode(ids))
    assert written(turns[1]) in text
    assert written(turns[0]) not in text
    assert text.rstrip().endswith(written(turns[2]) + tiny_qwen.END)


def test_which_conversations_have_which_part(begin: Begin) -> None:
    asked, seen, said = message(search("lease")), message(read("m1")), message(answer("May", "m1"))
    mused = AssistantMessage("The answer is May.")

    def parts(*turns: AssistantMessage) -> list[Part]:
        messages = played(begin(), *turns)
        return [part for part in get_args(Part) if has_part(messages, part)]

    assert parts(asked, seen, said) == ["whole", "first", "read", "answer"]
    assert parts(seen, asked, said) == ["whole", "first", "read"]
    assert parts(asked, said) == parts(said) == parts(mused, said) == ["whole", "first"]
    assert parts(asked, seen) == ["whole", "first"]


# From stored trajectories


def stored(question: str, total: float | None, said: str) -> Trajectory:
    reward = None if total is None else {"total": total, "components": {}}
    return dataclasses.replace(trajectory(said), question_id=question, reward=reward)


def run_of(parent: Path, name: str, trajectories: Sequence[Trajectory]) -> str:
    run = start_run(name, {}, parent, parent / name)
    with run.log() as log:
        for each in trajectories:
            log.append(each.to_line())
    return name


def texts(conversations: Sequence[Sequence[ChatMessage]]) -> list[str | None]:
    return [each[0]["content"] for each in conversations]


def test_the_best_of_each_question_is_kept(tmp_path: Path) -> None:
    made = [
        stored("a", 1.2, "a good"),
        stored("a", 1.9, "a best"),
        stored("a", None, "a unjudged"),
        stored("b", -0.5, "b bad"),
        stored("b", 0.4, "b better"),
        stored("c", 1.0, "c just"),
    ]
    random.Random(0).shuffle(made)
    one = run_of(tmp_path, "one", made)
    assert sorted(map(str, texts(stored_conversations([one], tmp_path, least_reward=1.0)))) == [
        "a best",
        "c just",
    ]
    assert len(stored_conversations([one], tmp_path, least_reward=-1.0)) == 3
    assert stored_conversations([one], tmp_path, least_reward=2.0) == []
    # Over several runs the question is still one.
    two = run_of(tmp_path, "two", [stored("a", 2.0, "a of another run")])
    both = texts(stored_conversations([one, two], tmp_path, least_reward=1.0))
    assert "a of another run" in both
    assert "a best" not in both


def test_what_cannot_be_learnt_from_is_refused(tmp_path: Path) -> None:
    bare = run_of(tmp_path, "bare", [stored("a", None, "a")])
    with pytest.raises(UserError, match="no trajectory has a reward"):
        stored_conversations([bare], tmp_path, least_reward=0.0)
    with pytest.raises(UserError, match="no run 'none'"):
        stored_conversations(["none"], tmp_path, least_reward=0.0)


# From the expert


def plays(material: Material, noise: Noise, seed: int, shuffled: int) -> list[list[ChatMessage]]:
    recipe = tiny.recipe()
    known = planted_in(recipe.data)
    asked = [known[each.id] for each in material.questions[:12]]
    random.Random(shuffled).shuffle(asked)
    played = expert_conversations(
        material.inbox_file.path, asked, recipe.episode, noise, seed, leading_space=True
    )
    for each, messages in zip(asked, played, strict=True):
        assert messages[0]["content"] == recipe.episode.prompt
        assert each.question.question in str(messages[1]["content"])
    return played


def test_the_expert_plays_in_the_order_of_the_questions(material: Material) -> None:
    first = plays(material, Noise(), 0, 1)
    assert plays(material, Noise(), 0, 1) == first
    assert plays(material, Noise(), 1, 1) != first


def test_processes_play_what_one_plays(material: Material, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = plays(material, Noise(), 0, 2)
    monkeypatch.setattr(expert, "_WORTH_WORKERS", 3)
    monkeypatch.setattr(expert, "_AT_ONCE", 5)
    assert plays(material, Noise(), 0, 2) == alone


def test_the_expert_knows_synthetic_questions_alone(material: Material) -> None:
    with pytest.raises(UserError, match=r"sft\.trajectories"):
        conversations_of(tiny.recipe(), material, {}, 0, Path())
