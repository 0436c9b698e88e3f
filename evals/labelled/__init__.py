"""The labelled set: question, gold answer and given answer, with a person's label.

Judges are measured on it (`art-e eval judge`). One half is for tuning their rules
and prompts, the other for reporting, so that what is reported was never tuned on.
README.md beside it says how it was written. Knows nothing of judges.
"""

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal

from art_e.errors import UserError
from art_e.question import Question
from art_e.text import digest

Half = Literal["tuning", "reporting"]


@dataclass(frozen=True, slots=True)
class Pair:
    """An answer to a question, and whether a careful person calls it right.

    `gold` is None where the mails hold no answer; `answer` is None where none was
    given. `label` is true where the user who asked would be served, false where
    they would be misled or left without what they asked for. An `adversarial`
    answer is written to win a judge over; it is wrong.
    """

    question: str
    gold: str | None
    answer: str | None
    label: bool
    why: str
    category: str
    adversarial: bool
    half: Half

    @property
    def asked(self) -> Question:
        """The question as a judge takes it; its id is a hash of question and gold answer."""
        content = json.dumps([self.question, self.gold])
        return Question(
            id=digest(content),
            question=self.question,
            inbox_address="",
            answer=self.gold,
            answerable=self.gold is not None,
        )


def load_pairs(path: Path | None = None) -> list[Pair]:
    """The pairs of a JSONL file, or of the set that comes with the package, in order.

    Raises `UserError`, naming the line, where one is no pair.
    """
    from pydantic import TypeAdapter, ValidationError

    source = files(__name__) / "pairs.jsonl" if path is None else path
    try:
        text = source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"can't read labelled pairs from {source}: {error}; name another file with --pairs"
        ) from None
    adapter = TypeAdapter(Pair)
    pairs: list[Pair] = []
    # Not splitlines: a text may hold other line ends, such as U+2028.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            pairs.append(adapter.validate_json(line, strict=True))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "line"
            raise UserError(f"{source}, line {number}: {where}: {first['msg']}") from None
    if not pairs:
        raise UserError(f"{source} has no labelled pair; write one a line, or leave --pairs out")
    return pairs
