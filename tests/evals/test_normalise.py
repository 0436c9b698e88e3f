"""Values in text: every spelling of one value is the same value, and another one is not."""

import datetime as dt
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.judges.claims import (
    MAX_CHARS,
    Amount,
    PartialDate,
    TimeOfDay,
    clean,
    conflict,
    find_values,
    same_value,
    states,
)


def same(one: str, other: str) -> bool:
    gold, answer = find_values(clean(one)), find_values(clean(other))
    assert gold and answer, (gold, answer)
    return len(gold) == len(answer) and all(map(same_value, gold, answer))


@pytest.mark.parametrize(
    ("spellings", "another"),
    [
        (["$12,400", "12,400 dollars", "$12.4k", "US$ 12400"], "12,400 euros"),
        (["12.4k", "$12,400"], "$12,401"),
        (["$3.2 million", "$3.2M", "$3.2MM", "3,200,000 dollars"], "$3.3 million"),
        (["5.5 cents", "$0.055"], "$5.50"),
        (["£412.50", "four hundred and twelve pounds fifty", "GBP 412.50"], "$412.50"),
        (["20%", "twenty percent", "20 pct"], "$20"),
        (["2½ %", "two and a half percent", "2.5 per cent"], "2%"),
        (["two thirds", "⅔", "2 out of every 3", "67%"], "three quarters"),
        (["twenty-five people", "25"], "26"),
        (["two hundred and five", "205"], "250"),
        (["a dozen", "12"], "20"),
        (["in triplicate", "3 copies"], "2 copies"),
        (["the 7th edition", "seventh edition"], "sixth edition"),
        (["two weeks", "14 days", "2-week"], "2 days"),
        (["18 months", "18-month", "a year and a half"], "18 weeks"),
        (["2 hours 45 minutes", "2h45", "165 minutes"], "2 hours"),
        (["Two and a half years", "30 months", "2½ years"], "2 years 5 months"),
        (["1,400 MW", "1400 megawatts"], "1,400 miles"),
        (["77 °F", "25 degrees Celsius"], "77 °C"),
        (["(713) 555-0148", "713.555.0148", "+1 713 555 0148"], "713-555-0149"),
        (["Kim.Ward@Example.com", "kim.ward@example.com."], "kim@example.com"),
        (["room EB49C1", "eb49c1", "EB-49C1"], "EB49C2"),
        (["invoice #20391", "Invoice no. 20391", "#20391"], "#20392"),
        (["v4.10.2", "4.10.2"], "4.10.3"),
        (["https://x.example/a", "https://x.example/a."], "https://x.example/b"),
        (["3:30 p.m.", "15:30", "3.30 PM", "half past three in the afternoon"], "3:30 am"),
        (["3:30", "15:30"], "4:30"),
        (["noon", "12:00 pm"], "midnight"),
        (["3-4 pm", "15:00 to 16:00"], "3-5 pm"),
        (["9:30 in the evening", "21:30"], "9:30 am"),
        (["14:30 UTC", "14:30 GMT"], "14:30 Eastern"),
        (["4 pm Central", "16:00 (Chicago)"], "4 pm EST"),
        (["31 August", "the last day of August"], "30 August"),
        (["September 2003", "9/2003"], "9/2002"),
    ],
)
def test_spellings_of_one_value(spellings: list[str], another: str) -> None:
    for one in spellings:
        assert not same(one, another), one
        for other in spellings:
            assert same(one, other), (one, other)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It may be that we march on", []),
        ("24/7 support", ["number", "number"]),
        ("the 3rd floor", ["ordinal"]),
        ("May 7, at 4:00 p.m. at 1400 Smith", ["date", "time", "number"]),
        ("$110k base plus a $20k bonus", ["money", "money"]),
        ("one month and two weeks", ["duration"]),
        ("flight AA1234 at 7:45", ["code", "time"]),
        ("in 2001, 2000 employees", ["number", "number"]),
    ],
)
def test_kinds_found(text: str, found: list[str]) -> None:
    assert [value.kind for value in find_values(clean(text))] == found


@pytest.mark.parametrize(
    ("text", "dates"),
    [
        ("End of Feb is still the date", [PartialDate(month=2, part="end")]),
        ("early March 2001", [PartialDate(2001, 3, part="start")]),
        ("Friday, April 27, 3:30", [PartialDate(month=4, day=27, weekday=4)]),
        ("April 27 (Friday)", [PartialDate(month=4, day=27, weekday=4)]),
        ("27/4/2001", [PartialDate(2001, 4, 27)]),
        ("May 14-18", [PartialDate(month=5, day=14), PartialDate(month=5, day=18)]),
        ("May 3, 4 or 5", [PartialDate(month=5, day=day) for day in (3, 4, 5)]),
        ("on the 27th", [PartialDate(day=27)]),
        ("Friday the 27th", [PartialDate(day=27, weekday=4)]),
        ("45/99", []),
    ],
)
def test_dates_found(text: str, dates: list[PartialDate]) -> None:
    assert [v.key for v in find_values(clean(text)) if v.kind == "date"] == dates


def test_a_date_must_say_all_and_nothing_narrower() -> None:
    april = PartialDate(month=4, day=27)
    assert states(april, PartialDate(2001, 4, 27))
    assert not states(april, PartialDate(2001, 4))
    assert not states(PartialDate(2001, 4), PartialDate(2001, 4, 27))
    assert not states(PartialDate(month=2, part="end"), PartialDate(2001, 2, 20))
    # Unstated years come from the question.
    near = dt.date(2001, 5, 10)
    assert not conflict(april, PartialDate(2001, 4, 27), near)
    assert conflict(april, PartialDate(2000, 4, 27), near)
    assert not conflict(april, PartialDate(weekday=4), near)


@given(st.dates(dt.date(1985, 1, 1), dt.date(2035, 12, 31)))
def test_every_day_in_every_spelling(day: dt.date) -> None:
    whole = PartialDate(day.year, day.month, day.day)
    for text in (
        day.isoformat(),
        f"{day:%B} {day.day}, {day.year}",
        f"{day:%A}, {day:%b}. {day.day}, {day.year}",
        f"the {day.day}th of {day:%B} {day.year}",
        f"{day.day} {day:%b} {day.year}",
        f"{day:%m/%d/%Y}",
        f"{day.month}/{day.day}/{day.year} ({day:%a})",
        f"{day:%B} {day.day} {day.year}".upper(),
    ):
        (found,) = find_values(text)
        assert isinstance(found.key, PartialDate)
        assert states(whole, found.key), text
        assert found.key.weekday in (None, day.weekday())


@given(st.integers(0, 23), st.integers(0, 59))
def test_every_minute_in_both_clocks(hour: int, minute: int) -> None:
    half = "p.m." if hour >= 12 else "a.m."
    (value,) = find_values(f"{hour % 12 or 12}:{minute:02} {half}")
    assert value.key == TimeOfDay(hour * 60 + minute, False, "")
    assert same(f"{hour:02}:{minute:02}", f"{hour % 12 or 12}:{minute:02} {half}")


@given(st.decimals(Decimal("0.01"), Decimal(10**9), places=2))
def test_every_amount_of_money(number: Decimal) -> None:
    for text in (f"${number:,}", f"USD {number}", f"{number:,} dollars"):
        (value,) = find_values(text)
        assert value.key == Amount(Fraction(number), "usd")


@given(st.text())
def test_any_text_is_cleaned_and_read(text: str) -> None:
    cleaned = clean(text)
    assert len(cleaned) <= MAX_CHARS
    for value in find_values(cleaned):
        assert 0 <= value.start < value.end <= len(cleaned)
