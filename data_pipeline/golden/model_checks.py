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
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib import resources
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel

from art_e.abstention import is_abstention
from art_e.inbox.inbox import Inbox
from art_e.inbox.mail import Email
from art_e.inbox.tokenizer import stems, words
from art_e.models.base import PolicyError
from art_e.models.fit import informative_words, name_stems, split_sentences
from art_e.question import Question
from art_e.text import cut_line, digest, encodable
from data_pipeline.golden import filtering as rules
from data_pipeline.golden.asking import Asker, handles, shown_mails
from data_pipeline.golden.filtering import LONG, is_long
from data_pipeline.golden.golden_set import Check, marks_of, mended, with_checks
from data_pipeline.golden.inboxes import mails_of
from evals.judges.llm import UnparseableError
from evals.judges.names import asks_yes_no
from evals.judges.offline import Judge, grounded_in, is_choice

# ---- What a model that reads mail is asked while a golden set is verified: forms, prompts, data.

# Longer answers and reasons of a model are cut where a reason quotes them.
MAX_SAID_CHARS = 300

Prompt = Literal["read", "closed_book", "candidates", "settle"]
PROMPTS: tuple[Prompt, ...] = ("read", "closed_book", "candidates", "settle")

Form = TypeVar("Form", bound=BaseModel)

Relation = Literal["same", "gold_replaced", "rival_replaced", "other_matter", "both_stand"]


class Reading(BaseModel):
    """The answer that mails, or general knowledge, give to a question; None: none."""

    # First, so that it is thought of first.
    reason: str
    answer: str | None


class Candidate(BaseModel):
    """An answer that mails support, and which."""

    answer: str
    mails: list[str]


class Candidates(BaseModel):
    """Every answer that mails support."""

    answers: list[Candidate]


class Settlement(BaseModel):
    """How the gold answer and another one stand to each other."""

    reason: str
    relation: Relation


class Read(NamedTuple):
    """A `Reading` made safe to keep: one line each, mails by their ids; no answer is None.

    The reason is cut where it is long, the answer never.
    """

    answer: str | None
    reason: str


class Claim(NamedTuple):
    """An answer and the mails that it rests on; none where it names none that was shown.

    The answer is one line, and whole: it may become a gold answer.
    """

    answer: str
    mails: tuple[Email, ...]


class Settled(NamedTuple):
    """A `Settlement` made safe to keep."""

    relation: Relation
    reason: str


class Reader:
    """Puts these questions to a model."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    @property
    def name(self) -> str:
        """The model's name."""
        return self._asker.name

    async def without_mail(self, question: Question) -> Read:
        """The answer from general knowledge. Raises as `Asker.ask` does, here and below."""
        return _read(await self._ask("closed_book", closed_book_data(question), Reading), ())

    async def with_mails(self, question: Question, mails: Sequence[Email]) -> Read:
        """The answer that the mails give."""
        return _read(await self._ask("read", mails_data(question, mails), Reading), mails)

    async def claims(self, question: Question, mails: Sequence[Email]) -> list[Claim]:
        """Every answer that the mails support, in the reader's order."""
        reply = await self._ask("candidates", mails_data(question, mails), Candidates)
        named = dict(zip(handles(mails), mails, strict=True))
        return [
            Claim(
                _one_line(each.answer),
                tuple(named[name] for name in dict.fromkeys(each.mails) if name in named),
            )
            for each in reply.answers
            if not is_abstention(each.answer)
        ]

    async def settle(self, question: Question, gold: Claim, rival: Claim) -> Settled:
        """How the rival's answer stands to the gold one."""
        reply = await self._ask("settle", settle_data(question, gold, rival), Settlement)
        return Settled(reply.relation, _with_ids(said(reply.reason), (*gold.mails, *rival.mails)))

    async def _ask(self, prompt: Prompt, data: Mapping[str, Any], form: type[Form]) -> Form:
        return await self._asker.ask(prompt_text(prompt), data, form)


@cache
def prompt_text(name: Prompt) -> str:
    """The prompt of that name."""
    path = resources.files("data_pipeline.golden").joinpath(f"prompts/{name}.txt")
    return path.read_text(encoding="utf-8")


def prompt_digests() -> dict[str, str]:
    """What names the prompts in a set that was verified by them."""
    return {name: digest(prompt_text(name)) for name in PROMPTS}


def said(text: str) -> str:
    """A model's text as reasons quote it: on one line, encodable, cut where it is long."""
    return cut_line(text, MAX_SAID_CHARS)


