"""What users say of answers: `ratings.jsonl` in `ART_E_HOME`, a line for each rating.

The later of two ratings of an answer counts. `art-e golden from-ratings` makes questions of them.
"""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from art_e.storage import append_line, home, parsed_lines, whole_lines


class Rating(BaseModel):
    """A rating of one answer to a question about an inbox, up to the day `as_of`.

    `right_answer` and `right_sources` are the user's correction of a bad one. `talk` says that the
    question followed others, so that it can't stand alone. `rated_at` is ISO 8601 in UTC.
    """

    episode_id: str
    question: str
    inbox_address: str
    as_of: str
    model: str
    answer: str | None
    sources: list[str]
    rating: Literal["good", "bad"]
    right_answer: str | None = None
    right_sources: list[str] = []
    talk: bool = False
    rated_at: str


def ratings_file() -> Path:
    """The file; it need not exist."""
    return home() / "ratings.jsonl"


def add_rating(rating: Rating) -> None:
    """Add a rating; it is safe on disk when this returns."""
    ratings_file().parent.mkdir(parents=True, exist_ok=True)
    append_line(ratings_file(), rating.model_dump_json())


def read_ratings() -> list[Rating]:
    """The last rating of each answer, in order. Raises `UserError` for an invalid line."""
    path = ratings_file()
    rows = parsed_lines(Rating, path, whole_lines(path))
    return list({each.episode_id: each for each in rows}.values())
