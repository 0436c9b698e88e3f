"""The synthetic world: the same bytes for a seed, mail that ingest takes, true questions."""

import datetime as dt
import functools
import itertools
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from math import log
from statistics import mean
from typing import NamedTuple

import pytest

from art_e.question import KINDS, SPLITS
from data_pipeline.synthetic.stage import Planted
from data_pipeline.synthetic.wording import MONTHS, load_toml, word_list, words_of
from data_pipeline.synthetic.world import World, WorldConfig, ledger, messages, questions
from tests.builders import the_error
from tests.formats import parsed

SMALL = WorldConfig(size=1000)
STANDARD = WorldConfig(size=5000)
TRAINING = WorldConfig(size=1000, short=True, vocabulary=1500)
WORD = re.compile(r"[^\W\d_]+|\d+")
COINED = load_toml("coined.toml")
LISTS = [word_list(f"{name}.txt") for name in ("given", "family", "cities")]
NAMES = {
    *WORD.findall(" ".join(itertools.chain(*LISTS, COINED["adjectives"], COINED["nouns"]))),
    *map("".join, itertools.product(COINED["heads"], COINED["tails"])),
}


class Mail(NamedTuple):
    sent_at: dt.datetime
    addresses: frozenset[str]
    text: str


@functools.cache
def world(config: WorldConfig) -> dict[str, Mail]:
    """Return the mails by message id, as ingest parses them; check that none is rejected."""
    mails = {}
    for email in map(parsed, messages(config)):
        assert email.sent_at is not None
        people = (email.sender, *email.to, *email.cc, *email.bcc)
        addresses = frozenset(person.address for person in people)
        text = " ".join(f"{email.subject} {email.body}".split())
        mails[email.message_id] = Mail(email.sent_at, addresses, text)
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
    SMALL: "e8705c4e34c520b8c798c890be7f6bf856a5094249dbbcb57db258247d41fe8e",
    TRAINING: "6f34ed0d1f731e251d6a6ce2a263100c19a9f44478859b72742267487a32c8e7",
}


