"""The filter: each rule on faulty questions and on lookalikes; duplicates."""

import dataclasses
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.question import Question
from data_pipeline.golden import filtering as rules
from data_pipeline.golden.filtering import duplicates, mention_pattern, normalized
from data_pipeline.golden.inboxes import Cited
from tests.builders import table_rows

ADDRESS = "vince.kaminski@enron.com"
VINCE = mention_pattern(ADDRESS, {("vince", "kaminski")})
ID = "<1.2@x>"


def row(
    question: str = "When is the seminar?", answer: str | None = "May 7", **fields: Any
) -> Question:
    base = Question("q-1", question, ADDRESS, None, answer, (ID,), answerable=True)
    return dataclasses.replace(base, **fields)


FACTS = rules.Facts(0.7, VINCE, {ID: Cited(ID)}, ("It has m8 bolts.",))
ENGLISH = "Please remember that we meet the bank on Monday and that we have to bring the numbers."


@pytest.mark.parametrize("case", table_rows(__file__, "language_cases.tsv"))
def test_questions_must_be_in_the_mails_language(case: list[str]) -> None:
    question, passed, *bodies = case
    seen = dataclasses.replace(FACTS, bodies=bodies)
    assert (rules.language(row(question), seen) is None) is (passed == "yes")


@given(st.text(), st.text())
def test_rules_accept_any_text(question: str, answer: str) -> None:
    seen = dataclasses.replace(FACTS, bodies=(question, ENGLISH))
    assert [each.name for each in rules.check_all(row(question, answer), seen)] == list(rules.RULES)


# In addition to the faults that `bench.golden_faults` plants, which the chain's test checks.
@pytest.mark.parametrize("case", table_rows(__file__, "filter_cases.tsv"))
def test_rules_match_faults_but_not_lookalikes(case: list[str]) -> None:
    name, has_fault, question, answer = case
    fault = rules.RULES[name](row(question, answer, provenance={"batch": "b-1"}), FACTS)
    # The fault quotes words, not just a letter.
    assert (fault is not None and len(fault.rstrip("'").split("'")[-1]) > 1) is (has_fault == "yes")


def test_inconsistent_fields_are_corrected() -> None:
    cited = dict.fromkeys((ID, "<2@x>"), Cited("<kept@x>"))
    cited["m9"] = Cited(None, "is not in the inbox file")

    def after(**fields: Any) -> Question:
        return normalized(row(**fields), cited)

    assert after(message_ids=(ID, "m9", "<2@x>")).message_ids == ("<kept@x>", "m9")
    assert after(kind="multi-mail").kind == after().kind == "lookup"
    assert after(message_ids=(ID, "m9")).kind == "multi-mail"
    # Copies of one mail.
    assert after(message_ids=(ID, "<2@x>")).kind == "lookup"
    for answer, kind in (("Twelve.", "count"), ("Some.", "lookup")):
        assert after(question="How many pallets came?", answer=answer).kind == kind
    assert after(kind="multi-mail", message_ids=(ID, "m9")).kind == "multi-mail"
    assert after(kind="count", answer="Ann").kind == "lookup"
    for number in ("two", "3 of them", "twice", "none"):
        assert after(kind="count", answer=number).kind == "count"
    nothing = after(kind="unanswerable", answer="")
    assert (nothing.answerable, nothing.message_ids) == (False, ())
    something = after(kind="unanswerable")
    assert (something.answerable, something.kind) == (True, "lookup")


def duplicates_of(*questions: Question, gold: dict[str, set[str]] | None = None) -> dict[str, str]:
    return {name: one.reason.split()[2] for name, one in duplicates(questions, gold or {}).items()}


# Two questions, whether they share a gold mail, and whether they ask the same.
@pytest.mark.parametrize("pair", table_rows(__file__, "duplicate_pairs.tsv"))
def test_duplicates_are_found_and_similar_texts_kept(pair: list[str]) -> None:
    same, shared, *texts = pair
    one, other = row(*texts[:2], id="q-1"), row(*texts[2:], id="q-2")
    gold = {"q-1": {"mail"}, "q-2": {"mail"}} if shared == "yes" else None
    assert duplicates_of(one, other, gold=gold) == ({"q-2": "q-1"} if same == "yes" else {})


def test_duplicates_across_inboxes_and_without_answers() -> None:
    here = row("When is the all-hands meeting?")
    there = dataclasses.replace(here, id="q-2", inbox_address="bob@x.example")
    assert duplicates_of(here, there) == {}
    assert duplicates_of(here, there, gold={"q-1": {"a"}, "q-2": {"a"}}) == {"q-2": "q-1"}
    text = "What is Richard's new phone extension in Oslo?"
    texts = (text, "In Oslo, what is Richard's new phone extension?", text.replace("new", "old"))
    absent = [row(each, "", id=f"q-{n}", answerable=False) for n, each in enumerate(texts)]
    assert duplicates_of(*absent) == {"q-1": "q-0"}
    assert duplicates_of(absent[0], row(text, "x4711", id="q-4")) == {}
    # The most realistic question is kept, then the one with the smallest id.
    unrated, low = row(id="q-0"), row(id="q-1", how_realistic=0.7)
    same = [row(id=name, how_realistic=0.8) for name in ("q-10", "q-9")]
    assert duplicates_of(low, *same) == {"q-1": "q-9", "q-10": "q-9"}
    assert duplicates_of(unrated, low) == {"q-0": "q-1"}


# Question words (few, so that many questions are near), an answer, and a gold mail or none.
ASKED = st.tuples(
    st.lists(st.sampled_from(["seminar", "Rice", "Ann", "May 7", "dinner"]), max_size=4),
    st.sampled_from(["May 7", "Ann", "Yes"]), st.sampled_from([{"a"}, {"b"}, set()]),
)  # fmt: skip


@given(st.lists(ASKED, max_size=12), st.randoms(use_true_random=False))
def test_order_is_ignored(rows: list[tuple[list[str], str, set[str]]], rng: random.Random) -> None:
    named = {f"q-{place}": row for place, row in enumerate(rows)}
    questions = [
        row(f"When is the {' '.join(words)}?", answer, id=name)
        for name, (words, answer, _) in named.items()
    ]
    gold = {name: mails for name, (_, _, mails) in named.items()}
    first = duplicates_of(*questions, gold=gold)
    assert duplicates_of(*rng.sample(questions, len(questions)), gold=gold) == first
    originals = [each for each in questions if each.id not in first]
    assert set(first.values()) <= {each.id for each in originals}
    assert duplicates_of(*originals, gold=gold) == {}
