"""`split`: inboxes into train, validation and test, with no gold mail on both sides.

A model may have learned a mail that is gold in training, or that lies in a training inbox, and
validation chooses the checkpoint. Rows that share gold mail with another split are dropped from
training before validation, and never from test.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.question import SPLITS, Question, Split
from data_pipeline.golden.golden_set import Check, GoldenSet, mended, natural, with_checks
from data_pipeline.golden.inboxes import CitedMails, Counts, Gold, address_of, draw

_HOLDERS = """
SELECT DISTINCT lower(hex(content_digest)) AS content, address
FROM emails JOIN parties USING (email_id) JOIN addresses USING (address_id)
WHERE lower(hex(content_digest)) IN (SELECT unnest(?::VARCHAR[]))
    AND address IN (SELECT unnest(?::VARCHAR[]))
ORDER BY ALL
"""
Origin = Literal["generate", "rows", "seed"]
# The gold mails of questions by id, and the addresses that hold a content.
GoldMails = Mapping[str, Sequence[Gold]]
Holders = Mapping[str, Sequence[str]]


def split(file: InboxFile, golden: GoldenSet, *, seed: int, wanted: Counts) -> None:
    """Give every row the split of its inbox, and drop rows that share gold mail with another split.

    Inboxes keep the splits that `generate` drew, or those of the rows if each inbox has one and
    there are several. Otherwise `seed` draws them in the proportions `wanted`; a single inbox goes
    to test. Raises `UserError` if there is no row, or no proportion is above zero.
    """
    golden.undo("split")
    if not golden.questions:
        raise UserError("no rows to split; art-e golden stats shows what dropped them")
    origin, inboxes = _inboxes(golden, seed, wanted)
    cited = CitedMails(file, golden.questions)
    gold = {each.id: cited.gold_of(each) for each in golden.questions}
    holders = _holders(file, gold, inboxes)
    # Changed through the row's history, so that the step can be undone.
    placed = [
        each if each.split == name else mended(each, "split", "split", split=name)
        for each in golden.questions
        for name in [inboxes[address_of(each)]]
    ]
    before = overlaps(placed, gold, holders, inboxes)
    rows = list(_without_leaks(placed, gold, holders, inboxes))
    kept = [question for question, fault in rows if fault is None]
    golden.manifest["inboxes"] = dict(sorted(inboxes.items()))
    settings: dict[str, Any] = {
        "splits_from": origin,
        "inboxes": {name: list(inboxes.values()).count(name) for name in SPLITS},
        "leaks": {"before": before, "after": overlaps(kept, gold, holders, inboxes)},
    }
    if origin == "seed":
        golden.manifest["seed"] = seed
        settings |= {"seed": seed, "proportions": wanted._asdict()}
    golden.finish("split", rows, settings)


def _holders(file: InboxFile, gold: GoldMails, inboxes: Mapping[str, Split]) -> Holders:
    contents = sorted({mail.content for mails in gold.values() for mail in mails})
    holders: defaultdict[str, list[str]] = defaultdict(list)
    for content, address in file.execute(_HOLDERS, [contents, sorted(inboxes)]).fetchall():
        holders[content].append(address)
    return holders


def _inboxes(golden: GoldenSet, seed: int, wanted: Counts) -> tuple[Origin, dict[str, Split]]:
    used = sorted({address_of(each) for each in golden.questions})
    if "generate" in golden.manifest["steps"]:
        generated: dict[str, Split] = golden.manifest["inboxes"]
        return "generate", generated
    carried = {(address_of(each), each.split) for each in golden.questions}
    own = {inbox: name for inbox, name in carried if name is not None}
    if len(carried) == len(own) == len(used) and len(set(own.values())) > 1:
        return "rows", own
    return "seed", draw(used, seed, wanted)


def _without_leaks(
    questions: Sequence[Question], gold: GoldMails, holders: Holders, inboxes: Mapping[str, Split]
) -> Iterator[tuple[Question, Check | None]]:
    """The questions with their checks, and for those that share gold mail the failed check."""
    in_test = {
        content: f"in the test inbox {address}"
        for content, addresses in holders.items()
        for address in reversed(addresses)
        if inboxes[address] == "test"
    }
    # The first row of an earlier split for which each content is gold.
    taken: dict[str, str] = {}
    for name in ("test", "validation", "train"):
        new: dict[str, str] = {}
        rows = [each for each in questions if each.split == name]
        for question in sorted(rows, key=lambda each: natural(each.id)):
            places = {"shared-gold": taken}
            if name != "test":
                places = {"leak-test-inbox": in_test, **places}
            checks = [_checked(check, gold[question.id], each) for check, each in places.items()]
            fault = next((check for check in checks if not check.passed), None)
            yield (question, fault) if fault else (with_checks(question, checks), None)
            if fault is None:
                for mail in gold[question.id]:
                    new.setdefault(mail.content, f"gold of {name} question {question.id} too")
        taken = new | taken


def _checked(name: str, gold: Sequence[Gold], places: Mapping[str, str]) -> Check:
    found = next((mail for mail in gold if mail.content in places), None)
    reason = "no gold mail is in a test inbox"
    if name == "shared-gold":
        reason = "no gold mail is gold in another split"
    if found is not None:
        reason = " ".join(f"gold mail {found.cited} is {places[found.content]}".split())
    return Check(name, "split", found is None, reason, "rule")


def overlaps(
    questions: Sequence[Question], gold: GoldMails, holders: Holders, inboxes: Mapping[str, Split]
) -> dict[str, dict[str, int]]:
    """What splits have in common, by pairs of splits that have an inbox.

    `shared_gold`: mails that are gold in both. `gold_in_inboxes`, "A/B": gold mails of A that an
    inbox of B holds.
    """
    contents: defaultdict[str, set[str]] = defaultdict(set)
    held: defaultdict[str, set[str]] = defaultdict(set)
    for each in questions:
        contents[inboxes[address_of(each)]].update(mail.content for mail in gold[each.id])
    for content, addresses in holders.items():
        for address in addresses:
            held[inboxes[address]].add(content)
    used = [name for name in SPLITS if name in inboxes.values()]
    return {
        "shared_gold": {
            f"{a}/{b}": len(contents[a] & contents[b]) for a, b in itertools.combinations(used, 2)
        },
        "gold_in_inboxes": {
            f"{a}/{b}": len(contents[a] & held[b]) for a, b in itertools.permutations(used, 2)
        },
    }
