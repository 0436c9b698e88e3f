"""Whose inboxes a golden set asks about, and which split each is in.

Unless named, they are the largest of the file that are a person's: an address that
hardly ever wrote a mail is a distribution list or another spelling. Of a person's
addresses the largest is taken, so that nobody is trained on and tested. Knows nothing of
batches and models.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.question import SPLITS, Split
from data_pipeline.golden.people import by_name

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
