"""The checks of `verify` by a model that reads and a judge that compares answers.

    needs-mail     without any mail the reader must not give the gold answer
    answerable     from the cited mails alone it must
    unambiguous    what a search finds besides must not support another answer
    unanswerable   from what a search finds it must find no answer

The cheapest comes first, and a row that fails one is not asked further. A check is not made
where a call fails, a reply can't be read or the judge gives no verdict: the row is then
unsure in this, "not checked", and kept. Knows nothing of sets and of how many rows are
checked at once.
"""

import dataclasses
import datetime as dt
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from art_e.inbox.inbox import Inbox
from art_e.inbox.mail import Email
from art_e.policies.base import PolicyError
from art_e.question import Question
from data_pipeline.golden import rules
from data_pipeline.golden.checks import Check, marks_of, mended, with_checks
from data_pipeline.golden.mending import LONG, is_long
from data_pipeline.golden.reader import Claim, Reader, Settled, said
from data_pipeline.golden.rivals import by_date, mails_of, own_part, possible_answers, rivals
from evals.claims import is_choice
from evals.grounded import grounded_in
from evals.judge import Judge
from evals.structured import UnparseableError
from evals.words import asks_yes_no

# A gold answer is a short fact: the longest of the 73 public questions has 286 characters.
MAX_NEW_ANSWER_CHARS = 300
# The rules of `filter` that look at the answer, which is another one in a mended row.
_ANSWER_RULES = (rules.answer, rules.ids, rules.leak)
# How `LlmJudge` begins its reason where the limit forbade the call.
_OUT_OF_BUDGET = "failed: budget:"


class UnjudgedError(Exception):
    """The judge gave no verdict; the message is why, as in `Examined.unchecked`."""


@dataclass(frozen=True, slots=True)
class Examined:
    """A row after its checks, which it carries, and perhaps mended.

    `failed` is the check that drops it. `unchecked` has the checks that could not be made,
    by name, each with one word on why: the kind of a `PolicyError`, "unparseable" or "judge".
    The row has them as checks that are not sure.
    """

    question: Question
    failed: Check | None = None
    unchecked: dict[str, str] = field(default_factory=dict)


class _Found(NamedTuple):
    """What a check made of a row."""

    question: Question
    checks: tuple[Check, ...]


class _Round(NamedTuple):
    """What the claims of a round are beside the gold: `replacing` has a later answer."""

    question: Question
    replacing: Claim | None
    stands: str | None
    notes: list[str]
    is_sure: bool


