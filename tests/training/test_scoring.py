"""From rollouts to rewards: a judge that fails pays nothing, and judges are asked together."""

import asyncio
from collections.abc import Sequence

import pytest

from art_e.inbox.mail import Email
from art_e.message import AssistantMessage
from art_e.question import Question
from evals.judges.offline import Judge, OfflineJudge, Verdict
from evals.scored import Scored
from tests.builders import LEASE, answer, message
from tests.builders import read_episodes as read
from tests.training.conftest import Begin
from training.reward import RewardWeights
from training.roller import Scorer, figures, rewards_of
from training.rollout import Conversation, Rollout

RIGHT = [message(read(LEASE)), message(answer("On May 3."))]
WRONG = [message(read(LEASE)), message(answer("On June 9."))]
IDK = [message(answer(None))]
LOST = [AssistantMessage("no call")] * 3


class Meeting(OfflineJudge):
    """Answers once as many have been asked as there are, and never before."""

    def __init__(self, number: int) -> None:
        self._missing = number
        self._all = asyncio.Event()

    async def judge(
        self, question: Question, answer: str | None, mails: Sequence[Email] = ()
    ) -> Verdict:
        self._missing -= 1
        if self._missing == 0:
            self._all.set()
        await asyncio.wait_for(self._all.wait(), 20)
        return self.decide(question, answer)


class Failing(OfflineJudge):
    name = "failing/1"

    async def judge(
        self, question: Question, answer: str | None, mails: Sequence[Email] = ()
    ) -> Verdict:
        return Verdict(None, None, self.name, "could not be asked")


def rollouts(begin: Begin, *scripts: Sequence[AssistantMessage]) -> list[Rollout]:
    made = []
    for script in scripts:
        episode = begin()
        for each in script:
            episode.step(each)
        made.append(Rollout(episode, Conversation([])))
    return made


def score(judge: Judge, made: Sequence[Rollout], *others: Judge) -> list[Scored]:
    scorer = Scorer(judge, RewardWeights(), "run", "tiny", others)
    return asyncio.run(scorer.score(made, {"step": 3, "group": "3/q"}))


def totals(scored: Sequence[Scored]) -> list[float | None]:
    return [rewards[0] if (rewards := rewards_of([each])) else None for each in scored]


def test_outcomes_are_paid_in_their_order(begin: Begin) -> None:
    scored = score(OfflineJudge(), rollouts(begin, RIGHT, IDK, WRONG, LOST))
    paid = [each or 0.0 for each in totals(scored)]
    assert paid == sorted(paid, reverse=True)
    assert len(set(paid)) == 4
    assert [each.correct for each in scored] == [True, False, False, False]
    # What was lost was never judged, and is paid all the same.
    assert scored[3].trajectory.verdict is None
    for each in scored:
        trajectory = each.trajectory
        assert (trajectory.run_id, trajectory.model) == ("run", "tiny")
        assert trajectory.policy.items() >= {"step": 3, "group": "3/q"}.items()
        assert trajectory.question == each.question.to_row()
        assert trajectory.reward is not None
        assert sum(trajectory.reward["components"].values()) == pytest.approx(
            trajectory.reward["total"]
        )


def test_a_judge_that_fails_pays_nothing_and_is_counted(begin: Begin) -> None:
    scored = score(Failing(), rollouts(begin, RIGHT, IDK, WRONG, LOST))
    paid = totals(scored)
    # Never 0: these leave their group. What needs no judge is paid.
    assert [each is None for each in paid] == [True, False, True, False]
    assert scored[0].trajectory.reward is None
    found = figures(scored)
    assert found["unjudged"] == 2
    told = [each for each in paid if each is not None]
    assert found["reward"] == pytest.approx(sum(told) / 2)


def test_all_are_asked_at_the_same_time(begin: Begin) -> None:
    made = rollouts(begin, *[RIGHT, WRONG] * 4)
    scored = score(Meeting(len(made)), made)
    assert [each.correct for each in scored] == [True, False] * 4


def test_other_judges_are_asked_beside_and_pay_nothing(begin: Begin) -> None:
    made = rollouts(begin, RIGHT, WRONG)
    alone = score(OfflineJudge(), made)
    scored = score(OfflineJudge(), made, Failing(), Meeting(2))
    assert totals(scored) == totals(alone)
    for each in scored:
        assert [verdict["judge"] for verdict in each.verdicts] == [
            OfflineJudge().name,
            "failing/1",
            OfflineJudge().name,
        ]
        assert each.verdicts[1]["correct"] is None
