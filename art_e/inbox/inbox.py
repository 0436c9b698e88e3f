"""One address's inbox, opened: search and read, and nothing else reachable.

An `Inbox` holds the ids of its own mail up to its `as_of`; every search, read
and filter goes through that list, so another inbox's mail and mail from the
future are "not found" by construction. Postings are read once per word and
kept as NumPy arrays. The ranking is that of `search_inbox` in macros.sql:
BM25 over this inbox alone times 0.5 + 0.5 x share of words matched, newest
first among equals. Points are whole numbers, so that both give the same order.

An inbox may be used from several threads: what it caches is only ever added to.
Knows nothing of models and turns.
"""

import datetime as dt
import math
from collections.abc import Callable
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

from art_e.inbox.mail import Email, Hit, Mailbox
from art_e.inbox.schema import K1, B
from art_e.inbox.snippet import SnippetFinder
from art_e.inbox.tokenizer import search_words

Execute = Callable[[str, list[Any] | None], duckdb.DuckDBPyConnection]
Ids = npt.NDArray[np.int64]

# Points are millionths of a BM25 score, summed as whole numbers: the order of
# addition can't change a sum, here or in SQL.
POINTS = 1e6

_UNDATED = np.iinfo(np.int64).max
_RECIPIENT_ROLES = ["to", "cc", "bcc"]


