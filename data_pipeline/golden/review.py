"""`art-e golden review`: a person says which rows of a random sample are right.

Each verdict is on disk before the next row appears. At the end, the verdicts are applied to the set
and its precision is measured. Rows and mails are untrusted text."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from art_e.cli.mail import mail_excerpt
from art_e.cli.output import one_line, print_text, read_key
from art_e.inbox.file import InboxFile
from art_e.inbox.mail import format_date
from art_e.message import compact_json
from art_e.question import Question, Split
from art_e.storage import append_line, parsed_lines, whole_lines
from art_e.text import digest, encodable
from data_pipeline.golden.golden_set import Check, GoldenSet, Outcome, checks_of, with_checks
from evals import statistics

Decision = Literal["keep", "drop", "skip"]
_PASSED = {"keep": (True, "kept"), "drop": (False, "dropped"), "skip": (None, "skipped")}
KEYS = "[k]eep [d]rop [w]hole mails [s]kip [q]uit"
_DECISIONS: dict[str, Decision] = {"k": "keep", "d": "drop", "s": "skip"}
# The fields that a verdict is about.
_SEEN = "question answer message_ids query_date inbox_address kind answerable".split()


class ReviewSample(NamedTuple):
    """The first `sample` rows of one split, or of all, in an order drawn by `seed`."""

    sample: int = 100
    seed: int = 0
    split: Split | None = None


class Review(BaseModel):
    """A person's verdict on a row that had the `row_digest` `digest`; "skip" leaves it open."""

    model_config = ConfigDict(strict=True, frozen=True)

    id: str
    digest: str
    said: Decision


def reviews_file(folder: Path) -> Path:
    """Return the path of the reviews of the set in `folder`; the file need not exist."""
    return folder / "reviews.jsonl"


def read_reviews(folder: Path) -> list[Review]:
    """Return the reviews of the set, in order. Raises `UserError` for an invalid line."""
    path = reviews_file(folder)
    return parsed_lines(Review, path, whole_lines(path))


def row_digest(question: Question) -> str:
    """Return a digest of the fields of a row that a person judges: no checks, no split."""
    row = question.to_row()
    return digest(encodable(compact_json({name: row[name] for name in _SEEN})))


def current(reviews: Iterable[Review], questions: Iterable[Question]) -> dict[str, Review]:
    """Return the last review of each row that has not changed since, by id."""
    seen = {(each.id, row_digest(each)) for each in questions}
    return {each.id: each for each in reviews if (each.id, each.digest) in seen}


def sample_rows(questions: Iterable[Question], sample: ReviewSample) -> list[Question]:
    """Return the sample in order of review; adding or removing rows doesn't reorder the others."""
    of_split = [each for each in questions if sample.split in (None, each.split)]
    of_split.sort(key=lambda each: (digest(f"{sample.seed}/review/{each.id}"), each.id))
    return of_split[: sample.sample]


def review(golden: GoldenSet, reviews: Sequence[Review], sample: ReviewSample) -> None:
    """Apply `reviews` to the set (a skipped row is unsure); measure its precision on `sample`."""
    verdicts = current(reviews, golden.questions)
    seen = [each for each in sample_rows(golden.questions, sample) if each.id in verdicts]
    judged = [each for each in seen if verdicts[each.id].said != "skip"]
    is_right = [verdicts[each.id].said == "keep" for each in judged]
    inboxes = [each.inbox_address for each in judged]
    measured = statistics.Sample(inboxes, [each.id for each in judged])
    stale = len({each.id for each in reviews} - verdicts.keys())
    counts = {"reviewed": len(judged), "kept": sum(is_right), "stale": stale}
    settings = {"precision": measured.share(is_right), **counts, **sample._asdict()}
    rows: list[Outcome] = []
    for question in golden.questions:
        if question.id not in verdicts:
            rows.append((question, None))
            continue
        passed, reason = _PASSED[verdicts[question.id].said]
        check = Check("person", "review", passed, reason, "person")
        rows.append((with_checks(question, [check]), check if passed is False else None))
    golden.finish("review", rows, settings)


# ---- Asking a person.


def ask(folder: Path, file: InboxFile, rows: Sequence[Question], *, to_stderr: bool) -> int:
    """Ask for a verdict on each row without one and store it; return the number of verdicts."""
    show = partial(_show, partial(print_text, to_stderr=to_stderr), file)
    earlier = current(read_reviews(folder), rows)
    decided = {name for name, each in earlier.items() if each.said != "skip"}
    added = 0
    for number, row in enumerate(rows, start=1):
        if row.id in decided:
            continue
        show(row, f"{number} of {len(rows)}")
        while (key := read_key(KEYS, "kdwsq", "reviews")) == "w":
            show(row, one_line(row.id), whole=True)
        if key == "q":
            break
        verdict = Review(id=row.id, digest=row_digest(row), said=_DECISIONS[key])
        append_line(reviews_file(folder), compact_json(verdict.model_dump()))
        added += 1
    return added


def _show(
    out: Callable[..., None], file: InboxFile, row: Question, heading: str, *, whole: bool = False
) -> None:
    out((f"\n{heading}", "dim"))
    inbox = file.inbox_of(row)
    for name in row.message_ids:
        if (mail := inbox.read(name)) is None:
            out((f"{one_line(name)}: not in the inbox on that day\n", "red"))
            continue
        head = format_date(mail.date, mail.message_id), str(mail.sender), mail.subject
        out(mail_excerpt(*head, mail.body, mail.message_id, whole=whole))
    for name, check in checks_of(row).items():
        passed = {True: "passed", False: "failed", None: "not sure"}[check.passed]
        out((one_line(f"{name}: {passed}, {check.reason} ({check.by})"), "dim"))
    facts = ", ".join(map(str, filter(None, [row.kind, row.difficulty, row.split])))
    asked_on = f"  (asked on {row.query_date})" if row.query_date else ""
    answer = one_line(row.answer or "") or "(none: the inbox does not hold it)"
    out(("row       ", "dim"), one_line(facts))
    out(("inbox     ", "dim"), one_line(row.inbox_address))
    out(("question  ", "dim"), (one_line(row.question), "bold"), (asked_on, "dim"))
    out(("answer    ", "dim"), (answer, "green"))
