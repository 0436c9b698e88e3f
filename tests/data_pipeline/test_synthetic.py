"""The synthetic world as a whole: same bytes, right counts, mail that parses, true questions."""

import datetime as dt
import email
import email.policy
import email.utils
import functools
import hashlib
import html
import json
import os
import re
import subprocess
import sys
import tracemalloc
from email.header import decode_header, make_header
from pathlib import Path
from typing import NamedTuple

import pytest

from art_e.errors import UserError
from data_pipeline.synthetic.plan import Planted
from data_pipeline.synthetic.wording import words_of
from data_pipeline.synthetic.world import (
    World,
    WorldConfig,
    ledger,
    messages,
    questions,
    write_world,
)


class Parsed(NamedTuple):
    message_id: str
    sent_at: dt.datetime
    addresses: frozenset[str]
    subject: str
    text: str


SMALL = WorldConfig(size=1000)
STANDARD = WorldConfig(size=5000)
TRAINING = WorldConfig(size=1000, short=True, vocabulary=1500)


def parse(data: bytes) -> Parsed:
    """The mail as the old, fast API of the standard library gives it."""
    message = email.message_from_bytes(data)
    parts = [part for part in message.walk() if part.get_content_maintype() == "text"]
    payload = parts[0].get_payload(decode=True)
    assert isinstance(payload, bytes)
    text = payload.decode(parts[0].get_content_charset("ascii"))
    if parts[0].get_content_subtype() == "html":
        text = html.unescape(re.sub(r"<[^>]+>", " ", text))
    headers = [value for name in ("from", "to", "cc", "bcc") for value in message.get_all(name, [])]
    sent = email.utils.parsedate_to_datetime(message["date"])
    subject = make_header(decode_header(message["subject"]))
    return Parsed(
        message_id=message["message-id"],
        sent_at=sent.astimezone(dt.UTC),
        addresses=frozenset(address for _, address in email.utils.getaddresses(headers)),
        subject=str(subject),
        text=" ".join(text.split()),
    )


@functools.cache
def world(config: WorldConfig) -> dict[str, Parsed]:
    mails = [parse(raw.data) for raw in messages(config)]
    return {mail.message_id: mail for mail in mails}


@functools.cache
def planted(config: WorldConfig) -> tuple[Planted, ...]:
    return tuple(ledger(config))