def closed_book_data(question: Question) -> dict[str, Any]:
    """What `closed_book.txt` is asked with."""
    return {**_asked(question), "inbox": question.inbox_address}


def mails_data(question: Question, mails: Sequence[Email]) -> dict[str, Any]:
    """What `read.txt` and `candidates.txt` are asked with."""
    return {**_asked(question), "mails": shown_mails(mails)}


def settle_data(question: Question, gold: Claim, rival: Claim) -> dict[str, Any]:
    """What `settle.txt` is asked with; the mails of both are numbered through."""
    both = shown_mails((*gold.mails, *rival.mails))
    cut = len(gold.mails)
    return {
        **_asked(question),
        "gold": {"answer": gold.answer, "mails": both[:cut]},
        "rival": {"answer": rival.answer, "mails": both[cut:]},
    }


def _asked(question: Question) -> dict[str, Any]:
    day = question.query_date
    return {"question": question.question, "asked_on": None if day is None else day.isoformat()}


def _one_line(text: str) -> str:
    return " ".join(encodable(text).split())


def _read(reply: Reading, mails: Sequence[Email]) -> Read:
    answer = None if is_abstention(reply.answer) else _one_line(reply.answer or "")
    return Read(answer, _with_ids(said(reply.reason), mails))


def _with_ids(reason: str, mails: Sequence[Email]) -> str:
    """The reason with message ids where it names mails as they were called."""
    named = {handle: each.message_id for handle, each in zip(handles(mails), mails, strict=True)}
    return re.sub(r"\bm\d+\b", lambda match: named.get(match.group(), match.group()), reason)


# ---- The mails besides the gold ones that might answer a question, found by searching.

# Mails that are read for a question, best first.
MAX_RIVALS = 10
# Copies are not counted among these, as far as a search gives so many.
_MAX_COPIES = 20


def by_date(mails: Iterable[Email]) -> list[Email]:
    """The mails, oldest first; those without a date are the oldest."""
    return sorted(mails, key=lambda each: (sent(each), each.message_id))


def sent(mail: Email) -> dt.datetime:
    """When the mail was sent; one without a date is older than any other."""
    return mail.date or dt.datetime.min


def rivals(inbox: Inbox, question: Question, gold: Sequence[Email]) -> list[Email]:
    """What the question's informative words find besides `gold`, best first."""
    return _found(inbox, informative_words(question.question), gold)


def possible_answers(inbox: Inbox, question: Question) -> list[Email]:
    """What the question's words find, and its names and numbers alone, each mail once."""
    names = name_stems(question.question)
    asked = informative_words(question.question)
    named = [each for each in asked if stems([each])[0] in names]
    found = (*_found(inbox, asked, ()), *_found(inbox, named, ()))
    return list({each.message_id: each for each in found}.values())


def _found(inbox: Inbox, keywords: list[str], gold: Sequence[Email]) -> list[Email]:
    if not keywords:
        # A search for nothing finds everything.
        return []
    known = {each.message_id for each in gold}
    said = lines_of(gold)
    hits = inbox.search(keywords, max_results=MAX_RIVALS + len(gold) + _MAX_COPIES)
    others = [each.message_id for each in hits if each.message_id not in known]
    found: list[Email] = []
    # A search's mails are read together; only copies call for the next ones.
    while others and len(found) < MAX_RIVALS:
        mails, others = mails_of(inbox, others[:MAX_RIVALS]), others[MAX_RIVALS:]
        found.extend(each for each in mails if not gold or not lines_of([each]) <= said)
    return found[:MAX_RIVALS]


def lines_of(mails: Iterable[Email]) -> frozenset[str]:
    """The sentences of the mails' bodies as their words: spacing, case and quoting are gone."""
    return frozenset(line for mail in mails for _, line in _spoken(mail.body) if line)


def own_part(mail: Email, gold: Sequence[Email]) -> Email:
    """The mail with only those sentences in its body that stand in no gold mail."""
    said = lines_of(gold)
    own = [text for text, line in _spoken(mail.body) if line not in said]
    return dataclasses.replace(mail, body="\n".join(own))


# A question's mails are compared several times each, with those of no other question.
@lru_cache(maxsize=64)
def _spoken(body: str) -> tuple[tuple[str, str], ...]:
    """The sentences of a body, and each as its words."""
    return tuple((each.text, " ".join(words(each.text))) for each in split_sentences(body))


# ---- The checks of `verify` by a model that reads and a judge that compares answers.

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
