"""The judge by shared words: SQuAD's measure, figures that must agree, and lists refused."""

import asyncio
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest

from art_e.question import Question
from data_pipeline.synthetic.stage import Planted
from data_pipeline.synthetic.world import WorldConfig, ledger
from evals.judges.labels import Case, Rated, agreement, rate
from evals.judges.offline import F1Judge, f1
from evals.verdict import Verdict

JUDGE = F1Judge()
WORLDS = [WorldConfig(size=1000, seed=seed, short=True, vocabulary=1000) for seed in (800, 801)]
YEAR = re.compile(r",? 20\d\d$")


def verdict(question: str, gold: str, answer: str) -> Verdict:
    return JUDGE.decide(Question("q", question, "ann@test.example", answer=gold), answer)


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
    ("question", "gold", "answer", "correct"),
    [
        ("When is it due?", "May 24, 2019", "May 24", True),
        ("When is it due?", "March 5, 2020", "5 March 2020", True),
        ("What room do we use for Ann?", "Room 74", "74", True),
        ("How much?", "$28,300", "28300", True),
        ("Who interviews Sue?", "Ann Park and Bob Lee", "Bob Lee, Ann Park", True),
        ("Whose is it?", "Rohan Bhatt's", "rohan bhatt’s", True),
        ("When is it due?", "May 24, 2019", "May 31, 2019", False),
        ("When is it due?", "May 24, 2019", "May 24, 2020", False),
        ("What room do we use for Ann?", "Room 74", "room", False),
        ("How much?", "$1.5 million", "$15 million", False),
        ("Who is in charge?", "Ann Lee", "Ann Lee or Bob Ray", False),
        ("Who is in charge?", "Ann Lee", "Bob.Ray/Carl_Moe-Ann Lee", False),
        ("When is it due?", "The end of April 2019", "the end of April, May 2019", False),
    ],
)
def test_answers_in_the_words_of_the_mail(
    question: str, gold: str, answer: str, correct: bool
) -> None:
    assert verdict(question, gold, answer).correct is correct


def test_f1_is_that_of_the_paper() -> None:
    assert f1(["ann", "lee"], ["ann", "lee"]) == 1
    assert f1(["april", "16"], ["april", "16", "2019"]) == pytest.approx(0.8)
    # A word said twice is found once: saying it often earns nothing.
    assert f1(["ann"] * 3, ["ann", "lee"]) == pytest.approx(0.4)
    assert f1(["bob"], ["ann", "lee"]) == f1([], ["ann"]) == f1(["ann"], []) == f1([], []) == 0


def test_it_says_what_it_found() -> None:
    assert verdict("When?", "May 3, 2020", "May 3").reason == "F1 0.80"
    strange = verdict("When?", "May 3, 2020", "May 4").reason
    assert strange == "has '4', which the gold answer lacks"
    assert "no number or month" in verdict("When?", "May 3, 2020", "soon").reason
    assert len(verdict("When?", "May 3", "7" * 100_000).reason) < 200


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
