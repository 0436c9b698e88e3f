"""The synthetic world: the same bytes for a seed, mail that ingest takes, true questions."""

import datetime as dt
import functools
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from typing import NamedTuple

import pytest

from art_e.errors import UserError
from art_e.question import KINDS, SPLITS
from data_pipeline.ingest.records import ParsedEmail
from data_pipeline.synthetic.stage import Planted
from data_pipeline.synthetic.wording import word_list, words_of
from data_pipeline.synthetic.world import World, WorldConfig, ledger, messages, questions
from tests.formats import parse_message

SMALL = WorldConfig(size=1000)
STANDARD = WorldConfig(size=5000)
TRAINING = WorldConfig(size=1000, short=True, vocabulary=1500)


class Mail(NamedTuple):
    sent_at: dt.datetime
    addresses: frozenset[str]
    text: str


@functools.cache
def world(config: WorldConfig) -> dict[str, Mail]:
    """The mails by message id, as ingest parses them: none is rejected."""
    mails = {}
    for raw in messages(config):
        parsed = parse_message(raw)
        assert isinstance(parsed, ParsedEmail)
        assert parsed.sent_at is not None
        people = (parsed.sender, *parsed.to, *parsed.cc, *parsed.bcc)
        addresses = frozenset(person.address for person in people)
        text = " ".join(f"{parsed.subject} {parsed.body}".split())
        mails[parsed.message_id] = Mail(parsed.sent_at, addresses, text)
    return mails


@functools.cache
def planted(config: WorldConfig) -> tuple[Planted, ...]:
    return tuple(ledger(config))


DIGEST = """
import hashlib
from data_pipeline.synthetic.world import WorldConfig, messages, questions
found = hashlib.sha256()
for raw in messages({0!r}): found.update(raw.source.encode() + raw.data)
for row in (question.to_row() for question in questions({0!r})):
    found.update(repr({{k: v for k, v in row.items() if v or k != "equivalent_ids"}}).encode())
print(found.hexdigest())
"""
DIGESTS = {
    SMALL: "48f90bfdb1403535179977fd332edb1f9884e555255ca54d63cfcfc4b50601b4",
    TRAINING: "9613e2d9c79a2139caf962ba71abf9c9dbc290c609ebfe7a8633a08bf719ee47",
}


@pytest.mark.parametrize("config", DIGESTS)
def test_a_seed_gives_the_same_bytes_in_every_process_and_release(config: WorldConfig) -> None:
    """Published results name a seed: change with the version. Empty new columns don't count."""
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    command = [sys.executable, "-c", DIGEST.format(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == DIGESTS[config]


def test_a_bounded_vocabulary_holds_and_one_too_small_names_the_least_that_works() -> None:
    words = {word for mail in world(TRAINING).values() for word in words_of(mail.text)}
    for entry in planted(TRAINING):
        words |= words_of(f"{entry.question.question} {entry.question.answer}")
    assert len(words) <= 1500
    assert len({name for entry in planted(TRAINING) for name in entry.subjects}) > 80
    with pytest.raises(UserError, match=r"vocabulary=200 .* use (\d+) or more") as caught:
        messages(WorldConfig(size=1000, short=True, vocabulary=200))
    least = int(re.findall(r"use (\d+)", str(caught.value))[0])
    assert len(questions(WorldConfig(size=1000, short=True, vocabulary=least))) > 50
    with pytest.raises(UserError):
        messages(WorldConfig(size=1000, short=True, vocabulary=least - 1))


def test_worlds_of_the_same_names_share_them_in_other_pairs() -> None:
    one, other, own = (
        World(WorldConfig(1000, seed, short=True, vocabulary=1000, names=names)).names
        for seed, names in ((1, 7), (2, 7), (2, None))
    )
    assert set(one.people.first) == set(other.people.first) != set(own.people.first)
    people = [{names.person(number, 8).full for number in range(40)} for names in (one, other)]
    assert len(people[0] & people[1]) < 10


@pytest.mark.parametrize("config", [SMALL, STANDARD, TRAINING])
def test_gold_mails_state_the_evidence_before_the_query_date(config: WorldConfig) -> None:
    mails = world(config)
    for entry in planted(config):
        question = entry.question
        assert question.query_date is not None
        assert question.answerable == (question.kind != "unanswerable") == bool(question.answer)
        assert bool(question.message_ids) == question.answerable
        assert {message_id for message_id, _ in entry.evidence} == set(question.message_ids)
        for message_id, text in entry.evidence:
            mail = mails[message_id]
            assert question.inbox_address in mail.addresses
            assert mail.sent_at.date() <= question.query_date
            assert text in mail.text, question
        if entry.until:
            assert question.query_date < mails[entry.until].sent_at.date()
        gold = len(question.message_ids)
        if question.kind == "count":
            assert str(gold) == question.answer and 2 <= gold <= 6
        expected = {"lookup": 1, "latest-update": 1, "multi-mail": 2, "unanswerable": 0}
        assert gold == expected.get(question.kind or "", gold)


def test_no_other_mail_of_the_inbox_answers_a_lookup_or_gives_an_absent_detail() -> None:
    for entry in planted(STANDARD):
        question = entry.question
        others = [
            mail.text
            for message_id, mail in world(STANDARD).items()
            if question.inbox_address in mail.addresses and message_id not in question.message_ids
        ]
        if question.kind == "lookup":
            needed = (entry.evidence[0][1], *entry.subjects)
            assert not any(all(each in text for each in needed) for text in others), question
        elif question.kind == "unanswerable":
            about = entry.subjects[0].split(" ")[-1]
            detail = re.compile(rf"\b{entry.detail}\b", re.IGNORECASE)
            assert not any(about in text and detail.search(text) for text in others), question


def test_splits_share_no_inbox_no_mail_and_nobody_asked_about() -> None:
    parts: dict[str, set[str]] = defaultdict(set)
    reached: dict[str, set[str]] = defaultdict(set)
    context = (*word_list("cities.txt"), "the ", "Plan")
    for entry in planted(STANDARD):
        question = entry.question
        names = {name for name in entry.subjects if " " in name and name[0].isupper()}
        split = question.split or ""
        parts[split] |= {question.inbox_address, *question.message_ids}
        parts[split] |= {name for name in names if not name.startswith(context)}
        for message_id in question.message_ids:
            reached[split] |= world(STANDARD)[message_id].addresses
    for one in SPLITS:
        for two in set(SPLITS) - {one}:
            dates = {name for name in parts[one] if re.fullmatch(r"\w+ \d+", name)}
            assert not (parts[one] - dates) & parts[two]
            assert not reached[one] & parts[two]


def test_the_standard_world_has_enough_of_everything() -> None:
    rows = [entry.question for entry in planted(STANDARD)]
    assert len(rows) == len({row.id for row in rows}) >= 700
    assert len({row.question for row in rows}) > 0.97 * len(rows)
    for split, least in zip(SPLITS, (400, 140, 140), strict=True):
        kinds = Counter(row.kind for row in rows if row.split == split)
        assert (kinds.total() >= least, set(kinds)) == (True, set(KINDS))
        assert 0.2 <= kinds["unanswerable"] / kinds.total() <= 0.3
