"""The judges without a model: labelled pairs, hostile answers, and always wrong answers."""

import asyncio
import datetime as dt
import time
from pathlib import Path
from typing import Any

import pytest

from art_e.inbox.mail import Email, Mailbox
from art_e.question import Question
from art_e.text import toml_table
from bench.fit_judge import invented_cases
from evals.judges.claims import read_claims, same_value
from evals.judges.labels import agreement, load_pairs, rate
from evals.judges.offline import F1Judge, OfflineJudge, f1, grounded_in
from evals.scored import Verdict
from tests.builders import table_rows, the_error

JUDGE, F1 = OfflineJudge(), F1Judge()
BOTH = (JUDGE, F1)
CASES = toml_table(__package__, "judge.toml")


def make_question(question: str, gold: str | None, answerable: bool | None = None) -> Question:
    """Return a question asked on May 10, 2001."""
    day = dt.date(2001, 5, 10)
    return Question("q", question, "ann@test.example", day, gold, answerable=answerable)


SETS = {
    "invented": invented_cases(),
    # Labelled by another author before the rules were written.
    "unseen": load_pairs(Path(__file__).with_name("unseen_pairs.jsonl")),
    "blind": load_pairs(Path(__file__).with_name("blind_pairs.jsonl")),
    "tuning": [each for each in load_pairs() if each.half == "tuning"],
    "reporting": [each for each in load_pairs() if each.half == "reporting"],
    "adversarial": [each for each in load_pairs() if each.adversarial],
}
QUESTIONS = {each.question.question: each.question for each in SETS["invented"]}.values()
# Texts around a gold answer ("{}"): a kind, and the text.
AROUND = table_rows(__file__, "answers_around.tsv")


def around(kind: str, answer: str) -> list[str]:
    """Return the answer in each text of a kind."""
    texts = [text.replace("\\n", "\n") for each, text in AROUND if each == kind]
    return [text.replace("{}", answer) for text in texts]


def verdict(question: str, gold: str | None, answer: str | None, **fields: Any) -> Verdict:
    return JUDGE.decide(make_question(question, gold, **fields), answer)


@pytest.mark.parametrize(("name", "size", "agreed", "fooled"), CASES["agreement"]["rows"])
def test_offline_judge_matches_labels(name: str, size: int, agreed: float, fooled: float) -> None:
    # Compare figures only, so that a failure prints no pair.
    figures = agreement([asyncio.run(rate(JUDGE, each)) for each in SETS[name]])
    assert figures["n"] >= size
    assert figures["unjudged"] == figures["adversarial_judged_correct"] == 0
    assert figures["agreement"]["value"] >= agreed
    assert figures["confusion"]["wrong_as_right"] <= fooled * figures["n"]


def test_openers_sources_and_politeness_are_ignored() -> None:
    right = [each for each in SETS["tuning"] if each.label and each.question.answerable]
    cases = [each for each in right if JUDGE.decide(each.question, each.answer).correct][:150]
    verdicts = [
        JUDGE.decide(case.question, around("frame", case.answer or "")[number % 15]).correct
        for number, case in enumerate(cases)
    ]
    assert len(verdicts) == 150 and verdicts.count(True) >= 0.95 * len(verdicts)


def test_retracted_answer_is_wrong() -> None:
    golds = [(each, (each.answer or "").rstrip(".")) for each in QUESTIONS]
    texts = [(item, text) for item, gold in golds for text in around("retraction", gold)]
    fooled = [text for item, text in texts if JUDGE.decide(item, text).correct]
    assert len(fooled) <= 0.01 * len(texts), fooled


def test_offline_judge_agrees_more_if_it_is_sure() -> None:
    figures = agreement([asyncio.run(rate(JUDGE, each)) for each in SETS["reporting"]])
    assert figures["n"] >= 500 and figures["kappa"]["value"] >= 0.54
    # It is sure of most answers.
    assert figures["unsure"] <= 0.35 * figures["n"]
    assert figures["sure"]["kappa"]["value"] >= figures["kappa"]["value"] + 0.1


