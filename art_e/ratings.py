"""Users' ratings of answers, one per line of `ratings.jsonl` in `ART_E_HOME`.

The last rating of an answer counts. `art-e golden from-ratings` turns ratings into questions."""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from art_e.runs import Run
from art_e.storage import append_line, home, parsed_lines, whole_lines
from art_e.trajectory import Trajectory

Thumb = Literal["good", "bad"]


class AnswerRating(BaseModel):
    """A rating of one answer to a question about an inbox, up to the day `as_of`. `right_answer`
    and `right_sources` correct a bad one. `talk`: the question followed up on others, so it can't
    stand alone."""

    episode_id: str
    question: str
    inbox_address: str
    as_of: str
    model: str
    answer: str | None
    sources: list[str]
    rating: Thumb
    right_answer: str | None = None
    right_sources: list[str] = []
    talk: bool = False
    rated_at: str


def rate(
    run: Run, trajectory: Trajectory, rating: Thumb, answer: str | None, sources: Sequence[str] = ()
) -> AnswerRating:
    """Store a rating of an answer, with the right one and its sources if known."""
    stored = AnswerRating(
        episode_id=trajectory.episode_id,
        question=run.config["question"],
        inbox_address=trajectory.inbox_address,
        as_of=trajectory.as_of or trajectory.started_at[:10],
        model=trajectory.model,
        answer=trajectory.final_answer,
        sources=trajectory.sources,
        rating=rating,
        right_answer=answer,
        right_sources=[*sources],
        talk=bool(run.config.get("talk")),
        rated_at=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
    )
    ratings_file().parent.mkdir(parents=True, exist_ok=True)
    append_line(ratings_file(), stored.model_dump_json())
    return stored


def ratings_file() -> Path:
    """Return the path of the ratings file, which may not exist."""
    return home() / "ratings.jsonl"


def read_ratings() -> list[AnswerRating]:
    """Return the last rating of each answer, in order. Raises `UserError` for an invalid line."""
    rows = parsed_lines(AnswerRating, ratings_file(), whole_lines(ratings_file()))
    return list({each.episode_id: each for each in rows}.values())
