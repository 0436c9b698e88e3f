"""`ingest`, `sync`, `people`: mail in, an inbox file out; `demo`: a tour of a made-up inbox.

The tour needs no key, no network and no mail: it makes a synthetic inbox once and keeps it, asks
the offline policy one question of the world's test split, and shows the gold answer beside.
"""

import contextlib
import itertools
import json
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import duckdb
import typer
from typer import Argument, Option

from art_e import __version__
from art_e.cli import output
from art_e.cli.ask import OFFLINE_NOTE, exit_for, show_answer
from art_e.cli.conversation import Conversation
from art_e.cli.options import DbOption, JsonOption, OutOption, chosen_db, db_argument, integer
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.inbox.tokenizer import words
from art_e.models.model import Model
from art_e.question import Question
from art_e.storage import home, locked, partial_of, write_whole
from art_e.text import digest
from data_pipeline.ingest.batch import Rules, default_rules
from data_pipeline.ingest.build import (
    IngestReport,
    LikelyOwner,
    Source,
    lock_of,
    put_in_place,
    target_of,
)
from data_pipeline.ingest.build import ingest as run_ingest
from data_pipeline.ingest.imap import Account, follow, is_account, load_state, state_file
from data_pipeline.ingest.records import Format
from data_pipeline.ingest.sources import described, detect, open_source, questions_of
from data_pipeline.synthetic.world import WorldConfig, questions

# "auto" and FORMATS: typer has no unions.
FormatName = Literal["auto", "enron", "maildir", "mbox", "eml", "csv", "hf", "imap", "synthetic"]

