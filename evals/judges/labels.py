"""Human labels: the labelled set, a judge's agreement with it, and the labels of a run.

A run's labels are in `labels.jsonl` in its folder, a line each, written before the next answer is
shown. A line that a crash cut off is skipped, and removed with the next write. The last label of an
episode counts."""

import datetime as dt
import json
import random
from collections.abc import Mapping, Sequence
from importlib.resources import files
from math import hypot, sqrt
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel

from art_e.abstention import is_abstention
from art_e.errors import UserError
from art_e.question import Question
from art_e.runs import Run
from art_e.storage import append_line, parsed_lines, whole_lines
from art_e.text import digest
from evals.scored import Judge, Scored, Verdict, is_judged
from evals.statistics import NORMAL, UNKNOWN, Estimate, Sample

# ---- The labelled set.

Half = Literal["tuning", "reporting"]


class Case(NamedTuple):
    """An answer (or None) that a person labelled as right or wrong; an `adversarial` one tries to
    trick the judge. Only the labelled set has a `half`, only a run's answers `stored` verdicts."""

    question: Question
    answer: str | None
    label: bool
    category: str
    adversarial: bool = False
    half: Half | None = None
    stored: tuple[Verdict, ...] = ()


class _Row(BaseModel):
    """A labelled pair in a file; `gold` is null if no mail has the answer."""

    question: str
    gold: str | None
    answer: str | None
    label: bool
    why: str
    category: str
    adversarial: bool
    half: Half

    def case(self) -> Case:
        """Convert the row; the question's id is a hash of question and gold answer."""
        name, gold = digest(json.dumps([self.question, self.gold])), self.gold
        question = Question(name, self.question, "", answer=gold, answerable=gold is not None)
        return Case(question, self.answer, self.label, self.category, self.adversarial, self.half)


def load_pairs(path: Path | None = None) -> list[Case]:
    """Load a JSONL file of pairs, or else the package's labelled set. Raises `UserError`."""
    source = files("evals.judges") / "pairs.jsonl" if path is None else path
    try:
        text = source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = f"can't read labelled pairs from {source}: {error}"
        raise UserError(f"{why}; name another file with --pairs") from None
    # Not splitlines: a text may contain other line ends, such as U+2028.
    pairs = [each.case() for each in parsed_lines(_Row, source, text.split("\n"))]
    if not pairs:
        raise UserError(f"{source} has no labelled pair; write one per line, or omit --pairs")
    return pairs


# ---- A judge's agreement with labels.


class JudgedCase(NamedTuple):
    """A labelled answer and a judge's verdict on it."""

    case: Case
    verdict: Verdict

    @property
    def agrees(self) -> bool:
        return self.verdict.correct is self.case.label


async def rate(judge: Judge, case: Case) -> JudgedCase:
    """Return the judge's verdict on the labelled answer."""
    return JudgedCase(case, await judge.judge(case.question, case.answer))


def agreement(rated: Sequence[JudgedCase]) -> dict[str, Any]:
    """Return one judge's agreement with the labels: the figures of `_shares` for all answers, for
    those of which the judge is `sure`, and by category; and counts of unsure verdicts, adversarial
    answers, and adversarial answers judged correct."""
    hostile = [each for each in rated if each.case.adversarial]
    sure = [each for each in rated if not each.verdict.unsure]
    categories: dict[str, list[JudgedCase]] = {}
    for pair in rated:
        categories.setdefault(pair.case.category, []).append(pair)
    return {
        **_shares(rated),
        "unsure": len(rated) - len(sure),
        "sure": _shares(sure),
        "adversarial": len(hostile),
        "adversarial_judged_correct": sum(each.verdict.correct is True for each in hostile),
        "by_category": {category: _shares(part) for category, part in categories.items()},
    }


def confusion(rated: Sequence[JudgedCase]) -> dict[str, int]:
    """Count the right and the wrong answers that were judged right, or wrong."""
    cells = [(each.case.label, each.verdict.correct) for each in rated]
    return {
        f"{label}_as_{verdict}": cells.count((label == "right", verdict == "right"))
        for label in ("right", "wrong")
        for verdict in ("right", "wrong")
    }


def _shares(rated: Sequence[JudgedCase]) -> dict[str, Any]:
    n = len(rated)
    judged = is_judged((case.question, case.answer, verdict.correct) for case, verdict in rated)
    rated = [each for each in rated if judged and each.verdict.correct is not None]
    questions, labels = [each.case.question for each in rated], [each.case.label for each in rated]
    sample = Sample([each.inbox_address for each in questions], [each.id for each in questions])
    return {
        "n": n, "unjudged": n - len(rated),
        "agreement": sample.share([each.agrees for each in rated]),
        "kappa": sample.kappa(labels, [bool(each.verdict.correct) for each in rated]),
        "confusion": confusion(rated),
    }  # fmt: skip


# ---- The labels of a run: `labels.jsonl` in its folder.


class _Label(BaseModel):
    """A human label of an episode's answer. `labelled_at` is ISO 8601 in UTC."""

    episode_id: str
    correct: bool
    labelled_at: str


