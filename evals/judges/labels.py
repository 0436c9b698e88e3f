"""Labels of people: the labelled set, how far a judge agrees with it, and the labels of a run.

A run's labels are `labels.jsonl` in its folder, one line each, on disk before the next answer is
shown. A line that a crash cut off is skipped, and removed when the next one is written. The later
of two labels of an episode counts.
"""

import asyncio
import datetime as dt
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

from art_e.errors import UserError
from art_e.question import Question
from art_e.runs import Run
from art_e.storage import append_line, parsed_lines, whole_lines
from art_e.text import digest
from evals.scored import Scored
from evals.statistics import Estimate, Sample
from evals.verdict import Judge, Verdict

# ---- The labelled set.

Half = Literal["tuning", "reporting"]


@dataclass(frozen=True, slots=True)
class Case:
    """An answer that a person labelled: right or wrong.

    `answer` is None if none was given. An `adversarial` answer is written to win a judge over, and
    is wrong. `half` is None outside the labelled set; `stored` are the verdicts of the run.
    """

    question: Question
    answer: str | None
    label: bool
    category: str
    adversarial: bool = False
    half: Half | None = None
    stored: tuple[Verdict, ...] = ()


class _Row(BaseModel):
    """A labelled pair in a file; `gold` is null if the mails hold no answer."""

    question: str
    gold: str | None
    answer: str | None
    label: bool
    why: str
    category: str
    adversarial: bool
    half: Half

    def case(self) -> Case:
        """The pair as a judge takes it; its question's id is a hash of question and gold."""
        name, gold = digest(json.dumps([self.question, self.gold])), self.gold
        question = Question(name, self.question, "", answer=gold, answerable=gold is not None)
        return Case(question, self.answer, self.label, self.category, self.adversarial, self.half)


def load_pairs(path: Path | None = None) -> list[Case]:
    """The pairs of a JSONL file, or of the package's labelled set, in order. Raises `UserError`."""
    source = files("evals.judges") / "pairs.jsonl" if path is None else path
    try:
        text = source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"can't read labelled pairs from {source}: {error}; name another file with --pairs"
        ) from None
    # Not splitlines: a text may hold other line ends, such as U+2028.
    pairs = [each.case() for each in parsed_lines(_Row, source, text.split("\n"))]
    if not pairs:
        raise UserError(f"{source} has no labelled pair; write one a line, or leave --pairs out")
    return pairs


# ---- How far a judge agrees with labels.


class Rated(NamedTuple):
    """A labelled answer and a judge's verdict on it."""

    case: Case
    verdict: Verdict

    @property
    def agrees(self) -> bool:
        """Whether the judge says what the label says."""
        return self.verdict.correct is self.case.label


async def rate(
    judge: Judge,
    cases: Sequence[Case],
    *,
    concurrency: int,
    on_rated: Callable[[], object] = lambda: None,
) -> list[Rated]:
    """The judge's verdict on each case, in their order, `concurrency` at a time."""
    turn = asyncio.Semaphore(concurrency)

    async def rate_one(case: Case) -> Rated:
        async with turn:
            rated = Rated(case, await judge.judge(case.question, case.answer))
        on_rated()
        return rated

    return await asyncio.gather(*map(rate_one, cases))


def agreement(rated: Sequence[Rated]) -> dict[str, Any]:
    """How far one judge agrees with the labels.

    `{"n", "unjudged", "agreement", "confusion", "kappa", "unsure", "sure": {"n", "agreement",
    "kappa"}, "adversarial", "adversarial_judged_correct", "by_category": {category: the first
    four}}`: `agreement` and `kappa` are estimates of `evals.statistics`; `confusion` counts the
    judged answers as "right_as_right", "right_as_wrong", "wrong_as_right", "wrong_as_wrong";
    `unsure` counts the verdicts of which the judge is not sure, and `sure` has the figures of the
    others.
    """
    hostile = [each for each in rated if each.case.adversarial]
    sure = [each for each in rated if not each.verdict.unsure]
    categories = dict.fromkeys(each.case.category for each in rated)
    return {
        **_shares(rated),
        "kappa": _kappa(rated),
        "unsure": len(rated) - len(sure),
        "sure": {"n": len(sure), "agreement": _agreement(sure), "kappa": _kappa(sure)},
        "adversarial": len(hostile),
        "adversarial_judged_correct": sum(each.verdict.correct is True for each in hostile),
        "by_category": {
            category: _shares([each for each in rated if each.case.category == category])
            for category in categories
        },
    }


def confusion(rated: Sequence[Rated]) -> dict[str, int]:
    """How many of the right and of the wrong answers were judged right or wrong."""
    cells = [(each.case.label, each.verdict.correct) for each in rated]
    return {
        f"{label}_as_{verdict}": cells.count((label == "right", verdict == "right"))
        for label in ("right", "wrong")
        for verdict in ("right", "wrong")
    }


def _shares(rated: Sequence[Rated]) -> dict[str, Any]:
    return {
        "n": len(rated),
        "unjudged": sum(each.verdict.correct is None for each in rated),
        "agreement": _agreement(rated),
        "confusion": confusion(rated),
    }


def _agreement(rated: Sequence[Rated]) -> Estimate:
    return _sample(rated).share([each.agrees for each in rated])


def _kappa(rated: Sequence[Rated]) -> Estimate:
    # A missing verdict counts as the opposite of the label.
    labels = [each.case.label for each in rated]
    return _sample(rated).kappa(labels, [each.case.label is each.agrees for each in rated])


def _sample(rated: Sequence[Rated]) -> Sample:
    questions = [each.case.question for each in rated]
    return Sample([each.inbox_address for each in questions], [each.id for each in questions])


# ---- The labels of a run: `labels.jsonl` in its folder.


class _Label(BaseModel):
    """A person's label of one episode's answer. `labelled_at` is ISO 8601 in UTC."""

    episode_id: str
    correct: bool
    labelled_at: str


def labels_file(run: Run) -> Path:
    """Where a run's labels are; the file need not exist."""
    return run.folder / "labels.jsonl"


def read_labels(run: Run) -> dict[str, bool]:
    """By episode, whether a person called its answer right. Raises `UserError` for a bad line."""
    path = labels_file(run)
    rows = parsed_lines(_Label, path, whole_lines(path))
    return {each.episode_id: each.correct for each in rows}


def write_label(run: Run, episode_id: str, *, correct: bool) -> None:
    """Add a label to the run's; it is safe on disk when this returns."""
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    label = _Label(episode_id=episode_id, correct=correct, labelled_at=now)
    append_line(labels_file(run), label.model_dump_json())


def chosen_for_labels(scored: Sequence[Scored]) -> list[Scored]:
    """The answered and judged episodes, in a fixed order that hides models and verdicts."""
    answered = [each for each in scored if each.trajectory.rubric["answered"] and each.verdicts]
    answered.sort(key=lambda each: each.trajectory.episode_id)
    random.Random(0).shuffle(answered)
    return answered


def labelled_cases(scored: Sequence[Scored], labels: Mapping[str, bool]) -> list[Case]:
    """The labelled answers of a run; the category of a case is the kind of its question."""
    return [
        Case(
            each.question,
            each.trajectory.final_answer,
            labels[each.trajectory.episode_id],
            each.question.kind or "unlabelled",
            stored=tuple(Verdict(**row) for row in each.verdicts),
        )
        for each in scored
        if each.trajectory.episode_id in labels
    ]
