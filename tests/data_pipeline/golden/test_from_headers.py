"""Questions made of real mail without a model: each has one answer, and it stands in the mail."""

import re
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from art_e.inbox.file import InboxFile
from art_e.inbox.mail import Email, Mailbox
from art_e.inbox.tokenizer import stems, words
from art_e.models.fit import ReadMail, best_sentences, informative_words
from art_e.question import Question, Split, load_questions
from data_pipeline.golden.from_headers import Made, People, made_of, questions_of
from tests.builders import make_inbox, raw
from tests.command_line import Run
from tests.conftest import RealInbox

ANN, BOB = Mailbox("ann@x.example", "Ann Alder"), Mailbox("bob@x.example", "Berg, Bob J")
PEOPLE = People(frozenset({"ann@x.example"}), frozenset({"ann", "bob", "carl", "dina"}))


def made(body: str, subject: str = "", sender: Mailbox = BOB) -> set[Made]:
    to = (ANN,) if sender == BOB else (BOB,)
    email = Email("<1@x>", None, sender, to, (), (), subject, body)
    return set(made_of(email, PEOPLE, Random(0)))


STATED = {
    "The budget review is scheduled for Monday, April 16, 2001 at 3:30 pm in my office.": (
        "When is the budget review scheduled for?", "Monday, April 16, 2001 at 3:30 pm"),
    "I will be in London on May 3.": ("When will Bob Berg be in London?", "May 3"),
    "My presentation to the board is on Thursday.": (
        "When is Bob Berg's presentation to the board?", "Thursday"),
    "The retainer for the Boston firm is $12,000 per month.": (
        "How much is the retainer for the Boston firm?", "$12,000 per month"),
    "Dina has offered to drive to the short course.": (
        "Who has offered to drive to the short course?", "Dina"),
    "Carl Crum will send me the revised forecast tonight.": (
        "Who will send Bob Berg the revised forecast tonight?", "Carl Crum"),
    "The purpose of the visit is to look at the turbines.": (
        "What is the purpose of the visit?", "to look at the turbines"),
}  # fmt: skip


@pytest.mark.parametrize("sentence", STATED)
def test_a_statement_is_turned_around(sentence: str) -> None:
    assert {(each.question, each.answer) for each in made(sentence)} == {STATED[sentence]}


NOTHING = [
    "It is scheduled for Monday.", "That will be on May 3.", "You will get $500 on Friday.",
    "He will be in Room 3312 on Tuesday.", "Is the review on May 3?", "Thanks, see you on Monday.",
    "We think that the review is not on May 3.", "Your invoice is $500.",
    "If the review is on May 3, call me.", "Dina will not drive to the short course.",
    "Please find attached the review of May 3.", "The courier will call you on May 3.",
]  # fmt: skip


@pytest.mark.parametrize("sentence", NOTHING)
def test_what_nobody_could_ask_about_gives_nothing(sentence: str) -> None:
    assert made(sentence) == set()


def test_headers_signatures_and_short_mails() -> None:
    numbers_of_bob = "Bob Berg\nPhone: (713) 555-0100\nFax 713-555-0101\n"
    body = f"The crane in the harbor is back in service.\n\n{numbers_of_bob}"
    found = {each.kind: each.answer for each in made(body, "Re: Harbor crane repair")}
    assert found["sender"] == "Bob Berg" and found["said"].startswith(
        "The crane in the harbor is back"
    )
    numbers = {each.question: each.answer for each in made(body) if each.kind == "number"}
    assert numbers == {
        "What is Bob Berg's phone number?": "(713) 555-0100",
        "What is Bob Berg's fax number?": "713-555-0101",
    }
    mine = {
        each.kind: each
        for each in made("The crane in the harbor is back in service.", "Crane repair", ANN)
    }
    assert mine["said"].question.endswith("Bob Berg about Crane repair?")
    assert mine["recipients"].answer == "Bob Berg" and "sender" not in mine


def test_a_remark_answers_what_was_said_about_its_subject() -> None:
    remark = "We can not sign the collateral annex before their board has met in Calgary."
    [told] = made(remark, sender=ANN)
    assert re.match(r"What did I .* Bob Berg about the collateral annex\?$", told.question)
    assert told.answer == remark
    [said] = made(remark)
    assert re.match(r"What .*\bBob Berg\b.* the collateral annex\?$", said.question)
    polite = "Please let me know whether the collateral annex is in good order now."
    assert made(polite) == set()


def test_quoted_mail_is_not_the_senders() -> None:
    body = "Fine.\n\n> The budget review is scheduled for Monday, April 16.\n"
    assert made(body) == set()


def inbox_of(tmp_path: Path, *bodies: str) -> InboxFile:
    """Bob's mails to Ann and the others whose given names the rules must know."""
    names = ["Bob Berg <b1@x.example>", "Bob Crum <b2@x.example>"]
    mails = [
        raw(f"<{n}@x>", subject="Plans", body=body, sender=names[n % 2], to="Ann <ann@x.example>")
        for n, body in enumerate([*bodies, "Noodles at noon?"])
    ]
    make_inbox(tmp_path / "i.duckdb", mails)
    return InboxFile(tmp_path / "i.duckdb")


