"""Keeps a spool in sync with an account, and next to each inbox file a list of its accounts.

    ART_E_HOME/imap/<account>/<folder>-<UIDVALIDITY>/<UID>    a message as the server sent it
    <inbox file>.sync.json                                    the account's messages and labels

A file's name identifies one message for ever (RFC 3501), so only missing files are fetched. The
state is written when all are there; then messages that the server no longer has are deleted. After
an interruption at any point the next run continues from there."""

import datetime as dt
import imaplib
import itertools
import os
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, StringConstraints, TypeAdapter, ValidationError

from art_e.cli.output import note, plural, progress
from art_e.errors import UserError
from art_e.storage import locked, partial_of, write_whole
from art_e.text import digest
from data_pipeline.accounts.imap import Account, Connection, Folder, censored, connection
from data_pipeline.ingest.archives import head_of, regular_files
from data_pipeline.ingest.records import LARGEST_MESSAGE, RawMessage

WAITS_S = (1.0, 5.0, 20.0)  # seconds before a lost connection is opened again
_BATCH_BYTES = 1_000_000  # a lost connection loses one batch, which has at most 100 mails

Errors = dict[Account, UserError]
Outcome = tuple[Counter[str], Errors]
Message = tuple[str, tuple[str, ...], str]  # source, labels, Gmail's name of its thread
_File = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}-[0-9]{1,10}/[0-9]{1,10}$")]
Messages = dict[_File, Message]


class State(BaseModel):
    """An account as last read: its messages by spool file, and its mail's `owner`, if known."""

    account: str
    owner: str = ""
    messages: Messages = {}


_STATES = TypeAdapter(list[State])


def state_file(db: Path) -> Path:
    """Return the file next to an inbox file that says which accounts it follows."""
    return db.with_name(f"{db.name}.sync.json")


def load_states(db: Path) -> list[State]:
    """Return the states of the accounts that an inbox file follows."""
    try:
        return _STATES.validate_json((path := state_file(db)).read_bytes())
    except FileNotFoundError:
        return []
    except ValidationError:
        what = f"{path} is damaged, or of an earlier version"
        raise UserError(f"{what}: delete it, then ingest with --replace") from None


def _save_states(db: Path, states: Collection[State]) -> None:
    write_whole(state_file(db), _STATES.dump_json(list(states)).decode())


def locked_accounts(db: Path) -> AbstractContextManager[None]:
    """Keep other processes from reading the accounts of an inbox file."""
    db.parent.mkdir(parents=True, exist_ok=True)
    busy = f"the accounts of {db} are being read already; wait for it to end"
    return locked(state_file(db).with_suffix(".lock"), busy)


def read(db: Path) -> Iterator[RawMessage]:
    """Yield the messages of all accounts that an inbox file follows."""
    with locked_accounts(db):
        for state in load_states(db):
            for name, (source, labels, thread) in state.messages.items():
                file = Account.of(state.account).spool / name
                data = head_of(file, LARGEST_MESSAGE + 1)
                received = dt.datetime.fromtimestamp(file.stat().st_mtime, dt.UTC)
                yield RawMessage(source, data, received, labels, False, thread, state.owner)


def follow(owners: Mapping[Account, str], db: Path, *, no_others: bool = False) -> Outcome:
    """Update the spool, and the state next to an inbox file. `owners` maps accounts to a new owner,
    or "" to keep the old one. With `no_others` the file follows only these, if one can be read.
    Return the numbers of new, changed and deleted messages, and why accounts can't be read."""
    changes, errors = Counter[str](), Errors()
    with locked_accounts(db):
        for account, owner in owners.items():
            try:
                changes.update(_follow(account, db, owner))
            except UserError as error:
                errors[account] = error
        if no_others and changes:
            states = load_states(db)
            _save_states(db, [each for each in states if Account.of(each.account) in owners])
    return changes, errors


def _follow(account: Account, db: Path, owner: str) -> dict[str, int]:
    account.spool.mkdir(parents=True, exist_ok=True)
    busy = f"{account} is being read already; wait for it to end"
    with locked(account.spool.with_suffix(".lock"), busy):
        states = {state.account: state for state in load_states(db)}
        old = states.get(str(account), State(account=str(account)))
        was, now = old.messages, _read_account(account, old.messages)
        new = State(account=old.account, owner=owner or old.owner, messages=now)
        if new != old or not now:
            _save_states(db, {**states, old.account: new}.values())
        # This includes files that an interrupted run left half written.
        for file in regular_files(account.spool):
            if f"{file.parent.name}/{file.name}" not in now:
                file.unlink()
    both = was.keys() & now.keys()
    changed = sum(was[each] != now[each] for each in both)
    return {"new": len(now) - len(both), "changed": changed, "deleted": len(was) - len(both)}


def _read_account(account: Account, old: Messages) -> Messages:
    """Return the account's messages; reconnect as long as each connection brings something."""
    folders = dict[str, Messages]()

    def have() -> int:
        return len(folders) + sum(1 for _ in regular_files(account.spool))

    # Inside the lock: a provider may issue a new token each time, and reject a reused old one.
    secret, waits = account.secret(), iter(WAITS_S)
    while True:
        before = have()
        try:
            with connection(account, secret) as imap:
                for folder in imap.folders():
                    if folder.key not in folders:
                        folders[folder.key] = _read_folder(imap, account.spool, folder, old)
            return {file: each for part in folders.values() for file, each in part.items()}
        except ConnectionError as error:
            if have() > before:
                waits = iter(WAITS_S)
            if (wait := next(waits, None)) is None:
                why = f"no connection to {account} ({error}): what was fetched is kept"
                raise UserError(f"{why}, and the same command goes on from there") from None
            note(f"the connection to {account.host} is cut ({error}); retrying in {wait:.0f} s")
            time.sleep(wait)


def _read_folder(imap: Connection, spool: Path, folder: Folder, old: Messages) -> Messages:
    """Fetch the folder's messages that the spool lacks, and return all of them."""
    name = censored(folder.name, imap.password)
    try:
        validity, listed = imap.contents(folder)
    except imaplib.IMAP4.abort:
        raise
    except imaplib.IMAP4.error as error:
        note(f"{name} can't be read ({censored(error, imap.password)}); it stays as it was")
        return {file: each for file, each in old.items() if file.startswith(digest(folder.key))}
    place = spool / f"{digest(folder.key)}-{validity}"
    place.mkdir(exist_ok=True)
    # A power failure may leave empty files.
    names = {each.name for each in os.scandir(place) if each.stat().st_size}
    missing = [uid for uid in sorted(listed) if str(uid) not in names]
    totals = itertools.accumulate(max(listed[uid].size, _BATCH_BYTES // 100) for uid in missing)
    batch_of = {uid: total // _BATCH_BYTES for uid, total in zip(missing, totals, strict=True)}
    with progress("", len(missing), doing=f"fetching {name}") as advance:
        for _, batch in itertools.groupby(missing, batch_of.get):
            for uid, data, received in imap.messages(list(batch)):
                partial = partial_of(place / str(uid))
                partial.write_bytes(data)
                if received is not None:
                    os.utime(partial, (received.timestamp(), received.timestamp()))
                partial.replace(place / str(uid))
                names.add(str(uid))
                advance()
    if lost := sum(str(uid) not in names for uid in missing):
        note(f"{name}: {plural(lost, 'message')} did not arrive; the next sync asks again")
    present = ((uid, listed[uid]) for uid in sorted(listed) if str(uid) in names)
    return {f"{place.name}/{uid}": (f"{folder.name}/{uid}", *each[:2]) for uid, each in present}
