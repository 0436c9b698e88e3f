"""The numbers of an inbox file's stems, for all its inboxes.

The first look-ups ask the file for the stems in question; a process that goes on searching then
reads them all. What a word's stem is depends on the word alone: a rule that asked which words the
file holds would tell one inbox what stands in another.
"""

import threading
from collections.abc import Iterable

from art_e.inbox.types import Execute

# Look-ups in SQL before all stems are read: about 1 ms each, against 40 ms for 87,000 words.
LOOK_UPS_IN_SQL = 2


class Vocabulary:
    """The stems of one file; may be used from several threads."""

    def __init__(self, execute: Execute) -> None:
        self._execute = execute
        self._lock = threading.Lock()
        self._look_ups = 0
        self._known: dict[str, int] | None = None

    def term_ids(self, stems: Iterable[str]) -> dict[str, int]:
        """The number of each stem that some mail of the file holds, in the order given."""
        wanted = list(stems)
        known = self._known
        if known is None:
            self._look_ups += 1
            known = self._all() if self._look_ups > LOOK_UPS_IN_SQL else self._some(wanted)
        return {stem: known[stem] for stem in wanted if stem in known}

    def _some(self, wanted: list[str]) -> dict[str, int]:
        sql = "SELECT DISTINCT stem, term_id FROM terms WHERE stem IN (SELECT unnest(?))"
        return dict(self._execute(sql, [wanted]).fetchall()) if wanted else {}

    def _all(self) -> dict[str, int]:
        with self._lock:
            if self._known is None:
                rows = self._execute("SELECT DISTINCT stem, term_id FROM terms", None).fetchall()
                self._known = dict(rows)
            return self._known
