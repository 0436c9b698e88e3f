"""Figures of several training runs over questions and seeds.

All runs are asked the same questions. A measure is a matrix with a row for each run and a column
for each question, NaN where it is undefined (effort of a wrong answer). Its value is the mean of
the defined cells. Its 95 % interval is a bootstrap that draws runs, and questions for all runs
alike: a question that is hard for one seed and for the others is not evidence three times over.
With many inboxes whole inboxes are drawn, as in `evals.statistics`.

Answers are judged as in validations, by the judge that does not pay the reward.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from art_e.errors import UserError
from art_e.models.checkpoint import METRICS, json_object
from art_e.question import Question
from art_e.trajectory import read_trajectories
from evals.report.charts import Curve, CurveChart, Mark, Scale
from evals.report.tables import Cell, number, percent, points
from evals.scored import Scored
from evals.statistics import CONFIDENCE, UNKNOWN, Estimate, Floats, Sample
from training.progress import EPISODES, by_second
from training.reward import malformed_calls

Way = Literal["sampled", "greedy"]
WAYS: tuple[Way, ...] = ("sampled", "greedy")
_SEED, _RESAMPLES = 20_010_515, 2_000
# With fewer inboxes questions are drawn.
_MIN_INBOXES = 10
_BOUNDS = (100 * (1 - CONFIDENCE) / 2, 100 * (1 + CONFIDENCE) / 2)


class Measure(NamedTuple):
    """`of` gives an episode's value, None where it is undefined; a `share` is 0 or 1."""

    name: str
    title: str
    of: Callable[[Scored], float | None]
    share: bool = False

    @property
    def heading(self) -> str:
        """The title, capitalised."""
        return self.title[0].upper() + self.title[1:]

    def cell(self, estimate: Estimate) -> Cell:
        """An estimate as the report writes it."""
        return percent(estimate) if self.share else number(estimate)

    def change(self, gain: Estimate) -> Cell:
        """A difference of two estimates as the report writes it."""
        return points(gain) if self.share else number(gain)


def _fact(name: str, *, when_correct: bool = False) -> Callable[[Scored], float | None]:
    def of(scored: Scored) -> float | None:
        undefined = when_correct and not (scored.question.answerable and scored.correct)
        return None if undefined else float(scored.trajectory.rubric[name])

    return of


ACCURACY = Measure(
    "accuracy",
    "accuracy",
    lambda each: float(each.correct) if each.question.answerable else None,
    share=True,
)
INVENTED = Measure(
    "hallucination-unanswerable",
    "hallucination on unanswerable questions",
    lambda each: None if each.question.answerable else float(each.answered_by(0)),
    share=True,
)
HALLUCINATION = Measure(
    "hallucination", "hallucination, all questions", lambda each: float(each.wrong), share=True
)
ABSTENTION = Measure(
    "abstention", "abstention, all questions", lambda each: float(each.abstained), share=True
)
FORMAT_ERRORS = Measure(
    "format-errors",
    "format errors an episode",
    lambda each: float(malformed_calls(each.trajectory.rubric)),
)
TURNS = Measure("turns", "turns an episode", _fact("turns"))
TURNS_RIGHT = Measure(
    "turns-when-correct", "turns, answer right", _fact("turns", when_correct=True)
)
EFFORT_RIGHT = Measure(
    "effort-when-correct", "effort, answer right", _fact("effort", when_correct=True)
)
MEASURES = (
    ACCURACY, INVENTED, HALLUCINATION, ABSTENTION, FORMAT_ERRORS, TURNS_RIGHT, EFFORT_RIGHT,
)  # fmt: skip


class Pool:
    """The questions of all runs, and how often each resample draws each run and question."""

    def __init__(self, inboxes: Sequence[str], questions: Sequence[str], runs: int) -> None:
        self._inboxes, self._questions = inboxes, questions
        by_inbox = len(set(inboxes)) >= _MIN_INBOXES
        _, place = np.unique(inboxes if by_inbox else questions, return_inverse=True)
        random = np.random.default_rng(_SEED)
        self._of_questions = _drawn(random, int(place.max()) + 1)[:, place]
        self._of_runs = _drawn(random, runs)
        self._method = f"bootstrap over runs, {'inboxes' if by_inbox else 'questions'}"

    def mean(self, values: Floats, *, share: bool = False) -> Estimate:
        """The pooled mean; a share that is the same everywhere has Wilson's interval."""
        defined = values[~np.isnan(values)]
        if not len(defined):
            return UNKNOWN
        if share and defined.min() == defined.max():
            # Nothing to resample: as many independent answers as there are questions.
            places = np.flatnonzero(~np.isnan(values).all(axis=0)).tolist()
            names = ([of[each] for each in places] for of in (self._inboxes, self._questions))
            estimate = Sample(*names).share([bool(defined[0])] * len(places))
            return Estimate(**{**estimate, "n": len(defined)})
        return self._bounded(float(defined.mean()), self._means(values), len(defined))

    def gain(self, before: Floats, after: Floats) -> Estimate:
        """How much larger the pooled mean of `after` is, runs and questions paired."""
        first, last = (each[~np.isnan(each)] for each in (before, after))
        if not len(first) or not len(last):
            return UNKNOWN
        resampled = self._means(after) - self._means(before)
        value = float(last.mean() - first.mean())
        return self._bounded(value, resampled, min(len(first), len(last)))

    def _means(self, values: Floats) -> Floats:
        """The pooled mean of each resample; NaN where it drew nothing that is defined."""
        defined = ~np.isnan(values)
        sums, counts = (
            ((self._of_runs @ part) * self._of_questions).sum(axis=1)
            for part in (np.where(defined, values, 0.0), defined.astype(np.float64))
        )
        with np.errstate(invalid="ignore"):
            means: Floats = sums / counts
        return means

    def _bounded(self, value: float, resampled: Floats, n: int) -> Estimate:
        low, high = np.nanpercentile(resampled, _BOUNDS)
        return Estimate(value=value, low=float(low), high=float(high), n=n, method=self._method)


