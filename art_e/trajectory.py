"""What happened in an episode, as data: one JSON line each.

Knows nothing of how episodes are run or judged; `verdict` and `reward` are put
in by those who do.
"""

import dataclasses
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from art_e.message import ChatMessage, compact_json

SCHEMA = "art-e/trajectory/1"
_BLOCK = 1 << 20


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


class TrajectoryLog:
    """A file that trajectories are appended to, each safe on disk before `append` returns.

    One process at a time may have it open: a line that a crash cut off is taken away first.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab")
        _cut_torn_line(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def append(self, trajectory: Trajectory) -> None:
        """Write one line and flush it to the disk."""
        # A lone surrogate becomes the JSON escape that it may have come from.
        self._file.write(trajectory.to_line().encode("utf-8", "backslashreplace") + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def read_trajectories(path: Path) -> Iterator[Trajectory]:
    """The trajectories of a file, in order; a line cut off by a crash at the end is left out.

    Raises `ValueError` where another line is no trajectory.
    """
    # Bytes: the end of a torn line may be half a character.
    with path.open("rb") as lines:
        for line in lines:
            if not line.endswith(b"\n"):
                return
            yield Trajectory.from_line(line.decode("utf-8"))


def _cut_torn_line(path: Path) -> None:
    """Take away what a crash left of a line, or the next one would be lost with it."""
    with path.open("rb+") as file:
        whole = file.seek(0, os.SEEK_END)
        while whole > 0:
            start = max(0, whole - _BLOCK)
            file.seek(start)
            end = file.read(whole - start).rfind(b"\n")
            if end >= 0:
                whole = start + end + 1
                break
            whole = start
        file.truncate(whole)
