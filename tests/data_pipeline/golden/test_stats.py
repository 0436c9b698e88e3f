"""The figures of a golden set: counted by hand, and true of any set."""

import datetime as dt

import pytest

from art_e.question import Question
from data_pipeline.golden.golden_set import Check, GoldenSet, Rejected, Step, with_checks
from data_pipeline.golden.stats import stats

ANN, BOB = "ann@test.example", "bob@test.example"


def filtered(golden: GoldenSet, faults: dict[str, tuple[str, ...]], step: Step = "filter") -> None:
    """Drop rows as a step does: `faults` are ids by check."""
    came = len(golden.questions)
    fault_of = {name: check for check, names in faults.items() for name in names}
    dropped = [each for each in golden.questions if each.id in fault_of]
    golden.rejected += [
        Rejected.of(each, Check(fault_of[each.id], step, False, "below 0.7", "rule"))
        for each in dropped
    ]
    golden.questions = [each for each in golden.questions if each.id not in fault_of]
    golden.sort()
    golden.record(step, came, {})


@pytest.fixture
def few() -> GoldenSet:
    """Four rows kept of nine."""
    unsure = Check("wording", "filter", None, "says 'this'", "rule")
    rows = [
        Question("q-1", "Who is it?", ANN, dt.date(2001, 3, 4), "Ann", ("<1>",), 0.7, "lookup",
                 "easy", True, "train"),
        Question("q-2", "When was it, and where?", ANN, dt.date(2001, 3, 9), "May 1, in Rome",
                 ("<1>", "<2>"), 0.699, "multi-mail", "hard", True, "train"),
        Question("q-3", "How many?", BOB, dt.date(2002, 1, 1), None, (), 1.0, "unanswerable",
                 "hard", False, "test"),
        Question("q-4", "Why?", BOB, None, "No", ("<3>",), None, None, None, True, "test"),
        *(Question(f"q-{n}", f"Question {n}?", ANN, how_realistic=0.1) for n in range(5, 10)),
    ]  # fmt: skip
    golden = GoldenSet([rows[0], with_checks(rows[1], [unsure]), *rows[2:]])
    usage = {"prompt_tokens": 70, "cached_prompt_tokens": 0, "completion_tokens": 7,
             "reasoning_tokens": 0}  # fmt: skip
    settings = {"model": "openai/gpt-4.1", "usage": usage, "cost_usd": 0.25}
    golden.record("generate", 9, settings)
    filtered(golden, {"realism": ("q-5", "q-6", "q-7", "q-8"), "duplicate": ("q-9",)})
    return golden


def test_what_is_in_the_set(few: GoldenSet) -> None:
    found = stats(few)
    assert (found["rows"], found["rejected"]) == (4, 5)
    assert found["kinds"] == {
        "lookup": {"train": 1, "test": 0},
        "multi-mail": {"train": 1, "test": 0},
        "unanswerable": {"train": 0, "test": 1},
        "unlabelled": {"train": 0, "test": 1},
    }
    assert found["difficulties"]["hard"] == {"train": 1, "test": 1}
    assert found["answerable"] == {
        "answerable": {"train": 2, "test": 1},
        "unanswerable": {"train": 0, "test": 1},
    }
    assert [(each["inbox"], each["split"], each["rows"]) for each in found["inboxes"]] == [
        (ANN, "train", 2),
        (BOB, "test", 2),
    ]
