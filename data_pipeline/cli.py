"""`ingest`: mail sources in, an inbox file out, with sums that balance.

Knows how the user names sources and rules; reading, filtering and writing are
`data_pipeline`'s.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import typer

from art_e.cli import output as interrupt
from art_e.cli.options import DbOption, JsonOption, chosen_db, db_argument
from art_e.cli.output import example, note, plural, print_json, print_line, progress
from art_e.errors import UserError
from art_e.question import Question
from art_e.storage import write_whole
from data_pipeline.ingest.batch import Rules, default_rules
from data_pipeline.ingest.build import IngestReport, Source
from data_pipeline.ingest.build import ingest as run_ingest
from data_pipeline.ingest.records import Format
from data_pipeline.ingest.sources import described, detect, open_source, questions_of

# "auto" and FORMATS: typer has no unions.
FormatName = Literal["auto", "enron", "maildir", "mbox", "eml", "csv", "hf", "synthetic"]

_ADDRESS = re.compile(r"[^@\s<>,;\"]+@[^@\s<>,;\"]+")
# A DuckDB file has these bytes after an 8-byte checksum.
_DUCKDB_MAGIC, _MAGIC_AT = b"DUCK", 8

app = typer.Typer(rich_markup_mode=None, add_completion=False)


class RuleChoice(NamedTuple):
    """What the user said of rules; None and False: nothing."""

    no_filter: bool = False
    max_body_chars: int | None = None
    max_recipients: int | None = None

    def rules(self, source_format: "Format") -> "Rules":
        """The rules for one source."""

        if self.no_filter:
            return Rules()
        rules = default_rules(source_format)
        return Rules(
            rules.max_body_chars if self.max_body_chars is None else self.max_body_chars,
            rules.max_recipients if self.max_recipients is None else self.max_recipients,
            rules.any_id,
        )


DEFAULT_RULES = RuleChoice()


@app.command(
    epilog=example(
        "art-e ingest ~/Takeout/mail.mbox --owner me@example.com",
        "art-e ingest enron-maildir.tar.xz --db enron.duckdb",
        "art-e ingest synthetic:5000,seed=1 --db world.duckdb",
    )
)
def ingest(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="SOURCE...", help="File, folder, Hugging Face id, synthetic:SIZE."),
    ],
    db: DbOption = None,
    source_format: Annotated[
        FormatName, typer.Option("--format", help="What the sources are; auto looks.")
    ] = "auto",
    owner: Annotated[
        str | None,
        typer.Option("--owner", metavar="ADDRESS", help="All this mail is in this inbox as well."),
    ] = None,
    append: Annotated[
        bool, typer.Option("--append", help="Add to the file instead of replacing it.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="Read at most N messages.")
    ] = None,
    no_filter: Annotated[
        bool, typer.Option("--no-filter", help="Leave out true duplicates only.")
    ] = False,
    max_body_chars: Annotated[
        int | None,
        typer.Option(
            "--max-body-chars",
            metavar="N",
            min=1,
            help="Leave out longer mails [default: 5000 for enron, csv and hf].",
        ),
    ] = None,
    max_recipients: Annotated[
        int | None,
        typer.Option(
            "--max-recipients",
            metavar="N",
            min=1,
            help="Leave out mails to more people [default: 30 for enron, csv and hf].",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make an inbox file of mail: Enron, mbox, Maildir, .eml, CSV, Hugging Face, synthetic."""
    if no_filter and (max_body_chars is not None or max_recipients is not None):
        raise UserError("--no-filter goes without --max-body-chars and --max-recipients: drop one")
    if owner is not None and not _ADDRESS.fullmatch(owner.strip()):
        raise UserError(f"--owner {owner!r} is no address; write it as name@example.com")
    path = chosen_db(db)
    _check_target(path)
    choice = RuleChoice(no_filter, max_body_chars, max_recipients)
    report, questions = read_sources(
        sources,
        path,
        source_format=source_format,
        choice=choice,
        owner=None if owner is None else owner.strip().lower(),
        append=append,
        limit=limit,
    )
    if as_json:
        asked = {} if questions is None else {"questions": str(questions)}
        print_json({**report.to_json(), **asked})
    else:
        for line in _sums(report, questions, db):
            print_line(line)


