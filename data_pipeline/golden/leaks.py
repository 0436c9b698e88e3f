"""Where splits of a golden set touch: gold mails, inboxes, questions and people in common.

Mails are compared by content: copies under other message ids, dropped ones included, are
the same mail. Knows nothing of which split an inbox belongs to and of what is dropped.
"""

import datetime as dt
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.inbox.tokenizer import words
from art_e.question import SPLITS, Question, Split

# The mails that ids name. A mail of the asker's own inbox goes before any other, a mail's own
# id before a copy's, as `Inbox.read` has it; of an id that the inbox lacks it is all of them.
_CITED = """
WITH cited AS (SELECT unnest(?::VARCHAR[]) AS address, unnest(?::VARCHAR[]) AS message_id),
ids AS (
    SELECT message_id, email_id, 0 AS preference FROM emails
    UNION ALL SELECT message_id, email_id, 1 FROM aliases
),
found AS (
    SELECT address, message_id, email_id, min(preference) AS preference,
        (address_id, email_id) IN (SELECT address_id, email_id FROM parties) AS own
    FROM cited JOIN ids USING (message_id) JOIN addresses USING (address)
    GROUP BY ALL
),
placed AS (
    SELECT *, bool_or(own) OVER (PARTITION BY address, message_id) AS any_own,
        row_number() OVER (
            PARTITION BY address, message_id ORDER BY own DESC, preference, email_id) AS place
    FROM found
)
SELECT address, p.message_id, lower(hex(content_digest)), CAST(sent_at AS DATE)
FROM placed AS p JOIN emails USING (email_id)
WHERE place = 1 OR NOT any_own ORDER BY ALL
"""

_HOLDERS = """
SELECT DISTINCT lower(hex(content_digest)) AS content, address
FROM emails JOIN parties USING (email_id) JOIN addresses USING (address_id)
WHERE content_digest IN (SELECT unhex(unnest(?::VARCHAR[])))
    AND address IN (SELECT unnest(?::VARCHAR[]))
ORDER BY ALL
"""

_SHARED = """
WITH inboxes AS (SELECT unnest(?::VARCHAR[]) AS address, unnest(?::VARCHAR[]) AS split),
held AS (
    SELECT DISTINCT split, content_digest
    FROM inboxes JOIN addresses USING (address) JOIN parties USING (address_id)
        JOIN emails USING (email_id)
)
SELECT a.split, b.split, count(*) FROM held AS a JOIN held AS b USING (content_digest)
GROUP BY ALL
"""


class Gold(NamedTuple):
    """One gold mail: the id by which the row cites it, and its content's digest.

    `content` is the id itself where the inbox file has no such mail; `known` tells.
    """

    cited: str
    content: str
    known: bool


@dataclass(frozen=True, slots=True)
class GoldMails:
    """What the inbox file knows of the gold mails of some questions.

    `holders` are the addresses, of those asked about, whose inboxes hold a content; `days`
    the day (UTC) on which it was first sent, None where that is not known.
    """

    contents: Mapping[tuple[str, str], tuple[str, ...]]
    days: Mapping[str, dt.date | None]
    holders: Mapping[str, tuple[str, ...]]

    def of(self, question: Question) -> list[Gold]:
        """The gold mails of the question, in the order in which it cites them."""
        address = inbox_of(question)
        return [
            Gold(cited, content, known)
            for cited in question.message_ids
            for found in [self.contents.get((address, _bracketed(cited)), ())]
            for content, known in ([(each, True) for each in found] or [(cited, False)])
        ]


def inbox_of(question: Question) -> str:
    """The address of the question's inbox as inbox files write it."""
    return question.inbox_address.strip().lower()


def gold_mails(file: InboxFile, questions: Sequence[Question], inboxes: Iterable[str]) -> GoldMails:
    """What `file` knows of the questions' gold mails, and which of `inboxes` hold them.

    Raises `UserError` where one of the inboxes is not in the file.
    """
    asked_about = sorted(inboxes)
    _check_inboxes(file, asked_about)
    cited = sorted(
        {(inbox_of(each), _bracketed(cited)) for each in questions for cited in each.message_ids}
    )
    contents: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    days: dict[str, dt.date | None] = {}
    rows = file.execute(_CITED, [[each[0] for each in cited], [each[1] for each in cited]])
    for address, message_id, content, day in rows.fetchall():
        contents[address, message_id].append(content)
        known = [each for each in (day, days.get(content)) if each is not None]
        days[content] = min(known, default=None)
    holders: defaultdict[str, list[str]] = defaultdict(list)
    for content, address in file.execute(_HOLDERS, [sorted(days), asked_about]).fetchall():
        holders[content].append(address)
    return GoldMails(
        # Mails of one content that an unknown inbox may have meant count once.
        {key: tuple(dict.fromkeys(found)) for key, found in contents.items()},
        days,
        {content: tuple(addresses) for content, addresses in holders.items()},
    )