class Inbox:
    """The mail that `address` sent or received up to the end (UTC) of the day `as_of`."""

    def __init__(
        self, execute: Execute, address_id: int, address: str, as_of: dt.date | None
    ) -> None:
        self.address = address
        self.as_of = as_of
        self._execute = execute
        mail = execute(
            """
            SELECT email_id, length, coalesce(epoch(sent_at)::BIGINT, ?) AS sent
            FROM emails
            WHERE email_id IN (SELECT email_id FROM parties WHERE address_id = ?)
                AND (?::DATE IS NULL OR sent_at < ?::DATE + INTERVAL 1 DAY)
            ORDER BY email_id
            """,
            [_UNDATED, address_id, as_of, as_of],
        ).fetchnumpy()
        self._ids: Ids = np.asarray(mail["email_id"], dtype=np.int64)
        self._sent: Ids = np.asarray(mail["sent"], dtype=np.int64)
        length = np.asarray(mail["length"], dtype=np.int64)
        mean_length = float(length.sum()) / len(length) if len(length) else 1.0
        # The part of BM25's denominator that depends on the mail alone.
        self._damping = K1 * ((1 - B) + B * length / mean_length)
        self._terms: dict[str, tuple[int, str] | None] = {}
        self._points: dict[int, tuple[Ids, Ids]] = {}
        self._matching: dict[tuple[str, str], npt.NDArray[np.bool_]] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def search(
        self,
        keywords: list[str],
        *,
        from_addr: str | None = None,
        to_addr: str | None = None,
        sent_after: dt.date | None = None,
        sent_before: dt.date | None = None,
        max_results: int = 10,
    ) -> list[Hit]:
        """The mails that match best, best first.

        A keyword of several words counts as its words; a mail needs one of them.
        With no keywords every mail that passes the filters matches, newest first.
        `from_addr` and `to_addr` (To, Cc and Bcc) match without regard to case where
        every part of them occurs in the address or its names; blank ones filter nothing.
        `sent_after` is inclusive, `sent_before` exclusive.
        """
        by_stem: dict[str, list[str]] = {}
        term_ids = {}
        for word, term in self._look_up(search_words(keywords)).items():
            term_id, stem = term or (None, word)
            by_stem.setdefault(stem, []).append(word)
            if term_id is not None:
                term_ids[stem] = term_id
        points, hit_by = self._score(by_stem, term_ids)
        allowed = self._allowed(from_addr, to_addr, sent_after, sent_before)
        candidates = np.flatnonzero(allowed if not by_stem else allowed & (points > 0))
        best = candidates[np.lexsort((-candidates, -points[candidates]))][:max_results]
        scores = points[best] / max(2 * POINTS * len(by_stem), 1)
        missing = [
            tuple(min(words) for stem, words in by_stem.items() if not hit_by[stem][position])
            for position in best
        ]
        finder = SnippetFinder(by_stem)
        return [
            Hit(
                message_id=row[1],
                date=row[2],
                sender=Mailbox(row[3], row[4]),
                subject=row[5],
                snippet=finder.cut(row[6]),
                score=float(score),
                missing=lacks,
            )
            for row, score, lacks in zip(self._fetch(best), scores, missing, strict=True)
        ]

    def read(self, message_id: str) -> Email | None:
        """The mail with this id, or of which it is a dropped copy; None: not in this inbox."""
        email_id = self._email_id(message_id)
        if email_id is None:
            return None
        row = self._execute(
            "SELECT message_id, sent_at, from_address, from_name, to_recipients, cc_recipients,"
            " bcc_recipients, subject, body FROM emails WHERE email_id = ?",
            [email_id],
        ).fetchone()
        if row is None:
            return None
        to, cc, bcc = (
            tuple(Mailbox(each["address"], each["name"]) for each in recipients)
            for recipients in row[4:7]
        )
        return Email(row[0], row[1], Mailbox(row[2], row[3]), to, cc, bcc, row[7], row[8])

    def canonical_id(self, message_id: str) -> str | None:
        """The id under which this inbox stores the mail; None: it is not in this inbox."""
        email_id = self._email_id(message_id)
        if email_id is None:
            return None
        row = self._execute(
            "SELECT message_id FROM emails WHERE email_id = ?", [email_id]
        ).fetchone()
        return None if row is None else str(row[0])

    def _email_id(self, message_id: str) -> int | None:
        wanted = message_id.strip()
        if not wanted.startswith("<"):
            wanted = f"<{wanted}>"
        found = self._execute(
            "SELECT email_id FROM (SELECT email_id, 0 AS preference FROM emails"
            " WHERE message_id = ? UNION ALL SELECT email_id, 1 FROM aliases"
            " WHERE message_id = ?) ORDER BY preference, email_id",
            [wanted, wanted],
        ).fetchall()
        return next((email_id for (email_id,) in found if self._holds(email_id)), None)

    def _holds(self, email_id: int) -> bool:
        position = int(np.searchsorted(self._ids, email_id))
        return position < len(self._ids) and int(self._ids[position]) == email_id

    def _look_up(self, searched: list[str]) -> dict[str, tuple[int, str] | None]:
        """Term id and stem of each word; None where no mail of the file has a form of it."""
        unknown = [word for word in searched if word not in self._terms]
        # `look_up` finds those that occur, too, but takes longer to plan.
        for source in ("terms WHERE word IN (SELECT unnest(?))", "look_up(?)"):
            if unknown:
                rows = self._execute(f"SELECT word, term_id, stem FROM {source}", [unknown])
                self._terms.update({row[0]: (row[1], row[2]) for row in rows.fetchall()})
                unknown = [word for word in unknown if word not in self._terms]
        self._terms.update(dict.fromkeys(unknown))
        return {word: self._terms[word] for word in searched}

    def _score(
        self, stems: dict[str, list[str]], term_ids: dict[str, int]
    ) -> tuple[Ids, dict[str, npt.NDArray[np.bool_]]]:
        """Points of every mail of this inbox, and which mails have which stem."""
        self._load([each for each in term_ids.values() if each not in self._points])
        total = np.zeros(len(self._ids), dtype=np.int64)
        matched = np.zeros(len(self._ids), dtype=np.int64)
        hit_by = {stem: np.zeros(len(self._ids), dtype=np.bool_) for stem in stems}
        for stem, term_id in term_ids.items():
            positions, points = self._points[term_id]
            total[positions] += points
            matched[positions] += 1
            hit_by[stem][positions] = True
        return total * (len(stems) + matched), hit_by

    def _load(self, term_ids: list[int]) -> None:
        """Read the postings of these terms and keep those of this inbox's mail."""
        if not term_ids:
            return
        rows = self._execute(
            "SELECT term_id, email_id, frequency FROM postings"
            f" WHERE term_id IN ({', '.join(str(int(each)) for each in term_ids)})",
            None,
        ).fetchnumpy()
        terms, emails = np.asarray(rows["term_id"]), np.asarray(rows["email_id"])
        positions = np.searchsorted(self._ids, emails)
        inside = positions < len(self._ids)
        inside[inside] = self._ids[positions[inside]] == emails[inside]
        for term_id in term_ids:
            chosen = inside & (terms == term_id)
            where = positions[chosen]
            self._points[term_id] = (
                where,
                self._bm25(where, np.asarray(rows["frequency"])[chosen].astype(np.float64)),
            )

    def _bm25(self, positions: Ids, frequency: npt.NDArray[np.float64]) -> Ids:
        holding = len(positions)
        idf = math.log(1 + (len(self._ids) - holding + 0.5) / (holding + 0.5))
        saturated = (frequency * (K1 + 1)) / (frequency + self._damping[positions])
        # A match is worth at least one point, however common the word and long the mail.
        return np.maximum(np.floor(POINTS * idf * saturated + 0.5), 1).astype(np.int64)

    def _allowed(
        self,
        from_addr: str | None,
        to_addr: str | None,
        sent_after: dt.date | None,
        sent_before: dt.date | None,
    ) -> npt.NDArray[np.bool_]:
        allowed = np.ones(len(self._ids), dtype=np.bool_)
        if sent_after is not None:
            allowed &= (self._sent >= _epoch(sent_after)) & (self._sent != _UNDATED)
        if sent_before is not None:
            allowed &= self._sent < _epoch(sent_before)
        if from_addr is not None and from_addr.strip():
            allowed &= self._matching_address(from_addr, ["from"])
        if to_addr is not None and to_addr.strip():
            allowed &= self._matching_address(to_addr, _RECIPIENT_ROLES)
        return allowed

    def _matching_address(self, wanted: str, roles: list[str]) -> npt.NDArray[np.bool_]:
        key = (wanted, roles[0])
        if key not in self._matching:
            rows = self._execute(
                "SELECT DISTINCT email_id FROM parties"
                " WHERE role IN (SELECT unnest(?)::role) AND address_id IN"
                " (SELECT address_id FROM addresses WHERE address_matches(?, address, names))",
                [roles, wanted],
            ).fetchnumpy()
            self._matching[key] = np.isin(self._ids, np.asarray(rows["email_id"]))
        return self._matching[key]

    def _fetch(self, positions: Ids) -> list[tuple[Any, ...]]:
        """id, message id, date, sender, subject and body of these mails, in their order."""
        if not len(positions):
            return []
        ids = [int(each) for each in self._ids[positions]]
        rows = self._execute(
            "SELECT email_id, message_id, sent_at, from_address, from_name, subject, body"
            f" FROM emails WHERE email_id IN ({', '.join(map(str, ids))})",
            None,
        ).fetchall()
        by_id = {row[0]: row for row in rows}
        return [by_id[each] for each in ids]


def _epoch(day: dt.date) -> int:
    return int(dt.datetime(day.year, day.month, day.day, tzinfo=dt.UTC).timestamp())