def asked(file: InboxFile, *, without: tuple[str, ...] = ()) -> list[Question]:
    return questions_of(file, {"ann@x.example": "train"}, 100, without, 0)


def test_a_question_with_two_answers_is_dropped(tmp_path: Path) -> None:
    one = "The budget review is scheduled for Monday, April 16."
    [question] = asked(inbox_of(tmp_path, one))
    assert (question.answer, question.message_ids) == ("Monday, April 16", ("<0@x>",))
    other = "We moved things: the budget review, once scheduled for May 2, is cancelled."
    assert asked(inbox_of(tmp_path, one, other)) == []


def test_nothing_is_asked_about_the_mail_of_closed_inboxes(tmp_path: Path) -> None:
    file = inbox_of(tmp_path, "The budget review is scheduled for Monday, April 16.")
    assert asked(file) != [] and asked(file, without=("b1@x.example",)) == []


def check(file: InboxFile, made: list[Question]) -> None:
    """What holds for the questions of any file."""
    cited: dict[Split, set[str]] = {"train": set(), "validation": set(), "test": set()}
    assert len({(each.inbox_address, each.question) for each in made}) == len(made)
    for each in made:
        inbox = file.open_inbox(each.inbox_address)
        hits = inbox.search(informative_words(each.question), max_results=10)
        mails = [mail for mail in inbox.read_many([hit.message_id for hit in hits]) if mail]
        bodies = [" ".join(mail.body.lower().split()) for mail in mails]
        assert each.split is not None
        if each.answerable:
            [gold] = [mail for mail in mails if mail.message_id in each.message_ids]
            cited[each.split].add(gold.message_id)
            shown = f"{gold.body} {gold.sender} {gold.to} {gold.cc} {gold.date:%B %d %Y}"
            missing = set(words(str(each.answer))) - set(words(shown))
            assert all(word.isdigit() or word == "and" for word in missing), (
                each.question,
                each.answer,
            )
            assert " ".join(words(each.answer or "")) not in " ".join(words(each.question))
        else:
            asked_of = (m for m in made if m.question == each.question and m.answerable)
            texts = [" ".join((source.answer or "").lower().split()) for source in asked_of]
            assert any(not any(text in body for body in bodies) for text in texts)
    held_out = cited["validation"] | cited["test"]
    assert cited["train"].isdisjoint(held_out) and cited["validation"].isdisjoint(cited["test"])


def test_a_made_up_company(world: InboxFile) -> None:
    addresses = [each.address for each in world.inboxes(6)]
    splits: list[Split] = ["train", "train", "train", "validation", "test", "test"]
    made = questions_of(world, dict(zip(addresses, splits, strict=True)), 60, (), 0)
    check(world, made)
    assert len(made) > 60 and any(not each.answerable for each in made)
    again = questions_of(world, dict(zip(addresses, splits, strict=True)), 60, (), 0)
    assert again == made


def test_at_most_half_are_answered_by_what_fits_best_at_once(real_inbox: RealInbox) -> None:
    with InboxFile(real_inbox.db) as file:
        address = "susan.mara@enron.com"
        made = questions_of(file, {address: "train"}, 200, ("vince.kaminski@enron.com",), 0)
        inbox = file.open_inbox(address)

        def is_easy(each: Question) -> bool:
            [first] = inbox.search(informative_words(each.question), max_results=1)
            mail = inbox.read(first.message_id)
            assert mail is not None
            best = best_sentences(each.question, ReadMail.alone(mail), 450).partition("\n")[0]
            held = first.message_id in each.message_ids
            return held and best in str(each.provenance.get("sentence"))

        easy = sum(map(is_easy, made))
    assert 20 < easy <= len(made) / 2 + 1


def test_the_command(art_e: Run, world_db: Path, tmp_path: Path) -> None:
    out = tmp_path / "made"
    command = ["golden", "from-headers", "--db", world_db, "--out", out, "--min-mails", 5]
    shown = art_e(*command, "--train", 2, "--validation", 1, "--test", 1, "--questions", 40)
    assert shown.exit_code == 0
    rows = load_questions(str(out))
    assert {each.split for each in rows} == {"train", "validation", "test"}
    assert all("made" in each.provenance for each in rows)


def test_real_mail(real_inbox: RealInbox) -> None:
    with InboxFile(real_inbox.db) as file:
        inboxes: dict[str, Split] = {
            "susan.mara@enron.com": "train",
            "greg.whalley@enron.com": "test",
        }
        made = questions_of(file, inboxes, 200, ("vince.kaminski@enron.com",), 0)
        check(file, made)
        other_words = [
            each for each in made if each.answerable and not _all_words_in_mail(file, each)
        ]
    kinds = Counter(str(each.provenance["made"]) for each in made if each.answerable)
    assert len(made) > 150 and len(kinds) > 6 and len(other_words) > len(made) / 4


def _all_words_in_mail(file: InboxFile, question: Question) -> bool:
    mail = file.open_inbox(question.inbox_address).read(question.message_ids[0])
    assert mail is not None
    shown = f"{mail.subject} {mail.body} {mail.sender} {mail.to} {mail.cc}"
    return set(stems(informative_words(question.question))) <= set(stems(words(shown)))
