"""How the offline baseline splits mail and ranks its passages; the mails are invented here."""

from typing import Any

import pytest

from art_e.passages import best_passages, informative_words, ranked_passages, split_sentences

OUTLOOK = """I agree.

-----Original Message-----
From:\tRub, Jenny
Sent:\tFriday, January 04, 2002 7:50 PM
To:\tKitchen, Louise; Ames, Chuck;
\tDoe, Jane
Subject:\tDomains

It stays in place. We tell all.
"""
ROW = "Crown of the upper left tooth, material and laboratory  655.30 EUR"
JOINED = " ".join(ROW.split())
NOTES = """---------------------- Forwarded by Ann Olm/HOU/ECT on 04/11/2001
04:20 PM ---------------------------

Bea Quell
04/11/2001 04:15 PM
To: Ann Olm/HOU/ECT@ECT, Cay
Roth/HOU/ECT@ECT
cc:

Subject: Lease

It ends in May.
"""


@pytest.mark.parametrize(
    ("body", "sentences"),
    [
        (OUTLOOK, [("I agree.", 0), ("Rub, Jenny, Friday, January 04, 2002 7:50 PM:", 1),
                   ("It stays in place.", 1), ("We tell all.", 1)]),
        (NOTES, [("Bea Quell, 04/11/2001 04:15 PM:", 1), ("It ends in May.", 1)]),
        ("Ja.\n\nAm 3. Mai 2024 schrieb Bea Quell:\n> Geht es?\n",
         [("Ja.", 0), ("Am 3. Mai 2024 schrieb Bea Quell:", 1), ("Geht es?", 1)]),
        ("Ja.\n\nVon: Bea Quell\nGesendet: 3. Mai\nAn: Ann\nBetreff: Miete\n\nGeht es?\n",
         [("Ja.", 0), ("Bea Quell, 3. Mai:", 1), ("Geht es?", 1)]),
        # A booking and an interview are no frames.
        ("From: Berlin\nTo: Bern\nDate: May 3\n",
         [("From: Berlin", 0), ("To: Bern", 0), ("Date: May 3", 0)]),
        ("Q: Why?\nA: Because.\n*** Mind the gap ***\n=====\n",
         [("Q: Why?", 0), ("A: Because.", 0), ("*** Mind the gap ***", 0)]),
        # A row of a table is a line however long, and attached text is its file's.
        (f"It is paid.\nItem  Sum\n{ROW}\n{ROW}\n",
         [("It is paid.", 0), *((line, 0) for line in ("Item Sum", JOINED, JOINED))]),
        ("See it.\n\n[Attachment: a.pdf (application/pdf, 1 KB)]\n\n[Text of a.pdf]\nIt ends.\n",
         [("See it.", 0), ("a.pdf:", 0), ("It ends.", 0)]),
        ("word " * 200, [(" ".join(["word"] * 80), 0)] * 2 + [(" ".join(["word"] * 40), 0)]),
    ],
)  # fmt: skip
def test_frames_become_who_wrote_and_when_and_no_other_text_is_lost(
    body: str, sentences: list[tuple[str, int]]
) -> None:
    assert [(each.text, each.depth) for each in split_sentences(body)] == sentences


def mail(number: int, body: str, subject: str = "Hello", day: str = "2024-03-01") -> dict[str, Any]:
    head = {"date": day, "from": "Ann Olm <ann@x.example>", "subject": subject}
    return {"message_id": f"m{number}", **head, "body": body}


NEW, OLD = "The rent is 1,085 euros.", "The rent is 980 euros."
LONG = " ".join(f"Topic{number} comes up here." for number in range(60))
LACKS = {"missing": ["schwimmkurs"]}
RENT, LEASE = "How much is the rent?", "When does the lease end?"
TEL, PAINT = "Bea Quell\nTel. 030 555 7788", "The boathouse is repainted. May 3 suits."


@pytest.mark.parametrize(
    ("question", "mails", "first"),
    [
        # The newest of two that say the same of different values.
        (RENT, [mail(1, OLD, day="2021-03-01"), mail(2, NEW)], NEW),
        # The value that is asked for, though another mail has the words too.
        (LEASE, [mail(1, "The lease ends, alas."), mail(2, "The lease ends May 3.")],
         "The lease ends May 3."),
        ("Wann endet sie?", [mail(1, "Sie endet bald."), mail(2, "Sie endet am 3. Mai.")],
         "Sie endet am 3. Mai."),
        # A signature below a long text, and a value beside the sentence with the words.
        ("What is the phone number of Bea Quell?", [mail(1, f"Ask Bea Quell. {LONG}\n\n{TEL}\n")],
         TEL),
        # The person's number rather than mail about phone numbers.
        ("What is Bea Quell's phone number?",
         [mail(1, "What phone number is it? 030 555 1111."), mail(2, f"FYI\n\n{TEL}")], TEL),
        # The words beside a name, also in another language.
        ("Who is Bea Quell?",
         [mail(1, "Bea Quell writes to Bea Quell."), mail(2, "Our engineer Bea Quell is ill.")],
         "Our engineer Bea Quell is ill."),
        ("Wer ist Cay Roth?", [mail(1, "Cay Roth bringt es."), mail(2, "Cay Roth\nBeraterin")],
         "Cay Roth\nBeraterin"),
        ("Wann beginnt der Schwimmkurs?",
         [mail(1, "Er beginnt am 3. Mai.") | LACKS, mail(2, "Der Kurs beginnt am 4. Mai.") | LACKS],
         "Der Kurs beginnt am 4. Mai."),
        ("When is the boathouse repainted?", [mail(1, "A boathouse."), mail(2, PAINT)], PAINT),
        # Personal mail before bulk mail.
        (RENT, [mail(1, f"{NEW} Unsubscribe"), mail(2, OLD)], OLD),
        ("When is lunch?", [mail(1, "", subject="Lunch is at noon")], "Lunch is at noon"),
    ],
)  # fmt: skip
def test_the_first_passage(question: str, mails: list[dict[str, Any]], first: str) -> None:
    passage = ranked_passages(question, mails, mails)[0]
    assert passage.text.endswith(first)
    assert passage.sentence in passage.text


def test_no_two_passages_say_the_same() -> None:
    copy = f"FYI\n\nOn May 3, 2024 Ann Olm wrote:\n> {NEW}\n"
    mails = [mail(1, NEW), mail(2, copy), mail(3, OLD), mail(4, NEW)]
    best = best_passages(ranked_passages(RENT, mails, mails), 3)
    assert sorted(each.text for each in best if each.handle != "m2") == [NEW, OLD]
    long = mail(1, "The rent of each flat is due. " + LONG + "The rent rises.")
    best = best_passages(ranked_passages(RENT, [long], [long]), 3)
    assert len({each.text for each in best}) == len(best) > 1


@pytest.mark.parametrize(
    ("question", "informative"),
    [
        ("When does the lease end now?", ["lease", "end"]),
        ("Wie hoch ist die Miete im Mai?", ["miete", "mai"]),
        ("Who is it?", ["who", "is", "it"]),
    ],
)
def test_informative_words(question: str, informative: list[str]) -> None:
    assert informative_words(question) == informative