def labels_file(run: Run) -> Path:
    """Return the path of a run's labels; the file need not exist."""
    return run.folder / "labels.jsonl"


def read_labels(run: Run) -> dict[str, bool]:
    """Return the labels (True: right) by episode id. Raises `UserError` for an invalid line."""
    path = labels_file(run)
    rows = parsed_lines(_Label, path, whole_lines(path))
    return {each.episode_id: each.correct for each in rows}


def write_label(run: Run, episode_id: str, *, correct: bool) -> None:
    """Append a label to those of the run, and sync it to disk."""
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    label = _Label(episode_id=episode_id, correct=correct, labelled_at=now)
    append_line(labels_file(run), label.model_dump_json())


def episodes_to_label(scored: Sequence[Scored]) -> list[Scored]:
    """Return the answered and judged episodes, in a fixed order that hides models and verdicts."""
    answered = [each for each in scored if each.trajectory.rubric["answered"] and each.verdicts]
    answered.sort(key=lambda each: each.trajectory.episode_id)
    random.Random(0).shuffle(answered)
    return answered


def labelled_cases(scored: Sequence[Scored], labels: Mapping[str, bool]) -> list[Case]:
    """Return the labelled answers of a run, with the kind of question as the category."""
    return [
        Case(
            one.question, one.trajectory.final_answer, labels[one.trajectory.episode_id],
            one.question.kind or "unlabelled",
            stored=tuple(Verdict(**row) for row in one.verdicts),
        )
        for one in scored
        if one.trajectory.episode_id in labels
    ]  # fmt: skip


# ---- A run's accuracy, corrected for the errors of its judge.

ENOUGH_LABELS = 20  # of right answers, and of wrong ones


class ErrorCounts(NamedTuple):
    """Counts of the labelled right and wrong answers, and of those that a judge calls right."""

    right: int
    right_as_right: int
    wrong: int
    wrong_as_right: int


def count_errors(rated: Sequence[JudgedCase]) -> ErrorCounts:
    """Count a judge's errors on answers to answerable questions, without abstentions."""
    cases = [each for each in rated if each.case.question.answerable]
    rows = [each for each in cases if not is_abstention(each.case.answer)]
    right, cells = sum(each.case.label for each in rows), confusion(rows)
    return ErrorCounts(right, cells["right_as_right"], len(rows) - right, cells["wrong_as_right"])


def bias_corrected(accuracy: Estimate, scored: Sequence[Scored], run: Run) -> dict[str, Any] | None:
    """Return {"accuracy": the corrected one, "judge": its counts}; None with too few labels."""
    scored = [each for each in scored if not each.unjudged]
    cases = labelled_cases(scored, read_labels(run))
    counts = count_errors([JudgedCase(case, case.stored[0]) for case in cases if case.stored])
    if min(counts.right, counts.wrong) < ENOUGH_LABELS or accuracy["value"] is None:
        return None
    answerable = [each for each in scored if each.question.answerable]
    answered = fmean(each.ended and not each.abstained for each in answerable)
    return {"accuracy": rogan_gladen(accuracy, answered, counts), "judge": counts._asdict()}


def rogan_gladen(share: Estimate, answered: float, counts: ErrorCounts) -> Estimate:
    """Correct the accuracy `share` for its judge's errors; UNKNOWN if the judge is not better than
    chance. Only the share `answered` of the questions can be misjudged. If right answers are judged
    right at the rate tpr and wrong ones at the rate fpr, share = tpr true + fpr (answered - true),
    so true = (share - fpr answered) / (tpr - fpr) (Rogan and Gladen, Am J Epidemiol 107, 1978). The
    interval combines the errors of share, tpr and fpr (delta method)."""
    if share["value"] is None or share["low"] is None or share["high"] is None:
        return UNKNOWN
    hits, slips = counts.right_as_right, counts.wrong_as_right
    if hits * counts.wrong <= slips * counts.right:  # tpr <= fpr
        return UNKNOWN
    tpr, fpr = hits / counts.right, slips / counts.wrong  # sensitivity, 1 - specificity
    true = (share["value"] - fpr * answered) / (tpr - fpr)
    # (tpr - fpr) d true = d share - true d tpr - (answered - true) d fpr
    errors = (share["high"] - share["low"]) / 2, true * _error(hits, counts.right)
    error = hypot(*errors, (answered - true) * _error(slips, counts.wrong)) / (tpr - fpr)
    value, low, high = np.clip([true, true - error, true + error], 0, answered).tolist()
    return Estimate(value=value, low=low, high=high, n=share["n"], method="Rogan-Gladen")


def _error(hits: int, n: int) -> float:
    """Return half the width of a rate's interval by Jeffreys' posterior, Beta(hits + 1/2,
    n - hits + 1/2), with variance rate (1 - rate) / (n + 2); it is positive even without hits."""
    rate = (hits + 0.5) / (n + 1)  # the posterior's mean
    return NORMAL * sqrt(rate * (1 - rate) / (n + 2))
