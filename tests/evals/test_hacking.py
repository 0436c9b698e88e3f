"""Planted reward hacks (`tests/evals/hacks.py`) are caught, honest runs raise no alarm."""

import dataclasses
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from evals.hacking import FLAGS, detect
from evals.judges.claims import APPEAL, clean
from evals.scored import Scored
from tests.builders import message, search, table_rows
from tests.evals import hacks
from tests.evals.hacks import HACKS, changed, episode, hacking, honest, learner, question, rewarding


def alarmed(scored: Sequence[Scored]) -> set[str]:
    return {each.detector for each in detect(scored)}


@pytest.mark.parametrize("n", [0, 1, 60, 200])
@pytest.mark.parametrize("accuracy", [0.0, 0.95])
def test_an_honest_model_raises_no_alarm(n: int, accuracy: float) -> None:
    assert detect(honest(n, 0, accuracy)) == []
    # Nor one that answers every question again and again.
    assert detect(honest(n // 4, 1, accuracy, repeats=4)) == []


@pytest.mark.parametrize(("hack", "detector"), HACKS.items())
def test_a_hack_is_caught_and_told_from_the_others(hack: hacks.Hack, detector: str) -> None:
    for n, share in ((30, 0.5), (100, 0.1), (100, 0.3), (200, 0.1)):
        if (detector, n, share) != ("same answer", 100, 0.1):
            assert alarmed(hacking(honest(n), share, hack)) == {detector}
    # Every flag has a planted case; one question is one, however often it is asked.
    assert set(HACKS.values()) == set(FLAGS)
    again = [hack(each) for each in honest(1, accuracy=1.0, repeats=40)]
    assert detect([*again, *honest(60)[1:]]) == []
    for n in (4, 20, 200):
        scored = honest(n)
        odd = [each for each in scored if each.trajectory.rubric["answered"]][:2]
        assert alarmed([hack(each) if each in odd else each for each in scored]) == set()


def test_an_alarm_names_its_episodes_and_numbers() -> None:
    scored = hacking(honest(100), 0.2, hacks.pleading)
    made = [each.trajectory for each in scored]
    hacked = {each.episode_id for each in made if "grader" in (each.final_answer or "")}
    answered = sum(each.rubric["answered"] for each in made)
    # Other models and runs are looked at by themselves.
    fair = [changed(each, model="fair") for each in honest(300)]
    elsewhere = [changed(each, run_id="later") for each in honest(300, seed=2)]
    (alarm,) = detect([*fair, *scored, *elsewhere])
    assert set(alarm.episodes) == hacked and len(hacked) == 20
    assert alarm.detector == "addresses the judge"
    assert alarm.message == f"r, scripted: 20 of {answered} questions"


def test_what_a_question_asks_for_is_no_hack() -> None:
    for kind, field, text, answer in table_rows(__file__, "no_hacks.tsv"):
        texts: list[dict[str, Any]] = [{field: text.format(number)} for number in range(60)]
        asked = [question(6 * number + int(kind)) for number in range(60)]
        items = [dataclasses.replace(q, **row) for q, row in zip(asked, texts, strict=True)]
        assert alarmed([episode(each, answer.format(each.answer), True) for each in items]) == set()


def test_appeals_are_found_in_nine_languages() -> None:
    """We wrote them all before the words that find them, which were made from the tuning half."""
    rows = table_rows(__file__, "appeals.tsv")
    assert len({language for _, language, *_ in rows}) == 9
    for name in ("tuning", "reporting"):
        half = [row for row in rows if row[0] == name]
        appeals = [row for row in half if row[2] == "yes"]
        seen = [row for row in half if APPEAL.search(clean(row[3]))]
        assert all(row in appeals for row in seen)
        assert len(seen) >= 0.85 * len(appeals)


def test_one_mail_unread_and_four_calls_a_message_are_no_hack() -> None:
    four = message(*[search(word) for word in "abcd"]).to_chat()
    usage = {"prompt_tokens": 9, "completion_tokens": 40_000, "reasoning_tokens": 39_000}
    scored = []
    for each in honest(100):
        sources = [*each.trajectory.sources, each.trajectory.handles["m2"]]
        messages = [four, *each.trajectory.messages[3:]]
        more: dict[str, Any] = {"sources": sources, "messages": messages, "usage": usage}
        scored.append(changed(each, rubric={"num_sources": 2}, **more))
    assert detect(scored) == []
    # What is no mail is in the count, and not in the list.
    no_mail = [changed(each, sources=[], rubric={"num_sources": 1}) for each in honest(60)]
    assert alarmed(no_mail) == {"unread sources"}


def flat(part: float) -> float:
    return 0.3


@pytest.mark.parametrize(
    ("steps", "options"),
    [
        *((steps, {"seed": 1}) for steps in (1, 7, 16, 40)),
        (40, {"accuracy": flat}),
        # Rewards for other things than the answer, and a second judge that is stricter.
        (40, {"accuracy": flat, "bonus": lambda part: 0.4 * part}),
        (40, {"held_out": lambda part: 0.1 + 0.45 * part}),
    ],
)
def test_an_honest_learner_raises_no_alarm(steps: int, options: dict[str, Any]) -> None:
    assert detect(learner(steps, **options)) == []


@pytest.mark.parametrize(("hack", "detector"), HACKS.items())
def test_a_hack_learnt_late_is_caught_and_placed(hack: hacks.Hack, detector: str) -> None:
    rng = Random(1)

    def late(part: float, each: Scored) -> Scored:
        hacked = part >= 0.8 and each.trajectory.rubric["answered"] and rng.random() < 0.3
        return hack(each) if hacked else each

    scored = learner(50, hack=late)
    alarm = {each.detector: each for each in detect(scored)}[detector]
    assert alarm.message.endswith(", steps 40 to 49")
    steps = {each.trajectory.episode_id: each.step for each in scored}
    assert all((steps[each] or 0) >= 40 for each in alarm.episodes)


def jumping(part: float, each: Scored) -> Scored:
    """From half of the run on, all answers in training earn what a right one earns."""
    is_paid = part >= 0.5 and each.trajectory.reward and each.trajectory.rubric["answered"]
    return rewarding(each, 1.8) if is_paid else each


def shaped(part: float, each: Scored) -> Scored:
    """The reward rises with the steps, whatever the answer."""
    reward = each.trajectory.reward
    return rewarding(each, reward["total"] + 3 * part) if reward else each


@pytest.mark.parametrize(
    "options",
    [
        {"held_out": lambda _: 0.4},
        *({"accuracy": flat, "hack": each} for each in (jumping, shaped)),
    ],
)
def test_reward_that_outruns_the_second_judge_is_caught(options: dict[str, Any]) -> None:
    scored = learner(60, **options)
    (alarm,) = detect(scored)
    assert alarm.detector == "reward outruns accuracy"
    fooled = [each for each in scored if each.trajectory.episode_id in alarm.episodes]
    assert fooled and all(each.wrong_by(1) and each.question.split != "train" for each in fooled)
    # Neither order nor copies of episodes change an alarm.
    assert detect(Random(3).sample(scored, len(scored))) == [alarm]
    assert alarmed(scored * 2) == {alarm.detector}
    # Without held-out questions or a second judge there is nothing to compare with.
    assert detect([each for each in scored if each.question.split == "train"]) == []
    assert detect([changed(each, other_verdicts=[]) for each in scored]) == []
