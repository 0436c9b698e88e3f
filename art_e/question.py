"""A question about an inbox, with what is known of its answer.

The field names are those of the public ART-E data set, so that its rows load
as they are; `kind`, `difficulty`, `answerable`, `split` and `provenance` are
ours. Knows nothing of inboxes, models or judges.
"""

import dataclasses
import datetime as dt
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["lookup", "latest-update", "multi-mail", "count", "unanswerable"]
Difficulty = Literal["easy", "medium", "hard"]
Split = Literal["train", "validation", "test"]

KINDS: tuple[Kind, ...] = ("lookup", "latest-update", "multi-mail", "count", "unanswerable")
SPLITS: tuple[Split, ...] = ("train", "validation", "test")


@dataclass(frozen=True, slots=True)
class Question:
    """One row of a golden set, or (with `answer` None) a user's own question.

    `message_ids` are the gold mails: those that, together, hold the answer.
    `query_date` is the episode's `as_of`: mail sent after that day does not
    exist for it; None means all mail. `answerable` is None where nobody knows.
    `how_realistic` is in 0..1.
    """

    id: str
    question: str
    inbox_address: str
    query_date: dt.date | None = None
    answer: str | None = None
    message_ids: tuple[str, ...] = ()
    how_realistic: float | None = None
    kind: Kind | None = None
    difficulty: Difficulty | None = None
    answerable: bool | None = None
    split: Split | None = None
    provenance: dict[str, Any] = dataclasses.field(default_factory=dict)

    def to_row(self) -> dict[str, Any]:
        """The question as a JSON object (dates as YYYY-MM-DD)."""
        row = dataclasses.asdict(self)
        row["message_ids"] = list(self.message_ids)
        row["query_date"] = None if self.query_date is None else self.query_date.isoformat()
        return row
