"""What people say of a random sample of a golden set's rows, and how many were right.

A verdict is a line of `reviews.jsonl`, on disk before the next row is shown. It is of the
row as it was seen: where question, answer or gold mails have changed since, it is stale,
and not applied. `review` applies the others to the set: a dropped row is rejected, an
edited one mended, and of the sample the share that was right as it stood is the set's
precision. An edit counts as an error of the pipeline, whose row it mends.

Of two verdicts on one row the later counts. Knows nothing of terminals.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.lines import append_line, whole_lines
from art_e.message import compact_json
from art_e.question import SPLITS, Question, Split
from art_e.text import digest, encodable
from data_pipeline.golden.checks import Check, mended, with_checks
from data_pipeline.golden.golden_set import GoldenSet, Rejected
from evals.intervals import Estimate
from evals.intervals import Sample as Measured

Said = Literal["keep", "drop", "edit", "skip"]
SAID: tuple[Said, ...] = ("keep", "drop", "edit", "skip")

# What a person can change, and what a verdict is about.
EDITABLE = ("question", "answer", "message_ids", "query_date")
_SEEN = (*EDITABLE, "inbox_address", "kind", "answerable")
_CHECK = "person"


class Sample(NamedTuple):
    """Which rows are looked at: the first `size` in the order that `seed` gives.

    `split` None: of all splits.
    """

    size: int
    seed: int
    split: Split | None


@dataclass(frozen=True, slots=True)
class Review:
    """A person's word on a row, whose `digest` was `row_digest`'s when it was shown.

    `skip` is no word on it. `changes` are the new values of an edit's fields, as in a
    row. `reviewer` is None where nobody was named.
    """

    id: str
    digest: str
    said: Said
    note: str
    changes: Mapping[str, Any]
    reviewer: str | None
    sample: Sample


def reviews_file(folder: Path) -> Path:
    """Where the reviews of the set in `folder` are; the file need not exist."""
    return folder / "reviews.jsonl"


def write_review(folder: Path, review: Review) -> None:
    """Add a review to the set's; it is safe on disk when this returns."""
    row = {**dataclasses.asdict(review), "sample": review.sample._asdict()}
    append_line(reviews_file(folder), compact_json(row))


def read_reviews(folder: Path) -> list[Review]:
    """The reviews of the set, in order. Raises `UserError` where a line is none."""
    path = reviews_file(folder)
    reviews = []
    for number, line in enumerate(whole_lines(path), start=1):
        try:
            reviews.append(_review(json.loads(line)))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise UserError(
                f"{path}, line {number} is no review ({error}); mend or remove it"
            ) from None
    return reviews


def row_digest(question: Question) -> str:
    """Names what a person judges of a row: its checks, marks and split are not part of it."""
    row = question.to_row()
    return digest(encodable(compact_json({name: row[name] for name in _SEEN})))


def standing(reviews: Iterable[Review], questions: Iterable[Question]) -> dict[str, Review]:
    """By id, the last review of each row that is as it was when it was reviewed."""
    seen = {(each.id, row_digest(each)) for each in questions}
    return {each.id: each for each in reviews if (each.id, each.digest) in seen}


def drawn(questions: Iterable[Question], sample: Sample) -> list[Question]:
    """The rows of the sample, in the order in which they are shown.

    A larger sample begins with the smaller one; rows that come or go move no others.
    """
    of_split = [each for each in questions if sample.split in (None, each.split)]
    of_split.sort(key=lambda each: (digest(f"{sample.seed}/review/{each.id}"), each.id))
    return of_split[: sample.size]


