"""The split step: inboxes into train, validation and test, and no gold mail on both sides.

A mail that is gold in test, or lies in a test inbox, would be known to a model that was
trained on it; and validation chooses the checkpoint, so that a test mail is no gold there
either. Rows that break this go from training before validation, and never from test.
Knows nothing of how the rows were made.
"""

import datetime as dt
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.inbox.tokenizer import words
from art_e.question import SPLITS, Question, Split
from data_pipeline.golden.golden_set import Check, GoldenSet, Rejected, mended, natural, with_checks
from data_pipeline.golden.inboxes import USUAL, CitedMails, Counts, address_of, cited_key, draw
from data_pipeline.golden.owner import by_name

# ---- Where splits of a golden set touch: gold mails, inboxes, questions and people in common.

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
        return [
            Gold(cited, content, known)
            for cited in question.message_ids
            for found in [self.contents.get(cited_key(question, cited), ())]
            for content, known in ([(each, True) for each in found] or [(cited, False)])
        ]


def gold_mails(file: InboxFile, questions: Sequence[Question], inboxes: Iterable[str]) -> GoldMails:
    """What `file` knows of the questions' gold mails, and which of `inboxes` hold them.

    Raises `UserError` where one of the inboxes is not in the file.
    """
    asked_about = sorted(inboxes)
    _check_inboxes(file, asked_about)
    contents: dict[tuple[str, str], tuple[str, ...]] = {}
    days: dict[str, dt.date | None] = {}
    for key, found in CitedMails(file, questions).found.items():
        # One mail of the asker's own; of an id that the inbox lacks it is all that have it,
        # those of one content counted once.
        meant = found[:1] if found[0].own else found
        contents[key] = tuple(dict.fromkeys(each.content for each in meant))
        for each in meant:
            day = None if each.sent_at is None else each.sent_at.date()
            known = [date for date in (day, days.get(each.content)) if date is not None]
            days[each.content] = min(known, default=None)
    holders: defaultdict[str, list[str]] = defaultdict(list)
    for content, address in file.execute(_HOLDERS, [sorted(days), asked_about]).fetchall():
        holders[content].append(address)
    return GoldMails(
        contents,
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
        split = inboxes[address_of(each)]
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

    Each set of addresses is told once, by the first of its names (`people.by_name`).
    """
    found: dict[tuple[str, ...], str] = {}
    for name, addresses in by_name(file, inboxes).items():
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
        gold[inboxes[address_of(each)]].update(
            mail.content for mail in mails.of(each) if mail.known
        )
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


# ---- The split step: inboxes into train, validation and test, and no gold mail on both sides.

Origin = Literal["generate", "rows", "seed"]


def split(
    file: InboxFile,
    golden: GoldenSet,
    *,
    seed: int = 0,
    wanted: Counts = USUAL,
) -> None:
    """Give every row the split of its inbox, and drop those whose gold another split knows.

    Inboxes keep the splits that `generate` drew, or else those that the rows carry where
    each inbox has one and together they have several. Others are drawn by `seed`, in the
    proportions given; with a single inbox all is test, as nothing else would be measured
    on unseen mail. Raises `UserError` where the set has no row, an inbox is not in `file`,
    or no proportion is above zero.
    """
    golden.undo("split")
    if not golden.questions:
        raise UserError("no rows to split; art-e golden stats tells what dropped them")
    came = len(golden.questions)
    origin, inboxes = _inboxes(golden, seed, wanted)
    mails = gold_mails(file, golden.questions, inboxes)
    placed = [_placed(each, inboxes[address_of(each)]) for each in golden.questions]
    before = overlaps(placed, mails, inboxes)
    kept, dropped = _without_leaks(placed, mails, inboxes)
    golden.questions = kept
    golden.rejected += dropped
    golden.sort()
    golden.manifest["inboxes"] = dict(sorted(inboxes.items()))
    settings: dict[str, Any] = {"splits_from": origin}
    if origin == "seed":
        golden.manifest["seed"] = seed
        settings |= {"seed": seed, "proportions": wanted._asdict()}
    settings["inboxes"] = {name: list(inboxes.values()).count(name) for name in SPLITS}
    settings["gold_days"] = gold_days(kept, mails, inboxes)
    settings["leaks"] = {
        "before": before,
        "after": overlaps(kept, mails, inboxes),
        **shared_mails(file, inboxes),
        "same_people": same_people(file, inboxes),
        "unknown_gold": len(
            {mail.content for each in kept for mail in mails.of(each) if not mail.known}
        ),
    }
    golden.record("split", came, settings)


def _inboxes(golden: GoldenSet, seed: int, wanted: Counts) -> tuple[Origin, dict[str, Split]]:
    used = sorted({address_of(each) for each in golden.questions})
    if "generate" in golden.manifest["steps"]:
        generated: dict[str, Split] = golden.manifest["inboxes"]
        lacking = [each for each in used if each not in generated]
        if lacking:
            raise UserError(
                f"the set's manifest has no split for the inbox {lacking[0]!r};"
                " make the set anew with: art-e golden generate"
            )
        return "generate", generated
    carried = {(address_of(each), each.split) for each in golden.questions}
    own = {inbox: name for inbox, name in carried if name is not None}
    if len(carried) == len(own) == len(used) and len(set(own.values())) > 1:
        return "rows", own
    return "seed", draw(used, seed, wanted)


def _placed(question: Question, name: Split) -> Question:
    # In the row's history, so that the step can be taken back.
    return question if question.split == name else mended(question, "split", "split", split=name)


class _Leak(NamedTuple):
    """A gold mail, and where it is known too."""

    check: str
    mail: Gold
    where: str


def _without_leaks(
    questions: Sequence[Question], mails: GoldMails, inboxes: Mapping[str, Split]
) -> tuple[list[Question], list[Rejected]]:
    """The questions that may stay, with their checks, and those that may not."""
    by_split: dict[Split, list[Question]] = {
        name: sorted(
            (each for each in questions if each.split == name), key=lambda each: natural(each.id)
        )
        for name in SPLITS
    }
    kept: list[Question] = []
    rejected: list[Rejected] = []
    # Of each content that is gold in the splits done so far, the first row that says so.
    taken: dict[str, str] = {}
    for name in ("test", "validation", "train"):
        new: dict[str, str] = {}
        for question in by_split[name]:
            gold = mails.of(question)
            leak = None
            if name != "test":
                leak = _in_test_inbox(gold, mails, inboxes) or _shared(gold, taken)
            if leak is not None:
                reason = f"gold mail {leak.mail.cited} is {leak.where}"
                rejected.append(Rejected.of(question, _check(leak.check, False, reason)))
                continue
            kept.append(with_checks(question, _passed(gold, name)))
            for mail in gold:
                new.setdefault(mail.content, f"gold of {name} question {question.id} too")
        for content, where in new.items():
            taken.setdefault(content, where)
    return kept, rejected


def _in_test_inbox(
    gold: Sequence[Gold], mails: GoldMails, inboxes: Mapping[str, Split]
) -> _Leak | None:
    for mail in gold:
        for address in mails.holders.get(mail.content, ()):
            if inboxes[address] == "test":
                return _Leak("leak-test-inbox", mail, f"in the test inbox {address}")
    return None


def _shared(gold: Sequence[Gold], taken: Mapping[str, str]) -> _Leak | None:
    for mail in gold:
        if mail.content in taken:
            return _Leak("shared-gold", mail, taken[mail.content])
    return None


def _passed(gold: Sequence[Gold], name: Split) -> list[Check]:
    unknown = [mail.cited for mail in gold if not mail.known]
    if unknown:
        # Its copies under other ids, and whose they are, can't be told.
        why = f"gold mail {unknown[0]} is not in the inbox file"
        passed = None
    else:
        why, passed = "", True
    checks = [_check("shared-gold", passed, why or "no gold mail is gold in another split")]
    if name != "test":
        reason = why or "no gold mail is in a test inbox"
        checks.insert(0, _check("leak-test-inbox", passed, reason))
    return checks


def _check(name: str, passed: bool | None, reason: str) -> Check:
    return Check(name, "split", passed, " ".join(reason.split()), "rule")