def overlaps(
    questions: Sequence[Question], mails: GoldMails, inboxes: Mapping[str, Split]
) -> dict[str, dict[str, int]]:
    """What splits have in common, by pairs of those that have an inbox.

    `shared_gold`: mails that are gold in both. `shared_questions`: questions of the same
    words in both. `gold_in_inboxes`, "A/B": gold mails of A that an inbox of B holds.
    """
    gold: dict[Split, set[str]] = {split: set() for split in SPLITS}
    texts: dict[Split, set[str]] = {split: set() for split in SPLITS}
    for each in questions:
        split = inboxes[inbox_of(each)]
        gold[split].update(mail.content for mail in mails.of(each))
        if asked := " ".join(words(each.question)):
            texts[split].add(asked)
    held = {
        split: {
            content
            for content, addresses in mails.holders.items()
            if any(inboxes.get(address) == split for address in addresses)
        }
        for split in SPLITS
    }
    used = [split for split in SPLITS if split in inboxes.values()]
    pairs = list(itertools.combinations(used, 2))
    return {
        "shared_gold": {f"{a}/{b}": len(gold[a] & gold[b]) for a, b in pairs},
        "shared_questions": {f"{a}/{b}": len(texts[a] & texts[b]) for a, b in pairs},
        "gold_in_inboxes": {
            f"{a}/{b}": len(gold[a] & held[b]) for a, b in itertools.permutations(used, 2)
        },
    }


def shared_mails(file: InboxFile, inboxes: Mapping[str, Split]) -> dict[str, dict[str, int]]:
    """How many mails the inboxes of each split hold, and those of each two splits both hold."""
    addresses = sorted(inboxes)
    rows = file.execute(_SHARED, [addresses, [inboxes[each] for each in addresses]]).fetchall()
    counts = {(a, b): count for a, b, count in rows}
    used = [split for split in SPLITS if (split, split) in counts]
    return {
        "mails": {split: counts[split, split] for split in used},
        "shared_mails": {
            f"{a}/{b}": counts.get((a, b), 0) for a, b in itertools.combinations(used, 2)
        },
    }


def same_people(file: InboxFile, inboxes: Mapping[str, Split]) -> list[dict[str, Any]]:
    """Inboxes of different splits that mail gives one name: maybe one person's.

    Names are the same where their words are, initials aside: "Kaminski, Vince J" is
    "Vince Kaminski". Each set of addresses is told once, by the first of its names.
    """
    rows = file.execute(
        "SELECT address, names FROM addresses WHERE address IN (SELECT unnest(?::VARCHAR[]))"
        " ORDER BY address",
        [sorted(inboxes)],
    ).fetchall()
    named: defaultdict[str, list[str]] = defaultdict(list)
    for address, names in rows:
        for name in sorted({_person(each) for each in names.split(" | ")}):
            # One word ("legal", "jeff") names nobody.
            if " " in name:
                named[name].append(address)
    found: dict[tuple[str, ...], str] = {}
    for name, addresses in sorted(named.items()):
        if len({inboxes[each] for each in addresses}) > 1:
            found.setdefault(tuple(addresses), name)
    return [
        {"name": name, "inboxes": {each: inboxes[each] for each in addresses}}
        for addresses, name in sorted(found.items())
    ]


def gold_days(
    questions: Sequence[Question], mails: GoldMails, inboxes: Mapping[str, Split]
) -> dict[str, dict[str, Any]]:
    """When gold mails of each split were sent: first and last day, and how many in each month.

    A mail counts once in a split, however often it is gold there.
    """
    gold: dict[Split, set[str]] = {split: set() for split in SPLITS}
    for each in questions:
        gold[inboxes[inbox_of(each)]].update(mail.content for mail in mails.of(each) if mail.known)
    told: dict[str, dict[str, Any]] = {}
    for split, contents in gold.items():
        days = sorted(day for each in contents if (day := mails.days[each]) is not None)
        if contents:
            told[split] = {
                "first": days[0].isoformat() if days else None,
                "last": days[-1].isoformat() if days else None,
                "by_month": dict(Counter(day.isoformat()[:7] for day in days)),
                "undated": len(contents) - len(days),
            }
    return told


def _check_inboxes(file: InboxFile, inboxes: Sequence[str]) -> None:
    rows = file.execute(
        "SELECT address FROM (SELECT unnest(?::VARCHAR[]) AS address)"
        " WHERE address NOT IN (SELECT address FROM addresses) ORDER BY address",
        [list(inboxes)],
    ).fetchall()
    if rows:
        more = f" and {len(rows) - 1} more of the set's inboxes" if len(rows) > 1 else ""
        raise UserError(
            f"{file.path} holds no mail of {rows[0][0]!r}{more}; name the inbox file that the"
            " set was made from with --db FILE"
        )


def _bracketed(message_id: str) -> str:
    """The id in the form in which inbox files have it."""
    wanted = message_id.strip()
    return wanted if wanted.startswith("<") else f"<{wanted}>"


def _person(name: str) -> str:
    return " ".join(sorted(each for each in words(name) if len(each) > 1))
