"""All mail of one address, in memory, shared by every opened `Inbox` over it.

A mail's *position* is its place in the slice, oldest first. The first two searches read only what
they need from the file, the third reads the whole slice: one question stays cheap, and later
searches run no SQL. Threads may share a slice."""

import datetime as dt
import json
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from art_e.inbox.mail import Email, Execute, Mailbox, Mask, Numbers, Reals, in_zone
from art_e.inbox.schema import statement
from art_e.inbox.snippet import searchable
from art_e.inbox.threads import thread_candidates, threads_of
from art_e.inbox.tokenizer import fold

# Look-ups in SQL before all stems are read: about 1 ms each, against 40 ms for 87,000 words.
LOOK_UPS_IN_SQL = 2


class Vocabulary:
    """The numbers of a file's stems. Threads may share it."""

    def __init__(self, execute: Execute) -> None:
        self._execute = execute
        self._look_ups = 0
        self._ids: dict[str, int] | None = None

    def term_ids(self, stems: Iterable[str]) -> dict[str, int]:
        """Return the numbers of those stems that occur in the file, in the order given."""
        listed = list(stems)
        ids = self._ids
        if ids is None:
            self._look_ups += 1
            sql = "SELECT DISTINCT stem, term_id FROM terms"
            if self._look_ups > LOOK_UPS_IN_SQL:
                ids = self._ids = dict(self._execute(sql).fetchall())
            else:
                only = f"{sql} WHERE stem IN ({', '.join('?' * len(listed)) or 'NULL'})"
                ids = dict(self._execute(only, listed).fetchall())
        return {stem: ids[stem] for stem in listed if stem in ids}


UNDATED = np.iinfo(np.int64).max  # `Slice.sent` of a mail without a known date; it sorts last

_BYTES_A_ROW = 500  # Python's overhead for the strings and the tuple of a mail

_BRACKETED = re.compile(r"<([^<>\s]+@[^<>\s]+)>")
_BETWEEN_PARTS = re.compile(r'[\s,<>"]+')

# A mail's position, and the Unix time when it, or the copy that has the message id, was sent.
Named = tuple[int, int]
Postings = tuple[Numbers, Reals]
# Postings of several terms: term numbers (ascending, one per posting), positions, frequencies.
_Index = tuple[Numbers, Numbers, Reals]
# A mail: message id, date in UTC, its zone's minutes from UTC, sender's address and name, subject,
# body, the recipients of each role as JSON, mailing list.
# Plain tuples, because the garbage collector skips them: it took 27 ms for 33,000 named tuples.
Row = tuple[str, dt.datetime | None, int, str, str, str, str, str, str]
_ROW = """message_id, sent_at, utc_offset, from_address, from_name, subject, body || attached,
    to_json([to_recipients, cc_recipients, bcc_recipients])::VARCHAR, mailing_list"""


class _Parties(NamedTuple):
    """Senders and recipients, each with the mail's position, whether it is the sender or in Cc, and
    its address's index in `names`. `names` has the names that this slice's mail gives an address,
    with the position of the first such mail. `is_own` marks the person's addresses."""

    positions: Numbers
    is_sender: Mask
    in_cc: Mask
    places: Numbers  # (parties,): indexes into `names` and `is_own`
    names: dict[str, list[tuple[int, str]]]
    is_own: Mask  # (addresses,)


