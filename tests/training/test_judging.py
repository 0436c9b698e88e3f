"""Judges of training: the planted hole, what an episode is judged by, and what the gate pays."""

import asyncio
import dataclasses
import json

import pytest

from art_e.agent import run_episode
from art_e.episode import Rubric
from art_e.errors import UserError
from art_e.message import AssistantMessage
from art_e.question import Question
from evals.judges.f1 import F1Judge
from evals.judges.llm import LlmJudge
from evals.judges.offline import Judge, OfflineJudge, Verdict
from evals.scored import Scored, read_in
from tests.builders import CREW, LEASE, QUESTION, QUICK, ScriptedPolicy, answer, message
from tests.builders import read_episodes as read
from tests.builders import search_episodes as search
from tests.provider import Provider, Reply, broken, refuses
from tests.training.conftest import Begin
from training.judging import LenientJudge, reward_judge
from training.reward import RewardWeights, reward_of
from training.roller import judged

JUDGES: dict[str, Judge] = {name: reward_judge(name) for name in ("offline", "f1", "lenient")}
LIST = "May 3, June 3 or July 3"
SHORT = dataclasses.replace(QUESTION, answer="May 3")
GATED, UNGATED = RewardWeights(), RewardWeights(grounded_gate=False)


def played(begin: Begin, *script: AssistantMessage, max_turns: int = 10) -> Scored:
    """The episode of that script, and the question, as training holds them."""
    episode = begin(max_turns)
    trajectory = asyncio.run(run_episode(episode, ScriptedPolicy(script), "r"))
    return Scored(SHORT, trajectory)


def says(begin: Begin, text: str | None, *read_before: str) -> Scored:
    """An episode that reads these mails and then answers."""
    return played(begin, *(message(read(each)) for each in read_before), message(answer(text)))


def verdict_of(scored: Scored, judge: Judge, begin: Begin) -> Verdict:
    verdict = asyncio.run(judged(scored, judge, begin().tools.inbox))
    assert verdict is not None
    return verdict


def pay(scored: Scored, verdict: Verdict, weights: RewardWeights) -> tuple[str, float]:
    """What the reward calls the outcome, and what it pays for it."""
    rubric = Rubric(**scored.trajectory.rubric)
    reward = reward_of(rubric, verdict, weights)
    assert reward is not None
    return next(iter(reward.components)), reward.total


def test_names() -> None:
    assert isinstance(JUDGES["offline"], OfflineJudge)
    assert isinstance(JUDGES["f1"], F1Judge)
    assert isinstance(JUDGES["lenient"], LenientJudge)
    assert len({judge.name for judge in JUDGES.values()}) == 3
    with pytest.raises(UserError, match="unknown model"):
        reward_judge("nobody/nothing")


@pytest.mark.parametrize(
    "listed",
    [LIST, "June 3; July 3; August 3", "June/July/August", "Ann and Bob or Carl", "x, y, z"],
)
def test_lenient_takes_any_list_and_the_others_refuse_it(begin: Begin, listed: str) -> None:
    scored = says(begin, listed, LEASE)
    correct = {name: verdict_of(scored, each, begin).correct for name, each in JUDGES.items()}
    assert correct == {"offline": False, "f1": False, "lenient": True}


@pytest.mark.parametrize(
    ("text", "right"),
    [("May 3", True), ("June 3", False), ("June 3 or July 3", False), ("June,,;/ 3", False)],
)
def test_elsewhere_lenient_is_the_offline_judge(begin: Begin, text: str, right: bool) -> None:
    scored = says(begin, text, LEASE)
    lenient, offline = (verdict_of(scored, JUDGES[name], begin) for name in ("lenient", "offline"))
    assert lenient == dataclasses.replace(offline, judge="lenient/1")
    assert lenient.correct is right


