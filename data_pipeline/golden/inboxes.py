"""Whose inboxes a golden set asks about, and which split each is in.

Unless named, they are the largest of the file that are a person's: an address that
hardly ever wrote a mail is a distribution list or another spelling. Of a person's
addresses the largest is taken, so that nobody is trained on and tested. Knows nothing of
batches and models.
"""

import datetime as dt
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from art_e.inbox.mail import Email
from art_e.question import SPLITS, Question, Split
from data_pipeline.golden.owner import by_name

# ---- The mails that questions cite, looked up in the inbox file all at once.

_FOUND = """
WITH cited AS (SELECT unnest(?::VARCHAR[]) AS address, unnest(?::VARCHAR[]) AS message_id),
ids AS (
    SELECT message_id, email_id, 0 AS preference FROM emails
    UNION ALL SELECT message_id, email_id, 1 FROM aliases
)
SELECT address, cited.message_id, emails.message_id, sent_at, lower(hex(content_digest)),
    (address_id, email_id) IN (SELECT address_id, email_id FROM parties) AS own
FROM cited JOIN addresses USING (address) JOIN ids USING (message_id)
    JOIN emails USING (email_id)
ORDER BY address, cited.message_id, own DESC, preference, email_id
"""


class Cited(NamedTuple):
    """What an id stands for: the id under which the inbox has the mail.

    None: it has none. `later`: it has one, sent after the question's date, on the day `sent`
    (UTC), or without a date. `elsewhere`: only other inboxes of the file have one.
    """

    stored: str | None
    later: bool
    sent: dt.date | None = None
    elsewhere: bool = False


class FoundMail(NamedTuple):
    """A mail that an id names. `own`: it is in the asker's inbox."""

    stored: str
    sent_at: dt.datetime | None
    content: str  # its content's digest
    own: bool


class CitedMails:
    """What the inbox file has of the mails that `questions` cite.

    `found` has, by `cited_key`, the mails that an id names, those of the asker's inbox
    first. Of an inbox that the file lacks it has none.
    """

    def __init__(self, file: InboxFile, questions: Iterable[Question]) -> None:
        wanted = sorted(
            {cited_key(each, cited) for each in questions for cited in each.message_ids}
        )
        rows = file.execute(_FOUND, [[each[0] for each in wanted], [each[1] for each in wanted]])
        found: defaultdict[tuple[str, str], list[FoundMail]] = defaultdict(list)
        for address, cited, *mail in rows.fetchall():
            found[address, cited].append(FoundMail(*mail))
        self.found: Mapping[tuple[str, str], Sequence[FoundMail]] = dict(found)

    def of(self, question: Question) -> dict[str, Cited]:
        """What each of the question's message ids stands for."""
        return {
            each: _as_of(self.found.get(cited_key(question, each), ()), question.query_date)
            for each in question.message_ids
        }


def address_of(question: Question) -> str:
    """The address of the question's inbox as inbox files write it."""
    return question.inbox_address.strip().lower()


def cited_key(question: Question, message_id: str) -> tuple[str, str]:
    """The question's inbox and an id that it cites, as inbox files write them."""
    wanted = message_id.strip()
    return address_of(question), wanted if wanted.startswith("<") else f"<{wanted}>"


def _as_of(found: Sequence[FoundMail], day: dt.date | None) -> Cited:
    own = [each for each in found if each.own]
    for stored, sent_at, _, _ in own:
        # Mail without a date is in no inbox as of a day.
        if day is None or (sent_at is not None and sent_at.date() <= day):
            return Cited(stored, False)
    if not own:
        return Cited(None, False, elsewhere=bool(found))
    sent_at = own[0].sent_at
    return Cited(None, True, None if sent_at is None else sent_at.date())


# ---- Which mails of an inbox belong to one conversation, told by their subjects.

# What is said under the same subject later than that is another matter ("Expense report").
LONGEST_GAP = dt.timedelta(days=60)

# English, German and Swedish programs', also counted as in "Re[2]:".
_PREFIXES = re.compile(r"(?:\s*(?:re|fwd?|aw|wg|sv|vb)\s*(?:\[\d+\]|\(\d+\))?\s*:)+", re.IGNORECASE)


class Mail(NamedTuple):
    """What is to be known of a mail to draw it; `email_id` is in date order."""

    email_id: int
    message_id: str
    sent_at: dt.datetime
    subject: str
    content: bytes


def plain_subject(subject: str) -> str:
    """The subject without its prefixes, in lower case with single spaces."""
    prefixes = _PREFIXES.match(subject)
    rest = subject[prefixes.end() :] if prefixes else subject
    return " ".join(rest.split()).casefold()


def threads_of(mails: Iterable[Mail]) -> list[list[Mail]]:
    """The threads of mails, which come in date order; each mail is in one.

    A thread's mails are in date order, and threads in that of their first mails. A mail
    without a subject is a thread of its own.
    """
    threads: list[list[Mail]] = []
    last: dict[str, list[Mail]] = {}
    for mail in mails:
        subject = plain_subject(mail.subject)
        thread = last.get(subject) if subject else None
        if thread is not None and mail.sent_at - thread[-1].sent_at <= LONGEST_GAP:
            thread.append(mail)
        else:
            threads.append([mail])
            last[subject] = threads[-1]
    return threads


# ---- Whose inboxes a golden set asks about, and which split each is in.

# The reference's 28 inboxes; two of its 20 for training validate here, which there the
# test inboxes did.
TRAIN, VALIDATION, TEST = 18, 2, 8
# Which split has an inbox where there are too few for all: something is measured first.
_FIRST: tuple[Split, ...] = ("test", "train", "validation")
MIN_MAILS = 500
# In the shared part of Enron's mail lists sent 1 at most, and persons with 500 mails 52 or more.
MIN_SENT = 20


