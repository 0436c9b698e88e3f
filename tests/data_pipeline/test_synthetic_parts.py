"""Parts of the synthetic world: names, dates and sums in words, bytes of a mail."""

import datetime as dt
import email
import email.policy
import email.utils
from collections import Counter
from email.message import EmailMessage
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_pipeline.synthetic.people import Pairs, ascii_fold
from data_pipeline.synthetic.plan import make_plan, plan_stories
from data_pipeline.synthetic.rfc822 import Envelope, date_header, encoded, mailbox, render
from data_pipeline.synthetic.wording import (
    DAYS,
    STORY_KINDS,
    Wording,
    amount_answer,
    date_answer,
    load_toml,
    ordinal,
    read_absent,
    say_amount,
    say_date,
    target_near,
    word_list,
    words_of,
    workday,
)

NAMES = st.text(
    st.characters(categories=["L"], max_codepoint=0x24F), min_size=1, max_size=10
) | st.sampled_from(["O'Donnell", "Ben-Ami", "De Santis", "Łukasz Żółć"])


@given(st.integers(1, 40), st.integers(1, 60), st.integers(0, 99))
def test_pairs_never_repeat_and_neighbours_differ(first: int, second: int, seed: int) -> None:
    ones = [f"a{i}" for i in range(first)]
    pairs = Pairs(Random(seed), ones, [f"b{i}" for i in range(second)])
    drawn = [pairs[i] for i in range(len(pairs))]
    assert len(set(drawn)) == len(drawn) == first * second
    assert len({one for one, _ in drawn[:first]}) == first
    with pytest.raises(IndexError):
        pairs[len(pairs)]


def test_no_name_or_short_form_stands_twice() -> None:
    forms = [form.casefold() for line in word_list("given.txt") for form in line.split(" ")]
    assert [form for form, count in Counter(forms).items() if count > 1] == []
    folded = [ascii_fold(line.split(" ")[0]) for line in word_list("given.txt")]
    assert len(set(folded)) == len(folded)
    families = [ascii_fold(line) for line in word_list("family.txt")]
    assert len(set(families)) == len(families)
    assert all(families) and all(folded)
    assert len(set(word_list("cities.txt"))) == len(word_list("cities.txt")) >= 100


def test_every_bank_has_variants_and_no_bank_of_details_names_what_mails_say() -> None:
    for kind in STORY_KINDS:
        banks = load_toml(f"phrases/{kind}.toml")
        for name, bank in banks.items():
            assert isinstance(bank, list)
            assert len(bank) >= 6, (kind, name)
            assert len(set(bank)) == len(bank)
        details = banks["q_unanswerable"]
        assert isinstance(details, list)
        for entry in details:
            assert read_absent(entry).text.endswith("?")


def test_short_mode_keeps_a_few_phrases_of_each_bank() -> None:
    wording = Wording(short=True, cap=3)
    for kind in STORY_KINDS:
        for name, bank in wording.story[kind].items():
            assert 1 <= len(bank) <= 6, (kind, name)
    assert len(wording.words()) < len(Wording(short=False, cap=None).words())


@given(st.integers(0, 540), st.integers(-40, 200), st.integers(0, 999), st.booleans())
def test_a_said_date_can_be_read_back(told: int, ahead: int, seed: int, bounded: bool) -> None:
    written, day = workday(told), workday(told + ahead)
    said = say_date(Random(seed), day, written, bounded=bounded)
    assert str(day.day) in said
    if "the" in said.split():
        assert 0 < (day - written).days <= 24
        assert said == f"{day:%A} the {ordinal(day.day)}"
    if not bounded and abs((day - written).days) > 150:
        assert str(day.year) in said


@given(st.integers(0, 2000))
def test_workdays_are_workdays(offset: int) -> None:
    assert workday(offset).weekday() < 5
    assert 0 <= (workday(offset) - workday(0)).days - offset <= 2


