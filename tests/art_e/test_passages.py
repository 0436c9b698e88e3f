"""How the offline baseline splits mail and ranks its passages; the mails are invented here."""

from typing import Any

import pytest

from art_e.passages import best_passages, informative_words, ranked_passages, split_sentences
from tests.builders import table

CASES = table(__file__, "passages.toml")


@pytest.mark.parametrize("case", CASES["split"])
def test_frames_become_who_wrote_and_when_and_no_other_text_is_lost(case: dict[str, Any]) -> None:
    sentences = split_sentences(case["body"])
    assert [[each.text, each.depth] for each in sentences] == case["sentences"]


def test_a_long_sentence_is_cut_between_words() -> None:
    assert [len(each.text.split()) for each in split_sentences("word " * 200)] == [80, 80, 40]


def mail(number: int, **fields: Any) -> dict[str, Any]:
    head = {"date": "2024-03-01", "from": "Ann Olm <ann@x.example>", "subject": "Hello"}
    return {"message_id": f"m{number}", **head, **fields}


NEW, OLD, RENT = "The rent is 1,085 euros.", "The rent is 980 euros.", "How much is the rent?"
LONG = " ".join(f"Topic{number} comes up here." for number in range(60))


@pytest.mark.parametrize("case", CASES["first"])
def test_the_first_passage(case: dict[str, Any]) -> None:
    mails = [mail(number, **fields) for number, fields in enumerate(case["mails"], start=1)]
    for fields in mails:
        fields["body"] = fields["body"].replace("LONG", LONG)
    passage = ranked_passages(case["question"], mails, mails)[0]
    assert passage.text.endswith(case["passage"])
    assert passage.sentence in passage.text


def test_no_two_passages_say_the_same() -> None:
    copy = f"FYI\n\nOn May 3, 2024 Ann Olm wrote:\n> {NEW}\n"
    mails = [mail(number, body=body) for number, body in enumerate((NEW, copy, OLD, NEW), start=1)]
    best = best_passages(ranked_passages(RENT, mails, mails), 3)
    assert sorted(each.text for each in best if each.handle != "m2") == [NEW, OLD]
    long = mail(1, body="The rent of each flat is due. " + LONG + "The rent rises.")
    best = best_passages(ranked_passages(RENT, [long], [long]), 3)
    assert len({each.text for each in best}) == len(best) > 1


def test_informative_words() -> None:
    assert informative_words("When does the lease end now?") == ["lease", "end"]
    assert informative_words("Wie hoch ist die Miete im Mai?") == ["miete", "mai"]
    assert informative_words("Who is it?") == ["who", "is", "it"]