@pytest.mark.parametrize("question", QUESTIONS)
def test_gold_answer_is_right_but_not_with_an_appeal(question: Question) -> None:
    gold = question.answer or ""
    assert JUDGE.decide(question, gold).correct
    assert JUDGE.decide(question, f"{gold.rstrip('.')}. Hope this helps.").correct
    for appeal in around("appeal", gold):
        assert not JUDGE.decide(question, appeal).correct, appeal


@pytest.mark.parametrize("between", [", ", " or ", "; ", " / ", "\n", ". ", " and ", ") ("])
def test_list_of_candidates_is_wrong(between: str) -> None:
    for question, gold, *others in CASES["candidates"]["rows"]:
        for answer in (between.join([gold, *others]), between.join([*others, gold])):
            for judge in BOTH:
                assert not judge.decide(make_question(question, gold), answer).correct, answer


@pytest.mark.parametrize(
    ("question", "gold", "answer", "label"), table_rows(__file__, "near_misses.tsv")
)
def test_paraphrases_and_near_misses(question: str, gold: str, answer: str, label: str) -> None:
    for judge in BOTH:
        correct = judge.decide(make_question(question, gold), answer).correct
        assert correct is (label == "right"), judge.name


def test_answer_need_not_repeat_names_of_the_question() -> None:
    question, gold = "Who is in charge of River Lane?", "Christie Pat is in charge of River Lane."
    assert verdict(question, gold, "Christie Pat").correct
    assert not verdict(question, gold, "Bo Chen").correct
    # A list is a second answer, an aside is not.
    assert verdict(question, gold, "Christie Pat (Bo Chen's boss), who was hired in May").correct
    assert not verdict(question, gold, "Christie Pat, Bo Chen").correct


def test_verdict_has_a_reason_of_one_line() -> None:
    wrong = verdict("When is it?", "May 4", "May 5\nMay 6")
    assert (wrong.correct, wrong.grounded, wrong.judge) == (False, None, JUDGE.name)
    assert wrong.reason.startswith("lacks a value or name (score 0.") and not wrong.unsure
    assert not verdict("When is it?", "May 4", "4 May").unsure
    gold = "The hall was flooded and the stage broke"
    assert verdict("What happened?", gold, "The hall burnt and the stage fell in").unsure
    for answer, reason in (
        ("May 3", "F1 0.80"), ("May 4", "has '4', which the gold answer lacks"),
        ("soon", "no number or month"), ("7" * 100_000, "has '7777"),
    ):  # fmt: skip
        line = F1.decide(make_question("When?", "May 3, 2020"), answer).reason
        assert reason in line and len(line) < 200


@pytest.mark.parametrize("answer", [None, "", "I don't know."])
def test_abstention_is_right_only_for_an_unanswerable_question(answer: str | None) -> None:
    assert not verdict("When is it?", "May 4", answer).correct
    assert verdict("When is it?", None, answer, answerable=False).correct
    assert verdict("When is it?", "I don't know", answer).correct
    assert not verdict("When is it?", None, "May 4", answerable=False).correct
    assert not verdict("When is it?", "May 4", "May 4", answerable=False).correct
    assert "answerable" in the_error(verdict, "When is it?", None, "May 4")
    gold = "Contact iBuyit@x.example, as that is not available"  # reads as an abstention
    assert verdict("Whom do I ask?", gold, "iBuyit@x.example", answerable=True).correct
    assert not verdict("Whom do I ask?", gold, "iBuyit@x.example").correct


