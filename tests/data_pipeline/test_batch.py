"""A batch's tables: what is indexed of each mail, and who received it."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from art_e.inbox.schema import SUBJECT_WEIGHT
from art_e.inbox.tokenizer import MAX_WORD_CHARS, stems, words
from data_pipeline.ingest.batch import (
    Batch,
    Job,
    Rules,
    header_message_id,
    process,
    sender_text,
)
from data_pipeline.ingest.parse import from_fields
from data_pipeline.ingest.records import MailFields, ParsedEmail

text = st.text(
    st.sampled_from("abcXYZ019 _-'\n\t.,\u00e9\u00df\u0130\u03a3\u4e2d\u0301\u00a0\u2028\x1c")
    | st.characters(),
    max_size=40,
)
addresses = st.lists(st.sampled_from(["a@x", "B@x", "Jo <c@x>", "d@y"]), max_size=3)
mails = st.lists(
    st.builds(
        lambda subject, sender, to, cc, bcc, body, long: MailFields(
            "any", "", "s " + subject, sender, to, cc, bcc, None, body + "w" * long
        ),
        text, text, addresses, addresses, addresses, text, st.sampled_from([0, 64, 65]),
    ),
    max_size=4,
)  # fmt: skip


def batch_of(fields: list[MailFields]) -> tuple[Batch, list[ParsedEmail]]:
    emails = [email for each in fields if isinstance(email := from_fields(each), ParsedEmail)]
    assert len(emails) == len(fields)
    return process(Job(fields, Rules(), None)), emails


def indexed(of: str) -> list[str]:
    return [word for word in words(of) if len(word) <= MAX_WORD_CHARS]


@settings(max_examples=200)
@given(mails)
def test_postings_count_the_stems_of_each_mail(fields: list[MailFields]) -> None:
    batch, emails = batch_of(fields)
    expected: Counter[tuple[int, str]] = Counter()
    contents: list[str] = []
    lengths = []
    for row, email in enumerate(emails):
        content = indexed(email.subject) * SUBJECT_WEIGHT + indexed(email.body)
        everything = content + indexed(sender_text(email.sender.name, email.sender.address))
        expected.update((row, stem) for stem in stems(everything))
        contents += content
        lengths.append(len(everything))
    postings = batch.postings.to_pydict()
    terms = [batch.stems[term] for term in postings["term"]]
    keys = list(zip(postings["row"], terms, strict=True))
    assert dict(zip(keys, postings["frequency"], strict=True)) == expected
    assert len(keys) == len(expected)
    assert batch.mails["length"].to_pylist() == lengths
    word_terms = zip(*batch.words.to_pydict().values(), strict=True)
    assert {word: batch.stems[term] for word, term in word_terms} == dict(
        zip(contents, stems(contents), strict=True)
    )


@given(mails)
def test_recipients_in_their_roles_and_order(fields: list[MailFields]) -> None:
    batch, emails = batch_of(fields)
    expected = [
        {"row": row, "address": box.address, "name": box.name, "role": role, "position": position}
        for row, email in enumerate(emails)
        for role, listed in enumerate((email.to, email.cc, email.bcc))
        for position, box in enumerate(listed)
    ]
    assert batch.recipients.to_pylist() == expected


def test_the_id_of_a_variant_leads_back_to_the_mails_own() -> None:
    digest = "0123456789abcdef"
    variant = "<0123456789ab+a+b@x>"  # as merge.sql writes it
    assert header_message_id(variant, digest) == "<a+b@x>"
    assert header_message_id("<a+b@x>", digest) == "<a+b@x>"
