import pytest

from evals.judges.offline import mixup, other_kind


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("Walls white and doors blue", "Walls blue and doors white"),
        ("Board at 9:30, leave at 10:15", "Board at 10:15, leave at 9:30"),
        ("Kim owes Lee the rent.", "Lee owes Kim the rent."),
        ("12 Oak Lane, Leeds", "12 Elm Lane, Leeds"),
        ("7 rue de Seine, Paris", "7 rue de Rennes, Paris"),
    ],
)
def test_the_golds_words_put_together_otherwise(gold: str, answer: str) -> None:
    assert mixup(gold, answer)
    assert mixup(gold, gold) is None
    assert mixup(answer, answer) is None


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("Walls white and doors blue", "Blue doors and white walls"),
        ("Ann, Bob and Cleo", "Cleo and Bob, and also Ann"),
        ("Rooms for June 3 and 4", "3 and 4 June, rooms"),
        ("He got a job in Bergen; he leaves in May", "He leaves in May for a job in Bergen"),
        ("12 Oak Lane, Leeds", "Oak Lane 12 in Leeds"),
        ("12 May 2024 at 9", "12 June 2024 at 9"),
    ],
)
def test_another_order_is_no_mixup(gold: str, answer: str) -> None:
    assert mixup(gold, answer) is None


@pytest.mark.parametrize(
    ("gold", "answer", "other"),
    [
        ("Press the menu button twice", "You press the power button twice", "power"),
        ("The roof is being painted red", "The fence is being painted red", "fence"),
        ("The roof is being painted red", "The roof is painted in red", None),
        ("A blocked pipe", "A clogged pipe", None),
        ("The drain hose leaks", "Its drainage hose leaks", None),
        ("A better offer from Lund", "He got a good offer from Lund", None),
    ],
)
def test_one_word_for_another(gold: str, answer: str, other: str | None) -> None:
    assert other_kind("What is it?", gold, answer) == other