def digest_in_process(config: WorldConfig, hash_seed: str) -> str:
    code = (
        "import hashlib\n"
        "from data_pipeline.synthetic.world import WorldConfig, messages, questions\n"
        f"config = {config!r}\n"
        "digest = hashlib.sha256()\n"
        "for raw in messages(config): digest.update(raw.source.encode() + raw.data)\n"
        "for question in questions(config): digest.update(repr(question.to_row()).encode())\n"
        "print(digest.hexdigest())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )
    return done.stdout.strip()


@pytest.mark.parametrize("config", [SMALL, TRAINING])
def test_the_same_bytes_whatever_the_hash_seed(config: WorldConfig) -> None:
    here = hashlib.sha256()
    for raw in messages(config):
        here.update(raw.source.encode() + raw.data)
    for question in questions(config):
        here.update(repr(question.to_row()).encode())
    assert digest_in_process(config, "1") == here.hexdigest() == digest_in_process(config, "77")


def test_another_seed_is_another_world() -> None:
    other = WorldConfig(size=1000, seed=1)
    assert not {p.question.question for p in planted(SMALL)} & {
        p.question.question for p in ledger(other)
    }
    assert not set(world(SMALL)) & {parse(raw.data).message_id for raw in messages(other)}


@pytest.mark.parametrize("config", [SMALL, TRAINING, WorldConfig(size=1234, short=True)])
def test_exactly_so_many_mails_with_ids_of_their_own(config: WorldConfig) -> None:
    raws = list(messages(config))
    assert len(raws) == config.size
    assert [raw.source for raw in raws[:2]] == ["synthetic/0000001.eml", "synthetic/0000002.eml"]
    assert len({parse(raw.data).message_id for raw in raws}) == config.size


def test_the_standard_library_parses_every_mail() -> None:
    for raw in messages(SMALL):
        message = email.message_from_bytes(raw.data, policy=email.policy.default)
        assert not message.defects
        for part in message.walk():
            assert not part.defects
            assert not [defect for value in part.values() for defect in value.defects]
        mail = parse(raw.data)
        assert str(message["subject"]) == mail.subject != ""
        assert mail.text
        assert len(mail.addresses) >= 2
        assert all(re.fullmatch(r"[a-z0-9.]+@[a-z0-9]+\.example", a) for a in mail.addresses)
        assert dt.date(2019, 1, 1) <= mail.sent_at.date() <= dt.date(2020, 7, 31)


def test_mail_comes_in_every_form() -> None:
    data = b"\n".join(raw.data.replace(b"\r\n", b"\n") for raw in messages(SMALL))
    for form in (
        b"quoted-printable", b"base64", b"8bit", b"7bit", b"iso-8859-1", b"=?utf-8?",
        b"multipart/alternative", b"multipart/mixed", b"text/html", b"filename=", b"\nBcc: ",
        b"-----Original Message-----", b" wrote:\n", b"Forwarded message", b"\nReferences: ",
    ):  # fmt: skip
        assert form in data, form


def test_weekdays_in_the_text_fit_their_dates() -> None:
    months = "January February March April May June July August September October November December"
    pattern = re.compile(r"(\w+day), (\w+) (\d+)(?!\d)(?:, (\d{4}))?")
    checked = 0
    for mail in world(SMALL).values():
        for weekday, month, day, year in pattern.findall(mail.text):
            if month not in months.split():
                continue
            number = months.split().index(month) + 1
            years = [int(year)] if year else [mail.sent_at.year, mail.sent_at.year + 1]
            assert any(dt.date(y, number, int(day)).strftime("%A") == weekday for y in years), (
                mail.text
            )
            checked += 1
    assert checked > 30


@pytest.mark.parametrize(("size", "vocabulary"), [(1000, 1500), (1000, 2500)])
def test_a_bounded_vocabulary_holds_over_mail_and_questions(size: int, vocabulary: int) -> None:
    config = WorldConfig(size=size, short=True, vocabulary=vocabulary)
    words: set[str] = set()
    people: set[str] = set()
    for mail in world(config).values():
        words |= words_of(mail.subject) | words_of(mail.text)
    for entry in planted(config):
        words |= words_of(entry.question.question) | words_of(entry.question.answer or "")
        people.update(entry.subjects)
    assert len(words) <= vocabulary
    assert len(people) > 80


def test_a_vocabulary_that_is_too_small_names_the_least_that_works() -> None:
    with pytest.raises(UserError, match=r"--vocabulary 200 .* use (\d+) or more") as caught:
        messages(WorldConfig(size=1000, short=True, vocabulary=200))
    found = re.search(r"use (\d+)", str(caught.value))
    assert found is not None
    least = int(found[1])
    assert len(questions(WorldConfig(size=1000, short=True, vocabulary=least))) > 50
    with pytest.raises(UserError):
        messages(WorldConfig(size=1000, short=True, vocabulary=least - 1))


def test_worlds_of_the_same_names_share_them_in_other_pairs() -> None:
    def built(seed: int, names: int | None) -> World:
        return World(WorldConfig(size=1000, seed=seed, short=True, vocabulary=1000, names=names))

    one, other, own = built(1, 7), built(2, 7), built(2, None)
    assert set(one.pools.people.first) == set(other.pools.people.first)
    assert set(one.pools.cities) == set(other.pools.cities)
    assert set(one.pools.people.first) != set(own.pools.people.first)
    people = [
        {(person.given, person.family) for person in map(world.directory.person, range(40))}
        for world in (one, other)
    ]
    assert len(people[0] & people[1]) < 10


def test_short_mails_are_one_or_two_sentences_without_signature() -> None:
    for mail in world(TRAINING).values():
        assert len(re.findall(r"[.?!](?= |$)", mail.text)) <= 2, mail.text
        assert "Freight" not in mail.text


@pytest.mark.parametrize("size", [0, 999, 500_001, -5])
def test_a_size_out_of_range_is_a_user_error(size: int) -> None:
    with pytest.raises(UserError, match="1,000 to 500,000"):
        messages(WorldConfig(size=size))


def test_mails_are_made_as_they_are_asked_for() -> None:
    first = messages(WorldConfig(size=500_000))
    tracemalloc.start()
    for _ in range(300):
        next(first)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000_000


def test_a_written_world_is_a_folder_of_eml_and_a_question_file(tmp_path: Path) -> None:
    write_world(SMALL, tmp_path)
    files = sorted(tmp_path.glob("mail/*/*.eml"))
    assert len(files) == 1000
    assert files[0].relative_to(tmp_path).as_posix() == "mail/0000/0000001.eml"
    assert files[0].read_bytes() == next(messages(SMALL)).data
    rows = [
        json.loads(line)
        for line in (tmp_path / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert rows == [question.to_row() for question in questions(SMALL)]
    with pytest.raises(UserError, match="holds mail already"):
        write_world(SMALL, tmp_path)


def test_the_command_refuses_a_bad_size_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "data_pipeline.synthetic", "--size", "5", "--out"]
    done = subprocess.run(
        [*command, str(tmp_path / "w")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
