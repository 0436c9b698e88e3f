"""The expert: without noise it is right, with noise it errs as often as it is told to."""

import asyncio
import json
from collections.abc import Sequence
from random import Random

import pytest

from art_e.agent import run_episode
from art_e.episode import Episode
from art_e.inbox.file import InboxFile
from art_e.trajectory import Trajectory
from data_pipeline.synthetic.plan import Planted
from data_pipeline.synthetic.world import WorldConfig, ledger
from evals.judges.offline import OfflineJudge
from training.expert import NOTHING, Expert
from training.judging import LenientJudge
from training.recipe import Noise

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
    for each, trajectory in zip(planted, played, strict=True):
        rubric = trajectory.rubric
        assert rubric["answered"] or rubric["abstained"]
        assert not rubric["unparseable_calls"] + rubric["bad_argument_calls"]
        if not each.question.answerable:
            assert trajectory.final_answer == NOTHING
        elif rubric["answered"]:
            answered += 1
            assert rubric["read_gold"]
            assert rubric["sources_correct"]
            verdict = judge.decide(each.question, trajectory.final_answer)
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
            LenientJudge().decide(each.question, trajectory.final_answer).correct
            for each, trajectory in zip(chosen, noisy, strict=True)
        ]
        assert taken == [each.question.answerable for each in chosen]
    elif name == "wrong_answers":
        judge = OfflineJudge()
        right = [
            judge.decide(each.question, trajectory.final_answer).correct
            for each, trajectory in zip(chosen, noisy, strict=True)
            if trajectory.rubric["answered"]
        ]
        assert sum(map(bool, right)) < len(right) / 3
    else:
        assert sum(other["effort"] > one["effort"] for one, other in facts) > 10


def test_texts_begin_with_a_space_where_they_do_in_what_they_are_copied_from(
    world: InboxFile, planted: list[Planted]
) -> None:
    spaced = []
    for trajectory in play(world, planted, PERFECT, leading_space=True):
        if not trajectory.rubric["answered"]:
            continue
        answer = str(trajectory.final_answer)
        bodies = [
            json.loads(each["content"].partition("\n")[0])["body"]
            for each in trajectory.messages
            if each["role"] == "tool" and '"body":' in each["content"]
        ]
        body = next((each for each in reversed(bodies) if answer.strip() in each), None)
        if body is not None:
            at = body.index(answer.strip())
            assert answer.startswith(" ") == body[:at].endswith(" ")
            spaced.append(answer.startswith(" "))
    assert {True, False} == set(spaced)
