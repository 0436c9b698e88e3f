"""One address's opened inbox: search and read its mail, with nothing else in reach.

An `Inbox` is a view of its address's `Slice` that ends with its `as_of`. Every search, read and
filter goes through it, so another inbox's mail and mail from the future are "not found" by
construction. The ranking is that of `search_inbox` in macros.sql: BM25 over this inbox alone, times
0.5 + 0.5 x share of words matched, newest first among equals. Of mails that say the same (sender,
subject, body and attachments) only the first is shown. Points are whole numbers, so that Python and
SQL give the same order. Threads may share an inbox: its caches only grow."""

import contextlib
import datetime as dt
import itertools
import math
import threading
from collections.abc import Sequence
from functools import reduce
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from art_e.inbox.mail import AttachedFile, Email, Execute, Hit, Mailbox, Mask, Numbers, in_zone
from art_e.inbox.query import Query, passing
from art_e.inbox.schema import K1, POINTS, B, statement
from art_e.inbox.slice import Named, Postings, Slice, Vocabulary
from art_e.inbox.snippet import cut_snippet
from art_e.inbox.tokenizer import SAMPLE_CHARS, forms, language_of, search_words, stems, words

# Serialize searches: interleaved threads are slower than one after the other.
_TURN = threading.Lock()

_SPELLED = 5  # letters: a shorter word is near too many others

_NONE: Numbers = np.empty(0, dtype=np.int64)
_EPOCH = dt.date(1970, 1, 1).toordinal()  # ordinals count days from 0001-01-01, which is 1


class _Scored(NamedTuple):
    """Positions and the points of each."""

    positions: Numbers  # (n,), ascending; best first after `_largest`
    points: Numbers  # (n,), BM25 x 1e6; after `_ranked` times 2 x words, too