@pytest.mark.parametrize("config", DIGESTS)
def test_a_seed_gives_the_same_bytes_in_every_release(config: WorldConfig) -> None:
    """Published results name a seed: change with the version. Empty new columns don't count."""
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    command = [sys.executable, "-c", DIGEST.format(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == DIGESTS[config]


def test_vocabulary_limit_holds_or_names_the_minimum() -> None:
    words = {word for mail in world(TRAINING).values() for word in words_of(mail.text)}
    for entry in planted(TRAINING):
        words |= words_of(f"{entry.question.question} {entry.question.answer}")
    assert len(words) <= 1500
    assert len({name for entry in planted(TRAINING) for name in entry.subjects}) > 80
    error = the_error(messages, replace(TRAINING, vocabulary=200))
    [least] = map(int, re.findall(r"vocabulary=200 .* use (\d+) or more", error))
    assert len(questions(replace(TRAINING, vocabulary=least))) > 50
    assert the_error(messages, replace(TRAINING, vocabulary=least - 1))


def test_worlds_share_first_and_last_names_but_not_people() -> None:
    one, other, shuffled = (
        World(WorldConfig(1000, seed, short=True, vocabulary=1000, names=names)).company
        for seed, names in ((1, 7), (2, 7), (2, None))
    )
    assert set(one.people.first) == set(other.people.first) != set(shuffled.people.first)
    people = [{names.person(number).full for number in range(40)} for names in (one, other)]
    assert len(people[0] & people[1]) < 10


def test_world_tells_only_the_chosen_stories() -> None:
    stories = Counter(row.provenance["story"].partition("-")[0] for row in questions(NANO))
    assert stories.keys() == {"project", "relocation", "travel"}
    assert max(stories.values()) < 2 * min(stories.values())
    assert "travel" in the_error(WorldConfig, stories="voyage")


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


def names_in(entry: Planted) -> list[str]:
    """Return the people and the coined names that the question is about."""
    others = re.compile(f"[a-z].*|\\S+|({'|'.join(MONTHS)}) \\d+|{'|'.join(LISTS[2])}")
    return [name for name in entry.subjects if not others.fullmatch(name)]


def test_no_other_mail_of_the_inbox_answers_a_lookup() -> None:
    for entry in planted(STANDARD):
        question = entry.question
        if question.kind == "lookup":
            needed = (entry.evidence[0][1], *entry.subjects)
            for message_id, mail in world(STANDARD).items():
                if question.inbox_address in mail.addresses:
                    states = all(each in mail.text for each in needed)
                    assert message_id in question.message_ids or not states, question


@pytest.mark.parametrize("config", [SMALL, STANDARD, TRAINING])
def test_no_earlier_mail_answers_an_unanswerable_question(config: WorldConfig) -> None:
    """Its mails come later, or it is about a person or thing of another inbox."""
    nicks = dict(line.split(" ") for line in word_list("given.txt") if " " in line)
    near = []
    for entry in planted(config):
        question, names = entry.question, names_in(entry)
        address, about = question.inbox_address, question.provenance
        assert question.query_date and names
        if question.answerable:
            continue
        inbox = [mail for mail in world(config).values() if address in mail.addresses]
        texts = [mail.text for mail in inbox if mail.sent_at.date() <= question.query_date]
        near.append(any(name in text for name in names for text in texts))
        its_own = [each for each in planted(config) if each.question.inbox_address == address]
        if entry.until:
            assert address in world(config)[entry.until].addresses
            for other in its_own:
                same = other.question.provenance["story"] == about["story"]
                if same and other.question.kind == about["like"] and names_in(other) == names:
                    needed = (other.evidence[-1][1], *(name.split()[-1] for name in names))
                    assert not any(all(each in text for each in needed) for text in texts), question
            continue
        # Some name is in no mail of the inbox, full or short.
        parts = [name.split(" ", 1) for name in names]
        unheard = [
            (first, rest)
            for first, rest in parts
            for forms in [{f"{first} {rest}", f"{nicks.get(first, first)} {rest}"}]
            if not any(form in mail.text for form in forms for mail in inbox)
        ]
        assert unheard, question
        # A first name alone doesn't match a person that similar questions of this inbox ask about.
        kind = str(about["story"]).split("-")[0]
        like = [each for each in its_own if kind in str(each.question.provenance["story"])]
        firsts = {name.split()[0] for each in like if each.evidence for name in names_in(each)}
        for first, rest in unheard:
            assert rest in question.question or not {first, nicks.get(first)} & firsts, question
    assert 0.2 < mean(near) < 0.8


def pieces(text: str, form: str) -> set[str]:
    """Return the features of a question: words and pairs (names masked or not), or its template."""
    words = WORD.findall(text)
    if form != "words":
        words = ["#" if each.isdigit() or each in NAMES else each for each in words]
    if form == "template":
        return {re.sub("(# )+", "# ", " ".join(words))}
    return {*words, *map(" ".join, itertools.pairwise(words)), f"{len(words)} words"}


def worded(config: WorldConfig, seeds: range, kinds: Sequence[str]) -> list[tuple[str, bool]]:
    """Return the questions of worlds of these `seeds`, and whether they are answerable."""
    rows = (each for seed in seeds for each in questions(replace(config, seed=seed)))
    like = ((row, row.provenance.get("like", row.kind)) for row in rows)
    return [(row.question, row.kind != "unanswerable") for row, kind in like if kind in kinds]


NANO = WorldConfig(1000, short=True, vocabulary=700, names=0, stories="project+relocation+travel")


@pytest.mark.parametrize(
    ("config", "worlds", "kinds"),
    [(STANDARD, 3, KINDS), (TRAINING, 10, KINDS), (NANO, 25, ("lookup",))],
)
def test_wording_does_not_reveal_answerability(
    config: WorldConfig, worlds: int, kinds: Sequence[str]
) -> None:
    """Naive Bayes is at chance on the words of other worlds; a template is a look-up table."""
    learned, unseen = (
        worded(config, seeds, kinds)
        for seeds in (range(100, 100 + 2 * worlds), range(100 - worlds, 100))
    )
    for form in ("words", "masked", "template"):
        counts = {True: Counter[str](), False: Counter[str]()}
        for text, answerable in learned:
            counts[answerable].update([*pieces(text, form), "all"])
        right: dict[bool, list[bool]] = {True: [], False: []}
        for text, answerable in unseen:
            yes, no = (
                sum(log((its[piece] + 1) / (its["all"] + 2)) for piece in pieces(text, form))
                for its in (counts[True], counts[False])
            )
            right[answerable].append((yes > no) == answerable)
        assert len(right[False]) > 300
        assert abs(mean(map(mean, right.values())) - 0.5) <= 0.05, form


def test_splits_share_no_inbox_no_mail_and_no_subject() -> None:
    parts: dict[str, set[str]] = defaultdict(set)
    reached: dict[str, set[str]] = defaultdict(set)
    for entry in planted(STANDARD):
        question = entry.question
        split = question.split or ""
        parts[split] |= {question.inbox_address, *question.message_ids}
        parts[split] |= set(names_in(entry))
        for message_id in question.message_ids:
            reached[split] |= world(STANDARD)[message_id].addresses
    for one in SPLITS:
        for two in set(SPLITS) - {one}:
            assert not parts[one] & parts[two]
            assert not reached[one] & parts[two]


def test_standard_world_has_enough_of_everything() -> None:
    rows = [entry.question for entry in planted(STANDARD)]
    assert len(rows) == len({row.id for row in rows}) >= 700
    assert len({row.question for row in rows}) > 0.97 * len(rows)
    for split, least in zip(SPLITS, (400, 140, 140), strict=True):
        kinds = Counter(row.kind for row in rows if row.split == split)
        assert (kinds.total() >= least, set(kinds)) == (True, set(KINDS))
        assert 0.2 <= kinds["unanswerable"] / kinds.total() <= 0.3