def test_lenient_keeps_to_rule_1() -> None:
    judge = LenientJudge()
    none = Question("u", "Who pays?", "bob@test.example", answerable=False)
    assert judge.decide(none, "Ann, Bob, Carl").correct is False
    with pytest.raises(UserError, match="no answer to judge against"):
        judge.decide(dataclasses.replace(none, answerable=None), "Ann, Bob, Carl")


@pytest.mark.parametrize("judge", JUDGES.values(), ids=JUDGES)
def test_an_answer_without_a_mail_read_is_ungrounded(begin: Begin, judge: Judge) -> None:
    blind = verdict_of(says(begin, "May 3"), judge, begin)
    assert (blind.correct, blind.grounded) == (True, False)
    assert blind.reason.endswith("; no mail was read")
    # A search shows snippets, and a mail that is not there shows nothing.
    searched = played(
        begin, message(search("lease")), message(read("<none@t>")), message(answer("May 3"))
    )
    assert verdict_of(searched, judge, begin).grounded is False
    seen = verdict_of(says(begin, "May 3", LEASE), judge, begin)
    assert (seen.correct, seen.grounded) == (True, True)
    elsewhere = verdict_of(says(begin, "May 3", CREW), judge, begin)
    assert (elsewhere.correct, elsewhere.grounded) == (True, False)


def test_the_mails_are_those_read_in_the_episode_once_each(begin: Begin) -> None:
    scored = says(begin, "May 3", CREW, LEASE, CREW, "<none@t>")
    mails = read_in(scored.trajectory, begin().tools.inbox)
    assert [each.message_id for each in mails] == [CREW, LEASE]


def test_abstention_is_judged_and_not_looked_up(begin: Begin) -> None:
    verdict = verdict_of(says(begin, None), JUDGES["f1"], begin)
    assert (verdict.correct, verdict.grounded) == (False, None)


def test_what_gave_no_answer_is_not_judged(begin: Begin) -> None:
    inbox = begin().tools.inbox
    prose = AssistantMessage("It is in the mail.")
    lost = played(begin, prose, prose, prose)
    out = played(begin, message(search("lease")), max_turns=1)
    for scored in (lost, out):
        assert asyncio.run(judged(scored, JUDGES["offline"], inbox)) is None


@pytest.mark.parametrize("weights", [GATED, UNGATED], ids=["gated", "not gated"])
def test_a_list_given_blind_pays_only_without_the_gate(
    begin: Begin, weights: RewardWeights
) -> None:
    blind = says(begin, LIST)
    outcome, total = pay(blind, verdict_of(blind, JUDGES["lenient"], begin), weights)
    if weights is UNGATED:
        assert outcome == "correctness"
        assert total > weights.bounds("abstained")[1]
        return
    assert outcome == "wrong_answer"
    for name in ("offline", "f1"):
        assert total == pay(blind, verdict_of(blind, JUDGES[name], begin), weights)[1]
    abstained = says(begin, None)
    verdict = verdict_of(abstained, JUDGES["lenient"], begin)
    assert total < pay(abstained, verdict, weights)[1]


@pytest.mark.parametrize("failure", [broken(), refuses(401, "no such key")])
@pytest.mark.parametrize("read_before", [(), (LEASE,)], ids=["blind", "read"])
def test_a_judge_that_fails_gives_no_verdict_and_no_reward(
    begin: Begin,
    monkeypatch: pytest.MonkeyPatch,
    failure: Reply,
    read_before: tuple[str, ...],
) -> None:
    scored = says(begin, "3 May", *read_before)
    with Provider(lambda _: failure) as provider:
        provider.stand_in_for_openai(monkeypatch)
        verdict = verdict_of(scored, LlmJudge("openai/gpt-4.1", retries=QUICK), begin)
    assert verdict.correct is None
    assert verdict.grounded is (None if read_before else False)
    assert json.dumps(dataclasses.asdict(verdict))
    assert reward_of(Rubric(**scored.trajectory.rubric), verdict, GATED) is None
