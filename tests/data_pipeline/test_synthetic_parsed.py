"""The synthetic world as the real parser stores it: nothing lost, and the evidence stands in it."""

import datetime as dt
import email
import email.utils

import pytest

from data_pipeline.ingest.parse import parse_message
from data_pipeline.ingest.records import ParsedEmail, RawMessage
from data_pipeline.synthetic.world import WorldConfig, ledger, messages

DEFAULT = WorldConfig(size=1000)


@pytest.fixture(scope="module")
def raws() -> list[RawMessage]:
    return list(messages(DEFAULT))


@pytest.fixture(scope="module")
def parsed(raws: list[RawMessage]) -> dict[str, ParsedEmail]:
    """The mails by message id, of which none may be rejected."""
    found = [parse_message(raw) for raw in raws]
    rejected = [each for each in found if not isinstance(each, ParsedEmail)]
    assert rejected == []
    return {each.message_id: each for each in found if isinstance(each, ParsedEmail)}


def flat(mail: ParsedEmail) -> str:
    """Subject and body with single spaces: mails are wrapped."""
    return " ".join(f"{mail.subject}\n{mail.body}".split())


def test_every_mail_is_parsed_under_its_own_id(
    raws: list[RawMessage], parsed: dict[str, ParsedEmail]
) -> None:
    assert len(raws) == 1000
    assert list(parsed) == [email.message_from_bytes(raw.data)["message-id"] for raw in raws]


def test_every_mail_has_its_sent_date(
    raws: list[RawMessage], parsed: dict[str, ParsedEmail]
) -> None:
    for raw, mail in zip(raws, parsed.values(), strict=True):
        sent = email.utils.parsedate_to_datetime(email.message_from_bytes(raw.data)["date"])
        assert mail.sent_at == sent.astimezone(dt.UTC).replace(tzinfo=None)


def test_every_mail_has_sender_recipients_subject_and_text(
    raws: list[RawMessage], parsed: dict[str, ParsedEmail]
) -> None:
    for raw, mail in zip(raws, parsed.values(), strict=True):
        message = email.message_from_bytes(raw.data)
        assert mail.source == raw.source
        assert mail.sender.address == email.utils.parseaddr(message["from"])[1].lower()
        written = [value for name in ("to", "cc", "bcc") for value in message.get_all(name, [])]
        addresses = {address.lower() for _, address in email.utils.getaddresses(written)}
        stored = [each.address for each in (*mail.to, *mail.cc, *mail.bcc)]
        assert set(stored) == addresses
        assert mail.subject.strip()
        assert mail.body.strip()


def test_nothing_of_the_encoding_is_left(parsed: dict[str, ParsedEmail]) -> None:
    for mail in parsed.values():
        text = flat(mail)
        for left in ("=?utf-8", "=?iso-8859", "=C3", "=20", "\ufffd", "&nbsp;", "<p>", "<br"):
            assert left.casefold() not in text.casefold(), (left, mail)


def test_the_evidence_stands_in_the_parsed_mail(parsed: dict[str, ParsedEmail]) -> None:
    pieces = 0
    for planted in ledger(DEFAULT):
        for message_id, said in planted.evidence:
            assert said in flat(parsed[message_id]), (planted.question.question, message_id)
            pieces += 1
    assert pieces > 100


def test_the_gold_mails_are_in_the_inbox_before_the_query_date(
    parsed: dict[str, ParsedEmail],
) -> None:
    for planted in ledger(DEFAULT):
        question = planted.question
        assert question.query_date is not None
        for message_id in question.message_ids:
            mail = parsed[message_id]
            parties = (mail.sender, *mail.to, *mail.cc, *mail.bcc)
            assert question.inbox_address in {each.address for each in parties}
            assert mail.sent_at is not None
            assert mail.sent_at.date() <= question.query_date
        if planted.until:
            changed = parsed[planted.until].sent_at
            assert changed is not None
            assert changed.date() > question.query_date