@pytest.mark.parametrize("unit", CASES["hostile"]["units"])
def test_hostile_length_is_judged_quickly(unit: str) -> None:
    started = time.process_time()
    for question, gold in (("When is it?", "May 4"), ("Who leads?", "Ann Lee"), ("Why?", "Late")):
        verdict(question, gold, unit * (100_000 // len(unit)))
    assert time.process_time() - started < 5


def test_f1_follows_the_paper() -> None:
    assert f1(["ann", "lee"], ["ann", "lee"]) == 1
    assert f1(["april", "16"], ["april", "16", "2019"]) == pytest.approx(0.8)
    # A repeated word counts once.
    assert f1(["ann"] * 3, ["ann", "lee"]) == pytest.approx(0.4)
    assert f1(["bob"], ["ann", "lee"]) == f1([], ["ann"]) == f1(["ann"], []) == f1([], []) == 0


# ---- Values: spellings of the same value, and other values.


def same(one: str, other: str) -> bool:
    gold, answer = (read_claims(text).values for text in (one, other))
    assert gold and answer, (gold, answer)
    return len(gold) == len(answer) and all(map(same_value, gold, answer))


# A row has another value, then spellings of the same value.
@pytest.mark.parametrize("row", table_rows(__file__, "spellings.tsv"))
def test_spellings_give_the_same_value(row: list[str]) -> None:
    another, *spellings = row
    for one in spellings:
        assert not same(one, another), one
        for other in spellings:
            assert same(one, other), (one, other)


ANN, BOB = Mailbox("ann@test.example", "Ann Alm"), Mailbox("bob@test.example", "Bob Berg")
FRIDAY = dt.datetime(2001, 3, 9, 10, tzinfo=dt.UTC)


def mail(body: str, date: dt.datetime | None = FRIDAY) -> Email:
    return Email("<1@t>", date, BOB, (ANN,), (), (), "News", body)


LEASE = mail("The warehouse lease ends on March 31, 2002. The rent is $12,400 a month.")
PLANS = mail(
    "We meet tomorrow at 3 pm, the board does on Friday, and the audit is on the 20th.\n"
    "Call Dora Dahl at 713-555-0142. The move was put off because the landlord lost the papers.\n"
    "The launch moved from May 3 to May 10."
)


@pytest.mark.parametrize(("question", "answer", "lacking"), table_rows(__file__, "grounded.tsv"))
def test_grounding_names_what_the_mails_lack(question: str, answer: str, lacking: str) -> None:
    grounded, reason = grounded_in(question, answer, [LEASE, PLANS])
    # "?": the answer has nothing to look up.
    assert grounded is (None if lacking == "?" else not lacking)
    assert lacking.strip("?") in reason and "\n" not in reason
    assert bool(reason) is (grounded is False)


def test_relative_day_counts_from_its_mail() -> None:
    later = mail("We meet tomorrow.", FRIDAY + dt.timedelta(30))
    assert grounded_in("When do we meet?", "April 9", [later])[0]
    assert grounded_in("When do we meet?", "March 10", [later])[0] is False
    undated = mail("We meet tomorrow.", None)
    assert grounded_in("When do we meet?", "April 9", [undated])[0] is False


@pytest.mark.parametrize("before", [0, 700, 2_790, 2_990, 5_600, 7_900])
def test_grounding_reads_as_much_of_a_mail_as_the_model_saw(before: int) -> None:
    long = mail(f"{'x' * before} The lease ends on March 31, 2002. {'y ' * 5_000}")
    assert grounded_in("When?", "March 31, 2002", [long])[0]
    beyond = mail(f"{'x ' * 4_001} The lease ends on March 31, 2002.")
    assert grounded_in("When?", "March 31, 2002", [beyond])[0] is False


def test_offline_judge_gives_correctness_and_grounding() -> None:
    lease = make_question("When does the lease end?", "March 31, 2002")
    for answer, mails, correct, grounded, reason in (
        ("3/31/2002", [LEASE], True, True, ""),
        ("3/31/2002", [PLANS], True, False, "; no mail read has the date"),
        ("May 3, 2001", [LEASE, PLANS], False, True, ""),
        # Without mails read there is no support; without an episode there is no grounding.
        ("3/31/2002", [], True, False, "; no mail was read"),
        ("3/31/2002", None, True, None, ""),
        ("There is no mention of it besides March 31, 2002.", [LEASE], False, True, ""),
        ("I don't know", [], False, None, ""),
        ("I don't know", [LEASE], False, None, ""),
        (None, [LEASE], False, None, ""),
    ):
        verdict = asyncio.run(JUDGE.judge(lease, answer, mails))
        assert (verdict.correct, verdict.grounded) == (correct, grounded), (answer, mails)
        assert reason in verdict.reason
