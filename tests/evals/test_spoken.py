from decimal import Decimal

import pytest

from evals.judges.values import find_lengths, find_spoken_times, spelled


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
    ],
)
def test_times(text: str, minutes: int, either: bool) -> None:
    (found,) = find_spoken_times(text)
    assert (found.minutes, found.either) == (minutes, either)


@pytest.mark.parametrize("text", ["nine people", "9:30", "half of nine", "someone o'clock", "nine"])
def test_no_times(text: str) -> None:
    assert not list(find_spoken_times(text))


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
    (found,) = find_lengths(f"It took {text}.")
    assert (found.number, found.unit) == (Decimal(number), unit)
    assert f"It took {text}."[found.start : found.end] == text


@pytest.mark.parametrize(
    "text",
    ["2 hours, 3 people", "45 minutes", "one month and two weeks", "half a loaf", "2 houses"],
)
def test_no_lengths(text: str) -> None:
    assert not list(find_lengths(text))


def test_spelled_numbers() -> None:
    assert [spelled(text) for text in ("twenty-five", "two hundred", "a dozen")] == [25, 200, 12]