class Inbox:
    """The mail that `address` sent or received up to the end (UTC) of the day `as_of`."""

    def __init__(
        self, execute: Execute, mail: Slice, vocabulary: Vocabulary, address: str,
        as_of: dt.date | None,
    ) -> None:  # fmt: skip
        self.address = address
        self.as_of = as_of
        self._execute = execute
        self._mail = mail
        self._vocabulary = vocabulary
        # Positions are in date order, so an inbox up to a day is the slice's beginning.
        day_after = math.inf if as_of is None else as_of.toordinal() + 1 - _EPOCH
        self._end = day_after * 24 * 60 * 60  # in seconds of Unix time
        self._size = int(mail.sent.searchsorted(self._end))
        length = mail.length[: self._size]
        mean_length = float(length.sum()) / max(len(length), 1) or 1.0  # in words; 1.0 avoids 0 / 0
        self._points: dict[tuple[int, ...], _Scored] = {}
        self._seen: dict[str, int | None] = {}  # the positions of hits by their message ids
        self._threads: dict[int, list[int]] = {}
        # The part of BM25's denominator that depends on the mail alone.
        self._damping = K1 * ((1 - B) + B * length / mean_length)

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
        query: Query | None = None,
        all_words: bool = False,
        max_results: int = 10,
        snippets: bool = True,
    ) -> list[Hit]:
        """Return the mails that match best, best first.

        A keyword of several words counts as its words; a mail needs one of them. Without keywords
        all mails that pass the filters match, newest first. `from_addr` and `to_addr` (To, Cc, Bcc)
        match, in any case, if each of their parts is in the address or in a name that this inbox's
        mail gives it; blank ones filter nothing. `sent_after` is inclusive, `sent_before`
        exclusive, in the mail's own zone. `query` has more filters. With `all_words` a mail needs
        every word, and the newest come first."""
        by_stem: dict[str, str] = {}  # per stem, its alphabetically first word
        named: dict[str, list[str]] = {}  # per stem, the stems of its words in all languages
        distinct = search_words(keywords)
        for word, stem in zip(distinct, stems(distinct), strict=True):
            by_stem[stem] = min(word, by_stem.get(stem, word))
            named[stem] = [*named.get(stem, []), *stems(forms(word))]
        ids = self._vocabulary.term_ids(itertools.chain(*named.values()))
        indexed = {stem: sorted(ids.keys() & listed) for stem, listed in named.items()}
        terms = {stem: listed for stem, listed in indexed.items() if listed}
        with _TURN if self._mail.begin_search() else contextlib.nullcontext():
            scored = self._scored([tuple(ids[each] for each in some) for some in terms.values()])
            if by_stem and not all_words:
                candidates, points = _ranked(scored, len(by_stem))
            else:
                holders = [np.arange(self._size), *(each.positions for each in scored)]
                # A word that the vocabulary lacks is in no mail.
                holders += [_NONE] * (len(by_stem) - len(scored))
                candidates = reduce(np.intersect1d, holders)
                points = np.zeros_like(candidates)  # all equal, so that the newest come first
            masks: list[Mask] = []
            if sent_after is not None or sent_before is not None:
                day, first = self._mail.day, (sent_after or dt.date.min).toordinal()
                masks.append((first <= day) & (day < (sent_before or dt.date.max).toordinal()))
            for party, role in ((from_addr, "from"), (to_addr, "to")):
                if party is not None and party.strip():
                    masks.append(self._mail.matching(party, role, self._size))
            if query is not None:
                masks.append(passing(query.filter, self._mail, self._size, self._holding))
            for mask in masks:
                allowed = mask[candidates]
                candidates, points = candidates[allowed], points[allowed]
            best = self._best(candidates, points, max_results)
            holding = {
                stem: _among(best.positions, positions).tolist()
                for stem, (positions, _) in zip(terms, scored, strict=True)
            }
            return self._hits(best, by_stem, terms, holding, snippets)

    def spelling(self, word: str) -> str | None:
        """Correct a word that no mail has: return the most frequent stem that is one letter off.
        None if a mail has the word, if it is short or not all letters, or if no stem is near."""
        stem, ids = stems([word])[0], self._vocabulary.term_ids(stems(forms(word)))
        is_held = ids and len(self._scored([tuple(ids.values())])[0].positions)
        if is_held or len(word) < _SPELLED or not (word.isascii() and word.isalpha()):
            return None
        near = self._execute(statement("near_stems"), [stem[0], len(stem), stem]).fetchall()
        held = [(len(self._scored([(term_id,)])[0].positions), other) for other, term_id in near]
        return max((each for each in held if each[0]), default=(0, None))[1]

    def read(self, message_id: str) -> Email | None:
        """Return the mail with this id, or the one whose dropped copy has it; None if missing."""
        return self.read_many([message_id])[0]

    def read_many(self, message_ids: Sequence[str]) -> list[Email | None]:
        positions = self._positions(message_ids)
        mails = iter(self._mail.mails([at for at in positions if at is not None]))
        return [None if at is None else next(mails) for at in positions]

    def files(self, message_id: str) -> list[AttachedFile]:
        """Return the files attached to a mail, in its order; none if this inbox lacks the mail."""
        [position] = self._positions([message_id])
        if position is None:
            return []
        rows = self._execute(statement("files"), [int(self._mail.ids[position])])
        files = []
        for (_, name, kind), parts in itertools.groupby(rows.fetchall(), itemgetter(0, 1, 2)):
            data = [part for *_, part in parts]
            files.append(AttachedFile(name, kind, None if None in data else b"".join(data)))
        return files

    def unread_files(self) -> dict[str, int]:
        """Count attached files whose text this inbox lacks, at least in part, by reason."""
        ids = self._mail.ids[: self._size].tolist()
        return dict(self._execute(statement("unread_files"), [ids]).fetchall())

    def thread(self, message_id: str) -> list[Email]:
        [position] = self._positions([message_id])
        places = [] if position is None else self._threads_of([position])[position]
        return self._mail.mails(places)

    def thread_sizes(self, message_ids: Sequence[str]) -> list[int]:
        positions = self._positions(message_ids)
        threads = self._threads_of([each for each in positions if each is not None])
        return [0 if each is None else len(threads[each]) for each in positions]

    def _threads_of(self, positions: list[int]) -> dict[int, list[int]]:
        threads = self._threads
        if not threads.keys() >= {*positions}:
            threads = self._threads = self._mail.threads(self._size, positions)
        return threads

    def canonical_id(self, message_id: str) -> str | None:
        """Return the id under which this inbox stores the mail, or None if it lacks it."""
        [position] = self._positions([message_id])
        return None if position is None else self._mail.rows([position])[0][0]

    def ids_beginning(self, beginning: str) -> list[str]:
        """Return the ids of mails whose id, or a dropped copy's id, has this beginning."""
        named = self._mail.named_from(f"<{beginning.strip().lstrip('<')}").values()
        positions = {at for at in map(self._first, named) if at is not None}
        return [row[0] for row in self._mail.rows(sorted(positions))]

    def _positions(self, message_ids: Sequence[str]) -> list[int | None]:
        stripped = (each.strip() for each in message_ids)
        names = [each if each.startswith("<") else f"<{each}>" for each in stripped]
        if self._seen.keys() >= {*names}:
            return [self._seen[each] for each in names]
        return list(map(self._first, self._mail.named(tuple(names))))

    def _first(self, named: Sequence[Named]) -> int | None:
        """Return the first of an id's mails whose id was known by the inbox's day."""
        return next((position for position, sent in named if sent < self._end), None)

    def copies(self, message_id: str) -> list[str]:
        """Return the ids of this inbox's mails with the same content as a mail, itself included."""
        [position] = self._positions([message_id])
        same = [] if position is None else self._same([position])[0].nonzero()[0].tolist()
        return [row[0] for row in self._mail.rows(same)]

    def _same(self, positions: list[int]) -> Mask:
        """Return a row for each position: which of the inbox's mails have the same content."""
        content = self._mail.content[: self._size]
        return np.equal(content[positions, np.newaxis], content)  # (positions, mails)

    def _best(self, candidates: Numbers, points: Numbers, count: int) -> _Scored:
        """Return the best candidates, as `_largest` does, but only the first of several copies."""
        best = _largest(candidates, points, fetched := count)
        while True:
            _, firsts = np.unique(self._mail.content[best.positions], return_index=True)
            if len(firsts) >= count or fetched >= len(candidates):
                firsts = np.sort(firsts)[:count]  # from the order of content back to that of points
                return _Scored(best.positions[firsts], best.points[firsts])
            best = _largest(candidates, points, fetched := 2 * fetched)  # copies took places

    def _holding(self, stem: str) -> Numbers:
        """Return the positions of mails with a stem, or for `stem*` with words that begin so."""
        if stem.endswith("*"):
            sql = "SELECT DISTINCT term_id FROM terms WHERE starts_with(word, ?) ORDER BY term_id"
            terms = tuple(term_id for (term_id,) in self._execute(sql, [stem[:-1]]).fetchall())
        else:
            terms = tuple(self._vocabulary.term_ids([stem]).values())
        return self._scored([terms])[0].positions if terms else _NONE

    def _scored(self, words: list[tuple[int, ...]]) -> list[_Scored]:
        """Return where each word occurs, and its BM25 points there (Robertson and Zaragoza, 2009):
        idf x frequency x (k1 + 1) / (frequency + k1 x (1 - b + b x length / mean length)), where
        idf is log(1 + (mails - holding + 0.5) / (holding + 0.5)). A word is given by its terms."""
        new = [each for each in words if each not in self._points]
        listed = [term_id for term_ids in new for term_id in term_ids]
        postings = iter(self._mail.postings(listed) if listed else ())
        for term_ids in new:
            positions, frequency = _union([next(postings) for _ in term_ids])
            holding = int(positions.searchsorted(self._size))  # document frequency, no later mail
            inside = positions[:holding]
            # f (k1 + 1) / (f + k1 d) is (k1 + 1) / (1 + k1 d / f).
            damping = self._damping.take(inside) / frequency[:holding]
            idf = math.log(1 + (self._size - holding + 0.5) / (holding + 0.5))
            # Plus one point, so that a match counts, however common the word or long the mail.
            points = POINTS * (K1 + 1) * idf / (1 + damping) + 1
            self._points[term_ids] = _Scored(inside, points.astype(np.int64))  # floored, as in SQL
        return [self._points[each] for each in words]

    def _hits(
        self, best: _Scored, by_stem: dict[str, str], terms: dict[str, list[str]],
        holding: dict[str, list[bool]], snippets: bool,
    ) -> list[Hit]:  # fmt: skip
        """Return a hit for each mail of `best`; `holding` says which of them have each stem, and
        `terms` has the indexed forms of each stem, in all languages."""
        whole = max(2 * POINTS * len(by_stem), 1)  # the scale of POINTS and of `_ranked`
        positions = best.positions.tolist()
        bulk = self._mail.bulk[best.positions].tolist()
        copies = self._same(positions).sum(axis=1).tolist()
        hits = []
        for at, (position, points, row) in enumerate(
            zip(positions, best.points.tolist(), self._mail.rows(positions), strict=True)
        ):
            present = [stem for stem, held in holding.items() if held[at]]
            missing = tuple([word for stem, word in by_stem.items() if stem not in present])
            message_id, sent_at, utc_offset, address, name, subject, body, *_ = row
            mark = language_of(words(body[:SAMPLE_CHARS])) or " "
            marked = [word for stem in present for word in terms[stem] if word.endswith(mark)]
            folded = self._mail.folded.get(position)
            snippet = cut_snippet(body, present + marked, folded) if snippets else ""
            self._seen[message_id] = position
            date, sender = in_zone(sent_at, utc_offset), Mailbox(address, name)
            fields = message_id, date, sender, subject, snippet, points / whole, missing
            hits.append(Hit(*fields, bulk[at], copies[at], body))
        return hits


