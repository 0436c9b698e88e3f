"""Any bytes give clean text and no exception; messages split by hand equal what `email` reads.

Set ART_E_REAL_DATA to a folder with `enron-maildir.tar.xz` to compare on all real mail."""

import functools
import random
import re
import time
import timeit
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from data_pipeline.ingest import parse
from data_pipeline.ingest.headers import decode_words, tidy
from data_pipeline.ingest.parse import html_to_text, message_by_email, plain_message
from data_pipeline.ingest.records import ParsedEmail, RawMessage, Skipped
from data_pipeline.ingest.sources import read_enron
from tests.builders import real_data, table, tries
from tests.formats import of_row, parse_message
from tests.processes import peak_of

UNCLEAN = re.compile("[\x00\ud800-\udfff]")

PIECES = table(__file__, "pieces.toml")
WELL_FORMED, PLAIN = (PIECES[name].encode() for name in ("well_formed", "plain"))


def check_clean(email: ParsedEmail | Skipped) -> None:
    """Check the properties of every result."""
    if isinstance(email, Skipped):
        assert email.reason in {"empty", "not-mail", "too-large"}, email
        return
    boxes = [*email.to, *email.cc, *email.bcc]
    texts = [email.source, email.message_id, email.subject, email.body]
    texts += [text for box in [email.sender, *boxes] for text in box]
    assert not any(UNCLEAN.search(text) for text in texts)
    assert re.fullmatch(r"<[^\s<>]+>", email.message_id)
    addresses = [box.address for box in boxes if box.address]
    assert len(addresses) == len(set(addresses)) and all(map(any, boxes))
    for address in addresses:
        assert re.fullmatch(r"[^\s<>\"]*@[^\s<>\"]*", address) and address == address.lower()
    assert email.sent_at is None or (email.sent_at.tzinfo is None and email.sent_at.year >= 1970)
    assert "\r" not in email.body and email.body == email.body.strip("\n")
    assert "\n" not in email.subject


NAMES = ("message-id date from to cc bcc subject x-from received content-type mime-version"
         " content-transfer-encoding content-disposition x-note").split()  # fmt: skip


def check_same(data: bytes) -> bool:
    """Return True if the message is split by hand, and `email` finds the same headers and mail."""
    by_hand = plain_message(data)
    if by_hand is not None:
        read = [
            ([*map(headers.every, NAMES)], body, parse.compose("any", headers, body, None))
            for headers, body, _ in (by_hand, message_by_email(data))
        ]
        assert read[0] == read[1]
    return by_hand is not None


@st.composite
def well_formed(draw: st.DrawFn) -> bytes:
    text = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=30)
    value = st.lists(text, min_size=1, max_size=3).map("\n\t".join)
    fields = draw(st.lists(st.tuples(st.sampled_from(NAMES[:9]), value), max_size=8))
    fields.append(("Content-Type", draw(st.sampled_from(PIECES["types"]))))
    fields.append(("CONTENT-TRANSFER-ENCODING", draw(st.sampled_from(PIECES["encodings"]))))
    shuffled = draw(st.permutations(fields))
    lines = [f"{name}:{draw(st.sampled_from(['', ' ', chr(9)]))}{text}" for name, text in shuffled]
    body: str = draw(st.sampled_from(PIECES["bodies"]))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    charset = draw(st.sampled_from(["utf-8", "cp1252", "utf-16"]))
    head = end.join(lines).replace("\n\t", f"{end}\t") + end + end
    return head.encode() + body.encode(charset, "replace")


@given(well_formed())
def test_a_well_formed_message_is_split_by_hand(data: bytes) -> None:
    assert check_same(data)


SPLINTERS = [each.encode("latin-1") for each in PIECES["splinters"]]

MOST_CPU_S, MOST_KB = 2.0, 100_000


@pytest.mark.fire
@settings(max_examples=tries(60, 100_000), deadline=None)
@given(st.sampled_from([PLAIN, WELL_FORMED, b"From: a@x.com\n"]), st.integers(0, 2**32))
@example(PLAIN, 85881)  # 19,000 carriage returns between two addresses
@example(b"From: a@x.com\n", 2910)  # a body of invisible characters alone
def test_mutated_and_filled_messages_stay_clean_and_fast(message: bytes, seed: int) -> None:
    chosen = random.Random(seed)
    data = bytearray(message)
    for _ in range(chosen.randrange(13)):
        at = chosen.randrange(len(data))
        match chosen.randrange(4):
            case 0:
                data[at] = chosen.randrange(256)
            case 1:
                del data[at : at + chosen.randrange(1, 30)]
                data += b"\n"
            case 2:
                data[at:at] = data[chosen.randrange(len(data)) :][:40]
            case _:
                data[at:at] = chosen.choice(SPLINTERS)
    if chosen.random() < 0.5:
        filling = b"".join(chosen.choices(SPLINTERS, k=chosen.randint(1, 3)))
        at = chosen.randrange(len(data))
        data[at:at] = filling * ((20_000 - len(data)) // len(filling))
    memory = peak_of("self")
    check_clean(parse_message(RawMessage("any", bytes(data))))
    check_same(bytes(data))
    assert peak_of("self") - memory < MOST_KB
    again = functools.partial(parse_message, RawMessage("any", bytes(data)))
    # `timeit` turns off garbage collection, which takes seconds in this process.
    assert timeit.timeit(again, timer=time.thread_time, number=1) < MOST_CPU_S


def test_other_messages_are_left_to_email() -> None:
    assert check_same(PLAIN)
    for old, new in [*PIECES["more_than_a_split"], ["charset=us-ascii", "; x=1" * 5_000]]:
        data = PLAIN.replace(old.encode(), new.encode("latin-1"), 1)
        assert data != PLAIN and plain_message(data) is None
        assert isinstance(parse_message(RawMessage("any", data)), ParsedEmail)


words = st.text(max_size=60)
people = st.lists(words, max_size=3)
encoded_words = st.text(alphabet="=?utf-8bBqQ_ \t\nA9é\ud800", max_size=80)
fields = st.tuples(
    words, encoded_words, words, people, people, people, st.datetimes() | st.none(), st.text()
)


@given(fields, st.text(alphabet="<>/!-&;=\"' \nabdhilprtu0x", max_size=300))
def test_any_fields_encoded_words_and_html_are_clean(row: Any, source: str) -> None:
    check_clean(parse_message(of_row(*row)))
    decoded = decode_words(row[1])
    assert not UNCLEAN.search(decoded) and "\n" not in decoded
    assert isinstance(html_to_text(source), str)
    assert tidy(tidy(row[-1])) == tidy(row[-1])


def test_real_mail_is_split_as_email_does() -> None:
    same = [check_same(raw.data) for raw in read_enron(real_data() / "enron-maildir.tar.xz")]
    assert sum(same) > 0.99 * len(same) > 0