class ModelChecks:
    """Checks rows with `reader` and `judge`."""

    def __init__(self, reader: Reader, judge: Judge) -> None:
        self._reader = reader
        self._judge = judge
        self._by = f"{reader.name}, judged by {judge.name}"

    async def examine(self, inbox: Inbox, question: Question) -> Examined:
        """The row after its checks; `inbox` is as of the question's date."""
        checks: list[tuple[str, Callable[[Inbox, Question], Awaitable[_Found]]]]
        if question.answerable is False:
            checks = [("unanswerable", self._unanswerable)]
        else:
            checks = [
                ("needs-mail", self._needs_mail),
                ("answerable", self._answerable),
                ("unambiguous", self._unambiguous),
            ]
        unchecked: dict[str, str] = {}
        for name, check in checks:
            try:
                found = await check(inbox, question)
            except PolicyError as error:
                unchecked[name] = error.kind
            except UnparseableError:
                unchecked[name] = "unparseable"
            except UnjudgedError as error:
                unchecked[name] = str(error)
            if name in unchecked:
                found = self._found(question, name, None, f"not checked: {unchecked[name]}")
            question = with_checks(found.question, found.checks)
            failed = next((each for each in found.checks if each.passed is False), None)
            if failed is not None:
                return Examined(question, failed, unchecked)
        return Examined(question, None, unchecked)

    async def _needs_mail(self, inbox: Inbox, question: Question) -> _Found:
        read = await self._reader.without_mail(question)
        if read.answer is None:
            reason = f"without mail there is no answer: {read.reason}"
            return self._found(question, "needs-mail", True, reason)
        if not await self._is_gold(question, read.answer):
            reason = f"without mail the answer is another one: {said(read.answer)!r}"
            return self._found(question, "needs-mail", True, reason)
        reason = f"without mail the answer is {said(read.answer)!r}: {read.reason}"
        if asks_yes_no(question.question) or is_choice(question.question):
            # Of two answers each is guessed every other time.
            return self._found(question, "needs-mail", None, f"one of two, guessed; {reason}")
        return self._found(question, "needs-mail", False, reason)

    async def _answerable(self, inbox: Inbox, question: Question) -> _Found:
        gold = mails_of(inbox, question.message_ids)
        read = await self._reader.with_mails(question, by_date(gold))
        if read.answer is None:
            reason = f"the cited mails give no answer: {read.reason}"
            return self._found(question, "answerable", False, reason)
        if await self._is_gold(question, read.answer):
            reason = f"the cited mails give {said(read.answer)!r}: {read.reason}"
            return self._found(question, "answerable", True, reason)
        reason = f"the cited mails give another answer, {said(read.answer)!r}: {read.reason}"
        return self._found(question, "answerable", False, reason)

    async def _unanswerable(self, inbox: Inbox, question: Question) -> _Found:
        found = possible_answers(inbox, question)
        if not found:
            return self._nothing_found(question, "unanswerable")
        read = await self._reader.with_mails(question, by_date(found))
        if read.answer is None:
            reason = f"{len(found)} mails found give no answer: {read.reason}"
            return self._found(question, "unanswerable", True, reason)
        reason = f"the mail found gives {said(read.answer)!r}: {read.reason}"
        return self._found(question, "unanswerable", False, reason)

    async def _unambiguous(self, inbox: Inbox, question: Question) -> _Found:
        gold = mails_of(inbox, question.message_ids)
        found = rivals(inbox, question, gold)
        if not found:
            return self._nothing_found(question, "unambiguous")
        if question.kind in ("count", "multi-mail"):
            return await self._same_with_more(question, gold, found)
        claims = await self._reader.claims(question, by_date(found))
        checks: list[Check] = []
        while True:
            # Ends: the mail of each round's gold is newer than that of the round before.
            settled = await self._compare(question, gold, claims)
            question = settled.question
            if settled.stands is not None:
                return self._found(question, "unambiguous", False, settled.stands, *checks)
            if settled.replacing is None:
                break
            answer, gold = settled.replacing.answer, by_date(settled.replacing.mails)[-1:]
            renewed = superseded(question, answer, gold[0])
            passed, reason = _fit_for_gold(renewed)
            if not passed:
                reason = f"{gold[0].message_id} gives a later answer, {said(answer)!r}: {reason}"
                return self._found(question, "unambiguous", passed, reason, *checks)
            question = renewed
            again = await self._answerable(inbox, question)
            checks = list(again.checks)
            if checks[0].passed is False:
                return again._replace(checks=(_after_mending(checks[0]),))
        passed = True if settled.is_sure else None
        told = "; ".join(settled.notes) or f"{len(found)} mails found support no other answer"
        return self._found(question, "unambiguous", passed, told, *checks)

    async def _same_with_more(
        self, question: Question, gold: Sequence[Email], found: Sequence[Email]
    ) -> _Found:
        """With the mails found beside the gold ones the answer must still be the gold one."""
        read = await self._reader.with_mails(question, by_date([*gold, *found]))
        if read.answer is not None and await self._is_gold(question, read.answer):
            reason = f"with {len(found)} mails found besides, the answer is the same"
            return self._found(question, "unambiguous", True, reason)
        other = "there is none" if read.answer is None else f"the answer is {said(read.answer)!r}"
        reason = f"with the mails found besides, {other}: {read.reason}"
        return self._found(question, "unambiguous", False, reason)

    async def _compare(
        self, question: Question, mails: Sequence[Email], claims: Sequence[Claim]
    ) -> _Round:
        """What each claim is beside the gold answer; the first that stands beside it ends it."""
        gold = Claim(question.answer or "", tuple(by_date(mails)))
        notes: list[str] = []
        replacing: list[Claim] = []
        is_sure = True
        for claim in claims:
            ids = ", ".join(each.message_id for each in claim.mails)
            if await self._is_gold(question, claim.answer):
                notes.append(f"confirmed by {ids}" if ids else "confirmed")
                continue
            if not claim.mails:
                is_sure = False
                notes.append(
                    f"the reader also gives {said(claim.answer)!r}, of no mail that it names"
                )
                continue
            if is_quoted(question, claim, gold.mails):
                notes.append(f"{ids} only quotes a gold mail")
                continue
            settled = by_dates(await self._reader.settle(question, gold, claim), gold, claim)
            told = f"{ids} gives {said(claim.answer)!r}, {settled.relation}: {settled.reason}"
            if settled.relation == "both_stand":
                return _Round(question, None, told, notes, is_sure)
            notes.append(told)
            if settled.relation == "gold_replaced":
                replacing.append(claim)
            elif settled.relation == "rival_replaced" and question.kind != "latest-update":
                question = mended(question, "verify", "unambiguous", kind="latest-update")
        newest = max(replacing, key=lambda each: _newest(each) or dt.datetime.min, default=None)
        return _Round(question, newest, None, notes, is_sure)

    async def _is_gold(self, question: Question, answer: str) -> bool:
        verdict = await self._judge.judge(question, answer)
        if verdict.correct is None:
            is_over = verdict.reason.startswith(_OUT_OF_BUDGET)
            raise UnjudgedError("budget" if is_over else "judge")
        return verdict.correct

    def _found(
        self, question: Question, name: str, passed: bool | None, reason: str, *more: Check
    ) -> _Found:
        return _Found(question, (Check(name, "verify", passed, reason, self._by), *more))

    @staticmethod
    def _nothing_found(question: Question, name: str) -> _Found:
        return _Found(
            question, (Check(name, "verify", True, "the search finds no mail", "search"),)
        )