def _ranked(scored: list[_Scored], count: int) -> _Scored:
    """Return the positions with one of the words, ascending, and their points."""
    if len(scored) == 1:
        return _Scored(scored[0].positions, scored[0].points * (count + 1))  # words + 1 matched
    # Sorting a few ascending runs is quicker than adding into an array of the whole inbox.
    positions = np.concatenate([_NONE, *(each.positions for each in scored)])
    if not len(positions):
        return _Scored(_NONE, _NONE)
    order = positions.argsort(kind="stable")  # timsort, which merges ascending runs
    positions = positions.take(order)
    is_first = np.empty(len(positions), dtype=np.bool_)
    is_first[0] = True
    np.not_equal(positions[1:], positions[:-1], out=is_first[1:])
    (firsts,) = is_first.nonzero()
    # Sum over each mail's run of equal positions, and multiply by words + matched: the factor
    # 0.5 + 0.5 x share matched, without its divisor 2 x words.
    total = np.add.reduceat(np.concatenate([each.points for each in scored]).take(order), firsts)
    matched = np.empty_like(firsts)
    np.subtract(firsts[1:], firsts[:-1], out=matched[:-1])
    matched[-1] = len(positions) - firsts[-1]
    return _Scored(positions.take(firsts), total * (count + matched))


