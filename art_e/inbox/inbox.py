"""One address's inbox, opened: search and read, and nothing else reachable.

An `Inbox` is a view of its address's `Slice` that ends with its `as_of`; every
search, read and filter goes through it, so another inbox's mail and mail from
the future are "not found" by construction. The ranking is that of
`search_inbox` in macros.sql: BM25 over this inbox alone times 0.5 + 0.5 x share
of words matched, newest first among equals. Points are whole numbers, so that
both give the same order.

An inbox may be used from several threads: what it caches is only ever added to.
Knows nothing of models and turns.
"""

import datetime as dt
import math

import numpy as np
import numpy.typing as npt

from art_e.inbox.mail import Email, Hit, Mailbox
from art_e.inbox.schema import K1, POINTS, B
from art_e.inbox.slice import UNDATED, Postings, Slice
from art_e.inbox.snippet import SnippetFinder
from art_e.inbox.tokenizer import search_words
from art_e.inbox.types import Execute, Mask, Numbers
from art_e.inbox.vocabulary import Vocabulary

_NONE: Numbers = np.empty(0, dtype=np.int64)


class Inbox:
    """The mail that `address` sent or received up to the end (UTC) of the day `as_of`."""

    def __init__(
        self,
        execute: Execute,
        mail: Slice,
        vocabulary: Vocabulary,
        address: str,
        as_of: dt.date | None,
    ) -> None:
        self.address = address
        self.as_of = as_of
        self._execute = execute
        self._mail = mail
        self._vocabulary = vocabulary
        # Positions are in date order, so an inbox up to a day is the slice's beginning.
        self._size = len(mail.ids) if as_of is None else mail.count_before(_day_after(as_of))
        length = mail.length[: self._size]
        mean_length = float(length.sum()) / len(length) if len(length) else 1.0
        # The part of BM25's denominator that depends on the mail alone.
        self._damping = K1 * ((1 - B) + B * length / mean_length)
        self._points: dict[int, tuple[Numbers, Numbers]] = {}

    def __len__(self) -> int:
        return self._size

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
        self._mail.begin_search()
        by_stem: dict[str, list[str]] = {}
        term_ids: dict[str, int] = {}
        for word, term in self._vocabulary.look_up(search_words(keywords)).items():
            by_stem.setdefault(term.stem if term else word, []).append(word)
            if term is not None:
                term_ids[term.stem] = term.term_id
        found = self._scored(list(term_ids.values()))
        candidates, points = self._ranked(found, len(by_stem))
        allowed = self._allowed(candidates, from_addr, to_addr, sent_after, sent_before)
        best, best_points = _largest(candidates[allowed], points[allowed], max_results)
        holding = {stem: _among(best, found[term_id][0]) for stem, term_id in term_ids.items()}
        finder = SnippetFinder(by_stem)
        names = {stem: min(words) for stem, words in by_stem.items()}
        whole = max(2 * POINTS * len(by_stem), 1)
        return [
            Hit(
                message_id=row.message_id,
                date=row.date,
                sender=row.sender,
                subject=row.subject,
                snippet=finder.cut(row.body),
                score=float(best_points[place]) / whole,
                missing=tuple(
                    name
                    for stem, name in names.items()
                    if stem not in holding or not holding[stem][place]
                ),
            )
            for place, row in enumerate(self._mail.rows(best))
        ]

    def read(self, message_id: str) -> Email | None:
        """The mail with this id, or of which it is a dropped copy; None: not in this inbox."""
        position = self._position(message_id)
        if position is None:
            return None
        row = self._execute(
            "SELECT message_id, sent_at, from_address, from_name, to_recipients, cc_recipients,"
            " bcc_recipients, subject, body FROM emails WHERE email_id = ?",
            [int(self._mail.ids[position])],
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
        position = self._position(message_id)
        if position is None:
            return None
        return self._mail.rows(np.asarray([position]))[0].message_id

    def _position(self, message_id: str) -> int | None:
        wanted = message_id.strip()
        if not wanted.startswith("<"):
            wanted = f"<{wanted}>"
        found = self._mail.positions_of(wanted)
        return next((position for position in found if position < self._size), None)

    def _scored(self, term_ids: list[int]) -> dict[int, tuple[Numbers, Numbers]]:
        """Positions in this inbox and points there, of each term."""
        new = [each for each in term_ids if each not in self._points]
        for term_id, postings in zip(new, self._mail.postings(new), strict=True):
            self._points[term_id] = self._bm25(postings)
        return {term_id: self._points[term_id] for term_id in term_ids}

    def _bm25(self, postings: Postings) -> tuple[Numbers, Numbers]:
        holding = int(np.searchsorted(postings.positions, self._size))
        positions = postings.positions[:holding]
        frequency: npt.NDArray[np.float64] = postings.frequency[:holding].astype(np.float64)
        idf = math.log(1 + (self._size - holding + 0.5) / (holding + 0.5))
        saturated = (frequency * (K1 + 1)) / (frequency + self._damping[positions])
        # A match is worth at least one point, however common the word and long the mail.
        points = np.maximum(np.floor(POINTS * idf * saturated + 0.5), 1).astype(np.int64)
        return positions, points

    def _ranked(
        self, found: dict[int, tuple[Numbers, Numbers]], wanted: int
    ) -> tuple[Numbers, Numbers]:
        """Positions that have one of the words, and their points; with no words, every one."""
        if not wanted:
            return np.arange(self._size), np.zeros(self._size, dtype=np.int64)
        # Sorting a few ascending runs is quicker than adding into an array of the whole inbox.
        positions = np.concatenate([each for each, _ in found.values()] or [_NONE])
        points = np.concatenate([each for _, each in found.values()] or [_NONE])
        if not len(positions):
            return _NONE, _NONE
        order = np.argsort(positions, kind="stable")
        positions = positions[order]
        starts = np.flatnonzero(np.diff(positions, prepend=-1))
        matched = np.diff(starts, append=len(positions))
        total = np.add.reduceat(points[order], starts)
        return positions[starts], total * (wanted + matched)

    def _allowed(
        self,
        candidates: Numbers,
        from_addr: str | None,
        to_addr: str | None,
        sent_after: dt.date | None,
        sent_before: dt.date | None,
    ) -> Mask:
        allowed = np.ones(len(candidates), dtype=np.bool_)
        if sent_after is not None:
            allowed &= candidates >= self._mail.count_before(_epoch(sent_after))
            allowed &= self._mail.sent[candidates] != UNDATED
        if sent_before is not None:
            allowed &= candidates < self._mail.count_before(_epoch(sent_before))
        if from_addr is not None and from_addr.strip():
            allowed &= self._mail.matching(from_addr, "from")[candidates]
        if to_addr is not None and to_addr.strip():
            allowed &= self._mail.matching(to_addr, "to")[candidates]
        return allowed


def _largest(candidates: Numbers, points: Numbers, count: int) -> tuple[Numbers, Numbers]:
    """The `count` candidates with most points, best first, the newest among equals."""
    if len(candidates) > 4 * count:
        # Those below the last place's points can't be among them.
        least = np.partition(points, -count)[-count]
        enough = points >= least
        candidates, points = candidates[enough], points[enough]
    order = np.lexsort((-candidates, -points))[:count]
    return candidates[order], points[order]


def _among(positions: Numbers, ascending: Numbers) -> Mask:
    """Which of `positions` are in `ascending`."""
    places = np.searchsorted(ascending, positions)
    places[places == len(ascending)] = 0
    return ascending[places] == positions if len(ascending) else np.zeros(len(places), np.bool_)


def _day_after(day: dt.date) -> int:
    return _epoch(day) + 24 * 60 * 60


def _epoch(day: dt.date) -> int:
    return int(dt.datetime(day.year, day.month, day.day, tzinfo=dt.UTC).timestamp())
