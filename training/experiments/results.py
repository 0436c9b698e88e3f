"""What training runs left: their test episodes, by how they were sampled, and their rows.

Answers are judged as validations are, by the judge that is not the reward's. Knows nothing of
how figures are pooled.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from art_e.errors import UserError
from art_e.question import Question
from art_e.trajectory import read_trajectories
from evals.scored import Scored
from training.experiments.pooled import Measure
from training.reward import malformed_calls
from training.validation import EPISODES, by_second

Way = Literal["sampled", "greedy"]
WAYS: tuple[Way, ...] = ("sampled", "greedy")


def _accuracy(each: Scored) -> float | None:
    return float(each.correct) if each.question.answerable else None


def _invented(each: Scored) -> float | None:
    return None if each.question.answerable else float(each.trajectory.rubric["answered"])


def _when_correct(name: str, each: Scored) -> float | None:
    right = each.question.answerable and each.correct
    return float(each.trajectory.rubric[name]) if right else None


def _format_errors(each: Scored) -> float:
    return float(malformed_calls(each.trajectory.rubric))


ACCURACY = Measure("accuracy", "accuracy", _accuracy, True)
INVENTED = Measure(
    "hallucination-unanswerable", "hallucination on unanswerable questions", _invented, True
)
HALLUCINATION = Measure(
    "hallucination", "hallucination, all questions", lambda each: float(each.wrong), True
)
ABSTENTION = Measure(
    "abstention",
    "abstention, all questions",
    lambda each: float(each.trajectory.rubric["abstained"]),
    True,
)
FORMAT_ERRORS = Measure("format-errors", "format errors an episode", _format_errors, False)
TURNS = Measure(
    "turns", "turns an episode", lambda each: float(each.trajectory.rubric["turns"]), False
)
TURNS_RIGHT = Measure(
    "turns-when-correct",
    "turns, answer right",
    lambda each: _when_correct("turns", each),
    False,
)
EFFORT_RIGHT = Measure(
    "effort-when-correct",
    "effort, answer right",
    lambda each: _when_correct("effort", each),
    False,
)


def episodes_of_test(folder: Path, part: str = "") -> dict[Way, list[Scored]]:
    """The test episodes of a run that has ended, or those of `part` "strangers" beside them.

    Raises `UserError` where they can't be read; a part may have none, the test itself not.
    """
    path = folder / EPISODES
    found: dict[Way, list[Scored]] = {way: [] for way in WAYS}
    try:
        for each in read_trajectories(path):
            if each.question is None:
                raise ValueError("an episode has no question")
            if each.policy.get("part", "") == part:
                way: Way = "sampled" if each.policy["temperature"] > 0 else "greedy"
                found[way].append(by_second(Scored(Question.from_row(each.question), each)))
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path} can't be read ({error}); make the run again") from None
    if not part and not all(found.values()):
        raise UserError(f"{path} has not all of the test; make the run again")
    return found


def metrics_of(folder: Path) -> dict[str, Any]:
    """What a run's `metrics.json` holds. Raises `UserError` where it can't be read."""
    path = folder / "metrics.json"
    try:
        metrics: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} can't be read ({error}); make the run again") from None
    return metrics


def minutes(folders: Sequence[Path]) -> float:
    """How long the runs took together."""
    return sum(float(metrics_of(each)["seconds"]) for each in folders) / 60
