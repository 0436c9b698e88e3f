"""What was found of a row: checks, marks and mends, as its provenance holds them.

A question's provenance has

    checks   name -> {step, passed, reason, by}; passed null: not sure
    marks    words on it that drop nothing, such as "long-answer"
    mended   [{step, check, was: {field: value}}]: what a step changed, the last change last

so that a row tells its history wherever it is taken. Knows nothing of how a check is made.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from art_e.question import Question

Step = Literal["generate", "import", "filter", "verify", "split", "review"]

# In the order in which they are taken; a set begins with either of the first two.
STEPS: tuple[Step, ...] = ("generate", "import", "filter", "verify", "split", "review")


@dataclass(frozen=True, slots=True)
class Check:
    """One check of a row. `passed` None: not sure, which drops nothing by itself.

    `reason` is one line; `by` is who said so: "rule", "search", a judge's or model's name,
    "person".
    """

    name: str
    step: Step
    passed: bool | None
    reason: str
    by: str

    @classmethod
    def from_row(cls, name: str, row: Mapping[str, Any]) -> Self:
        """The check of that name in a provenance."""
        return cls(name, row["step"], row["passed"], row["reason"], row["by"])


def with_checks(question: Question, checks: Sequence[Check]) -> Question:
    """The question with these checks; one of the same name is replaced."""
    if not checks:
        return question
    made = {
        each.name: {
            "step": each.step,
            "passed": each.passed,
            "reason": each.reason,
            "by": each.by,
        }
        for each in checks
    }
    return _with(question, checks={**question.provenance.get("checks", {}), **made})


def checks_of(question: Question) -> dict[str, Check]:
    """What was checked of the question, by name."""
    rows: dict[str, Any] = question.provenance.get("checks", {})
    return {name: Check.from_row(name, row) for name, row in rows.items()}


def marked(question: Question, mark: str) -> Question:
    """The question with that mark, once."""
    marks: list[str] = question.provenance.get("marks", [])
    return question if mark in marks else _with(question, marks=[*marks, mark])


def marks_of(question: Question) -> list[str]:
    """The question's marks."""
    return list(question.provenance.get("marks", []))


def mended(question: Question, step: Step, check: str, /, **changes: Any) -> Question:
    """The question with these fields changed, and what they were in its provenance.

    Its `marks`, a list, can be changed like a field.
    """
    before = {**question.to_row(), "marks": marks_of(question)}
    was = {name: before[name] for name in changes}
    history = [*question.provenance.get("mended", []), {"step": step, "check": check, "was": was}]
    provenance = {**question.provenance, "mended": history}
    if "marks" in changes:
        provenance = _with_marks(provenance, changes.pop("marks"))
    return dataclasses.replace(question, **changes, provenance=provenance)


def as_before(question: Question, step: Step) -> Question:
    """The question as it was before `step`: later checks and mends are taken back."""
    first = STEPS.index(step)
    provenance = dict(question.provenance)
    history = list(provenance.pop("mended", []))
    row = {**question.to_row(), "marks": marks_of(question)}
    while history and STEPS.index(history[-1]["step"]) >= first:
        row.update(history.pop()["was"])
    checks = {
        name: check
        for name, check in provenance.pop("checks", {}).items()
        if STEPS.index(check["step"]) < first
    }
    # Marks are the filter's; what later steps make of them they mend.
    marks = row.pop("marks")
    provenance = _with_marks(provenance, [] if first <= STEPS.index("filter") else marks)
    if checks:
        provenance["checks"] = checks
    if history:
        provenance["mended"] = history
    return Question.from_row({**row, "provenance": provenance})


def _with_marks(provenance: Mapping[str, Any], marks: Sequence[str]) -> dict[str, Any]:
    others = {name: value for name, value in provenance.items() if name != "marks"}
    return {**others, "marks": list(marks)} if marks else others


def _with(question: Question, **parts: Any) -> Question:
    return dataclasses.replace(question, provenance={**question.provenance, **parts})
