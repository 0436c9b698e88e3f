"""`art-e golden review`: a person says which rows of a random sample are right.

Shown are the question, the answer, the gold mails and what the checks said. A verdict is
on disk before the next row is shown; when the person quits, all of them are applied to
the set and its precision is measured. Rows and mails are untrusted text.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from art_e.cli.clean import one_line
from art_e.cli.golden_options import SetArgument, print_step
from art_e.cli.labelling import BODY_LINES, ShownMail, pressed_key, shown_mail
from art_e.cli.options import DbOption, JsonOption, chosen_db, chosen_split, example
from art_e.cli.output import console, note, plural, text
from art_e.errors import UserError

if TYPE_CHECKING:
    from art_e.inbox.file import InboxFile
    from art_e.question import Question
    from data_pipeline.golden.golden_set import GoldenSet
    from data_pipeline.golden.review import Review, Said, Sample

KEYS = "[k]eep [d]rop [e]dit [n]ote [w]hole mails [s]kip [q]uit"
SAMPLE, SEED = 100, 0
_SAID: "dict[str, Said]" = {"k": "keep", "d": "drop", "s": "skip"}


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(
        epilog=example(
            "art-e golden review golden/ --db inbox.duckdb --sample 100 --split test",
            "art-e golden review golden/ --db inbox.duckdb --apply --json",
        )
    )(review)


def review(
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
    from art_e.inbox.file import InboxFile
    from data_pipeline.golden.golden_set import GoldenSet, check_db, held
    from data_pipeline.golden.review import Sample, drawn, read_reviews, reviews_file
    from data_pipeline.golden.review import review as apply_reviews

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
        apply_reviews(file, golden, read_reviews(folder), chosen)
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
        from data_pipeline.golden.review import standing

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
        from data_pipeline.golden.review import Review, row_digest, write_review

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
        from data_pipeline.golden.review import EDITABLE, edited

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
        from art_e.inbox.mail import format_date
        from data_pipeline.golden.checks import checks_of, marks_of

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
    from art_e.text import encodable

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