def _largest(candidates: Numbers, points: Numbers, count: int) -> _Scored:
    """Return the `count` candidates with most points, best first, the newest among equals."""
    if len(candidates) > 4 * count:
        parted = points.copy()  # mails below the last place's points can't be among the best
        parted.partition(-count)  # in linear time; the count-th largest is now at -count
        (enough,) = (points >= parted[-count]).nonzero()  # ">=" keeps ties: the date decides
        candidates, points = candidates.take(enough), points.take(enough)
    # Positions ascend, so the reversed order has the newest first.
    order = points.argsort(kind="stable")[::-1][:count]
    return _Scored(candidates.take(order), points.take(order))


def _union(postings: list[Postings]) -> Postings:
    """Merge the postings of several terms, with the largest of their frequencies per position."""
    if len(postings) == 1:
        return postings[0]
    positions, places = np.unique(np.concatenate([at for at, _ in postings]), return_inverse=True)
    frequency = np.zeros(len(positions))  # not sums: a word may be indexed in two languages
    np.maximum.at(frequency, places, np.concatenate([count for _, count in postings]))
    return positions, frequency


def _among(positions: Numbers, ascending: Numbers) -> Mask:
    if not len(ascending):  # `take` can't clip to an empty array
        return np.zeros(len(positions), dtype=np.bool_)
    held: Mask = ascending.take(ascending.searchsorted(positions), mode="clip") == positions
    return held
