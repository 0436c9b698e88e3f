"""The synthetic questions against the mail: true, unambiguous, split by inbox."""

import datetime as dt
import email
import re
from collections import Counter, defaultdict

import pytest

from art_e.question import KINDS, SPLITS
from data_pipeline.synthetic.wording import word_list
from data_pipeline.synthetic.world import World, WorldConfig, messages
from tests.data_pipeline.test_synthetic import SMALL, STANDARD, TRAINING, planted, world


@pytest.mark.parametrize("config", [SMALL, STANDARD, TRAINING])
def test_gold_mails_hold_what_they_should(config: WorldConfig) -> None:
    mails = world(config)
    for entry in planted(config):
        question = entry.question
        assert question.query_date is not None
        assert question.answerable == (question.kind != "unanswerable") == bool(question.answer)
        assert bool(question.message_ids) == question.answerable
        assert {message_id for message_id, _ in entry.evidence} == set(question.message_ids)
        for message_id, said in entry.evidence:
            mail = mails[message_id]
            assert question.inbox_address in mail.addresses
            assert mail.sent_at.date() <= question.query_date
            assert said in f"{mail.subject} {mail.text}", question
        if question.kind == "lookup":
            assert len(question.message_ids) == 1
        if question.kind == "multi-mail":
            assert len(question.message_ids) == 2
        if question.kind == "count":
            assert str(len(question.message_ids)) == question.answer
            assert 2 <= len(question.message_ids) <= 6


def test_an_update_after_the_query_date_does_not_count() -> None:
    """An answer that changes later is asked for before; one that does not is the newest."""
    mails = world(STANDARD)
    kinds: Counter[str] = Counter()
    newest: dict[str, dt.datetime] = {}
    for entry in planted(STANDARD):
        question = entry.question
        if entry.until:
            assert question.query_date is not None
            assert question.query_date < mails[entry.until].sent_at.date()
        if question.kind != "latest-update":
            continue
        (sent,) = {mails[message_id].sent_at for message_id in question.message_ids}
        story = question.provenance["story"]
        newest[story] = max(sent, newest.get(story, sent))
        assert not entry.until or sent < mails[entry.until].sent_at
        kinds["early" if entry.until else "late"] += 1
    for entry in planted(STANDARD):
        if entry.question.kind == "latest-update" and not entry.until:
            (sent,) = {mails[message_id].sent_at for message_id in entry.question.message_ids}
            assert sent == newest[entry.question.provenance["story"]]
    assert kinds["early"] >= 20
    assert kinds["late"] >= 100


def test_only_a_story_s_own_mails_speak_of_its_things() -> None:
    """Nothing outside a story can answer or contradict what is asked about its names."""
    made = World(STANDARD)
    own = {
        f"{story.kind}-{story.number}": {draft.message_id for draft in made.tell(story).drafts}
        for story in made.stories
    }
    subjects = {
        (entry.question.provenance["story"], name)
        for entry in planted(STANDARD)
        for name in entry.subjects
        if " " in name and name[0].isupper() and name not in made.company.cities
    }
    texts = {mail.message_id: f"{mail.subject}\n{mail.text}" for mail in world(STANDARD).values()}
    speaking: dict[str, set[str]] = defaultdict(set)
    for message_id, text in texts.items():
        for pair in re.findall(r"(?=\b(\w+ \w+))", text):
            speaking[pair].add(message_id)
    assert len(subjects) > 300
    for story, name in subjects:
        if re.fullmatch(r"\w+ \d+", name):
            continue  # A date that the question names.
        head = " ".join(name.split(" ")[:2])
        assert speaking[head] <= own[story], (story, name)


def test_the_gold_mails_name_what_is_asked_about() -> None:
    """By any part of the name; a city may be mere context of the question."""
    made = World(STANDARD)
    short_forms = made.pools.short_forms
    mails = world(STANDARD)
    for entry in planted(STANDARD):
        gold = [mails[message_id] for message_id in entry.question.message_ids]
        text = " ".join(f"{mail.subject} {mail.text}" for mail in gold)
        for name in entry.subjects if gold else ():
            if name in made.company.cities:
                continue
            first, *rest = name.split(" ")
            forms = {part.casefold() for part in (first, *rest, short_forms.get(first, name))}
            assert any(form in text.casefold() for form in forms), (entry.question, name)