class Counts(NamedTuple):
    """How many inboxes are wanted in each split."""

    train: int = TRAIN
    validation: int = VALIDATION
    test: int = TEST


USUAL = Counts()


class Chosen(NamedTuple):
    """The split of each inbox, the largest inbox first, and what is to be said of the choice."""

    splits: dict[str, Split]
    notes: list[str]


def choose_inboxes(
    file: InboxFile, wanted: Counts, seed: int, min_mails: int = MIN_MAILS
) -> Chosen:
    """The largest inboxes of persons, at least `min_mails` mails each; who is where is drawn.

    Of a file that mail was imported into for owners, theirs alone are whole inboxes; others
    are not chosen, nor is one that mail gives the name of a larger one. Raises `UserError`
    where there is none.
    """
    owners = file.owners()
    rows = file.execute(
        """
        SELECT address, any_value(emails)
        FROM (SELECT * FROM addresses WHERE emails >= ?) JOIN parties USING (address_id)
        WHERE len(?) = 0 OR list_contains(?, address)
        GROUP BY address
        HAVING len(?) > 0 OR (
            count(DISTINCT email_id) FILTER (role = 'from') >= ?
            AND bool_or(role IN ('to', 'cc', 'bcc'))
        )
        ORDER BY any_value(emails) DESC, address
        """,
        [min_mails, owners, owners, owners, MIN_SENT],
    ).fetchall()
    whose = "an owner" if owners else "a person"
    if not rows:
        raise UserError(
            f"no inbox of {whose} holds {min_mails:,} mails; lower --min-mails, or name some"
            " with --inbox (art-e inboxes lists them)"
        )
    persons, passed_over = _persons(file, [address for address, _ in rows], sum(wanted))
    splits = draw(persons, seed, wanted)
    notes = []
    if len(persons) < sum(wanted):
        notes.append(
            f"{len(persons)} of the {sum(wanted)} inboxes wanted, as no other of {whose} holds"
            f" {min_mails:,} mails (--min-mails): {_parted(splits)}"
        )
    if passed_over:
        other, larger = passed_over[0]
        notes.append(
            f"passed over, as mail gives them the name of a larger inbox: {len(passed_over)},"
            f" such as {other} (that of {larger})"
        )
    return Chosen(splits, notes)


def named_inboxes(file: InboxFile, addresses: Sequence[str], wanted: Counts, seed: int) -> Chosen:
    """These inboxes, parted in the proportion that is wanted.

    Raises `UserError` where one is none.
    """
    named = list(dict.fromkeys(file.open_inbox(each).address for each in addresses))
    splits = draw(named, seed, wanted)
    other = len(named) != sum(wanted)
    return Chosen(splits, [f"{len(named)} inboxes: {_parted(splits)}"] if other else [])


def draw(inboxes: Sequence[str], seed: int, wanted: Counts) -> dict[str, Split]:
    """A split for each inbox, drawn by `seed`, as near to the proportions as whole inboxes go.

    Each split that is wanted has an inbox where there are enough of them: test first, then
    training, then validation. The order is that of `inboxes`, and has no say. Raises
    `UserError` where nothing is wanted.
    """
    weights = {name: weight for name in _FIRST if (weight := getattr(wanted, name)) > 0}
    if not weights:
        raise UserError("no split is left: give --train, --validation or --test above 0")
    shares = {name: len(inboxes) * each / sum(weights.values()) for name, each in weights.items()}
    counts = {name: int(place < len(inboxes)) for place, name in enumerate(weights)}
    while sum(counts.values()) < len(inboxes):
        # The one that lacks most; the first of equals.
        counts[max(weights, key=lambda name: shares[name] - counts[name])] += 1
    shuffled = sorted(inboxes)
    random.Random(f"{seed}/inboxes").shuffle(shuffled)
    splits = [name for name in SPLITS for _ in range(counts.get(name, 0))]
    drawn = dict(zip(shuffled, splits, strict=True))
    return {inbox: drawn[inbox] for inbox in inboxes}


def _persons(
    file: InboxFile, addresses: Sequence[str], most: int
) -> tuple[list[str], list[tuple[str, str]]]:
    """Up to `most` addresses of as many people, the first of each, and those passed over, each
    with the one that mail gives the same name.
    """
    names: defaultdict[str, list[str]] = defaultdict(list)
    for name, named in by_name(file, addresses).items():
        for address in named:
            names[address].append(name)
    chosen: list[str] = []
    passed_over = []
    whose: dict[str, str] = {}
    for address in addresses:
        if len(chosen) == most:
            break
        first = next((whose[name] for name in names[address] if name in whose), None)
        if first is None:
            chosen.append(address)
            whose |= dict.fromkeys(names[address], address)
        else:
            passed_over.append((address, first))
    return chosen, passed_over


def _parted(splits: Mapping[str, Split]) -> str:
    counts = Counter(splits.values())
    return ", ".join(f"{counts[name]} {name}" for name in SPLITS)


def inbox_of(file: InboxFile, question: Question) -> Inbox:
    """The inbox as it was when the question was asked. Raises `UserError` for an unknown one."""
    return file.open_inbox(question.inbox_address, question.query_date)


def mails_of(inbox: Inbox, message_ids: Iterable[str]) -> list[Email]:
    """Those of the mails that the inbox has, each once, in the order given."""
    found = inbox.read_many(list(message_ids))
    by_id = {each.message_id: each for each in found if each is not None}
    return list(by_id.values())
