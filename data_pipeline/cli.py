"""`ingest`, `sync`, `login`, `people` and `demo`: mail in, an inbox file out."""

import contextlib
import datetime as dt
import itertools
import json
import os
import re
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace as with_fields
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import duckdb
from typer import Argument, Option, Typer

from art_e import __version__
from art_e.cli import output
from art_e.cli.ask import OFFLINE_NOTE, exit_for
from art_e.cli.conversation import Conversation
from art_e.cli.options import DbOption, JsonOption, OutOption, chosen_db, db_argument, integer
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.inbox.tokenizer import name_sets
from art_e.models.base import OFFLINE
from art_e.question import Question
from art_e.storage import locked, partial_of
from data_pipeline.accounts import oauth, spool
from data_pipeline.accounts.imap import Account
from data_pipeline.golden.golden_set import write_rows
from data_pipeline.ingest import build
from data_pipeline.ingest.archives import head_of
from data_pipeline.ingest.batch import Rules, default_rules
from data_pipeline.ingest.records import Format, RawMessage
from data_pipeline.ingest.sources import detect, messages_of, open_source
from data_pipeline.synthetic.world import WorldConfig, messages, questions, questions_of, world_of

FormatName = Literal["auto", Format]

_SOURCES = (
    "File, folder, imaps://user@host, Hugging Face id, synthetic:SIZE, or synthetic:injection for"
    " mail with prompt injections."
)
_ADDRESS = re.compile(r"[^@\s<>,;\"]+@[^@\s<>,;\"]+")
_DUCKDB_MAGIC, _MAGIC_AT = b"DUCK", 8  # a DuckDB file has these bytes after an 8-byte checksum
_PERIOD, _SECONDS = re.compile(r"(?:([1-9]\d{0,4})([smh]))?"), {"s": 1, "m": 60, "h": 3600}
MIN_OWNER_SHARE = 0.5  # smallest share of the mail at which an address is taken for the owner

app = Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def ingest(
    sources: Annotated[list[str], Argument(metavar="SOURCE...", help=_SOURCES)],
    db: DbOption = None,
    source_format: Annotated[FormatName, Option("--format", help="Format of sources.")] = "auto",
    owner: Annotated[
        str | None, Option(metavar="ADDRESS", help="Owner of all the mail [default: inferred].")
    ] = None,
    append: Annotated[bool, Option("--append", help="Add to the file if it exists.")] = False,
    replace: Annotated[bool, Option("--replace", help="Rebuild the file if it exists.")] = False,
    limit: Annotated[int | None, integer("Read at most N messages.")] = None,
    no_filter: Annotated[bool, Option("--no-filter", help="Drop only true duplicates.")] = False,
    max_body_chars: Annotated[
        int | None, integer("Leave out longer mails [default: 5000 for enron, csv and hf].")
    ] = None,
    max_recipients: Annotated[
        int | None, integer("Leave out mails to more people [default: 30 for enron, csv and hf].")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make an inbox file from mail: IMAP, mbox, Maildir, .eml, Enron, CSV, Hugging Face."""
    options = {"max_body_chars": max_body_chars, "max_recipients": max_recipients}
    limits: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if no_filter and limits:
        raise UserError("--no-filter excludes --max-body-chars and --max-recipients: drop one")
    if owner is not None and not _ADDRESS.fullmatch(owner := owner.strip().lower()):
        raise UserError(f"--owner must be an address such as name@example.com, not {owner!r}")
    if append and replace:
        raise UserError("--append and --replace exclude each other: drop one")
    path = build.target_of(chosen_db(db))
    _check_target(path, may_change=append or replace)
    changes, errors = Counter[str](), spool.Errors()
    accounts = [Account.of(each) for each in sources if each.startswith(("imaps://", "imap://"))]
    follows = spool.state_file(path).exists()
    if accounts:
        is_other = append and path.exists() and not follows
        if len(accounts) < len(sources) or is_other or limit or limits:
            why = "IMAP accounts are read whole, into a file without other mail"
            fix = "name no other source, and drop --limit, --max-body-chars and --max-recipients"
            raise UserError(f"{why}: {fix}")
        users = {each: each.user.lower() for each in accounts if _ADDRESS.fullmatch(each.user)}
        owners = {each: owner or users.get(each, "") for each in accounts}
        changes, errors = spool.follow(owners, path, no_others=not append)
        if not changes:
            _raise_errors(errors)
        sources, source_format, append = [str(path)], "imap", False
    elif append and follows:
        raise UserError(f"art-e sync replaces all mail in {path}: name another --db for this")

    def rules(name: Format) -> Rules:
        return Rules() if no_filter else with_fields(default_rules(name), **limits)

    # A sync that is still running would replace the file.
    with spool.locked_accounts(path) if follows and not accounts else contextlib.nullcontext():
        report, questions = read_sources(
            sources, path, source_format, rules, owner=owner, append=append, limit=limit
        )
        if not accounts:
            spool.state_file(path).unlink(missing_ok=True)
    suggest_merges(path, db)
    more = {} if questions is None else {"questions": str(questions)}
    row = {**report.to_json(), **more, **changes}
    _print(row, _report_lines(changes, report, questions, db), as_json)
    _raise_errors(errors)


@app.command()
def sync(
    db: DbOption = None,
    every: Annotated[str, Option(metavar="TIME", help="Sync again every 30s, 10m or 1h.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Update an inbox file from its IMAP accounts: new mail, flags, deletions."""
    path, period = build.target_of(chosen_db(db)), _PERIOD.fullmatch(every)
    if period is None:
        raise UserError(f"--every must be a time such as 30s, 10m or 1h, not {every!r}")
    seconds = int(period[1]) * _SECONDS[period[2]] if every else 0
    rejected = set[Account]()
    while True:
        # Meanwhile another process may have changed the file's accounts, or replaced its mail.
        began, states = time.time(), spool.load_states(path)
        accounts = [Account.of(state.account) for state in states]
        if not accounts:
            raise UserError(f"{path} has no account; start with: art-e ingest imaps://user@host")
        _check_target(path, may_change=True)
        if unread := [account for account in accounts if not account.spool.is_dir()]:
            # A file from somebody else could name an account on a server that steals the password.
            again = f"if it is yours: art-e ingest {unread[0]} --replace{db_argument(db)}"
            raise UserError(f"{unread[0]} was never read on this machine; {again}")
        try:
            errors = _sync([each for each in accounts if each not in rejected], path, db, as_json)
            rejected |= {each for each in errors if isinstance(errors[each], oauth.RejectedError)}
            _raise_errors(errors)
        except UserError as error:
            if not seconds or rejected.issuperset(accounts):
                raise
            output.note(f"{dt.datetime.now():%Y-%m-%d %H:%M} {error}; the next sync is in {every}")
        if not seconds:
            return
        sys.stdout.flush()
        # The wall clock runs on during suspend, unlike `sleep`. It may be set back: count, too.
        for _ in range(seconds):
            if time.time() - began < seconds:
                time.sleep(1)


def _sync(accounts: list[Account], path: Path, db: Path | None, as_json: bool) -> spool.Errors:
    """Read every account that can be reached, and rebuild the file if anything changed."""
    (changes, errors), report = spool.follow(dict.fromkeys(accounts, ""), path), None
    # After an interrupted ingest the spool holds more than the file.
    synced_ns = spool.state_file(path).stat().st_mtime_ns
    if not path.exists() or path.stat().st_mtime_ns <= synced_ns:
        owner = None
        with contextlib.suppress(UserError), InboxFile(path) as old:
            owner = next(iter(old.owners()), None)
        report, _ = read_sources([str(path)], path, "imap", owner=owner)
    if changes or report:
        row = {**changes, "ingest": report and report.to_json()}
        _print(row, _report_lines(changes, report, None, db), as_json)
    return errors


def _raise_errors(errors: spool.Errors) -> None:
    if errors:
        raise UserError("; ".join(map(str, errors.values())))


@app.command()
def login(
    address: Annotated[str, Argument(metavar="ACCOUNT", help="An imaps://user@host address.")],
    client_id: Annotated[str, Option(metavar="ID", help="Id of the app that you registered.")] = "",
    endpoints: Annotated[
        str, Option(metavar="DEVICE_URL,TOKEN_URL,SCOPE", help="Endpoints of another provider.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Sign in to an IMAP account with OAuth, which Microsoft requires and Gmail allows."""
    account = Account.of(address)
    grant = oauth.grant_in(account.grant_file) or account.provider
    if len(parts := list(filter(None, endpoints.split(",", 2)))) == 3:
        grant = oauth.Grant(device_url=parts[0], token_url=parts[1], scope=parts[2])
    if grant is None or len(parts) not in (0, 3) or not (client_id or grant.client_id):
        unless = "unless the account is Microsoft's or Google's"
        fix = f"give --client-id ID (docs/inbox.md says where from) and, {unless}"
        raise UserError(f"{fix}, --endpoints DEVICE_URL,TOKEN_URL,SCOPE")
    secret = os.environ.get("ART_E_IMAP_CLIENT_SECRET") or grant.client_secret
    client = {"client_id": client_id or grant.client_id, "client_secret": secret}
    oauth.sign_in(grant.model_copy(update={**client, "refresh_token": ""}), account.grant_file)
    _print({"account": str(account)}, [f"signed in: art-e ingest {account}"], as_json)


def _print(row: dict[str, Any], lines: Iterable[str], as_json: bool) -> None:
    if as_json:
        output.print_json(row)
    else:
        output.print_line("\n".join(lines))


def read_sources(
    sources: list[str], path: Path, source_format: FormatName = "auto",
    rules: Callable[[Format], Rules] = default_rules, *, owner: str | None = None,
    append: bool = False, limit: int | None = None,
) -> tuple[build.IngestReport, Path | None]:  # fmt: skip
    """Ingest with a progress bar; return the report, and the file of synthetic questions."""
    formats = [detect(each) if source_format == "auto" else source_format for each in sources]
    named = list(zip(sources, formats, strict=True))
    opened = [build.Source(_open_messages(source, name), rules(name)) for source, name in named]
    worlds = [source for source, name in named if name == "synthetic"]
    size = sum(world_of(each).size for each in worlds) if len(worlds) == len(sources) else None
    infers = owner is not None or {"mail", "mbox", "maildir", "eml", "imap"}.issuperset(formats)
    if source_format == "imap":
        infers = not all(state.owner for state in spool.load_states(path))
    with contextlib.ExitStack() as stack:
        # The bar starts a thread, so open it after the workers: they are forked without threads.
        bar = cache(lambda: stack.enter_context(output.progress("mails", limit or size)))

        def on_progress(count: int) -> None:
            if output.interrupted():
                raise KeyboardInterrupt
            bar()(count)

        def choose(owners: Sequence[build.LikelyOwner]) -> str | None:
            stack.close()  # or the bar would go on beside the question
            return _choose_owner(owner, owners) if infers else None

        report = build.ingest(
            opened, path, choose_owner=choose, append=append, limit=limit, on_progress=on_progress
        )
    if not worlds:
        return report, None
    if limit is not None:
        output.note("no questions are written: --limit may leave out mail that they ask about")
        return report, None
    file = path.with_name(f"{path.stem}.questions.jsonl")
    old = file.read_text("utf-8").splitlines() if append and file.exists() else []
    new = [each.to_row() for each in itertools.chain.from_iterable(map(questions_of, worlds))]
    write_rows(file, {row["id"]: row for row in [*map(json.loads, old), *new]}.values())
    return report, file


def _open_messages(source: str, name: Format) -> Iterator[RawMessage]:
    if name == "imap":
        return messages_of(source, spool.read, "mail: the account is empty")
    return open_source(source, name)


def _check_target(path: Path, *, may_change: bool) -> None:
    """Raise `UserError` unless `path` is free, or is an inbox file that `may_change`."""
    if path.is_dir():
        raise UserError(f"{path} is a folder; name a file, such as {path / 'inbox.duckdb'}")
    if path.exists() and not path.is_file():
        raise UserError(f"{path} is not a regular file; name another --db")
    head = head_of(path, _MAGIC_AT + len(_DUCKDB_MAGIC)) if path.exists() else b""
    if head and not head.endswith(_DUCKDB_MAGIC):
        raise UserError(f"{path} exists and is not an inbox file; delete it, or name another --db")
    if head and not may_change:
        more = "art-e sync updates it" if spool.state_file(path).exists() else "--append adds to it"
        why = f"{path} is an inbox file already"
        raise UserError(f"{why}: {more}, --replace rebuilds it, or name another --db")


def _choose_owner(option: str | None, owners: Sequence[build.LikelyOwner]) -> str | None:
    """Return the owner: `option`, or the likeliest address, which a user at a terminal confirms."""
    pairs = ((output.one_line(each.address), output.plural(each.mails, "mail")) for each in owners)
    likely = [f"{address} ({mails})" for address, mails in pairs]
    if option is not None:
        if likely and not any(each.address == option for each in owners):
            output.note(f"owner: {option}; most mail belongs to {', '.join(likely)}")
        return option
    if not owners or owners[0].share < MIN_OWNER_SHARE:
        output.note("no owner: no address has most of the mail; set one: --owner ADDRESS --replace")
        return None
    if sys.stdin.isatty() and sys.stderr.isatty():
        output.note(f"is this the mail of {likely[0]}? its inbox will hold all of it")
        key = output.read_key("[y]es [n]o", "yn", "answers")
        if key == "q":
            signal.raise_signal(signal.SIGINT)
        if key == "n":
            output.note("no owner; set one: --owner ADDRESS --replace")
            return None
    else:
        output.note(f"owner: {likely[0]}; if that is wrong: --owner ADDRESS --replace")
    return owners[0].address


def _report_lines(
    changes: Counter[str], report: build.IngestReport | None, questions: Path | None,
    db: Path | None,
) -> Iterator[str]:  # fmt: skip
    """Yield the report as text: the accounts' changes, then a line for each kind of message."""
    if changes:
        yield ", ".join(f"{count:,} {what}" for what, count in changes.items())
    if report is None:
        return
    counts = report.counts
    rows = {"read": counts["read"], "stored": counts["stored"]}
    if report.added_stored != counts["stored"]:
        rows["of these new"] = report.added_stored
    if counts["junk"]:
        left_out = "of these spam, trash or drafts: left out of search and ask without --all"
        rows[left_out] = counts["junk"]
    rows["duplicates"] = counts["duplicates"]
    for stage in ("filtered", "quarantined", "cut", "not_mail"):
        for reason, count in counts[stage].items():
            rows[f"{stage.replace('_', ' ')}: {reason}"] = count
    rows["attachments"] = counts["attachments"]
    yield f"{report.db}"
    for name, count in rows.items():
        yield f"  {count:>9,}  {name}"
    if unread := counts["unread"]:
        yield f"  {output.not_searched(unread)}"
    addresses = output.plural(counts["inboxes"], "address")
    read, rate = output.plural(report.added_read, "message"), report.added_read / report.seconds
    yield f"  {addresses}; {read} read in {report.seconds:.1f} s ({rate:,.0f} a second)"
    if questions is not None:
        yield f"  questions and their answers: {questions}"
    with InboxFile(report.db) as file:
        whose = "" if len(file.owners()) == 1 else " --inbox ADDRESS"
    yield "next:"
    yield f"  art-e inboxes{db_argument(db)}"
    yield f'  art-e ask "your question"{whose}{db_argument(db)}'


# ---- `people`: which addresses belong to one person, so that one inbox holds all their mail.

people = Typer(help="Say which addresses are one person's: one inbox then holds all their mail.")
app.add_typer(people, name="people")

Address = Annotated[str, Argument(metavar="ADDRESS")]
Addresses = Annotated[list[str], Argument(metavar="ADDRESS...")]


def suggest_merges(path: Path, db: Path | None) -> None:
    """Suggest merging each owner with the addresses of the same full name."""
    sql = "SELECT address, names FROM addresses WHERE emails > 0 ORDER BY emails DESC, address"
    with InboxFile(path) as file:
        owners, persons = file.owners(), file.people()
        rows = file.execute(sql).fetchall() if owners else []
    names = {
        address: name_sets([*spelled.split(" | "), address.partition("@")[0].replace("_", " ")])
        for address, spelled in rows
    }
    for owner in owners:
        same = next((listed for listed in persons.values() if owner in listed), [owner])
        owner_names = set[frozenset[str]]().union(*(names.get(address, ()) for address in same))
        if others := [each for each in names if each not in same and owner_names & names[each]]:
            merge = " ".join(["art-e people merge", owner, *others[:5]])
            output.note(f"{owner} may have more addresses: {merge}{db_argument(db)}")


def _set_person(path: Path, addresses: list[str], person: str | None) -> None:
    """Merge the addresses into `person`, or split them, in a copy that replaces the file."""
    with locked(build.lock_of(path), f"an ingest is writing {path}; wait for it to end"):
        copy = partial_of(path)
        try:
            copy.unlink(missing_ok=True)
            shutil.copyfile(path, copy)
            with duckdb.connect(str(copy)) as file:
                file.execute("DELETE FROM people WHERE address IN (SELECT unnest(?))", [addresses])
                if person is not None:
                    file.execute("INSERT INTO people SELECT unnest(?), ?", [addresses, person])
            build.put_in_place(copy, path)
        finally:
            copy.unlink(missing_ok=True)


@people.command("list")
def show(db: DbOption = None, as_json: JsonOption = False) -> None:
    """List people with several addresses."""
    with InboxFile(chosen_db(db)) as file:
        listed = file.people()
    if listed or as_json:
        lines = (f"{person}: {', '.join(addresses[1:])}" for person, addresses in listed.items())
        _print({"people": listed}, lines, as_json)
    else:
        output.note("nobody has several addresses yet; art-e people merge joins them")


_MERGE = "art-e people merge ann@x.example ann@old.example"


@people.command()
def merge(addresses: Addresses, db: DbOption = None, as_json: JsonOption = False) -> None:
    """Give these addresses one inbox, under the first of them."""
    path = build.target_of(chosen_db(db))
    named = list(dict.fromkeys(each.strip().lower() for each in addresses))
    if len(named) < 2:
        raise UserError(f"name two addresses or more: {_MERGE}")
    with InboxFile(path, junk=True) as file:
        for address in named:
            file.open_inbox(address)
        # If an address is merged already, its person's other addresses join, too.
        known = {each: listed for listed in file.people().values() for each in listed}
    everyone = list(dict.fromkeys(each for one in named for each in [one, *known.get(one, ())]))
    _set_person(path, everyone, named[0])
    with InboxFile(path) as file:
        emails = len(file.open_inbox(named[0]))
    line = f"{named[0]}: {output.plural(emails, 'mail')} of {', '.join(everyone)}"
    _print({"person": named[0], "addresses": everyone, "emails": emails}, [line], as_json)


@people.command()
def split(address: Address, db: DbOption = None, as_json: JsonOption = False) -> None:
    """Undo a merge: give each of the person's addresses its own inbox again."""
    path, name = build.target_of(chosen_db(db)), address.strip().lower()
    with InboxFile(path) as file:
        listed = next((each for each in file.people().values() if name in each), None)
    if listed is None:
        raise UserError(f"{name!r} is not merged; art-e people list shows the addresses that are")
    _set_person(path, listed, None)
    _print({"addresses": listed}, [f"split: {', '.join(listed)}"], as_json)


# ---- `demo`: the offline policy answers a test question about a synthetic inbox (built once); then
# the gold answer is printed. It needs no key, no network and no mail.

SIZE, SEED = 2_000, 16  # a world in which the offline baseline answers the question


@app.command()
def demo(out: OutOption = None, as_json: JsonOption = False) -> None:
    """Take the tour: a sample inbox, one question, every step, the answer."""
    config = WorldConfig(size=SIZE, seed=SEED)
    question = tour_question(world := questions(config))

    def mails() -> Iterator[RawMessage]:
        output.note(f"writing a sample company, whose inboxes have {SIZE:,} mails, once")
        return messages(config)

    db = build.synthetic_file(f"{__version__}/{world}", mails)
    output.note(OFFLINE_NOTE)
    with InboxFile(db) as file:
        opened = file.inbox_of(question)
        if not as_json:
            about = f"{len(opened):,} mails up to the day asked, {opened.as_of}"
            output.print_text(("question  ", "dim"), (question.question, "bold"))
            output.print_text((f"inbox     {question.inbox_address}, {about}\n", "dim"))
        conversation = Conversation(opened, db)
        conversation.load(OFFLINE)
        conversation.begin(question, "demo", out)
        answered = conversation.answer(None if as_json else output.print_text)
    if as_json:
        output.print_json({**answered.to_json(), "gold_answer": question.answer})
    else:
        answered.show()
        gold = question.answer or ""
        output.print_text(("\nexpected: ", "dim"), gold, (" (the gold answer)", "dim"))
        output.print_line("\nnext, with mail of your own (mbox, Maildir, .eml, Google Takeout):")
        output.print_line("  art-e ingest ~/Downloads/takeout-*.zip")
        output.print_line("  art-e search invoice march")
        output.print_line('  art-e ask "When does the lease end?" --trace')
    exit_for(answered.trajectory)


def tour_question(world: list[Question]) -> Question:
    """Return the first easy look-up of the test split, preferably one that asks when."""
    labels = ("test", "lookup", "easy")
    easy = [each for each in world if (each.split, each.kind, each.difficulty) == labels]
    return next((each for each in easy if each.question.startswith("When ")), easy[0])
