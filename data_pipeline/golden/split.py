"""The split step: inboxes into train, validation and test, and no gold mail on both sides.

A mail that is gold in test, or lies in a test inbox, would be known to a model that was
trained on it; and validation chooses the checkpoint, so that a test mail is no gold there
either. Rows that break this go from training before validation, and never from test.
Knows nothing of how the rows were made.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.question import SPLITS, Question, Split
from data_pipeline.golden import leaks
from data_pipeline.golden.checks import Check, mended, with_checks
from data_pipeline.golden.cited import address_of
from data_pipeline.golden.golden_set import GoldenSet, Rejected, natural
from data_pipeline.golden.inboxes import USUAL, Counts, draw
from data_pipeline.golden.leaks import Gold, GoldMails

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
    mails = leaks.gold_mails(file, golden.questions, inboxes)
    placed = [_placed(each, inboxes[address_of(each)]) for each in golden.questions]
    before = leaks.overlaps(placed, mails, inboxes)
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
    settings["gold_days"] = leaks.gold_days(kept, mails, inboxes)
    settings["leaks"] = {
        "before": before,
        "after": leaks.overlaps(kept, mails, inboxes),
        **leaks.shared_mails(file, inboxes),
        "same_people": leaks.same_people(file, inboxes),
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
