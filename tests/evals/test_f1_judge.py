"""The judge by shared words: SQuAD's measure, figures that must agree, and lists refused."""

import asyncio
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest

from art_e.errors import UserError
from art_e.question import Question
from data_pipeline.synthetic.stage import Planted
from data_pipeline.synthetic.world import WorldConfig, ledger
from evals.judges.labels import Case, Rated, agreement, rate
from evals.judges.offline import F1Judge, f1

JUDGE = F1Judge()
WORLDS = [WorldConfig(size=1000, seed=seed, short=True, vocabulary=1000) for seed in (800, 801)]
YEAR = re.compile(r",? 20\d\d$")


def asked(question: str, gold: str | None, *, answerable: bool | None = None) -> Question:
    return Question("q", question, "ann@test.example", None, gold, answerable=answerable)


def accepts(question: str, gold: str, answer: str) -> bool | None:
    return JUDGE.decide(asked(question, gold), answer).correct


def of_kind() -> Iterator[list[Planted]]:
    """The questions that one mail answers, those of one world and kind together."""
    for config in WORLDS:
        kinds = defaultdict(list)
        for each in ledger(config):
            if each.question.kind in ("lookup", "latest-update") and len(each.evidence) == 1:
                kinds[each.question.kind].append(each)
        yield from kinds.values()


def others(one: Planted, group: list[Planted]) -> list[str]:
    """What answers other questions, the likest first; mail leaves the year out."""
    gold = str(one.question.answer)
    texts = {
        each.evidence[0][1]
        for each in group
        if YEAR.sub("", str(each.question.answer)) != YEAR.sub("", gold)
    }
    words = gold.lower().split()
    return sorted(texts, key=lambda text: (-f1(text.lower().split(), words), text))


def judged(cases: list[Case]) -> list[Rated]:
    return asyncio.run(rate(JUDGE, cases, concurrency=1))


@pytest.mark.parametrize(
    ("question", "gold", "answer"),
    [
        ("When is it due?", "May 24, 2019", "May 24"),
        ("When is it due?", "March 5, 2020", "5 March 2020"),
        ("What room do we use for Ann?", "Room 74", "74"),
        ("How much?", "$28,300", "28300"),
        ("Who interviews Sue?", "Ann Park and Bob Lee", "Bob Lee, Ann Park"),
        ("Whose is it?", "Rohan Bhatt's", "rohan bhatt’s"),
    ],
)
def test_right_answers_in_the_words_of_the_mail(question: str, gold: str, answer: str) -> None:
    assert accepts(question, gold, answer) is True


@pytest.mark.parametrize(
    ("question", "gold", "answer"),
    [
        ("When is it due?", "May 24, 2019", "May 31, 2019"),
        ("When is it due?", "May 24, 2019", "May 24, 2020"),
        ("What room do we use for Ann?", "Room 74", "Room 93"),
        ("What room do we use for Ann?", "Room 74", "room"),
        ("How much?", "$1.5 million", "$15 million"),
        ("Is it room 74 or 93?", "Room 74", "room 74, 93"),
        ("Who is in charge?", "Ann Lee", "Ann Lee or Bob Ray"),
        ("Who is in charge?", "Ann Lee", "Bob.Ray/Carl_Moe-Ann Lee"),
        ("When is it due?", "The end of April 2019", "the end of April, May 2019"),
        ("Who is in charge?", "Ann Lee", ""),
    ],
)
def test_wrong_answers(question: str, gold: str, answer: str) -> None:
    assert accepts(question, gold, answer) is False


def test_f1_is_that_of_the_paper() -> None:
    assert f1(["ann", "lee"], ["ann", "lee"]) == 1
    assert f1(["april", "16"], ["april", "16", "2019"]) == pytest.approx(0.8)
    # A word said twice is found once: saying it often earns nothing.
    assert f1(["ann"] * 3, ["ann", "lee"]) == pytest.approx(0.4)
    assert f1(["bob"], ["ann", "lee"]) == f1([], ["ann"]) == f1(["ann"], []) == f1([], []) == 0


def test_rule_1_is_every_judges() -> None:
    none = asked("When?", None, answerable=False)
    assert JUDGE.decide(none, "I don't know").correct is True
    assert JUDGE.decide(none, "May 3").correct is False
    assert JUDGE.decide(asked("When?", "May 3"), None).correct is False
    assert JUDGE.decide(asked("Which?", "???"), "???").correct is True
    with pytest.raises(UserError, match="no answer to judge against"):
        JUDGE.decide(asked("When?", None), "May 3")


def test_it_says_what_it_found() -> None:
    assert JUDGE.decide(asked("When?", "May 3, 2020"), "May 3").reason == "F1 0.80"
    said = JUDGE.decide(asked("When?", "May 3, 2020"), "May 4").reason
    assert said == "has '4', which the gold answer lacks"
    said = JUDGE.decide(asked("When?", "May 3, 2020"), "soon").reason
    assert said == "has no number or month of the gold answer"
    assert len(JUDGE.decide(asked("When?", "May 3"), "7" * 100_000).reason) < 200


def test_it_agrees_with_the_world() -> None:
    cases = []
    for group in of_kind():
        for number, each in enumerate(group):
            wrong = others(each, group)
            answers = [each.evidence[0][1], wrong[0], wrong[number % len(wrong)]]
            cases += [Case(each.question, text, text is answers[0], "world") for text in answers]
    figures = agreement(judged(cases))
    assert figures["n"] > 500
    assert figures["kappa"]["value"] >= 0.97
    assert figures["confusion"]["wrong_as_right"] == 0


@pytest.mark.parametrize("between", [", ", " or ", "; ", "/", " and ", " ", ".", "-"])
def test_a_list_with_the_right_answer_in_it_is_wrong(between: str) -> None:
    lists = [
        Case(each.question, between.join([*others(each, group)[:more], own]), False, "list")
        for group in of_kind()
        for each in group
        for own in [each.evidence[0][1]]
        for more in (1, 2, 3)
    ]
    assert len(lists) > 500
    assert not [each.case.answer for each in judged(lists) if each.verdict.correct]
