"""`art-e golden review`: a person says which rows of a random sample are right.

Shown are the question, the answer, the gold mails and what the checks said. A verdict is
on disk before the next row is shown; when the person quits, all of them are applied to
the set and its precision is measured. Rows and mails are untrusted text.
"""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import typer

from art_e.cli.options import DbOption, JsonOption, chosen_db, chosen_split
from art_e.cli.output import console, note, one_line, plural, text
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.inbox.mail import format_date
from art_e.message import compact_json
from art_e.question import SPLITS, Question, Split
from art_e.storage import append_line, whole_lines
from art_e.text import digest, encodable
from data_pipeline.golden.golden_set import (
    Check,
    GoldenSet,
    Rejected,
    check_db,
    checks_of,
    held,
    marks_of,
    mended,
    with_checks,
)
from data_pipeline.golden.output import SetArgument, print_step
from evals.labelling import BODY_LINES, ShownMail, pressed_key, shown_mail
from evals.statistics import Estimate
from evals.statistics import Sample as Measured

# ---- What people say of a random sample of a golden set's rows, and how many were right.

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


# ---- `art-e golden review`: a person says which rows of a random sample are right.

KEYS = "[k]eep [d]rop [e]dit [n]ote [w]hole mails [s]kip [q]uit"
SAMPLE, SEED = 100, 0
_SAID: "dict[str, Said]" = {"k": "keep", "d": "drop", "s": "skip"}


def review_command(
    folder: SetArgument,
    sample: Annotated[
        int | None,
        typer.Option("--sample", metavar="N", min=1, help=f"How many rows [default: {SAMPLE}]."),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", help=f"Another seed draws another sample [default: {SEED}]."),
    ] = None,
    split: Annotated[
        str | None,
        typer.Option("--split", metavar="SPLIT", help="Rows of train, validation or test alone."),
    ] = None,
    reviewer: Annotated[
        str | None,
        typer.Option("--reviewer", metavar="NAME", help="Who reviews; kept in reviews.jsonl."),
    ] = None,
    apply: Annotated[
        bool,
        typer.Option(
            "--apply",
            help="Show nothing: apply the reviews of before, whose sample is that of the last one.",
        ),
    ] = False,
    db: DbOption = None,
    as_json: JsonOption = False,
) -> None:
    """Review a random sample by hand, and measure how much of the set is right.

    A row that is dropped leaves the set, and an edit changes it. The precision is the
    share of the sample that was right as it stood: an edited row was not.
    """

    of_split = chosen_split(split)
    with held(folder), InboxFile(chosen_db(db)) as file:
        golden = GoldenSet.load(folder)
        check_db(golden, file)
        golden.undo("review")
        known = read_reviews(folder)
        if apply and not known:
            raise UserError(f"there are no reviews in {folder}; leave --apply out to make some")
        last = known[-1].sample if apply else Sample(SAMPLE, SEED, None)
        chosen = Sample(
            last.size if sample is None else sample,
            last.seed if seed is None else seed,
            of_split or last.split,
        )
        rows = drawn(golden.questions, chosen)
        if not rows:
            of = f" of split {chosen.split}" if chosen.split else ""
            raise UserError(f"{folder} has no question{of} to review; name another set or --split")
        if not apply:
            desk = _Desk(folder, file, chosen, reviewer, to_stderr=as_json)
            given = desk.review(rows, known)
            note(f"{plural(given, 'review')} added to {reviews_file(folder)}")
        review(file, golden, read_reviews(folder), chosen)
        golden.save(folder)
    print_step(golden, "review", folder, (), as_json=as_json)
    _tell(golden)