def edited(file: InboxFile, question: Question, changes: Mapping[str, Any]) -> Question:
    """The question with a person's changes, its gold mails by the ids the inbox stores.

    Raises `UserError` where they don't fit: a field is empty, or a mail is not in the
    inbox on the day of asking.
    """
    unknown = [name for name in changes if name not in EDITABLE]
    if unknown:
        raise UserError(f"{unknown[0]} can't be edited; only {', '.join(EDITABLE)} can")
    try:
        made = Question.from_row({**question.to_row(), **changes})
    except ValueError as error:
        raise UserError(f"the edited row is {error}; give a date as YYYY-MM-DD") from None
    if not isinstance(made.question, str) or not made.question.strip():
        raise UserError("the question is empty; give one")
    if question.answerable is False:
        if changes.keys() & {"answer", "message_ids"}:
            raise UserError(
                "an unanswerable question has no answer and no mails; drop the row instead"
            )
        return made
    if not isinstance(made.answer, str) or not made.answer.strip():
        raise UserError("the answer is empty; give one, or drop the row")
    if not made.message_ids:
        raise UserError("there is no gold mail; name the mails that hold the answer")
    inbox = file.open_inbox(made.inbox_address, made.query_date)
    stored = []
    for name in made.message_ids:
        found = inbox.canonical_id(str(name))
        if found is None:
            until = "" if made.query_date is None else f" on {made.query_date}"
            raise UserError(f"no mail {name} in the inbox{until}; give ids that art-e search shows")
        stored.append(found)
    return dataclasses.replace(made, message_ids=tuple(dict.fromkeys(stored)))


def review(file: InboxFile, golden: GoldenSet, reviews: Sequence[Review], sample: Sample) -> None:
    """Apply `reviews` to the set, and measure its precision on those of `sample`.

    A skipped row is kept as one that nobody is sure of.
    """
    golden.undo("review")
    came = golden.questions
    said = standing(reviews, came)
    golden.questions = []
    for before in came:
        try:
            question = _applied(file, before, said.get(before.id))
        except UserError:
            # The mail has changed since: nobody has said what the row is to be now.
            del said[before.id]
            question = before
        if isinstance(question, Rejected):
            golden.rejected.append(question)
        else:
            golden.questions.append(question)
    looked_at = [each for each in drawn(came, sample) if each.id in said]
    counts = {word: sum(said[each.id].said == word for each in looked_at) for word in SAID}
    judged = [each for each in looked_at if said[each.id].said != "skip"]
    golden.record(
        "review",
        came=len(came),
        settings={
            "precision": _precision(judged, said),
            "reviewed": len(judged),
            "kept": counts["keep"],
            "edited": counts["edit"],
            "dropped": counts["drop"],
            "skipped": counts["skip"],
            "stale": len({each.id for each in reviews} - said.keys()),
            "sample": sample.size,
            "seed": sample.seed,
            "split": sample.split,
        },
    )


_PASSED: dict[Said, bool | None] = {"keep": True, "edit": True, "drop": False, "skip": None}
_WORDS: dict[Said, str] = {
    "keep": "kept as it is",
    "edit": "edited",
    "drop": "dropped",
    "skip": "skipped",
}


def _applied(file: InboxFile, question: Question, given: Review | None) -> Question | Rejected:
    """What a review makes of the row. Raises `UserError` where its edit does not fit."""
    if given is None:
        return question
    check = Check(_CHECK, "review", _PASSED[given.said], _reason(given), "person")
    if given.said == "drop":
        return Rejected.of(question, check)
    if given.said == "edit":
        made = edited(file, question, given.changes)
        values = {name: getattr(made, name) for name in EDITABLE}
        changed = {name: new for name, new in values.items() if new != getattr(question, name)}
        question = mended(question, "review", _CHECK, **changed)
    return with_checks(question, [check])


def _precision(judged: Sequence[Question], said: Mapping[str, Review]) -> Estimate:
    measured = Measured([each.inbox_address for each in judged], [each.id for each in judged])
    return measured.share([said[each.id].said == "keep" for each in judged])


def _reason(given: Review) -> str:
    note = " ".join(encodable(given.note).split())
    return f"{_WORDS[given.said]}: {note}" if note else _WORDS[given.said]


def _review(row: dict[str, Any]) -> Review:
    sample = Sample(**row["sample"])
    if sample.split not in (None, *SPLITS):
        raise ValueError(f"there is no split {sample.split!r}")
    # By type: a bool is an int too, and no size.
    if type(sample.size) is not int or type(sample.seed) is not int or sample.size < 1:
        raise ValueError("the sample's size or seed is no whole number, or the size not above 0")
    given = Review(**{**row, "sample": sample})
    if given.said not in SAID:
        raise ValueError(f"said is none of {', '.join(SAID)}")
    texts = (given.id, given.digest, given.note, given.reviewer or "")
    if not all(isinstance(each, str) for each in texts):
        raise TypeError("id, digest, note or reviewer is no text")
    if not isinstance(given.changes, dict):
        raise TypeError("changes is no object")
    return given
