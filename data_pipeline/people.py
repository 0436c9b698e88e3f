"""`art-e people`: which addresses belong to one person, so that one inbox holds all their mail.

What is said of people stands in the inbox file, and stays when that is added to, synced or made
anew.
"""

import shutil
from pathlib import Path
from typing import Annotated

import duckdb
import typer
from typer import Argument

from art_e.cli.options import DbOption, JsonOption, chosen_db, db_argument
from art_e.cli.output import example, note, plural, print_json, print_line
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.inbox.tokenizer import words
from art_e.storage import locked, partial_of
from data_pipeline.ingest.build import lock_of, put_in_place, target_of

app = typer.Typer(
    rich_markup_mode=None, add_completion=False, no_args_is_help=True,
    help="Say which addresses belong to one person: one inbox then holds all their mail.",
)  # fmt: skip

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
                note(f"{owner} may have more addresses: {merge}{db_argument(db)}")


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
            shutil.copyfile(path, copy)
            with duckdb.connect(str(copy)) as file:
                file.execute("DELETE FROM people WHERE address IN (SELECT unnest(?))", [addresses])
                if person is not None:
                    file.execute("INSERT INTO people SELECT unnest(?), ?", [addresses, person])
            put_in_place(copy, path)
        finally:
            copy.unlink(missing_ok=True)


@app.command("list", epilog=example("art-e people list"))
def show(db: DbOption = None, as_json: JsonOption = False) -> None:
    """List people with several addresses."""
    with InboxFile(chosen_db(db)) as file:
        people = file.people()
    if as_json:
        print_json({"people": people})
        return
    for person, listed in people.items():
        print_line(f"{person}: {', '.join(listed[1:])}")
    if not people:
        note("nobody has several addresses yet: art-e people merge says who has")


_MERGE = "art-e people merge ann@x.example ann@old.example"


@app.command(epilog=example(_MERGE))
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
        print_json({"person": named[0], "addresses": everyone, "emails": emails})
    else:
        print_line(f"{named[0]}: {plural(emails, 'mail')} of {', '.join(everyone)}")


@app.command(epilog=example("art-e people split ann@x.example"))
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
        print_json({"addresses": listed})
    else:
        print_line(f"split: {', '.join(listed)}")
