"""`inboxes`, `search`, `read`, `thread` and `open`: use an inbox file without a model."""

import datetime as dt
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from art_e.cli import options, output
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from art_e.inbox.mail import AttachedFile, Email, Hit, Mailbox, format_date
from art_e.inbox.query import OPERATORS, Filter, Query, join_arguments, parse_query
from art_e.inbox.snippet import pattern_of, searchable
from art_e.inbox.tokenizer import WORD, fold, is_unspaced, language_of, search_words, stems
from art_e.quotations import added_mails

if TYPE_CHECKING:
    from rich.text import Text

MAX_RECIPIENTS_SHOWN = 30  # --json has them all
BODY_LINES = 40  # lines of a mail that a reviewer sees at first
_LINE_CHARS = 1_000
# Extensions of files that are safe to open; others are only saved.
_SAFE_TO_OPEN = frozenset(
    "pdf txt csv md log ics png jpg jpeg gif webp heic docx xlsx pptx odt ods odp eml".split()
)
_UNSAFE_IN_NAMES = re.compile(r"[^\w .,()+@=-]+")
_QUERY = 'Words, "phrases", begin*, -not, OR, (brackets), and operators: '

_REFERENCE = "Number in the last list, message id, or the start of the id."
MailReference = Annotated[str, Argument(metavar="MAIL", help=_REFERENCE)]

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def inboxes(
    limit: Annotated[int, options.integer("Number of inboxes to list.")] = 20,
    db: options.DbOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """List the inboxes of the file: owners first, then by number of mails."""
    with InboxFile(options.chosen_db(db)) as file:
        largest = file.inboxes(limit)
        total = int(file.counts["inboxes"])
    if as_json:
        output.print_json({"total": total, "inboxes": [each._asdict() for each in largest]})
        return
    rows = [(address, *(f"{count:,}" for count in counts)) for address, *counts in largest]
    output.print_table(("address", "emails", "sent", "received"), rows, lines=False)
    if total > len(largest):
        output.note(f"{total - len(largest):,} more; --limit {total} shows all")


@app.command(context_settings={"ignore_unknown_options": True})
def search(
    words: Annotated[
        list[str] | None,
        Argument(metavar="QUERY...", help=_QUERY + " ".join(f"{each}:" for each in OPERATORS)),
    ] = None,
    inbox: options.InboxOption = None,
    sender: Annotated[
        str | None, Option("--from", metavar="WHO", help="Part of the sender's address.")
    ] = None,
    recipient: Annotated[
        str | None, Option("--to", metavar="WHO", help="Part of a recipient's address.")
    ] = None,
    after: Annotated[str | None, Option(metavar="DATE", help="YYYY-MM-DD, included.")] = None,
    before: Annotated[str | None, Option(metavar="DATE", help="YYYY-MM-DD, excluded.")] = None,
    as_of: options.AsOfOption = None, junk: options.AllOption = False,
    limit: Annotated[int, options.integer("Number of mails to show.")] = 10,
    db: options.DbOption = None, as_json: options.JsonOption = False,
) -> None:  # fmt: skip
    """Search one inbox, best match first; with a filter alone, newest first."""
    sent_after = options.parse_day(after, "--after")
    sent_before = options.parse_day(before, "--before")
    if sent_after and sent_before and sent_after >= sent_before:
        raise UserError(f"--after {after} is not before --before {before}: swap them")
    today = options.parse_day(as_of, "--as-of")
    query = query_from_args(words, today) if words else Query([], Filter("and"))
    if not (words or sender or recipient or sent_after or sent_before):
        raise UserError("nothing to search for: give words, or --from, --to, --after, --before")
    junk = junk or query.junk
    with options.opened_inbox(db, inbox, as_of, junk=junk) as (file, opened):
        hits = opened.search(
            query.words, from_addr=sender, to_addr=recipient, sent_after=sent_after,
            sent_before=sent_before, query=query, max_results=limit,
        )  # fmt: skip
        if as_json:
            rows = zip(hits, opened.thread_sizes([hit.message_id for hit in hits]), strict=True)
            output.print_json([{**hit.to_json(), "thread": size} for hit, size in rows])
        else:
            show_hits(file, opened, query, hits, junk=junk)


def show_hits(
    file: InboxFile, inbox: Inbox, query: Query, hits: list[Hit], *, junk: bool
) -> options.MailList | None:
    """Print the hits of a query as a numbered list, and return that; None without hits."""
    if not hits:
        mails = output.plural(len(inbox), "mail")
        output.note(f"no match in {mails}; try other words or fewer filters")
        if unread := inbox.unread_files():
            output.note(output.not_searched(unread))
        return None
    ids, searched = [hit.message_id for hit in hits], search_words(query.words)
    for number, (hit, size) in enumerate(zip(hits, inbox.thread_sizes(ids), strict=True), 1):
        output.print_text(*_format_hit(hit, searched, size), lead=f"{number:>2}. ")
    return options.save_list(file.path, inbox, ids, junk=junk)


@app.command()
def read(
    reference: MailReference,
    inbox: options.InboxOption = None, as_of: options.AsOfOption = None,
    junk: options.AllOption = False, db: options.DbOption = None,
    as_json: options.JsonOption = False,
) -> None:  # fmt: skip
    """Show one mail of an inbox in full."""
    with options.opened_mail(reference, db, inbox, as_of, junk=junk) as (_, opened, message_id):
        for mail in filter(None, [opened.read(message_id)]):
            if as_json:
                output.print_json(mail.to_json())
            else:
                output.print_text(format_email(mail))


@app.command()
def thread(
    reference: MailReference,
    full: Annotated[bool, Option("--full", help="Show quotes of earlier mails too.")] = False,
    inbox: options.InboxOption = None, as_of: options.AsOfOption = None,
    junk: options.AllOption = False, db: options.DbOption = None,
    as_json: options.JsonOption = False,
) -> None:  # fmt: skip
    """Show the conversation that a mail belongs to, oldest mail first, without quotes."""
    with options.opened_mail(reference, db, inbox, as_of, junk=junk) as (_, opened, message_id):
        mails = opened.thread(message_id)
    added = added_mails(mails)
    if as_json:
        pairs = zip(mails, added, strict=True)
        output.print_json([{**each.to_json(), "added": new.body} for each, new in pairs])
    else:
        show_thread(mails if full else added)


def show_thread(mails: Sequence[Email]) -> None:
    """Print the mails of a thread, numbered."""
    for number, mail in enumerate(mails, start=1):
        gap = "\n" if number > 1 else ""
        output.print_text((f"{gap}---- {number} of {len(mails)} ----", "dim"))
        output.print_text(format_email(mail))


@app.command("open")
def open_attachment(
    reference: MailReference,
    number: Annotated[
        int | None, Argument(metavar="N", min=1, help="Number of the file, if there are several.")
    ] = None,
    save: Annotated[
        Path | None, Option(metavar="FOLDER", help="Save the file there instead of opening it.")
    ] = None,
    inbox: options.InboxOption = None, as_of: options.AsOfOption = None,
    junk: options.AllOption = False, db: options.DbOption = None,
) -> None:  # fmt: skip
    """Open a file that is attached to a mail, or save it."""
    with options.opened_mail(reference, db, inbox, as_of, junk=junk) as (_, opened, message_id):
        files = opened.files(message_id)
    if not files:
        raise UserError(f"nothing is attached to {message_id}")
    numbered = "; ".join(f"{at} {output.one_line(each.name)}" for at, each in enumerate(files, 1))
    place = number or 1
    if (number is None and len(files) > 1) or place > len(files):
        raise UserError(f"which file? give its number: {numbered}")
    data, name = files[place - 1].data, safe_name(files[place - 1])
    if data is None:
        raise UserError(f"{name} was too large to store; open it in your mail program")
    if save is None and name.rpartition(".")[2].lower() not in _SAFE_TO_OPEN:
        raise UserError(f"{name} may be a program; save it with --save FOLDER")
    # A private folder, not deleted because the viewer still needs the file.
    path = (save or Path(tempfile.mkdtemp(prefix="art-e-"))) / name
    try:
        with path.open("xb") as target:
            target.write(data)
    except OSError as error:
        raise UserError(f"can't write {path}: {error.strerror}") from None
    output.print_line(str(path))
    if save is None and typer.launch(str(path), wait=True) != 0:
        raise UserError("no program here opens it; save it with --save FOLDER")


def safe_name(file: AttachedFile) -> str:
    """Return a file's name without folders, control characters and shell metacharacters."""
    name = _UNSAFE_IN_NAMES.sub("_", file.name.replace("\\", "/").rpartition("/")[2])
    # File systems allow 255 bytes.
    return name.strip(" .-_").encode()[-200:].decode("utf-8", "ignore") or "unnamed"


def query_from_args(words: list[str], today: dt.date | None) -> Query:
    """Parse the query in a command line, where words that begin with "-" are part of it."""
    if unknown := [each for each in words if each.startswith("--")]:
        raise UserError(f"no such option {unknown[0]}; art-e search --help shows them")
    return parse_typed_query(join_arguments(words), today)


def parse_typed_query(text: str, today: dt.date | None) -> Query:
    """Parse a query that a person typed. Raises `UserError` for one without words and filters."""
    query = parse_query(text, today or dt.date.today())
    if not (query.words or query.filter.parts):
        raise UserError("the query has no letter or digit; give words to search for")
    return query


def format_email(email: Email) -> "Text":
    """Return a mail as a person reads it: header lines, an empty line, the body."""
    lines = [
        ("Date", format_date(email.date, email.message_id)),
        ("From", str(email.sender)),
        ("To", _listed(email.to)),
        ("Cc", _listed(email.cc)),
        ("Bcc", _listed(email.bcc)),
        ("Labels", ", ".join(email.labels)),
        ("List", email.mailing_list),
        ("Message-ID", email.message_id),
    ]
    fields = [(name, output.one_line(value)) for name, value in lines if value]
    header = [output.text((f"{name}: ", "dim"), f"{value}\n") for name, value in fields]
    subject = output.one_line(email.subject) or "(no subject)"
    return output.text(*header, ("Subject: ", "dim"), (f"{subject}\n", "bold"), f"\n{email.body}")


def mail_excerpt(
    date: str, sender: str, subject: str, body: str, mark: str = "", *, whole: bool = False
) -> "Text":
    """Return a mail for a person to read, with a `mark` such as "cited" after its subject. Empty
    lines are left out; unless `whole`, lines after `BODY_LINES` and the ends of long ones too."""
    lines = [each.rstrip().expandtabs(4) for each in output.clean(body).split("\n") if each.strip()]
    visible = [*lines] if whole else [line[:_LINE_CHARS] for line in lines[:BODY_LINES]]
    hidden = sum(map(len, lines)) - sum(map(len, visible))
    visible += [f"({output.plural(hidden, 'more character')})"] if hidden else []
    head, subject = f"{output.one_line(date)}  {output.one_line(sender)}", output.one_line(subject)
    mark, body = f"  {output.one_line(mark)}".rstrip(), "".join(f"\n| {line}" for line in visible)
    return output.text((head, "cyan"), f"  {subject}", (mark, "green"), (body, "dim"), "\n")


def _listed(recipients: Iterable[Mailbox]) -> str:
    names = [str(each) for each in recipients]
    if (more := len(names) - MAX_RECIPIENTS_SHOWN) > 0:
        names[MAX_RECIPIENTS_SHOWN:] = [f"and {more} more (--json shows all)"]
    return ", ".join(names)


def _format_hit(hit: Hit, searched: list[str], in_thread: int) -> Iterator[str | tuple[str, str]]:
    yield f"{format_date(hit.date)[:10]}  "
    yield output.one_line(str(hit.sender)) or "(no sender)", "cyan"
    yield "  "
    yield output.one_line(hit.subject) or "(no subject)", "bold"
    yield "\n"
    if snippet := output.one_line(hit.snippet):
        yield from highlighted(searched, snippet)
        yield "\n"
    notes = f"   without: {' '.join(hit.missing)}" if hit.missing else ""
    notes += f"   thread: {in_thread} mails" if in_thread > 1 else ""
    notes += f"   {hit.copies} copies" if hit.copies > 1 else ""
    yield f"{output.one_line(hit.message_id)}{notes}", "dim"


def highlighted(searched: list[str], line: str) -> Iterator[str | tuple[str, str]]:
    """Yield the parts of a line, words with a searched stem in colour."""
    end = 0
    for start, stop in match_spans(searched, line):
        yield line[end:start]
        yield line[max(start, end) : stop], "bold yellow"
        end = max(end, stop)
    yield line[end:]


def match_spans(searched: list[str], text: str) -> list[tuple[int, int]]:
    """Return the start and end of each word in `text` that has a stem of the searched words."""
    words = list(WORD.finditer(text))
    folded = [fold(word.group()) for word in words]
    spans = set()
    for mark in {"", language_of(folded)}:
        targets = set(stems([word + mark for word in searched]))
        stemmed = stems([word + mark for word in folded])
        spans |= {word.span() for word, stem in zip(words, stemmed, strict=True) if stem in targets}
    patterns = [pattern_of(word) for word in searched if is_unspaced(word)]
    spans |= {hit.span() for pattern in patterns for hit in pattern.finditer(searchable(text))}
    return sorted(spans)