def read_sources(
    sources: list[str],
    path: Path,
    *,
    source_format: FormatName = "auto",
    choice: RuleChoice = DEFAULT_RULES,
    owner: str | None = None,
    append: bool = False,
    limit: int | None = None,
) -> "tuple[IngestReport, Path | None]":
    """Ingest with a progress bar; the report, and where a synthetic world's questions are."""

    opened, asked, total = [], [], limit
    formats = [detect(each) if source_format == "auto" else source_format for each in sources]
    for source, found in zip(sources, formats, strict=True):
        opened.append(Source(open_source(source, found), choice.rules(found)))
    worlds = [each for each, found in zip(sources, formats, strict=True) if found == "synthetic"]
    if limit is None and len(worlds) == len(sources):
        total = sum(described(each).config.size for each in worlds)
    read = 0
    with progress("mails", total) as advance:

        def on_progress(so_far: int) -> None:
            nonlocal read
            interrupt.check()
            advance(so_far - read)
            read = so_far

        report = run_ingest(
            opened, path, owner=owner, append=append, limit=limit, on_progress=on_progress
        )
    if not worlds:
        return report, None
    if limit is not None:
        note("no questions are written: with --limit, mail that they ask about may be missing")
        return report, None
    for world in worlds:
        asked.extend(questions_of(world))
    return report, _write_questions(asked, path.with_name(f"{path.stem}.questions.jsonl"), append)


def _check_target(path: Path) -> None:
    """Refuse to replace what is no inbox file: `--db` may have been given somebody's mail."""
    if path.is_dir():
        raise UserError(f"{path} is a folder; name a file, such as {path / 'inbox.duckdb'}")
    if not path.exists():
        return
    with path.open("rb") as file:
        head = file.read(_MAGIC_AT + len(_DUCKDB_MAGIC))
    if head and not head.endswith(_DUCKDB_MAGIC):
        raise UserError(f"{path} is there and is no inbox file; delete it, or name another --db")


def _write_questions(asked: "list[Question]", path: Path, append: bool) -> Path:
    rows = {question.id: json.dumps(question.to_row(), ensure_ascii=False) for question in asked}
    if append and path.exists():
        old = {json.loads(line)["id"]: line for line in path.read_text("utf-8").splitlines()}
        rows = {**old, **rows}
    write_whole(path, "".join(f"{row}\n" for row in rows.values()))
    return path


def _sums(report: "IngestReport", questions: Path | None, db: Path | None) -> Iterator[str]:
    """The report for people: one line a kind of message, sums on the left."""
    counts = report.counts
    rows = [("read", counts["read"]), ("stored", counts["stored"])]
    rows.append(("duplicates", counts["duplicates"]))
    for stage in ("filtered", "quarantined"):
        rows += [(f"{stage}: {reason}", count) for reason, count in counts[stage].items()]
    yield f"{report.db}"
    if counts["junk"]:
        rows.insert(
            2, ("of these spam or trash: left out of search and ask without --all", counts["junk"])
        )
    for name, count in rows:
        yield f"  {count:>9,}  {name}"
    rate = report.added_read / report.seconds
    yield (
        f"  {plural(counts['inboxes'], 'address')}; {plural(report.added_read, 'message')} read"
        f" in {report.seconds:.1f} s ({rate:,.0f} a second)"
    )
    if questions is not None:
        yield f"  questions and their answers: {questions}"
    yield "next:"
    yield f"  art-e inboxes{db_argument(db)}"
    yield f'  art-e ask "your question" --inbox ADDRESS{db_argument(db)}'