def test_answers_are_plain() -> None:
    assert date_answer(dt.date(2020, 3, 3)) == "March 3, 2020"
    assert amount_answer(12400) == "$12,400"
    assert target_near(dt.date(2020, 2, 29)).answer() == "The end of February 2020"
    assert [ordinal(n) for n in (1, 2, 3, 11, 22, 30)] == [
        "1st", "2nd", "3rd", "11th", "22nd", "30th",
    ]  # fmt: skip


@given(st.integers(12, 9000), st.integers(0, 99))
def test_a_said_sum_is_the_sum(hundreds: int, seed: int) -> None:
    said = say_amount(Random(seed), hundreds * 100, bounded=False)
    digits = said.replace("USD", "").replace("dollars", "").strip(" $").replace(",", "")
    value = float(digits[:-1]) * 1000 if digits.endswith("k") else float(digits)
    assert round(value) == hundreds * 100


def test_words_are_lower_case_letters_and_digits() -> None:
    assert words_of("Re: Kate's $12,400 (Büro_2)") == {"re", "kate", "s", "12", "400", "büro", "2"}


@given(NAMES, NAMES)
def test_a_mailbox_is_read_back(given_name: str, family: str) -> None:
    for name in (f"{given_name} {family}", f"{family}, {given_name}"):
        raw = f"From: {mailbox(name, 'a.b@c.example')}\n\n".encode()
        message = email.message_from_bytes(raw, policy=email.policy.default)
        (address,) = message["from"].addresses
        assert address.addr_spec == "a.b@c.example"
        assert address.display_name == name


@given(st.text(st.characters(categories=["L", "N", "P"], max_codepoint=0xFFFF), max_size=90))
def test_a_subject_is_read_back(subject: str) -> None:
    raw = f"Subject: {encoded(subject)}\n\n".encode()
    assert all(len(line) <= 120 or subject.isascii() for line in raw.splitlines())
    if not subject.isascii():
        message = email.message_from_bytes(raw, policy=email.policy.default)
        assert message["subject"] == subject


@given(st.integers(737_000 * 1440, 738_000 * 1440), st.sampled_from([-480, 0, 330, 60]))
def test_a_date_header_is_the_same_moment(minute: int, offset: int) -> None:
    parsed = email.utils.parsedate_to_datetime(date_header(minute, offset))
    assert parsed.utcoffset() == dt.timedelta(minutes=offset)
    moment = dt.datetime(1, 1, 1, tzinfo=dt.UTC) + dt.timedelta(minutes=minute - 1440)
    assert dt.timedelta(0) <= parsed - moment < dt.timedelta(minutes=1)
    assert date_header(minute, offset)[:3] == parsed.strftime("%a")


@given(
    st.text(st.characters(categories=["L", "N", "P", "Zs"], max_codepoint=0x17F), max_size=300),
    st.integers(0, 10_000),
    st.sampled_from(["", "agenda.pdf"]),
    st.booleans(),
)
def test_a_rendered_body_is_read_back(
    text: str, seed: int, attachment: str, plain_only: bool
) -> None:
    envelope = Envelope("<1@x>", 737_000 * 1440, 0, "a@x.example", ["b@x.example"], [], [], "Hi")
    data = render(Random(seed), envelope, text, attachment=attachment, plain_only=plain_only)
    message = email.message_from_bytes(data, policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    body = message.get_body(("plain",))
    assert body is not None
    assert body.get_content().replace("\r\n", "\n").rstrip("\n") == text.rstrip("\n")
    names = [part.get_filename() for part in message.iter_attachments()]
    assert names == ([attachment] if attachment else [])


def test_plans_grow_with_size_and_share_out_the_splits() -> None:
    for size in (1000, 5000, 50_000, 500_000):
        plan = make_plan(size, short=False)
        assert plan.owners >= 8
        counts = Counter(plan.splits)
        assert counts["validation"] >= 2 and counts["test"] >= 2
        assert counts["train"] >= plan.owners // 2
        stories = plan_stories(plan, 0, 260)
        per_split = Counter(story.split for story in stories)
        assert per_split["train"] / len(stories) == pytest.approx(0.6, abs=0.03)
        assert max(story.start for story in stories) < DAYS - 100
        assert sorted(story.number for story in stories) == list(range(len(stories)))
        assert len(stories) * 20 < size