class _Desk:
    """Puts rows before a person, and writes down what is said of them."""

    def __init__(
        self,
        folder: Path,
        file: "InboxFile",
        sample: "Sample",
        reviewer: str | None,
        *,
        to_stderr: bool,
    ) -> None:
        self._folder, self._file = folder, file
        self._sample, self._reviewer = sample, reviewer
        self._screen = console(to_stderr=to_stderr)

    def review(self, rows: "list[Question]", known: "list[Review]") -> int:
        """Ask for each row that nobody has decided on; how many verdicts were given."""

        said = standing(known, rows)
        decided = {name for name, each in said.items() if each.said != "skip"}
        given = 0
        for number, row in enumerate(rows, start=1):
            if row.id in decided:
                continue
            self._show(row, f"{number} of {len(rows)}", BODY_LINES)
            if not self._ask(row):
                break
            given += 1
        return given

    def _ask(self, row: "Question") -> bool:
        """Ask until there is a verdict on the row, which is written down; False: to quit."""

        remark, changes = "", dict[str, Any]()
        while True:
            key = pressed_key(KEYS, "kdenwsq", "reviews")
            if key == "q":
                return False
            if key == "w":
                self._show(row, one_line(row.id), None)
            elif key == "n":
                try:
                    remark = _typed("note") or remark
                except typer.Abort:
                    note("no note was taken")
            elif key == "e":
                changes = self._changes(row)
            if key in _SAID or changes:
                said = "edit" if changes else _SAID[key]
                seen = row_digest(row)
                write_review(
                    self._folder,
                    Review(row.id, seen, said, remark, changes, self._reviewer, self._sample),
                )
                return True

    def _changes(self, row: "Question") -> dict[str, Any]:
        """What is to be changed, as in a row; empty where nothing is, or nothing that fits."""

        note("Enter leaves a field as it is; message ids stand apart by spaces")
        before = row.to_row()
        fields = EDITABLE if row.answerable is not False else ("question", "query_date")
        changes: dict[str, Any] = {}
        try:
            for field in fields:
                typed = _typed(field.replace("_", " "))
                new = typed.split() if field == "message_ids" else typed
                if new and new != before[field]:
                    changes[field] = new
            edited(self._file, row, changes)
        except typer.Abort:
            changes = {}
        except UserError as error:
            note(f"not taken: {error}")
            return {}
        if not changes:
            note("nothing was changed")
        return changes

    def _show(self, row: "Question", heading: str, lines: int | None) -> None:

        self._print((f"\n{heading}", "dim"))
        inbox = self._file.open_inbox(row.inbox_address, row.query_date)
        for name in row.message_ids:
            mail = inbox.read(name)
            if mail is None:
                self._print((f"{one_line(name)}: not in the inbox on that day\n", "red"))
                continue
            shown = ShownMail(
                format_date(mail.date), str(mail.sender), mail.subject, mail.body, mail.message_id
            )
            self._screen.print(shown_mail(shown, lines), soft_wrap=True)
        for name, check in checks_of(row).items():
            passed = {True: "passed", False: "failed", None: "not sure"}[check.passed]
            self._print(
                (f"{one_line(name)}: {passed}, {one_line(check.reason)}", "dim"),
                (f" ({one_line(check.by)})", "dim"),
            )
        facts = [row.kind, row.difficulty, row.split, *marks_of(row)]
        self._print(("row       ", "dim"), (one_line(", ".join(map(str, filter(None, facts)))), ""))
        asked_on = f"  (asked on {row.query_date})" if row.query_date else ""
        told = one_line(row.answer or "") or "(the mail does not tell)"
        self._print(("inbox     ", "dim"), (one_line(row.inbox_address), ""))
        self._print(("question  ", "dim"), (one_line(row.question), "bold"), (asked_on, "dim"))
        self._print(("answer    ", "dim"), (told, "green"))

    def _print(self, *parts: tuple[str, str]) -> None:
        self._screen.print(text(*parts), soft_wrap=True)


def _typed(what: str) -> str:
    """A line that is typed in, may be empty. Raises `typer.Abort` on Ctrl-C and Ctrl-D."""

    # What a terminal sends and is no UTF-8 comes as lone surrogates.
    typed: str = typer.prompt(what, default="", show_default=False, err=True)
    return encodable(typed).strip()


def _tell(golden: "GoldenSet") -> None:
    """Say on stderr how much was right."""
    record = golden.manifest["steps"]["review"]
    precision, of = record["precision"], record["split"] or "all splits"
    if precision["value"] is None:
        note(f"no row of the sample of {of} is reviewed; the precision is not known")
        return
    note(
        f"precision {precision['value']:.1%} ({precision['low']:.1%} to {precision['high']:.1%},"
        f" {precision['method']}): {record['kept']} of {plural(record['reviewed'], 'row')} of"
        f" {of} were right as they stood; an edited row was not"
    )
    if record["stale"]:
        note(f"{plural(record['stale'], 'row')} changed after the review: not applied")