_ADDRESS = re.compile(r"[^@\s<>,;\"]+@[^@\s<>,;\"]+")
# A DuckDB file has these bytes after an 8-byte checksum.
_DUCKDB_MAGIC, _MAGIC_AT = b"DUCK", 8
# The world of the tour.
SIZE, SEED = 2_000, 0
# An address is an owner by itself if so much of the mail is its.
LEAST_SHARE = 0.5

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(
    epilog=output.example(
        "art-e ingest ~/Downloads/takeout-*.zip",
        "art-e ingest imaps://me@gmail.com@imap.gmail.com",
        "art-e ingest enron-maildir.tar.xz --db enron.duckdb",
        "art-e ingest synthetic:5000,seed=1 --db world.duckdb",
    )
)
def ingest(
    sources: Annotated[
        list[str],
        Argument(
            metavar="SOURCE...",
            help="File, folder, imaps://user@host, Hugging Face id, synthetic:SIZE, or"
            " synthetic:injection for mail with attacks in it.",
        ),
    ],
    db: DbOption = None,
    source_format: Annotated[
        FormatName, Option("--format", help="Format of the sources; auto detects it.")
    ] = "auto",
    owner: Annotated[
        str | None,
        Option(
            metavar="ADDRESS",
            help="Whose mail it is: that inbox holds all of it [default: inferred for mbox,"
            " Maildir, .eml and IMAP].",
        ),
    ] = None,
    append: Annotated[bool, Option("--append", help="Add to the file if it is there.")] = False,
    replace: Annotated[
        bool, Option("--replace", help="Make the file anew if it is there.")
    ] = False,
    limit: Annotated[int | None, integer("Read at most N messages.")] = None,
    no_filter: Annotated[
        bool, Option("--no-filter", help="Leave out only true duplicates.")
    ] = False,
    max_body_chars: Annotated[
        int | None, integer("Leave out longer mails [default: 5000 for enron, csv and hf].")
    ] = None,
    max_recipients: Annotated[
        int | None, integer("Leave out mails to more people [default: 30 for enron, csv and hf].")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make an inbox file of mail: IMAP, mbox, Maildir, .eml, Enron, CSV, Hugging Face."""
    if no_filter and (max_body_chars is not None or max_recipients is not None):
        raise UserError("--no-filter goes without --max-body-chars and --max-recipients: drop one")
    if owner is not None and not _ADDRESS.fullmatch(owner.strip()):
        raise UserError(f"--owner {owner!r} is no address; write it as name@example.com")
    path = target_of(chosen_db(db))
    if append and replace:
        raise UserError("--append and --replace exclude each other: drop one")
    _check_target(path, may_change=append or replace)
    owner = None if owner is None else owner.strip().lower()
    if any(map(is_account, sources)):
        if len(sources) > 1 or append or limit or max_body_chars or max_recipients:
            raise UserError(
                "an IMAP account is read whole, into a file of its own: name no other source, and"
                " drop --append, --limit, --max-body-chars and --max-recipients"
            )
        account = Account.of(sources[0])
        owner = owner or _owner_of(account)
        follow(account, path)
        sources, source_format = [str(state_file(path))], "imap"
    elif append and state_file(path).exists():
        raise UserError(f"art-e sync replaces all mail in {path}: name another --db for this")

    def rules(name: Format) -> Rules:
        usual = default_rules(name)
        body_chars = max_body_chars or usual.max_body_chars
        recipients = max_recipients or usual.max_recipients
        return Rules() if no_filter else Rules(body_chars, recipients, usual.any_id)

    report, questions = read_sources(
        sources, path, source_format, rules, owner=owner, append=append, limit=limit
    )
    if source_format != "imap":
        state_file(path).unlink(missing_ok=True)
    say_likely_others(path, db)
    if as_json:
        row = {} if questions is None else {"questions": str(questions)}
        output.print_json({**report.to_json(), **row})
    else:
        output.print_line("\n".join(_sums(report, questions, db)))


@app.command(epilog=output.example("art-e sync", "art-e sync --db work.duckdb"))
def sync(db: DbOption = None, as_json: JsonOption = False) -> None:
    """Bring an inbox file to what its IMAP account holds now: new mail, flags, deletions."""
    path = target_of(chosen_db(db))
    file = state_file(path)
    if (state := load_state(file)) is None:
        raise UserError(f"{path} is of no account; begin with: art-e ingest imaps://user@host")
    _check_target(path, may_change=True)
    account = Account.of(state.account)
    if not account.spool.is_dir():
        # The file may come from elsewhere, and its account gets the password.
        again = f"if it is yours: art-e ingest {account} --replace{db_argument(db)}"
        raise UserError(f"{account} was never read from here; {again}")
    changes = follow(account, path)
    report = None
    # An ingest that was interrupted leaves an older file.
    if not path.exists() or path.stat().st_mtime_ns <= file.stat().st_mtime_ns:
        owner = _owner_of(account)
        with contextlib.suppress(UserError), InboxFile(path) as old:
            owner = next(iter(old.owners()), owner)
        report, _ = read_sources([str(file)], path, "imap", owner=owner)
    if as_json:
        output.print_json({**changes, "ingest": report and report.to_json()})
        return
    output.print_line(", ".join(f"{count:,} {what}" for what, count in changes.items()))
    if report:
        output.print_line("\n".join(_sums(report, None, db)))


def _owner_of(account: Account) -> str | None:
    """The mail address that the account's user name is."""
    return account.user.lower() if _ADDRESS.fullmatch(account.user) else None


def read_sources(
    sources: list[str],
    path: Path,
    source_format: FormatName = "auto",
    rules: Callable[[Format], Rules] = default_rules,
    *,
    owner: str | None = None,
    append: bool = False,
    limit: int | None = None,
) -> tuple[IngestReport, Path | None]:
    """Ingest with a progress bar; the report, and the file of a synthetic world's questions."""
    formats = [detect(each) if source_format == "auto" else source_format for each in sources]
    opened = [
        Source(open_source(source, name), rules(name))
        for source, name in zip(sources, formats, strict=True)
    ]
    worlds = [each for each, name in zip(sources, formats, strict=True) if name == "synthetic"]
    total = limit
    if limit is None and len(worlds) == len(sources):
        total = sum(described(each).config.size for each in worlds)
    infers = owner is not None or {"mbox", "maildir", "eml", "imap"}.issuperset(formats)
    with output.progress("mails", total) as advance:

        def on_progress(count: int) -> None:
            if output.interrupted():
                raise KeyboardInterrupt
            advance(count)

        report = run_ingest(
            opened,
            path,
            choose_owner=partial(_owner, owner) if infers else lambda _: None,
            append=append,
            limit=limit,
            on_progress=on_progress,
        )
    if worlds and limit is not None:
        output.note(
            "no questions are written: with --limit, mail that they ask about may be missing"
        )
    if not worlds or limit is not None:
        return report, None
    file = path.with_name(f"{path.stem}.questions.jsonl")
    old = file.read_text("utf-8").splitlines() if append and file.exists() else []
    rows = {json.loads(line)["id"]: line for line in old}
    for question in itertools.chain.from_iterable(map(questions_of, worlds)):
        rows[question.id] = json.dumps(question.to_row(), ensure_ascii=False)
    write_whole(file, "".join(f"{row}\n" for row in rows.values()))
    return report, file


def _check_target(path: Path, *, may_change: bool) -> None:
    """Refuse to replace the user's mail, or whatever is no inbox file that `may_change`."""
    if path.is_dir():
        raise UserError(f"{path} is a folder; name a file, such as {path / 'inbox.duckdb'}")
    if not path.exists():
        return
    if not path.is_file():
        raise UserError(f"{path} is no file; name another --db")
    with path.open("rb") as file:
        head = file.read(_MAGIC_AT + len(_DUCKDB_MAGIC))
    if head and not head.endswith(_DUCKDB_MAGIC):
        raise UserError(f"{path} exists and is not an inbox file; delete it, or name another --db")
    if head and not may_change:
        more = "art-e sync renews it" if state_file(path).exists() else "--append adds to it"
        raise UserError(
            f"{path} is an inbox file already: {more}, --replace makes it anew, and another --db"
            " leaves it alone"
        )


def _owner(given: str | None, owners: Sequence[LikelyOwner]) -> str | None:
    """The owner of mail, given or the likeliest one, which a person at a terminal confirms."""
    likely = [
        f"{output.one_line(each.address)} ({output.plural(each.mails, 'mail')})" for each in owners
    ]
    if given is not None:
        if likely and not any(each.address == given for each in owners):
            output.note(f"owner: {given}; most mail is of {', '.join(likely)}")
        return given
    if not owners or owners[0].share < LEAST_SHARE:
        output.note("no owner: no address has most of the mail; --owner ADDRESS names one")
        return None
    address = owners[0].address
    if sys.stdin.isatty() and sys.stderr.isatty():
        output.note(f"is this the mail of {likely[0]}? its inbox will hold all of it")
        key = output.pressed_key("[y]es [n]o", "yn", "answers")
        if key == "q":
            signal.raise_signal(signal.SIGINT)
        if key == "n":
            output.note("no owner: --owner ADDRESS --replace names one")
            return None
    else:
        output.note(f"owner: {likely[0]}; if that is wrong: --owner ADDRESS --replace")
    return address


def _sums(report: IngestReport, questions: Path | None, db: Path | None) -> Iterator[str]:
    """The report for people: a line for each kind of message."""
    counts = report.counts
    rows = {"read": counts["read"], "stored": counts["stored"]}
    if counts["junk"]:
        what = "of these spam, trash or drafts: left out of search and ask without --all"
        rows[what] = counts["junk"]
    rows["duplicates"] = counts["duplicates"]
    for stage in ("filtered", "quarantined", "cut"):
        rows |= {f"{stage}: {reason}": count for reason, count in counts[stage].items()}
    yield f"{report.db}"
    for name, count in rows.items():
        yield f"  {count:>9,}  {name}"
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


@app.command(epilog=output.example("art-e demo", "art-e demo --json"))
def demo(out: OutOption = None, as_json: JsonOption = False) -> None:
    """Take the tour: a sample inbox, one question, every step, the answer."""
    world = questions(WorldConfig(size=SIZE, seed=SEED))
    question = tour_question(world)
    db = _sample_inbox(world)
    policy = Model("offline").policy()
    output.note(OFFLINE_NOTE)
    with InboxFile(db) as file:
        opened = file.inbox_of(question)
        if not as_json:
            about = f"{question.inbox_address}, {len(opened):,} mails up to {opened.as_of}"
            output.print_text(("question  ", "dim"), (question.question, "bold"))
            output.print_text((f"inbox     {about}\n", "dim"))
        conversation = Conversation(opened, db, policy)
        conversation.begin(question, "demo", out)
        answered = conversation.answer(screen=None if as_json else output.console())
    if as_json:
        output.print_json({**answered.to_json(), "gold_answer": question.answer})
    else:
        show_answer(answered)
        output.print_text(
            ("\nexpected: ", "dim"), question.answer or "", (" (the gold answer)", "dim")
        )
        output.print_line("\nnext, with mail of your own (mbox, Maildir, .eml, Google Takeout):")
        output.print_line("  art-e ingest ~/Downloads/takeout-*.zip")
        output.print_line("  art-e search invoice march")
        output.print_line('  art-e ask "When does the lease end?" --trace')
    exit_for(answered.trajectory)


def tour_question(world: list[Question]) -> Question:
    """The first easy look-up of the test split, if possible one that asks when."""
    wanted = ("test", "lookup", "easy")
    easy = [each for each in world if (each.split, each.kind, each.difficulty) == wanted]
    return next((each for each in easy if each.question.startswith("When ")), easy[0])


def _sample_inbox(world: list[Question]) -> Path:
    """The file of the sample inbox, made unless it is there and fits these questions."""
    rows = json.dumps([each.to_row() for each in world])
    db = home() / "demo" / f"{SIZE}-mails-{digest(f'{__version__}/{rows}')}.duckdb"
    try:
        InboxFile(db).close()
    except UserError:
        output.note(f"making a sample inbox of {SIZE:,} mails, once: {db}")
        read_sources([f"synthetic:{SIZE},seed={SEED}"], db)
    return db


# ---- `people`: which addresses belong to one person, so that one inbox holds all their mail.

# What is said of people stands in the inbox file, and stays when that is added to or made anew.

people = typer.Typer(
    help="Say which addresses belong to one person: one inbox then holds all their mail.",
    no_args_is_help=True,
)
app.add_typer(people, name="people")

Addresses = Annotated[list[str], Argument(metavar="ADDRESS...", show_default=False)]


def say_likely_others(path: Path, db: Path | None) -> None:
    """Note which addresses may be further ones of the file's owners: those with the same first and
    last name, as mail spells it or before the "@"."""
    with InboxFile(path) as file:
        rows = file.execute(
            "SELECT address, names FROM addresses WHERE emails > 0 ORDER BY emails DESC, address"
        ).fetchall()
        names = {address: _names(address, spelled) for address, spelled in rows}
        for owner in file.owners():
            same = {owner}.union(*(listed for listed in file.people().values() if owner in listed))
            own = set[frozenset[str]]().union(*(names.get(address, ()) for address in same))
            others = [each for each in names if each not in same and own & names[each]]
            if others:
                merge = " ".join(["art-e people merge", owner, *others[:5]])
                output.note(f"{owner} may have more addresses: {merge}{db_argument(db)}")


def _names(address: str, names: str) -> set[frozenset[str]]:
    """The names of an address, each as the set of its words; initials say nothing."""
    spelled = [*names.split(" | "), address.partition("@")[0].replace("_", " ")]
    word_sets = (frozenset(word for word in words(each) if len(word) > 1) for each in spelled)
    return {name for name in word_sets if len(name) > 1}


def _set_person(path: Path, addresses: list[str], person: str | None) -> None:
    """Merge the addresses into `person`, or split them, in a copy that replaces the file."""
    with locked(lock_of(path), f"an ingest is writing {path}; wait for it to end"):
        copy = partial_of(path)
        try:
            copy.unlink(missing_ok=True)
            shutil.copyfile(path, copy)
            with duckdb.connect(str(copy)) as file:
                file.execute("DELETE FROM people WHERE address IN (SELECT unnest(?))", [addresses])
                if person is not None:
                    file.execute("INSERT INTO people SELECT unnest(?), ?", [addresses, person])
            put_in_place(copy, path)
        finally:
            copy.unlink(missing_ok=True)


@people.command("list", epilog=output.example("art-e people list"))
def show(db: DbOption = None, as_json: JsonOption = False) -> None:
    """List people with several addresses."""
    with InboxFile(chosen_db(db)) as file:
        listed = file.people()
    if as_json:
        output.print_json({"people": listed})
        return
    for person, addresses in listed.items():
        output.print_line(f"{person}: {', '.join(addresses[1:])}")
    if not listed:
        output.note("nobody has several addresses yet: art-e people merge says who has")


_MERGE = "art-e people merge ann@x.example ann@old.example"


@people.command(epilog=output.example(_MERGE))
def merge(addresses: Addresses, db: DbOption = None, as_json: JsonOption = False) -> None:
    """Open one inbox for all these addresses; the first stands for all."""
    path = target_of(chosen_db(db))
    named = list(dict.fromkeys(each.strip().lower() for each in addresses))
    if len(named) < 2:
        raise UserError(f"name two addresses or more: {_MERGE}")
    with InboxFile(path, junk=True) as file:
        for each in named:
            file.open_inbox(each)
        # Who is merged already brings the addresses merged with.
        known = {each: listed for listed in file.people().values() for each in listed}
    everyone = list(dict.fromkeys(each for one in named for each in [one, *known.get(one, ())]))
    _set_person(path, everyone, named[0])
    with InboxFile(path) as file:
        emails = len(file.open_inbox(named[0]))
    if as_json:
        output.print_json({"person": named[0], "addresses": everyone, "emails": emails})
    else:
        output.print_line(f"{named[0]}: {output.plural(emails, 'mail')} of {', '.join(everyone)}")


@people.command(epilog=output.example("art-e people split ann@x.example"))
def split(
    address: Annotated[str, Argument(metavar="ADDRESS", show_default=False)],
    db: DbOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give each address that was merged with this one an inbox of its own again."""
    path, name = target_of(chosen_db(db)), address.strip().lower()
    with InboxFile(path) as file:
        listed = next((each for each in file.people().values() if name in each), None)
    if listed is None:
        raise UserError(f"{name!r} is merged with no other address; art-e people list shows who is")
    _set_person(path, listed, None)
    if as_json:
        output.print_json({"addresses": listed})
    else:
        output.print_line(f"split: {', '.join(listed)}")
