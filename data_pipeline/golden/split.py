"""`split`: inboxes into train, validation and test, with no gold mail on both sides.

A model may have learned a mail that is gold in training, or that lies in a training inbox, and
validation chooses the checkpoint. Rows that share gold mail with another split are dropped from
training before validation, and never from test.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.inbox.tokenizer import words
from art_e.question import SPLITS, Question, Split
from data_pipeline.golden.golden_set import Check, GoldenSet, Rejected, mended, natural, with_checks
from data_pipeline.golden.inboxes import USUAL, CitedMails, Counts, address_of, cited_key, draw

_HOLDERS = """
SELECT DISTINCT lower(hex(content_digest)) AS content, address
FROM emails JOIN parties USING (email_id) JOIN addresses USING (address_id)
WHERE content_digest IN (SELECT unhex(unnest(?::VARCHAR[])))
    AND address IN (SELECT unnest(?::VARCHAR[]))
ORDER BY ALL
"""
Origin = Literal["generate", "rows", "seed"]

# ---- Gold mails by content.


class Gold(NamedTuple):
    """A gold mail: the id that the row cites, and the digest of its content.

    `content` is the id if the inbox file lacks the mail (`found` False).
    """

    cited: str
    content: str
    found: bool


@dataclass(frozen=True, slots=True)
class GoldMails:
    """The gold mails of some questions in the inbox file.

    `holders` has the addresses of the given inboxes that hold a content.
    """

    contents: Mapping[tuple[str, str], tuple[str, ...]]
    holders: Mapping[str, Sequence[str]]

    def of(self, question: Question) -> list[Gold]:
        """The gold mails of the question, in the order in which it cites them."""
        return [
            gold
            for cited in question.message_ids
            for gold in [
                Gold(cited, content, True)
                for content in self.contents.get(cited_key(question, cited), ())
            ]
            or [Gold(cited, cited, False)]
        ]


def gold_mails(file: InboxFile, questions: Sequence[Question], inboxes: Iterable[str]) -> GoldMails:
    """The questions' gold mails, and which of `inboxes` hold them.

    Raises `UserError` if one of the inboxes is not in the file.
    """
    addresses = sorted(inboxes)
    _check_inboxes(file, addresses)
    contents: dict[tuple[str, str], tuple[str, ...]] = {}
    for key, found in CitedMails(file, questions).found.items():
        # An id names one mail of the own inbox; if that lacks it, all mails of that id.
        meant = found[:1] if found[0].own else found
        contents[key] = tuple(dict.fromkeys(each.content for each in meant))
    every = sorted({each for mails in contents.values() for each in mails})
    holders: defaultdict[str, list[str]] = defaultdict(list)
    for content, address in file.execute(_HOLDERS, [every, addresses]).fetchall():
        holders[content].append(address)
    return GoldMails(contents, holders)


def _check_inboxes(file: InboxFile, inboxes: Sequence[str]) -> None:
    rows = file.execute(
        "SELECT address FROM addresses WHERE address IN (SELECT unnest(?::VARCHAR[]))", [inboxes]
    ).fetchall()
    lacking = [each for each in inboxes if (each,) not in set(rows)]
    if lacking:
        more = f" and {len(lacking) - 1} more of the set's inboxes" if len(lacking) > 1 else ""
        raise UserError(
            f"{file.path} holds no mail of {lacking[0]!r}{more}; name the inbox file that the"
            " set was made from with --db FILE"
        )


# ---- The step.


def split(file: InboxFile, golden: GoldenSet, *, seed: int = 0, wanted: Counts = USUAL) -> None:
    """Give every row the split of its inbox, and drop rows that share gold mail with another split.

    Inboxes keep the splits that `generate` drew, or those of the rows if each inbox has one and
    there are several. Otherwise `seed` draws them in the proportions `wanted`; a single inbox goes
    to test. Raises `UserError` if there is no row, an inbox is not in `file`, or no proportion is
    above zero.
    """
    golden.undo("split")
    if not golden.questions:
        raise UserError("no rows to split; art-e golden stats shows what dropped them")
    came = len(golden.questions)
    origin, inboxes = _inboxes(golden, seed, wanted)
    mails = gold_mails(file, golden.questions, inboxes)
    # Changed through the row's history, so that the step can be undone.
    placed = [
        each if each.split == name else mended(each, "split", "split", split=name)
        for each in golden.questions
        for name in [inboxes[address_of(each)]]
    ]
    golden.questions, dropped = _without_leaks(placed, mails, inboxes)
    golden.rejected += dropped
    golden.sort()
    golden.manifest["inboxes"] = dict(sorted(inboxes.items()))
    settings: dict[str, Any] = {"splits_from": origin}
    if origin == "seed":
        golden.manifest["seed"] = seed
        settings |= {"seed": seed, "proportions": wanted._asdict()}
    gold = [mail for each in golden.questions for mail in mails.of(each)]
    settings |= {
        "inboxes": {name: list(inboxes.values()).count(name) for name in SPLITS},
        "leaks": {
            "before": overlaps(placed, mails, inboxes),
            "after": overlaps(golden.questions, mails, inboxes),
            "unknown_gold": len({mail.content for mail in gold if not mail.found}),
        },
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


def _without_leaks(
    questions: Sequence[Question], mails: GoldMails, inboxes: Mapping[str, Split]
) -> tuple[list[Question], list[Rejected]]:
    """The questions that stay, with their checks, and those that share gold mail."""
    kept: list[Question] = []
    rejected: list[Rejected] = []
    in_test = {
        content: f"in the test inbox {address}"
        for content, addresses in mails.holders.items()
        for address in reversed(addresses)
        if inboxes[address] == "test"
    }
    # The first row of an earlier split for which each content is gold.
    taken: dict[str, str] = {}
    for name in ("test", "validation", "train"):
        new: dict[str, str] = {}
        rows = [each for each in questions if each.split == name]
        for question in sorted(rows, key=lambda each: natural(each.id)):
            gold = mails.of(question)
            leaks = {} if name == "test" else {"leak-test-inbox": in_test, "shared-gold": taken}
            fault = next(
                (
                    _check(check, False, f"gold mail {mail.cited} is {places[mail.content]}")
                    for check, places in leaks.items()
                    for mail in gold
                    if mail.content in places
                ),
                None,
            )
            if fault is not None:
                rejected.append(Rejected.of(question, fault))
                continue
            kept.append(with_checks(question, _passed(gold, name)))
            for mail in gold:
                new.setdefault(mail.content, f"gold of {name} question {question.id} too")
        taken = new | taken
    return kept, rejected


def _passed(gold: Sequence[Gold], name: str) -> list[Check]:
    reasons = {"shared-gold": "no gold mail is gold in another split"}
    if name != "test":
        reasons = {"leak-test-inbox": "no gold mail is in a test inbox"} | reasons
    missing = [mail.cited for mail in gold if not mail.found]
    if missing:
        # It may have copies under other ids.
        reason = f"gold mail {missing[0]} is not in the inbox file"
        return [_check(check, None, reason) for check in reasons]
    return [_check(check, True, reason) for check, reason in reasons.items()]


def _check(name: str, passed: bool | None, reason: str) -> Check:
    return Check(name, "split", passed, " ".join(reason.split()), "rule")


# ---- What splits have in common.


def overlaps(
    questions: Sequence[Question], mails: GoldMails, inboxes: Mapping[str, Split]
) -> dict[str, dict[str, int]]:
    """What splits have in common, by pairs of splits that have an inbox.

    `shared_gold`: mails that are gold in both. `shared_questions`: questions of the same words in
    both. `gold_in_inboxes`, "A/B": gold mails of A that an inbox of B holds.
    """
    gold: defaultdict[str, set[str]] = defaultdict(set)
    texts: defaultdict[str, set[str]] = defaultdict(set)
    held: defaultdict[str, set[str]] = defaultdict(set)
    for each in questions:
        name = inboxes[address_of(each)]
        gold[name].update(mail.content for mail in mails.of(each))
        if text := " ".join(words(each.question)):
            texts[name].add(text)
    for content, addresses in mails.holders.items():
        for address in addresses:
            held[inboxes[address]].add(content)
    used = [name for name in SPLITS if name in inboxes.values()]
    pairs = list(itertools.combinations(used, 2))
    return {
        "shared_gold": {f"{a}/{b}": len(gold[a] & gold[b]) for a, b in pairs},
        "shared_questions": {f"{a}/{b}": len(texts[a] & texts[b]) for a, b in pairs},
        "gold_in_inboxes": {
            f"{a}/{b}": len(gold[a] & held[b]) for a, b in itertools.permutations(used, 2)
        },
    }
