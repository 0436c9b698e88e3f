"""What a person says of a run's answers: `labels.jsonl` in the run's folder.

One line a label, on disk before the next answer is shown; a line that a crash cut off
is left out, and taken away when the next one is written. Of two labels of one episode
the later counts. Knows nothing of how labels are asked for.
"""

import dataclasses
import datetime as dt
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from art_e.errors import UserError
from art_e.lines import append_line, whole_lines
from art_e.message import compact_json
from art_e.runs import Run
from evals.agreement import Case, Rated, agreement
from evals.judge import Verdict
from evals.scored import Scored


@dataclass(frozen=True, slots=True)
class Label:
    """A person's word on one episode's answer. `labelled_at` is ISO 8601 in UTC."""

    episode_id: str
    correct: bool
    labelled_at: str


def labels_file(run: Run) -> Path:
    """Where a run's labels are; the file need not exist."""
    return run.folder / "labels.jsonl"


def read_labels(run: Run) -> dict[str, Label]:
    """The run's labels by episode. Raises `UserError` where a line is none."""
    path = labels_file(run)
    labels: dict[str, Label] = {}
    for number, line in enumerate(whole_lines(path), start=1):
        try:
            label = Label(**json.loads(line))
            if not isinstance(label.correct, bool):
                raise TypeError("correct is neither true nor false")
        except (ValueError, TypeError) as error:
            raise UserError(
                f"{path}, line {number} is no label ({error}); mend or remove it"
            ) from None
        labels[label.episode_id] = label
    return labels


def write_label(run: Run, episode_id: str, *, correct: bool) -> None:
    """Add a label to the run's; it is safe on disk when this returns."""
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    line = compact_json(dataclasses.asdict(Label(episode_id, correct, now)))
    append_line(labels_file(run), line)


def chosen_for_labels(scored: Sequence[Scored], sample: int | None, seed: int) -> list[Scored]:
    """The episodes to label, in an order that tells nothing of models and verdicts.

    Those that gave an answer and were judged; `sample` of them, None: all. The same `seed`
    draws the same ones: a longer sample holds the shorter one.
    """
    answered = [
        each
        for each in scored
        if each.trajectory.rubric["answered"] and each.trajectory.verdict is not None
    ]
    drawn = sorted(answered, key=lambda each: each.trajectory.episode_id)
    random.Random(seed).shuffle(drawn)
    return drawn[:sample]


def labelled_cases(scored: Sequence[Scored], labels: Mapping[str, Label]) -> list[Case]:
    """The labelled answers of a run as cases for any judge; their category is the kind."""
    return [_case(each, labels) for each in _labelled(scored, labels)]


def stored_agreement(scored: Sequence[Scored], labels: Mapping[str, Label]) -> dict[str, Any]:
    """By judge, how far the verdicts that the run holds are those of its labels.

    What is told of each is `evals.agreement.agreement`'s; empty where nothing is labelled.
    """
    return {judge: agreement(rated) for judge, rated in stored_ratings(scored, labels).items()}


def stored_ratings(scored: Sequence[Scored], labels: Mapping[str, Label]) -> dict[str, list[Rated]]:
    """By judge, the labelled answers of a run with the verdicts that it holds."""
    rated: dict[str, list[Rated]] = {}
    for each in _labelled(scored, labels):
        for verdict in each.verdicts:
            given = Verdict(**verdict)
            rated.setdefault(given.judge, []).append(Rated(_case(each, labels), given))
    return rated


def _labelled(scored: Sequence[Scored], labels: Mapping[str, Label]) -> list[Scored]:
    return [each for each in scored if each.trajectory.episode_id in labels]


def _case(each: Scored, labels: Mapping[str, Label]) -> Case:
    trajectory = each.trajectory
    label = labels[trajectory.episode_id].correct
    return Case(each.question, trajectory.final_answer, label, each.question.kind or "unlabelled")
