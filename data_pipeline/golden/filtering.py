"""`filter`: drops the rows whose fault can be told without a model.

Mends what can be mended (`mending.py`), runs every rule on every row (`rules.py`), drops
the rows that fail one, and then, of those that ask the same (`duplicates.py`), all but one;
where these have different answers, none is dropped and the check of each is unsure.
A row keeps all its checks, and is dropped for the first of `RULES` that it fails.
"""

from collections.abc import Sequence
from typing import NamedTuple

from art_e.inbox.file import InboxFile
from art_e.inbox.mail import Email
from art_e.question import Question
from data_pipeline.golden.checks import Check, Step, with_checks
from data_pipeline.golden.cited import CitedMails
from data_pipeline.golden.duplicates import duplicates
from data_pipeline.golden.golden_set import GoldenSet, Rejected
from data_pipeline.golden.leaks import gold_mails
from data_pipeline.golden.mending import mended, with_marks
from data_pipeline.golden.owner import Owner, owner_of
from data_pipeline.golden.rivals import inbox_of, mails_of
from data_pipeline.golden.rules import BY, RULES, Facts

STEP: Step = "filter"
MIN_REALISM = 0.7


class Checked(NamedTuple):
    """A row, mended and marked, and what the rules say of it, in the order of `RULES`."""

    question: Question
    checks: tuple[Check, ...]

    @property
    def fault(self) -> Check | None:
        """What the row is to be dropped for."""
        return next((each for each in self.checks if each.passed is False), None)


def filter_rows(file: InboxFile, golden: GoldenSet, *, min_realism: float = MIN_REALISM) -> None:
    """Drop from the set, with the reason, the rows that a rule finds fault with.

    `min_realism` is the least `how_realistic`, in 0..1. What `filter` and later steps did
    before is taken back first.
    """
    golden.undo(STEP)
    rows = checked(file, golden, min_realism=min_realism)
    golden.questions = []
    for row in rows:
        question = with_checks(row.question, row.checks)
        if row.fault is None:
            golden.questions.append(question)
        else:
            golden.rejected.append(Rejected.of(question, row.fault))
    golden.sort()
    golden.record(STEP, len(rows), {"min_realism": min_realism})


def checked(file: InboxFile, golden: GoldenSet, *, min_realism: float) -> list[Checked]:
    """What the rules say of each row of the set, in its order; the set stays as it is.

    Only rows that pass all other rules are compared with each other, and have a check
    "duplicate".
    """
    desk = _Desk(file, golden, min_realism)
    rows = [desk.checked(question) for question in golden.questions]
    sound = [row.question for row in rows if row.fault is None]
    mails = gold_mails(file, sound, ())
    contents = {each.id: {gold.content for gold in mails.of(each)} for each in sound}
    found = duplicates(sound, contents)

    def compared(row: Checked) -> Checked:
        if row.fault is not None:
            return row
        twin = found.get(row.question.id)
        if twin is None:
            check = Check("duplicate", STEP, True, "no other asks the same", BY)
        else:
            check = Check("duplicate", STEP, None if twin.disputed else False, twin.reason, BY)
        return row._replace(checks=(*row.checks, check))

    return [compared(row) for row in rows]


class _Desk:
    """Where the rows of one set are looked at, with what is known of them."""

    def __init__(self, file: InboxFile, golden: GoldenSet, min_realism: float) -> None:
        self._file, self._min_realism = file, min_realism
        self._batches = {each.id: each for each in golden.batches}
        self._cited = CitedMails(file, golden.questions)
        self._owners: dict[str, Owner | None] = {}

    def checked(self, question: Question) -> Checked:
        """The row, mended and marked, and what each rule says of it."""
        batch = self._batches.get(str(question.provenance.get("batch")))
        cited = self._cited.of(question)
        row = with_marks(mended(question, batch, cited))
        # The row may have either form of an id now.
        stored = {each.stored: each for each in cited.values() if each.stored is not None}

        def read() -> Sequence[Email]:
            return mails_of(inbox_of(self._file, row), row.message_ids)

        owner = self._owner(question.inbox_address)
        facts = Facts(self._min_realism, owner, batch, {**cited, **stored}, read)
        return Checked(row, tuple(rule(row, facts) for rule in RULES))

    def _owner(self, address: str) -> Owner | None:
        if address not in self._owners:
            self._owners[address] = owner_of(self._file, address)
        return self._owners[address]
