"""Figures of several training runs over questions and seeds.

All runs answered the same questions, judged as in validations: by the judge that does not pay the
reward. A measure is a matrix with a row for each run and a column for each question, NaN where it
is undefined (effort of a wrong answer), and its value is the mean of the defined cells. The 95 %
interval is a bootstrap that draws runs, and draws questions for all runs together: a question that
is hard for every seed counts once, not once a seed. With ten inboxes or more it draws inboxes.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from art_e.errors import UserError
from art_e.models.checkpoint import METRICS, json_object
from art_e.question import Question
from art_e.trajectory import read_trajectories
from evals.report.tables import Cell, number, percent, points
from evals.scored import Scored
from evals.statistics import CONFIDENCE, UNKNOWN, Estimate, Floats, Sample
from training.progress import EPISODES, by_second
from training.reward import malformed_calls

Way = Literal["sampled", "greedy"]
WAYS: tuple[Way, ...] = ("sampled", "greedy")
_SEED, _RESAMPLES, _MIN_INBOXES = 20_010_515, 2_000, 10
_BOUNDS = (100 * (1 - CONFIDENCE) / 2, 100 * (1 + CONFIDENCE) / 2)


class Measure(NamedTuple):
    """`of` gives an episode's value, None where it is undefined; a `share` is 0 or 1."""

    name: str
    title: str
    of: Callable[[Scored], float | None]
    share: bool = False

    def cell(self, estimate: Estimate) -> Cell:
        """An estimate as the report writes it."""
        return percent(estimate) if self.share else number(estimate)

    def change(self, gain: Estimate) -> Cell:
        """A difference of two estimates as the report writes it."""
        return points(gain) if self.share else number(gain)


def _when_correct(fact: str) -> Callable[[Scored], float | None]:
    def of(scored: Scored) -> float | None:
        defined = scored.question.answerable and scored.correct
        return float(scored.trajectory.rubric[fact]) if defined else None

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
EFFORT_RIGHT = Measure("effort-when-correct", "effort, answer right", _when_correct("effort"))
MEASURES = (
    ACCURACY,
    INVENTED,
    Measure("hallucination", "hallucination, all questions", lambda x: float(x.wrong), share=True),
    Measure("abstention", "abstention, all questions", lambda x: float(x.abstained), share=True),
    Measure(
        "format-errors",
        "format errors an episode",
        lambda each: float(malformed_calls(each.trajectory.rubric)),
    ),
    Measure("turns-when-correct", "turns, answer right", _when_correct("turns")),
    EFFORT_RIGHT,
)


class PooledRuns:
    """Runs that answered the same questions, each once. Raises `UserError` if they did not."""

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

    def matrix(self, measure: Measure) -> Floats:
        """The measure: a row for each run, a column for each question."""
        rows = [[measure.of(each) for each in run] for run in self.runs]
        return np.asarray(rows, dtype=np.float64)

    def mean(self, measure: Measure) -> Estimate:
        """The pooled mean of the measure; a share that is the same everywhere has Wilson's
        interval."""
        values = self.matrix(measure)
        defined = values[~np.isnan(values)]
        if not len(defined):
            return UNKNOWN
        if measure.share and defined.min() == defined.max():
            # Nothing to resample: as many independent answers as there are questions.
            places = np.flatnonzero(~np.isnan(values).all(axis=0))
            asked = [self.runs[0][place].question for place in places]
            sample = Sample([each.inbox_address for each in asked], [each.id for each in asked])
            estimate = sample.share([bool(defined[0])] * len(asked))
            return Estimate(**{**estimate, "n": len(defined)})
        return self._estimate(float(defined.mean()), self._means(values), len(defined))

    def gain(self, before: "PooledRuns", measure: Measure) -> Estimate:
        """How much larger the measure is than in the runs `before`, of the same questions; runs
        and questions are paired."""
        first, last = before.matrix(measure), self.matrix(measure)
        n = min((~np.isnan(first)).sum(), (~np.isnan(last)).sum())
        if not n:
            return UNKNOWN
        value = float(np.nanmean(last) - np.nanmean(first))
        return self._estimate(value, self._means(last) - self._means(first), int(n))

    @cached_property
    def _drawn(self) -> tuple[Floats, Floats, str]:
        """How often each resample draws each run, and each question; what it draws, in words."""
        random = np.random.default_rng(_SEED)

        def drawn(units: int) -> Floats:
            chances = np.full(units, 1 / units)
            return random.multinomial(units, chances, size=_RESAMPLES).astype(np.float64)

        asked = [each.question for each in self.runs[0]]
        inboxes = [each.inbox_address for each in asked]
        by_inbox = len(set(inboxes)) >= _MIN_INBOXES
        units = inboxes if by_inbox else [each.id for each in asked]
        _, place = np.unique(units, return_inverse=True)
        of_questions = drawn(int(place.max()) + 1)[:, place]
        return drawn(len(self.runs)), of_questions, "inboxes" if by_inbox else "questions"

    def _means(self, values: Floats) -> Floats:
        """The pooled mean of each resample; NaN where it drew nothing that is defined."""
        of_runs, of_questions, _ = self._drawn
        defined = ~np.isnan(values)
        sums, counts = (
            ((of_runs @ part) * of_questions).sum(axis=1)
            for part in (np.where(defined, values, 0.0), defined.astype(np.float64))
        )
        with np.errstate(invalid="ignore"):
            means: Floats = sums / counts
        return means

    def _estimate(self, value: float, resampled: Floats, n: int) -> Estimate:
        low, high = map(float, np.nanpercentile(resampled, _BOUNDS))
        method = f"bootstrap over runs, {self._drawn[2]}"
        return Estimate(value=value, low=low, high=high, n=n, method=method)


# ---- From the folders of runs.


def episodes_of_test(folder: Path) -> dict[Way, list[Scored]]:
    """The test episodes of a complete run, without those about strangers.

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
