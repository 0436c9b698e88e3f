"""From episodes to verdicts and rewards: who judges, what the gate pays, and judges that fail."""

import asyncio
from collections.abc import Sequence

import pytest

from art_e.inbox.mail import Email
from art_e.message import AssistantMessage
from art_e.question import Question
from evals.judges.offline import OfflineJudge
from evals.scored import Scored
from evals.verdict import Judge, Verdict
from tests.builders import CREW, LEASE, answer, message, read, search
from tests.training.conftest import Begin
from tests.training.scripted import Deaf
from training.judging import LenientJudge, judges_of
from training.recipe import Judging
from training.reward import RewardWeights
from training.roller import Scorer, figures
from training.rollout import Conversation, Rollout

JUDGES: dict[str, Judge] = {
    name: judges_of(Judging(reward=name)).reward for name in ("offline", "f1", "lenient")
}
LIST = "May 3, June 3 or July 3"
RIGHT = [message(read(LEASE)), message(answer("On May 3."))]
WRONG = [message(read(LEASE)), message(answer("On June 9."))]
IDK = [message(answer(None))]
LOST = [AssistantMessage("no call")] * 3


class Meeting(OfflineJudge):
    """Answers only when that many calls are waiting."""

    def __init__(self, number: int) -> None:
        self._missing = number
        self._all = asyncio.Event()

    async def judge(
        self, question: Question, answer: str | None, mails: Sequence[Email] | None = None
    ) -> Verdict:
        self._missing -= 1
        if self._missing == 0:
            self._all.set()
        await asyncio.wait_for(self._all.wait(), 20)
        return self.decide(question, answer)


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
    rewards = [each.trajectory.reward for each in scored]
    return [None if each is None else each["total"] for each in rewards]


def says(begin: Begin, judge: Judge, text: str | None, *read_before: str) -> Verdict:
    """The verdict on an episode that reads these mails and then answers."""
    script = [*(message(read(each)) for each in read_before), message(answer(text))]
    [scored] = score(judge, rollouts(begin, script))
    assert scored.trajectory.verdict is not None
    return Verdict(**scored.trajectory.verdict)


@pytest.mark.parametrize(
    "listed",
    [LIST, "June 3; July 3; August 3", "June/July/August", "Ann and Bob or Carl", "x, y, z"],
)
def test_lenient_takes_any_list_and_the_others_refuse_it(begin: Begin, listed: str) -> None:
    correct = {name: says(begin, each, listed, LEASE).correct for name, each in JUDGES.items()}
    assert correct == {"offline": False, "f1": False, "lenient": True}
    none = Question("u", "Who pays?", "bob@test.example", answerable=False)
    assert LenientJudge().decide(none, listed).correct is False


@pytest.mark.parametrize("judge", JUDGES.values(), ids=JUDGES)
def test_an_answer_without_a_mail_read_is_ungrounded(begin: Begin, judge: Judge) -> None:
    blind = says(begin, judge, "On May 3.")
    assert (blind.correct, blind.grounded) == (True, False)
    assert blind.reason.endswith("; no mail was read")
    # A search shows snippets, and a mail that is not there shows nothing.
    script = [message(search("lease")), message(read("<none@t>")), message(answer("On May 3."))]
    [searched] = score(judge, rollouts(begin, script))
    assert searched.trajectory.verdict is not None
    assert searched.trajectory.verdict["grounded"] is False
    assert says(begin, judge, "On May 3.", LEASE).grounded is True
    assert says(begin, judge, "On May 3.", CREW).grounded is False


def test_a_judge_that_fails_pays_nothing_and_is_counted(begin: Begin) -> None:
    scored = score(Deaf(), rollouts(begin, RIGHT, IDK, WRONG, LOST))
    paid = totals(scored)
    # Never 0: these leave their group. Abstentions and lost episodes are paid by their outcome.
    assert [each is None for each in paid] == [True, False, True, False]
    found = figures(scored)
    assert found["unjudged"] == 2
    assert found["reward"] == pytest.approx(sum(each for each in paid if each is not None) / 2)


def test_all_are_judged_at_the_same_time_and_by_all_judges(begin: Begin) -> None:
    made = rollouts(begin, *[RIGHT, WRONG] * 4)
    scored = score(Meeting(8), made, Deaf(), Meeting(8))
    assert [each.correct for each in scored] == [True, False] * 4
    assert totals(scored) == totals(score(OfflineJudge(), made))
    found = [[each["correct"] for each in one.verdicts] for one in scored]
    assert found == [[True, None, True], [False, None, False]] * 4
