"""Whether mails state what an answer states, by rule."""

import asyncio
import datetime as dt

import pytest

from art_e.inbox.mail import Email, Mailbox
from art_e.question import Question
from evals.judges.offline import OfflineJudge, grounded_in

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


@pytest.mark.parametrize(
    ("question", "answer", "lacking"),
    [
        ("When does the lease end?", "It ends on 3/31/2002, a Sunday.", ""),
        ("When does the lease end?", "In March 2002", ""),
        ("When does the lease end?", "March 30, 2002", "the date 'March 30, 2002'"),
        ("When does the lease end?", "March 31, 2003", "2003"),
        ("What is the rent?", "12.4k a month", ""),
        ("What is the rent?", "$12,500", "$12,500"),
        ("When do we meet?", "On March 10 at 3pm", ""),
        ("When do we meet?", "March 10 at 4 pm", "4 pm"),
        ("When is the board?", "Friday, March 16", ""),
        ("When is the audit?", "March 20, 2001", ""),
        ("When is the audit?", "March 21", "March 21"),
        ("When was the mail on the lease sent?", "March 9, 2001", ""),
        ("Whom do I call?", "Dora Dahl, 713-555-0142", ""),
        ("Whom do I call?", "Dora Dahl, 713-555-0143", "phone"),
        ("Whom do I call?", "Emil Ek", "emil ek"),
        ("Who wrote about the lease?", "Robert Berg", ""),
        ("Why was the move put off?", "The landlord lost the papers.", ""),
        ("Why was the move put off?", "A storm flooded the basement.", "new words"),
        # What was taken back stands in a mail too; which of both is right is not asked here.
        ("When was the launch to be?", "May 3", ""),
        # What the question states needs no support.
        ("Does the rent of $9,000 hold?", "No, it is $12,400, not $9,000.", ""),
        # Of two mails, each may state a part.
        ("When does the lease end, and when is the audit?", "March 31, 2002, and March 20.", ""),
    ],
)
def test_what_the_mails_lack_is_named(question: str, answer: str, lacking: str) -> None:
    found = grounded_in(question, answer, [LEASE, PLANS])
    assert found.grounded is not bool(lacking)
    assert lacking in found.reason and "\n" not in found.reason
    assert bool(found.reason) is bool(lacking)


def test_nothing_to_look_up() -> None:
    for question, answer in (
        ("Has the lease ended?", "Yes."),
        ("How many mails are about the lease?", "3"),
        ("Does the lease end?", "The lease ends."),
    ):
        assert grounded_in(question, answer, [LEASE, PLANS]).grounded is None


def test_a_day_is_counted_from_the_mail_that_names_it() -> None:
    later = mail("We meet tomorrow.", FRIDAY + dt.timedelta(30))
    assert grounded_in("When do we meet?", "April 9", [later]).grounded
    assert grounded_in("When do we meet?", "March 10", [later]).grounded is False
    undated = mail("We meet tomorrow.", None)
    assert grounded_in("When do we meet?", "April 9", [undated]).grounded is False


@pytest.mark.parametrize("before", [0, 700, 2_790, 2_990, 5_600, 7_900])
def test_a_long_mail_is_read_as_far_as_the_model_was_shown_it(before: int) -> None:
    long = mail(f"{'x' * before} The lease ends on March 31, 2002. {'y ' * 5_000}")
    assert grounded_in("When?", "March 31, 2002", [long]).grounded
    beyond = mail(f"{'x ' * 4_001} The lease ends on March 31, 2002.")
    assert grounded_in("When?", "March 31, 2002", [beyond]).grounded is False


def test_the_offline_judge_says_both() -> None:
    asked = Question("q", "When does the lease end?", "ann@test.example", None, "March 31, 2002")

    for answer, mails, correct, grounded, reason in (
        ("3/31/2002", [LEASE], True, True, ""),
        ("3/31/2002", [PLANS], True, False, "; no mail read has the date"),
        ("May 3, 2001", [LEASE, PLANS], False, True, ""),
        # An episode that read nothing has no support, an answer outside one is not looked up.
        ("3/31/2002", [], True, False, "; no mail was read"),
        ("3/31/2002", None, True, None, ""),
        ("I don't know", [], False, None, ""),
        ("I don't know", [LEASE], False, None, ""),
        (None, [LEASE], False, None, ""),
    ):
        verdict = asyncio.run(OfflineJudge().judge(asked, answer, mails))
        assert (verdict.correct, verdict.grounded) == (correct, grounded), (answer, mails)
        assert reason in verdict.reason
