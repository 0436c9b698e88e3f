"""The figures of a golden set, counted by hand."""

import datetime as dt

from art_e.question import Question
from data_pipeline.golden.export import stats
from data_pipeline.golden.golden_set import GoldenSet, Rejected
from tests.data_pipeline.golden.builders import failed

ANN, BOB = "ann@test.example", "bob@test.example"


def test_what_is_in_the_set() -> None:
    day = dt.date(2001, 3, 4)
    questions = [
        Question("q-1", "Who?", ANN, day, "Ann", ("<1>",), 0.7, "lookup", "easy", True, "train"),
        Question("q-2", "When and where?", ANN, day, "May 1, in Rome", ("<1>", "<2>"), 0.699,
                 "multi-mail", "hard", True, "train"),
        Question("q-3", "How many?", BOB, day, None, (), 1.0, "unanswerable", "hard", False,
                 "test"),
        Question("q-4", "Why?", BOB, None, "No", ("<3>",), None, None, None, True, "test"),
    ]  # fmt: skip
    golden = GoldenSet(questions, [Rejected.of(Question("q-5", "Why?", ANN), failed())])
    golden.record("filter", 5, {})
    figures = stats(golden)
    assert (figures["rows"], figures["rejected"]) == (4, 1)
    assert figures["kinds"] == {
        "lookup": {"train": 1, "test": 0},
        "multi-mail": {"train": 1, "test": 0},
        "unanswerable": {"train": 0, "test": 1},
        "unlabelled": {"train": 0, "test": 1},
    }
    assert figures["difficulties"]["hard"] == {"train": 1, "test": 1}
    assert figures["splits"] == [
        {"split": "train", "rows": 2, "inboxes": 1},
        {"split": "test", "rows": 2, "inboxes": 1},
    ]
    assert figures["steps"][0]["dropped"] == {"realism": 1}