class Slice:
    """The mail that one person's addresses sent or received; `nbytes` estimates its memory."""

    def __init__(self, execute: Execute, address_ids: Sequence[int], parties: str) -> None:
        self._execute = execute
        # In SQL: the person's addresses, and the condition of their mail.
        self._address_ids, self._own = address_ids, ", ".join(map(str, address_ids))
        self._from_parties = parties
        scope = {"ids": self._own, "junk": parties != "parties"}
        # Most files have one owner, and don't need the longer statements.
        [(shared,)] = execute(
            "SELECT EXISTS (FROM owners_copies) OR EXISTS (FROM others_copies)"
        ).fetchall()
        self._copies = statement("copies", **scope) if shared else ""
        self._mine = f"email_id IN {statement('shown' if shared else 'listed', **scope)}"
        mail = execute(statement("slice", mine=self._mine, undated=UNDATED)).fetchnumpy()
        columns = [np.asarray(column, dtype=np.int64) for column in mail.values()]
        # `day` is the day's ordinal in the sender's own zone; 0 of a mail without a known date.
        self.ids, self.length, self.sent, self.day, id_taken, self.content = columns  # (mails,)
        self.nbytes = self.ids.nbytes * 5
        # A message id belongs to the first mail of the slice that has it; later ones get another.
        renamed = statement("renamed", mine=self._mine)
        named = execute(renamed).fetchall() if id_taken.any() else []
        self.renamed = {int(self.ids.searchsorted(at)): str(name) for at, name in named}
        self.matching = lru_cache(self._matching)
        self.named = lru_cache(self._named)
        self._lock = threading.Lock()
        self._searches = 0
        self._rows: list[Row] | None = None
        self._some_rows: dict[int, Row] = {}  # until all are read
        # By position, the `searchable` text of bodies that are slow to fold (not ASCII).
        self.folded: dict[int, str] = {}
        self._index: _Index | None = None
        self._by_message_id: dict[str, list[Named]] = {}

    @property
    def labelled(self) -> str:
        """Return SQL for the labels that the person gave their mail, including its copies."""
        name = "labels_of_copies" if self._copies else "labels"
        return statement(name, parties=self._from_parties, own=self._own, several=self._copies)

    @cached_property
    def _labels(self) -> dict[int, list[str]]:
        return dict(self._execute(statement("labels_of", labelled=self.labelled)).fetchall())

    @cached_property
    def bulk(self) -> Mask:
        """Return which mails went out in bulk, by their headers or by the person's labels."""
        sql = statement("bulk", mine=self._mine, labelled=self.labelled)
        return np.isin(self.ids, self._execute(sql).fetchnumpy()["email_id"])

    def _named(self, message_ids: tuple[str, ...]) -> list[Sequence[Named]]:
        """Return the mails of each id: one that has it, then those whose dropped copy has it."""
        if self._rows is not None:
            return [self._by_message_id.get(each, ()) for each in message_ids]
        marks = ", ".join("?" * len(message_ids)) or "NULL"
        named = self._read_named(f"message_id IN ({marks})", [*message_ids])
        return [named.get(each, ()) for each in message_ids]

    def named_from(self, beginning: str) -> dict[str, list[Named]]:
        named = self._read_named("starts_with(message_id, ?)", [beginning])
        return {name: mails for name, mails in named.items() if name.startswith(beginning)}

    def _read_named(self, condition: str, ids: list[str]) -> dict[str, list[Named]]:
        named = {name: [(at, int(self.sent[at]))] for at, name in self.renamed.items()}
        among = statement("every_id_and_copy" if self._copies else "every_id", several=self._copies)
        scope = {"among": among, "condition": condition, "mine": self._mine}
        sql = statement("named", undated=UNDATED, **scope)
        for message_id, email_id, sent in self._execute(sql, ids).fetchall():
            named.setdefault(message_id, []).append((int(self.ids.searchsorted(email_id)), sent))
        return named

    def threads(self, size: int, positions: list[int]) -> dict[int, list[int]]:
        """Map positions to their threads among the first `size` mails; all mails if as quick."""
        ids, mails = self.ids[:size].tolist(), self._mine
        if self._rows is None:
            some = thread_candidates(self._execute, self.ids[positions].tolist(), ids[-1], mails)
            if some is not None:
                ids, mails = some, f"{mails} AND email_id IN ({', '.join(map(str, some))})"
        places = self.ids.searchsorted(ids).tolist()
        threads = threads_of(self._execute, ids, mails, self._from_parties, self._own)
        return {at: [places[n] for n in named] for at, named in zip(places, threads, strict=True)}

    def begin_search(self) -> bool:
        """Count a search; the third reads the whole slice. Return True if it is in memory."""
        if self._searches > 1 and self._rows is None:
            self._read_all()
        self._searches += 1
        return self._rows is not None

    def postings(self, term_ids: list[int]) -> list[Postings]:
        """Return where each term occurs in this slice: positions, ascending, and frequencies."""
        index = self._index
        if index is None:
            index = self._read_index(f"term_id IN ({', '.join(map(str, term_ids)) or 'NULL'})")
        listed, positions, frequency = index
        edges = listed.searchsorted([edge for each in term_ids for edge in (each, each + 1)])
        slices = (slice(start, end) for start, end in edges.reshape(-1, 2).tolist())
        return [(positions[each], frequency[each]) for each in slices]

    def rows(self, positions: list[int]) -> list[Row]:
        if self._rows is not None:
            return [self._rows[position] for position in positions]
        if new := sorted({*positions} - self._some_rows.keys()):
            listed = ", ".join(map(str, self.ids[new].tolist()))
            rows = self._read_rows(new, f"email_id IN ({listed})")
            self._some_rows.update(zip(new, rows, strict=True))
        return [self._some_rows[position] for position in positions]

    def mails(self, positions: list[int]) -> list[Email]:
        mails = []
        for at, row in zip(positions, self.rows(positions), strict=True):
            name, sent, zone, address, sender, subject, body, recipients, via = row
            roles = json.loads(recipients)
            to, cc, bcc = (tuple(Mailbox(**each) for each in listed) for listed in roles)
            people = Mailbox(address, sender), to, cc, bcc
            labels = tuple(self._labels.get(int(self.ids[at]), ()))
            mails.append(Email(name, in_zone(sent, zone), *people, subject, body, labels, via))
        return mails

    def _read_rows(self, positions: Iterable[int], condition: str) -> list[Row]:
        sql = f"SELECT {_ROW} FROM emails WHERE {condition} ORDER BY email_id"
        return [
            (self.renamed[position], *row[1:]) if position in self.renamed else row
            for position, row in zip(positions, self._execute(sql).fetchall(), strict=True)
        ]

    def _read_index(self, condition: str) -> _Index:
        read = self._execute(statement("postings", condition=condition)).fetchnumpy()
        emails = np.asarray(read["email_id"])
        positions = self.ids.searchsorted(emails)
        inside = positions < len(self.ids)  # an id after the last mail has the position len(ids)
        inside[inside] = self.ids[positions[inside]] == emails[inside]  # else another inbox's mail
        return (
            np.asarray(read["term_id"], dtype=np.int64)[inside],
            positions[inside],
            np.asarray(read["frequency"], dtype=np.float64)[inside],
        )

    def _read_all(self) -> None:
        with self._lock:
            if self._rows is not None:
                return
            self._index = self._read_index(self._mine)
            rows = self._read_rows(range(len(self.ids)), self._mine)
            self._by_message_id = self._read_named("true", [])
            bodies = enumerate(row[6] for row in rows)  # with the texts of attachments
            self.folded = {at: searchable(body) for at, body in bodies if not body.isascii()}
            self.nbytes += 3 * self._index[1].nbytes
            self.nbytes += sum(sum(map(len, row[5:8])) + _BYTES_A_ROW for row in rows)
            self.nbytes += 2 * sum(map(len, self.folded.values()))
            self._rows = rows  # last, as the mark that all is read

    def where(
        self, column: str, passes: Callable[[Any], bool], among: Mask, table: str = "emails"
    ) -> Mask:
        """Return which mails of `among` have a value in a column of a table that passes."""
        mask = np.zeros_like(among)
        if among.any():
            last = self.ids[among.nonzero()[0][-1]]
            sql = statement("column", column=column, table=table, mine=self._mine, last=last)
            rows = self._execute(sql).fetchall()
            passing = [email_id for email_id, value in rows if passes(value)]
            mask[self.ids.searchsorted(passing)] = True
        return mask & among

    def _matching(self, text: str | None, role: Literal["from", "to", "cc"], size: int) -> Mask:
        """Return which mails have a matching sender, recipient or Cc by the rule of the macro
        `address_matches`, with names in the first `size` mails; None matches the person."""
        folded = fold(text or "")
        bracketed = _BRACKETED.search(folded)
        parts = list(filter(None, _BETWEEN_PARTS.split(bracketed[1] if bracketed else folded)))
        parties = self._parties
        people = (
            f"{address} {' | '.join(name for first, name in names if first < size)}"
            for address, names in parties.names.items()
        )
        fits = np.array([bool(parts) and all(p in one for p in parts) for one in people], np.bool_)
        fits = parties.is_own if text is None else fits
        mask = np.zeros(len(self.ids), dtype=np.bool_)
        in_role = parties.in_cc if role == "cc" else parties.is_sender == (role == "from")
        mask[parties.positions[fits[parties.places] & in_role]] = True  # addresses to mails
        return mask

    @cached_property
    def _parties(self) -> _Parties:
        sql = statement("people_of", parties=self._from_parties, mine=self._mine)
        columns = self._execute(sql).fetchnumpy()
        address_ids, places = np.unique(np.asarray(columns["address_id"]), return_inverse=True)
        listed = ", ".join(map(str, address_ids.tolist())) or "NULL"
        addresses = self._execute(
            f"SELECT address FROM addresses WHERE address_id IN ({listed}) ORDER BY address_id"
        ).fetchall()
        named: dict[str, list[tuple[int, str]]] = {address: [] for (address,) in addresses}
        names = self._execute(statement("names", mine=self._mine))
        for address, name, first in names.fetchall():
            if address in named:
                named[address].append((int(np.searchsorted(self.ids, first)), fold(name)))
        positions = np.searchsorted(self.ids, np.asarray(columns["email_id"]))
        is_sender, in_cc = (np.asarray(columns[each], np.bool_) for each in ("is_sender", "in_cc"))
        is_own = np.isin(address_ids, self._address_ids)
        return _Parties(positions, is_sender, in_cc, places, named, is_own)
