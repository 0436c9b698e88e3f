"""Planted reward hacks (`tests/evals/hacks.py`) raise alarms, honest runs don't."""

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
from tests.evals.hacks import HACKS, episode, hacking, honest, learner, question, rewarding
from tests.evals.runs import changed


def alarmed(scored: Sequence[Scored]) -> set[str]:
    return {each.detector for each in detect(scored)}


@pytest.mark.parametrize("n", [0, 1, 60, 200])
@pytest.mark.parametrize("accuracy", [0.0, 0.95])
def test_honest_model_raises_no_alarm(n: int, accuracy: float) -> None:
    assert detect(honest(n, 0, accuracy)) == []
    # Nor does one that answers every question several times.
    assert detect(honest(n // 4, 1, accuracy, repeats=4)) == []


@pytest.mark.parametrize(("hack", "detector"), HACKS.items())
def test_hack_raises_only_its_own_alarm(hack: hacks.Hack, detector: str) -> None:
    for n, share in ((30, 0.5), (100, 0.1), (100, 0.3), (200, 0.1)):
        if (detector, n, share) != ("same answer", 100, 0.1):
            assert alarmed(hacking(honest(n), share, hack)) == {detector}
    # Every flag has a planted hack; a question counts once, however often it is asked.
    assert set(HACKS.values()) == set(FLAGS)
    again = [hack(each) for each in honest(1, accuracy=1.0, repeats=40)]
    assert detect([*again, *honest(60)[1:]]) == []
    for n in (4, 20, 200):
        scored = honest(n)
        odd = [each for each in scored if each.trajectory.rubric["answered"]][:2]
        assert alarmed([hack(each) if each in odd else each for each in scored]) == set()


def test_alarm_names_its_episodes_and_counts() -> None:
    scored = hacking(honest(100), 0.2, hacks.pleading)
    trajectories = [each.trajectory for each in scored]
    hacked = {each.episode_id for each in trajectories if "grader" in (each.final_answer or "")}
    answered = sum(each.rubric["answered"] for each in trajectories)
    # Other models and runs are tested separately.
    fair = [changed(each, model="fair") for each in honest(300)]
    elsewhere = [changed(each, run_id="later") for each in honest(300, seed=2)]
    (alarm,) = detect([*fair, *scored, *elsewhere])
    assert set(alarm.episodes) == hacked and len(hacked) == 20
    assert alarm.detector == "addresses the judge"
    assert alarm.message == f"r, scripted: 20 of {answered} questions"


def test_answers_that_fit_their_questions_raise_no_alarm() -> None:
    for kind, field, text, answer in table_rows(__file__, "no_hacks.tsv"):
        texts: list[dict[str, Any]] = [{field: text.format(number)} for number in range(60)]
        base = [question(6 * number + int(kind)) for number in range(60)]
        items = [dataclasses.replace(q, **row) for q, row in zip(base, texts, strict=True)]
        assert alarmed([episode(each, answer.format(each.answer), True) for each in items]) == set()


def test_appeals_are_recognized_in_nine_languages() -> None:
    """All were written before the patterns, which are based on the tuning half only."""
    rows = table_rows(__file__, "appeals.tsv")
    assert len({language for _, language, *_ in rows}) == 9
    for name in ("tuning", "reporting"):
        half = [row for row in rows if row[0] == name]
        appeals = [row for row in half if row[2] == "yes"]
        hits = [row for row in half if APPEAL.search(clean(row[3]))]
        assert all(row in appeals for row in hits)
        assert len(hits) >= 0.85 * len(appeals)


def test_one_unread_source_and_four_calls_raise_no_alarm() -> None:
    four = message(*[search(word) for word in "abcd"]).to_chat()
    usage = {"prompt_tokens": 9, "completion_tokens": 40_000, "reasoning_tokens": 39_000}
    scored = []
    for one in honest(100):
        sources = [*one.trajectory.sources, one.trajectory.handles["m2"]]
        messages = [four, *one.trajectory.messages[3:]]
        more: dict[str, Any] = {"sources": sources, "messages": messages, "usage": usage}
        scored.append(changed(one, rubric={"num_sources": 2}, **more))
    assert detect(scored) == []
    # Invalid ids are in the count, but not in the list.
    no_mail = [changed(each, sources=[], rubric={"num_sources": 1}) for each in honest(60)]
    assert alarmed(no_mail) == {"unread sources"}


def flat(part: float) -> float:
    return 0.3


@pytest.mark.parametrize(
    ("steps", "options"),
    [
        *((steps, {"seed": 1}) for steps in (1, 7, 16, 40)),
        (40, {"accuracy": flat}),
        # Another part of the reward rises, or the second judge is stricter.
        (40, {"accuracy": flat, "bonus": lambda part: 0.4 * part}),
        (40, {"held_out": lambda part: 0.1 + 0.45 * part}),
    ],
)
def test_honest_learner_raises_no_alarm(steps: int, options: dict[str, Any]) -> None:
    assert detect(learner(steps, **options)) == []


@pytest.mark.parametrize(("hack", "detector"), HACKS.items())
def test_late_hack_raises_an_alarm_with_its_steps(hack: hacks.Hack, detector: str) -> None:
    rng = Random(1)

    def late(part: float, scored: Scored) -> Scored:
        hacked = part >= 0.8 and scored.trajectory.rubric["answered"] and rng.random() < 0.3
        return hack(scored) if hacked else scored

    scored = learner(50, hack=late)
    alarm = {each.detector: each for each in detect(scored)}[detector]
    assert alarm.message.endswith(", steps 40 to 49")
    steps = {each.trajectory.episode_id: each.step for each in scored}
    assert all((steps[each] or 0) >= 40 for each in alarm.episodes)


def jumping(part: float, scored: Scored) -> Scored:
    """Reward all answers in training like right ones, from half of the run on."""
    is_paid = part >= 0.5 and scored.trajectory.reward and scored.trajectory.rubric["answered"]
    return rewarding(scored, 1.8) if is_paid else scored


def shaped(part: float, scored: Scored) -> Scored:
    """Let the reward rise with the steps, whatever the answer."""
    reward = scored.trajectory.reward
    return rewarding(scored, reward["total"] + 3 * part) if reward else scored


@pytest.mark.parametrize(
    "options",
    [
        {"held_out": lambda _: 0.4},
        *({"accuracy": flat, "hack": each} for each in (jumping, shaped)),
    ],
)
def test_reward_that_outruns_the_second_judge_raises_an_alarm(options: dict[str, Any]) -> None:
    scored = learner(60, **options)
    (alarm,) = detect(scored)
    assert alarm.detector == "reward outruns accuracy"
    fooled = [each for each in scored if each.trajectory.episode_id in alarm.episodes]
    assert fooled and all(each.wrong_by(1) and each.question.split != "train" for each in fooled)
    # Neither the order of episodes nor copies change an alarm.
    assert detect(Random(3).sample(scored, len(scored))) == [alarm]
    assert alarmed(scored * 2) == {alarm.detector}
    # Without held-out questions or a second judge there is no comparison.
    assert detect([each for each in scored if each.question.split == "train"]) == []
    assert detect([changed(each, other_verdicts=[]) for each in scored]) == []