def _drawn(random: np.random.Generator, units: int) -> Floats:
    """How often each unit is drawn, resample by resample."""
    return random.multinomial(units, np.full(units, 1 / units), size=_RESAMPLES).astype(np.float64)


class PooledRuns:
    """Runs that were asked the same questions, each once.

    Raises `UserError` if they were not.
    """

    def __init__(self, runs: Sequence[Sequence[Scored]]) -> None:
        self.runs = [sorted(run, key=lambda each: each.question.id) for run in runs]
        ids = [[each.question.id for each in run] for run in self.runs]
        if not ids[0] or any(each != ids[0] for each in ids) or len(set(ids[0])) < len(ids[0]):
            raise UserError(
                "the runs were not asked the same questions once; make them with one recipe"
            )

    @property
    def questions(self) -> int:
        """The number of questions."""
        return len(self.runs[0])

    @cached_property
    def pool(self) -> Pool:
        """The resamples of these runs."""
        questions = [each.question for each in self.runs[0]]
        inboxes = [each.inbox_address for each in questions]
        return Pool(inboxes, [each.id for each in questions], len(self.runs))

    def matrix(self, measure: Measure) -> Floats:
        """The measure: a row for each run, a column for each question."""
        rows = [[measure.of(each) for each in run] for run in self.runs]
        return np.asarray(rows, dtype=np.float64)

    def mean(self, measure: Measure) -> Estimate:
        """The pooled mean of the measure."""
        return self.pool.mean(self.matrix(measure), share=measure.share)

    def gain(self, before: "PooledRuns", measure: Measure) -> Estimate:
        """How much larger the measure is than in the runs `before`, of the same questions."""
        return self.pool.gain(before.matrix(measure), self.matrix(measure))


# ---- From the folders of runs.


def episodes_of_test(folder: Path) -> dict[Way, list[Scored]]:
    """The test episodes of a run that has ended, but those about strangers.

    Raises `UserError` if they can't be read, or if the test is not whole.
    """
    path = folder / EPISODES
    found: dict[Way, list[Scored]] = {way: [] for way in WAYS}
    try:
        for each in read_trajectories(path):
            if not each.policy.get("part"):
                way: Way = "sampled" if each.policy["temperature"] > 0 else "greedy"
                question = Question.from_row(each.question or {})
                found[way].append(by_second(Scored(question, each)))
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path} can't be read ({error}); make the run again") from None
    if not all(found.values()):
        raise UserError(f"{path} has not all of the test; make the run again")
    return found


def pooled_test(folders: Sequence[Path], way: Way) -> PooledRuns | None:
    """The test episodes of the runs, pooled; None without any."""
    runs = [episodes_of_test(each)[way] for each in folders]
    return PooledRuns(runs) if runs else None


def metrics_of(folder: Path) -> dict[str, Any]:
    """The content of a run's `metrics.json`. Raises `UserError` if it can't be read."""
    return json_object(folder / METRICS)


def minutes(folders: Sequence[Path]) -> float:
    """How long the runs took together."""
    return sum(float(metrics_of(each)["seconds"]) for each in folders) / 60


_CURVES: tuple[tuple[str, str, Scale], ...] = (
    ("accuracy", "Accuracy, held out", "share"),
    ("hallucination_unanswerable", "Hallucination on unanswerable, held out", "share"),
    ("format_errors", "Format errors an episode, held out", "number"),
    ("effort_when_correct", "Effort when correct, held out", "number"),
)


def curves(folders: Sequence[Path], labels: Sequence[str]) -> list[CurveChart]:
    """The validations of the runs, a chart for each figure that one of them has."""
    validations = [metrics_of(each)["validation"] for each in folders]
    charts = []
    for name, title, scale in _CURVES:
        drawn = tuple(
            curve(label, {row["step"]: row.get(name) for row in rows})
            for label, rows in zip(labels, validations, strict=True)
        )
        if any(mark.value is not None for each in drawn for mark in each.marks):
            note = "By a judge that is not the reward's; sampled."
            charts.append(CurveChart(name, title, note, scale, drawn))
    return charts


def curve(label: str, values: Mapping[int, float | None]) -> Curve:
    """A curve of values by step; what is missing or not finite is a gap."""
    marks = (
        Mark(value if value is not None and math.isfinite(value) else None, "")
        for value in values.values()
    )
    return Curve(label, tuple(values), tuple(marks))
