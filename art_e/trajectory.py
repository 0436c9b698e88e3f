"""What happened in an episode, as data: one JSON line each.

Knows nothing of how episodes are run or judged; `verdict` and `reward` are put
in by those who do.
"""

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from art_e.message import ChatMessage, compact_json
from art_e.storage import whole_lines

SCHEMA = "art-e/trajectory/1"


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One episode. Message ids in `sources` are the stored ones; `handles` are those of the mails.

    `usage` has prompt_tokens, cached_prompt_tokens, completion_tokens and
    reasoning_tokens, `seconds` has total, model and tools, `error` has kind and message.
    `cost_usd` is None where the price is not known. `call_seconds` has, turn by turn, how
    long the model's call took, None where it was not called; `retries` counts the calls
    that failed and were made again. `started_at` is ISO 8601 in UTC. `verdict` is the first
    judge's, `other_verdicts` those of further ones in their order. `repeat` counts from 0
    where a question is asked several times; `question` is its golden row, so that a run
    can be read without the questions' file.
    """

    run_id: str
    episode_id: str
    question_id: str
    inbox_address: str
    as_of: str | None
    model: str
    policy: dict[str, Any]
    messages: list[ChatMessage]
    handles: dict[str, str]
    final_answer: str | None
    sources: list[str]
    rubric: dict[str, Any]
    usage: dict[str, int]
    cost_usd: float | None
    seconds: dict[str, float]
    started_at: str
    call_seconds: list[float | None] = field(default_factory=list)
    retries: int = 0
    error: dict[str, str] | None = None
    verdict: dict[str, Any] | None = None
    other_verdicts: list[dict[str, Any]] = field(default_factory=list)
    reward: dict[str, Any] | None = None
    repeat: int = 0
    question: dict[str, Any] | None = None
    schema: str = SCHEMA

    def to_line(self) -> str:
        """The trajectory as one line of JSON, without the line end."""
        return compact_json(dataclasses.asdict(self))

    @classmethod
    def from_line(cls, line: str) -> Self:
        """The trajectory of one line. Raises `ValueError` where it is none of this schema."""
        row = json.loads(line)
        if not isinstance(row, dict) or row.get("schema") != SCHEMA:
            raise ValueError(f"not a line of {SCHEMA}")
        try:
            return cls(**row)
        except TypeError as error:
            raise ValueError(str(error)) from None


def read_trajectories(path: Path) -> Iterator[Trajectory]:
    """The trajectories of a file, in order; a line cut off by a crash at the end is left out.

    Raises `ValueError` if another line is no trajectory. A missing file has none.
    """
    # Bytes: the end of a torn line may be half a character.
    for line in whole_lines(path):
        yield Trajectory.from_line(line.decode("utf-8"))
