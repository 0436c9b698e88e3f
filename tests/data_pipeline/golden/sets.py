"""Small golden sets, for tests."""

import dataclasses
from typing import Any

from art_e.question import Question
from data_pipeline.golden.golden_set import Batch, Check, GoldenSet, Rejected, Step


def row(number: int, **fields: Any) -> Question:
    asked = Question(f"q-{number}", f"When {number}?", "ann@test.example", answer="May")
    return dataclasses.replace(asked, **fields)


def failed(step: Step = "filter", name: str = "realism") -> Check:
    return Check(name, step, False, "below 0.7", "rule")


def golden_set(count: int, dropped: int = 0) -> GoldenSet:
    """A set of `count` rows, `dropped` of them dropped by the filter."""
    golden = GoldenSet(questions=[row(number) for number in range(count)])
    golden.batches = [Batch("b-1", "ann@test.example", "train", ("<1@test>", "<2@test>"))]
    golden.record("import", came=count, settings={"source": "x"})
    gone = golden.questions[count - dropped :]
    golden.rejected = [Rejected.of(each, failed()) for each in gone]
    del golden.questions[count - dropped :]
    golden.record("filter", came=count, settings={})
    return golden
