"""Numbers, times and lengths of time as people say them are written in figures."""

from decimal import Decimal

import pytest

from evals.judges.values import Amount, TimeOfDay, clean, find_values


@pytest.mark.parametrize(
    ("text", "minutes", "either"),
    [
        ("at half past nine", 570, True),
        ("quarter to one in the morning", 45, False),
        ("a quarter past 4 in the afternoon", 975, False),
        ("nine o'clock", 540, True),
        ("twelve o'clock", 720, True),
        ("9:30 in the evening", 1290, False),
        ("Twelve at night", 0, False),
        ("ten at night", 1320, False),
        ("two at night", 120, False),
        ("noon", 720, False),
    ],
)
def test_times(text: str, minutes: int, either: bool) -> None:
    (found,) = find_values(clean(text))
    assert found.key == TimeOfDay(minutes, either, "", False)


@pytest.mark.parametrize("text", ["nine people", "half of nine", "someone o'clock", "nine"])
def test_no_times(text: str) -> None:
    assert all(value.kind != "time" for value in find_values(clean(text)))


@pytest.mark.parametrize(
    ("text", "number", "unit"),
    [
        ("2 hours 45 minutes", "165", "minute"),
        ("an hour and twenty minutes", "80", "minute"),
        ("2h45", "165", "minute"),
        ("half an hour", "30", "minute"),
        ("a month and a half", "1.5", "month"),
        ("Two and a half years", "30", "month"),
        ("one year and three months", "15", "month"),
        ("2 days, 3 hours", "3060", "minute"),
    ],
)
def test_lengths(text: str, number: str, unit: str) -> None:
    (found,) = find_values(clean(f"It took {text}."))
    assert found.key == Amount(Decimal(number), unit)


@pytest.mark.parametrize(
    ("text", "count"),
    [("2 hours, 3 people", 2), ("one month and two weeks", 2), ("half a loaf", 0)],
)
def test_what_does_not_add_up_stays_apart(text: str, count: int) -> None:
    assert len(find_values(clean(text))) == count


def test_numbers() -> None:
    texts = ("twenty-five", "two hundred and five", "a dozen", "the old one", "no one")
    assert [clean(text) for text in texts] == ["25", "205", "12", "the old one", "no one"]
