"""Each rule on questions that it is for, and on those that only look it."""

from typing import Any

import pytest

from art_e.question import Question
from data_pipeline.golden import filtering as rules
from data_pipeline.golden.filtering import FullName, Owner, agreeing
from data_pipeline.golden.golden_set import Batch, Check
from data_pipeline.golden.inboxes import Cited

VINCE = Owner("vince.kaminski@enron.com", (FullName("vince", "kaminski"),))
ID = "<1.2@x>"
BATCH = Batch("b-1", VINCE.address, "train", (ID, "<2.2@x>"))


def row(
    question: str = "When is the seminar?", answer: str | None = "May 7", **more: Any
) -> Question:
    fields: dict[str, Any] = {
        "inbox_address": VINCE.address,
        "message_ids": (ID,),
        "answerable": True,
    }
    return Question(id="q-1", question=question, answer=answer, **(fields | more))


def facts(batch: Batch | None = None, cited: dict[str, Cited] | None = None) -> rules.Facts:
    return rules.Facts(0.7, VINCE, batch, cited or {ID: Cited(ID)})


CASES: dict[tuple[str, bool], tuple[tuple[str, str], ...]] = {
    ("wording", False): (
        ("What offer did Vince want to make Giuseppe?", "May 7"),
        ("What is Vince's phone number?", "May 7"),
        ("Which speaker did Vince J. Kaminski propose?", "May 7"),
        ("When will Mr. Kaminski travel?", "May 7"),
        ("Was the lease sent to Vince.Kaminski@enron.com?", "May 7"),
        ("What is this email about?", "May 7"),
        ("What did the sender of the message ask for?", "May 7"),
        ("When did the user plan to travel?", "May 7"),
        ("When is the lunch mentioned in this thread?", "May 7"),
    ),
    ("wording", True): (
        ("What did I tell Giuseppe?", "May 7"),
        ("What is the main topic of Christie's email regarding the article draft?", "May 7"),
        ("What is the user name for the portal?", "May 7"),
        ("Who is the recipient of the safety award?", "May 7"),
        ("What did Vince Strickler ask for?", "May 7"),
        ("Who signed the Martin Kaminski contract?", "May 7"),
        ("Is the cheque in the mail?", "May 7"),
        ("When is the Kaminski wedding?", "May 7"),
        ("What did Kaminski's secretary book?", "May 7"),
    ),
    ("ids", False): (
        ("What did <12345678.99@thyme> ask for?", "May 7"),
        ("What does m2 say of the pump?", "May 7"),
        ("Which date is in email #2?", "May 7"),
        ("When is the seminar?", "May 7, see m1"),
        ("What is the message-id of Ann's mail?", "May 7"),
    ),
    ("ids", True): (
        ("Who should I contact?", "Ann Alm <ann.alm@x.example>"),
        ("How many m2 of floor are let?", "40 m2"),
        ("Did I get that email 2 weeks ago?", "Yes"),
        ("How many messages did Ann send?", "12"),
    ),
    ("leak", False): (
        ("When is the May 7 seminar?", "May 7"),
        ("Who is Ann Alm, the new head of audit?", "Ann Alm"),
        ("What is the name of the hotel Harbor Inn?", "Harbor Inn"),
    ),
    ("leak", True): (
        ("Did Ann sign the lease?", "Yes, Ann signed the lease."),
        ("Is the dinner on May 3 or May 4?", "May 4"),
        ("Which of Ann and Bob leads the audit?", "Ann"),
        ("When on May 7 is the seminar?", "May 7, 3 pm"),
        ("How many of the 3 plants are shut?", "3"),
        ("Who recommended Bob Berg?", "Ann Alm recommended Bob Berg."),
        ("What is the status of Bill AB 18X?", "Bill AB 18X is dead."),
    ),
}


@pytest.mark.parametrize(
    ("name", "passed", "question", "answer"),
    [(*key, *case) for key, cases in CASES.items() for case in cases],
)
def test_a_rule_tells_faults_from_what_only_looks_like_one(
    name: str, passed: bool, question: str, answer: str
) -> None:
    rule = getattr(rules, name)
    assert rule(row(question, answer), facts(batch=BATCH)).passed is passed


def test_sources_name_the_fault() -> None:
    def check(*ids: str, batch: Batch | None = None) -> Check:
        known = {ID: Cited(ID)}
        cited = {each: known.get(each, Cited(None, "is not in the inbox file")) for each in ids}
        return rules.sources(row(message_ids=ids), facts(batch=batch, cited=cited))

    assert check(ID).passed is True
    assert check(ID, batch=BATCH).passed is True
    assert "cites no mail" in check().reason
    assert "not in its batch" in check(ID, "m37", batch=BATCH).reason
    assert "not in the inbox" in check("<made-up@x>").reason


def test_fields_that_disagree_are_agreeing() -> None:
    cited = {
        ID: Cited("<kept@x>"),
        "<2@x>": Cited("<kept@x>"),
        "m9": Cited(None, "is not in the inbox file"),
    }

    def after(**fields: Any) -> Question:
        return agreeing(row(**fields), None, cited)

    assert after(message_ids=(ID, "m9", "<2@x>")).message_ids == ("<kept@x>", "m9")
    assert after(kind="multi-mail").kind == "lookup"
    assert after(kind="multi-mail", message_ids=(ID, "m9")).kind == "multi-mail"
    assert after(kind="count", answer="Ann").kind == "lookup"
    for number in ("two", "3 of them", "twice", "none"):
        assert after(kind="count", answer=number).kind == "count"
    nothing = after(kind="unanswerable", answer="")
    assert (nothing.answerable, nothing.message_ids) == (False, ())
    something = after(kind="unanswerable")
    assert (something.answerable, something.kind) == (True, "lookup")
    # What they were is kept.
    assert nothing.provenance["mended"][0]["was"] == {"message_ids": [ID]}
