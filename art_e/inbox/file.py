"""The inbox file, opened for reading.

One `InboxFile` serves all threads of a process, each with its own cursor (a shared connection
returns wrong rows), and many processes may open a file. It is read-only, and DuckDB can reach no
other file and no network. `Inbox` does the searching."""

import contextlib
import datetime as dt
import json
import threading
from collections import OrderedDict
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import _duckdb as duckdb  # the package around it takes as long to import as a search

from art_e.errors import UserError
from art_e.inbox.inbox import Inbox
from art_e.inbox.schema import SCHEMA_VERSION, statement
from art_e.inbox.slice import Slice, Vocabulary
from art_e.inbox.tokenizer import TOKENIZER
from art_e.text import encodable

if TYPE_CHECKING:
    from art_e.question import Question

# Limit of the cached mail of all addresses; the least recently used is dropped first.
CACHE_BYTES = 512_000_000


class InboxSummary(NamedTuple):
    """One address of the file and how many mails its inbox holds."""

    address: str
    emails: int
    sent: int
    received: int


class InboxFile:
    """An inbox file; `junk`: with spam and trash. Raises `UserError` if `path` is not complete."""

    def __init__(self, path: Path, *, junk: bool = False) -> None:
        self.path, self.junk = path, junk
        self._parties = "(FROM parties UNION ALL FROM junk_parties)" if junk else "parties"
        make = f"art-e ingest SOURCE --db {path}"
        rebuild = f"{make} --replace"
        if not path.is_file():
            raise UserError(f"no inbox file at {path}; make one with: {make}")
        # A new database with the file attached: `duckdb.connect(path)` would return the file as it
        # was when this process first opened it.
        self._connection = duckdb.connect(config={"autoinstall_known_extensions": False})
        try:
            quoted = str(path).replace("'", "''")
            self._connection.execute(f"ATTACH '{quoted}' AS inbox (TYPE duckdb, READ_ONLY)")
            self._connection.execute("SET enable_external_access = false")
        except duckdb.Error as error:
            self._connection.close()
            first_line = str(error).splitlines()[0]
            raise UserError(
                f"{path} can't be opened as an inbox ({first_line}); rebuild it with: {rebuild}"
            ) from None
        self._local = threading.local()
        self._vocabulary = Vocabulary(self.execute)
        # Training opens an inbox for each of its episodes.
        self._address_ids = lru_cache(1_024)(self._read_address_ids)
        self._slices: OrderedDict[tuple[int, ...], Slice] = OrderedDict()
        self._lock = threading.Lock()
        self.meta: dict[str, str] = {}
        with contextlib.suppress(duckdb.Error):
            self.meta = dict(self.execute("SELECT key, value FROM meta").fetchall())
        required = {"schema_version": SCHEMA_VERSION, "tokenizer": TOKENIZER, "complete": "true"}
        if required.items() - self.meta.items():
            self.close()
            raise UserError(
                f"{path} is not a complete inbox file of this version; rebuild it with: {rebuild}"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def execute(self, sql: str, parameters: list[Any] | None = None) -> duckdb.DuckDBPyConnection:
        """Run a statement on this thread's cursor. Lone surrogates in parameters become "?"."""
        cursor: duckdb.DuckDBPyConnection | None = getattr(self._local, "cursor", None)
        if cursor is None:
            with self._lock:
                cursor = self._connection.cursor()
            cursor.execute("USE inbox")
            self._local.cursor = cursor
        cleaned = [encodable(each) if isinstance(each, str) else each for each in parameters or ()]
        return cursor.execute(sql, cleaned)

    @property
    def counts(self) -> dict[str, Any]:
        """Return the counts of mail read, stored and dropped, as `art-e ingest --json` has them."""
        return dict(json.loads(self.meta["counts"]))

    @property
    def digest(self) -> str:
        """Return the hash of the file's mail, which does not depend on its place."""
        return str(self.meta["digest"])

    def open_inbox(self, address: str, as_of: dt.date | None = None) -> Inbox:
        """Return the inbox of an address up to and including the day `as_of` (None: all mail).
        Raises `UserError` with the nearest addresses if the address has no mail."""
        owner = address.strip().lower()
        address_ids = self._address_ids(owner)
        mail = self._slice(address_ids) if address_ids else None
        if mail is None or not len(mail.ids):
            nearest = self.execute(statement("nearest"), [owner]).fetchall()
            near = ", ".join(address for (address,) in nearest)
            also = f"; nearest: {near} (art-e inboxes lists them)" if near else ": it holds no mail"
            raise UserError(f"no inbox {owner[:80]!r} in {self.path}{also}")
        return Inbox(self.execute, mail, self._vocabulary, owner, as_of)

    def _read_address_ids(self, owner: str) -> tuple[int, ...]:
        sql = statement("addresses_of", parties=self._parties)
        return tuple(address_id for (address_id,) in self.execute(sql, [owner]).fetchall())

    def inbox_of(self, question: "Question") -> Inbox:
        return self.open_inbox(question.inbox_address, question.query_date)

    def _slice(self, address_ids: tuple[int, ...]) -> Slice:
        """Return the mail of these addresses, from the cache if it has it; inboxes share it."""
        with self._lock:
            mail = self._slices.pop(address_ids, None)
        # Read outside the lock: if two threads read at once, one result is kept.
        mail = mail or Slice(self.execute, address_ids, self._parties)
        with self._lock:
            mail = self._slices.setdefault(address_ids, mail)
            while len(self._slices) > 1 and self.cached_bytes > CACHE_BYTES:
                self._slices.popitem(last=False)
        return mail

    @property
    def cached_bytes(self) -> int:
        """Return the approximate size of the cached mail; open inboxes may hold more."""
        return sum(mail.nbytes for mail in self._slices.values())

    def owners(self) -> list[str]:
        sql = statement("owners", parties=self._parties)
        return [address for (address,) in self.execute(sql).fetchall()]

    def people(self) -> dict[str, list[str]]:
        return dict(self.execute(statement("people")).fetchall())

    def inboxes(self, limit: int | None = None) -> list[InboxSummary]:
        rows = self.execute(statement("inboxes"), [2**31 if limit is None else limit]).fetchall()
        return [InboxSummary(*row) for row in rows]