def superseded(question: Question, answer: str, mail: Email) -> Question:
    """The question with a later answer and the mail that gives it, and marks to match."""
    changes: dict[str, Any] = {
        "kind": "latest-update",
        "answer": answer,
        "message_ids": (mail.message_id,),
    }
    marks = marks_of(question)
    fitting = [each for each in marks if each != LONG] + [LONG] * is_long(answer)
    if set(fitting) != set(marks):
        changes["marks"] = fitting
    return mended(question, "verify", "unambiguous", **changes)


def by_dates(settled: Settled, gold: Claim, rival: Claim) -> Settled:
    """The settlement as far as the mails' dates bear it out; else both answers stand.

    An answer is replaced only by one with a mail that is newer than all of its own.
    """
    if settled.relation not in ("gold_replaced", "rival_replaced"):
        return settled
    old, new = (gold, rival) if settled.relation == "gold_replaced" else (rival, gold)
    before, after = _newest(old), _newest(new)
    if before is not None and after is not None and after > before:
        return settled
    reason = f"the reader says {settled.relation}, but no mail is later; {settled.reason}"
    return Settled("both_stand", reason)


def is_quoted(question: Question, claim: Claim, gold: Sequence[Email]) -> bool:
    """Whether the answer stands in the gold mails, and in its own mails only as they quote them."""
    own = [own_part(each, gold) for each in claim.mails]
    return (
        grounded_in(question.question, claim.answer, gold).grounded is True
        and grounded_in(question.question, claim.answer, own).grounded is False
    )


def _fit_for_gold(question: Question) -> tuple[bool | None, str]:
    """Whether a row can have its new answer, and why not: the filter has not seen it."""
    length = len(question.answer or "")
    if length > MAX_NEW_ANSWER_CHARS:
        return None, f"{length:,} characters are too long for a gold answer"
    # These rules look at nothing besides the row itself.
    facts = rules.Facts(0.0, None, None, {}, list)
    found = (rule(question, facts) for rule in _ANSWER_RULES)
    fault = next((each for each in found if each.passed is False), None)
    if fault is not None:
        return False, f"the row then fails {fault.name}: {fault.reason}"
    return True, ""


def _after_mending(check: Check) -> Check:
    return dataclasses.replace(check, reason=f"with a newer mail as gold, {check.reason}")


def _newest(claim: Claim) -> dt.datetime | None:
    return max((each.date for each in claim.mails if each.date is not None), default=None)