def test_no_other_mail_of_the_inbox_gives_the_answer_of_a_lookup() -> None:
    mails = world(STANDARD)
    for entry in planted(STANDARD):
        question = entry.question
        if question.kind != "lookup":
            continue
        ((_, said), *_) = entry.evidence
        for mail in mails.values():
            if said in mail.text and mail.message_id not in question.message_ids:
                speaks = all(name in mail.text for name in entry.subjects)
                assert not speaks or question.inbox_address not in mail.addresses, question


def test_unanswerable_details_stand_in_no_mail_about_their_subject() -> None:
    mails = world(STANDARD)
    checked = 0
    for entry in planted(STANDARD):
        if entry.question.kind != "unanswerable":
            continue
        assert entry.detail in entry.question.question
        for mail in mails.values():
            if entry.question.inbox_address not in mail.addresses:
                continue
            text = f"{mail.subject} {mail.text}"
            if any(name.split(" ")[-1] in text for name in entry.subjects[:1]):
                assert not re.search(rf"\b{entry.detail}\b", text.lower()), (entry.question, text)
                checked += 1
    assert checked > 200


def test_splits_share_no_inbox_no_mail_and_nobody_asked_about() -> None:
    mails = world(STANDARD)
    inbox_of: dict[str, set[str]] = defaultdict(set)
    gold_of: dict[str, set[str]] = defaultdict(set)
    subjects_of: dict[str, set[str]] = defaultdict(set)
    for entry in planted(STANDARD):
        split = entry.question.split
        assert split is not None
        inbox_of[split].add(entry.question.inbox_address)
        gold_of[split].update(entry.question.message_ids)
        common = (*word_list("cities.txt"), "the ", "Plan")
        subjects_of[split].update(
            name for name in entry.subjects if " " in name and not name.startswith(common)
        )
    for one, two in (("train", "test"), ("train", "validation"), ("validation", "test")):
        assert not inbox_of[one] & inbox_of[two]
        assert not gold_of[one] & gold_of[two]
        assert not {s for s in subjects_of[one] & subjects_of[two] if s[0].isupper()}
        for message_id in gold_of[one]:
            assert not mails[message_id].addresses & inbox_of[two]
        for message_id in gold_of[two]:
            assert not mails[message_id].addresses & inbox_of[one]


def test_the_standard_world_has_enough_of_everything() -> None:
    rows = [entry.question for entry in planted(STANDARD)]
    assert len(rows) >= 700
    assert len({row.id for row in rows}) == len(rows)
    assert len({row.question for row in rows}) > 0.97 * len(rows)
    splits = Counter(row.split for row in rows)
    assert splits["test"] >= 140
    assert splits["validation"] >= 140
    for split in SPLITS:
        kinds = Counter(row.kind for row in rows if row.split == split)
        assert set(kinds) == set(KINDS)
        assert 0.2 <= kinds["unanswerable"] / splits[split] <= 0.3
        assert len({row.inbox_address for row in rows if row.split == split}) >= 2
    assert len({row.difficulty for row in rows}) == 3
    stories: dict[str, set[str | None]] = defaultdict(set)
    for row in rows:
        stories[row.provenance["story"]].add(row.kind)
    assert all(kinds == set(KINDS) for kinds in stories.values())
    sizes = Counter(address for mail in world(STANDARD).values() for address in mail.addresses)
    inboxes = sorted(sizes[address] for address in {row.inbox_address for row in rows})
    assert len(inboxes) >= 8
    assert inboxes[0] >= 100
    assert inboxes[-1] >= 3 * inboxes[0]
    assert max(len(mail.addresses) for mail in world(STANDARD).values()) > 60


def test_some_gold_reaches_its_owner_by_bcc_only() -> None:
    hidden = 0
    inboxes = {entry.question.inbox_address for entry in planted(STANDARD)}
    for raw in messages(STANDARD):
        message = email.message_from_bytes(raw.data)
        hidden += any(address in str(message.get("bcc", "")) for address in inboxes)
    assert hidden >= 3
