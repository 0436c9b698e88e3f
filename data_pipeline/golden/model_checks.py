"""The checks of `verify` by a model that reads mail and a judge that compares answers.

    realistic      the reader, who did not write the question, rates it from examples
    needs-mail     without mail the reader must not give the gold answer
    answerable     from the cited mails alone it must
    unambiguous    other mails that a search finds must not support another answer
    unanswerable   the mails that a search finds must hold no answer

The cheapest check comes first, and a failed one ends the row. If a call fails, or a reply can't be
read, the check is "not checked": unsure, and the row stays.
"""

import dataclasses
import datetime as dt
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from pydantic import BaseModel

from art_e.abstention import is_abstention
from art_e.inbox.inbox import Inbox
from art_e.inbox.mail import Email
from art_e.inbox.tokenizer import stems, words
from art_e.models.base import PolicyError, Usage
from art_e.models.fit import informative_words, name_stems, split_sentences
from art_e.models.prices import expected_cost
from art_e.models.structured import UnparseableError
from art_e.question import Question
from art_e.text import cut_line, digest, encodable
from data_pipeline.golden.asking import Asker, ExpectedCost, prompt_text, shown_mails, sum_of
from data_pipeline.golden.filtering import MIN_REALISM, answer_fault
from data_pipeline.golden.golden_set import Check, GoldenSet, mended, with_checks
from data_pipeline.golden.inboxes import mails_of
from data_pipeline.golden.verify import Examined
from evals.judges import needs_model, spent_by
from evals.judges.claims import asks_yes_no, is_choice
from evals.judges.grounding import grounded_in
from evals.verdict import Judge

Prompt = Literal["realism", "read", "closed_book", "candidates", "settle"]
PROMPTS: tuple[Prompt, ...] = get_args(Prompt)
Relation = Literal["same", "gold_replaced", "rival_replaced", "other_matter", "both_stand"]
Form = TypeVar("Form", bound=BaseModel)

# Reasons quote so much of a model's text.
MAX_SAID_CHARS = 300
# A gold answer is a short fact: the longest of the 73 public questions has 286 characters.
MAX_NEW_ANSWER_CHARS = 300
# Mails that are read for a question, best first; copies of gold mails are not counted.
MAX_RIVALS = 10
_MAX_COPIES = 20
# How the reason of an `LlmJudge` begins if the limit forbade the call.
_OUT_OF_BUDGET = "failed: budget:"

# ---- The forms of replies. Reasons come first, so that the model thinks first. Docstrings are part
# of the schema and so of the kept request: a change pays replies again.


class Rating(BaseModel):
    """How realistic a question is, from 0 to 1."""

    reason: str
    how_realistic: float


class Reading(BaseModel):
    """The answer that mails, or general knowledge, give to a question; None: none."""

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


class Claim(NamedTuple):
    """An answer on one line, uncut because it may become gold, and the mails that support it."""

    answer: str
    mails: tuple[Email, ...]

    @property
    def newest(self) -> dt.datetime | None:
        """The date of the newest mail."""
        return max((each.date for each in self.mails if each.date is not None), default=None)


# ---- Mails that might answer a question, found by searching.

_LONG_AGO = dt.datetime.min.replace(tzinfo=dt.UTC)


def sent(mail: Email) -> dt.datetime:
    """When the mail was sent; a mail without a date counts as the oldest."""
    return mail.date or _LONG_AGO


def by_date(mails: Iterable[Email]) -> list[Email]:
    """The mails, oldest first."""
    return sorted(mails, key=lambda each: (sent(each), each.message_id))


def rivals(inbox: Inbox, question: Question, gold: Sequence[Email]) -> list[Email]:
    """The mails besides `gold` that the question's informative words find, best first."""
    return _search(inbox, informative_words(question.question), gold)


def possible_answers(inbox: Inbox, question: Question) -> list[Email]:
    """The mails that the question's words find, or its names and numbers alone."""
    names = name_stems(question.question)
    keywords = informative_words(question.question)
    named = [each for each in keywords if stems([each])[0] in names]
    found = (*_search(inbox, keywords, ()), *_search(inbox, named, ()))
    return list({each.message_id: each for each in found}.values())


def _search(inbox: Inbox, keywords: list[str], gold: Sequence[Email]) -> list[Email]:
    if not keywords:
        # A search for nothing finds everything.
        return []
    gold_ids, gold_lines = {each.message_id for each in gold}, _lines(gold)
    hits = inbox.search(keywords, max_results=MAX_RIVALS + len(gold) + _MAX_COPIES)
    mails = mails_of(inbox, [each.message_id for each in hits if each.message_id not in gold_ids])
    return [each for each in mails if not gold or not _lines([each]) <= gold_lines][:MAX_RIVALS]


def own_part(mail: Email, gold: Sequence[Email]) -> Email:
    """The mail with only those sentences in its body that no gold mail has."""
    quoted = _lines(gold)
    own = [text for text, line in _sentences(mail.body) if line not in quoted]
    return dataclasses.replace(mail, body="\n".join(own))


def _lines(mails: Iterable[Email]) -> frozenset[str]:
    return frozenset(line for mail in mails for _, line in _sentences(mail.body) if line)


@lru_cache(maxsize=64)
def _sentences(body: str) -> tuple[tuple[str, str], ...]:
    """The sentences of a body, and each as its words: without spacing, case and quote marks."""
    return tuple((each.text, " ".join(words(each.text))) for each in split_sentences(body))


# ---- Requests and their cost.

# Assumed: requests to the reader for each row, and the tokens of each; the tokens of each verdict,
# and verdicts for each answerable row (without mail, from the cited mails, on a rival answer).
READS_PER_ROW = 4
READER_USAGE = Usage(2_500, 0, 300, 0)
JUDGE_USAGE = Usage(600, 0, 300, 0)
VERDICTS_PER_ROW = 3


def estimate_cost(golden: GoldenSet, model: str, judge: str) -> ExpectedCost:
    """What verifying every row costs at most."""
    answerable = sum(each.answerable is not False for each in golden.questions)
    reads = READS_PER_ROW * answerable + 2 * (len(golden.questions) - answerable)
    verdicts = VERDICTS_PER_ROW * answerable if needs_model(judge) else 0
    calls = [(model, READER_USAGE, reads), (judge, JUDGE_USAGE, verdicts)][: 1 + bool(verdicts)]
    return ExpectedCost(
        reads + verdicts,
        sum(usage.prompt_tokens * count for _, usage, count in calls),
        sum(usage.completion_tokens * count for _, usage, count in calls),
        sum_of(*(expected_cost(name, [usage], count) for name, usage, count in calls)),
    )


def _with_mails(question: Question, mails: Iterable[Email]) -> dict[str, Any]:
    return {**_question(question), "mails": shown_mails(by_date(mails))}


def _question(question: Question) -> dict[str, Any]:
    day = question.query_date
    return {"question": question.question, "asked_on": None if day is None else day.isoformat()}


# ---- The checks.


class UnjudgedError(Exception):
    """The judge gave no verdict; the message is why, as in `Examined.unchecked`."""


class _Result(NamedTuple):
    question: Question
    checks: tuple[Check, ...]


class _Round(NamedTuple):
    """How claims compare to the gold: `replacing` has a later answer, `stands` a contradiction."""

    question: Question
    replacing: Claim | None
    stands: str | None
    notes: list[str]
    is_sure: bool


@dataclasses.dataclass(frozen=True, slots=True)
class ModelChecks:
    """Checks rows with a reader and a judge, who cost `judge_before` USD in earlier runs."""

    reader: Asker
    judge: Judge
    judge_before: float | None = 0.0
    min_realism: float = MIN_REALISM

    @property
    def spent_usd(self) -> float | None:
        """What reader and judge have cost, in earlier runs too; None if a price is unknown."""
        judged = spent_by(self.judge)
        now = 0.0 if judged is None else judged.cost_usd
        return sum_of(self.reader.spent.cost_usd, self.judge_before, now)

    def settings(self) -> dict[str, Any]:
        """Model, judge and prompts, for the manifest."""
        prompts = {name: digest(prompt_text(name)) for name in PROMPTS}
        models = {"model": self.reader.name, "judge": self.judge.name}
        return {**models, "min_realism": self.min_realism, "prompts": prompts}

    async def examine(self, inbox: Inbox, question: Question) -> Examined:
        """The row after its checks; `inbox` is as of the question's date."""
        checks = {"realistic": self._realistic}
        if question.answerable is False:
            checks |= {"unanswerable": self._unanswerable}
        else:
            checks |= {
                "needs-mail": self._needs_mail,
                "answerable": self._answerable,
                "unambiguous": self._unambiguous,
            }
        unchecked: dict[str, str] = {}
        for name, check in checks.items():
            try:
                result = await check(inbox, question)
            except PolicyError as error:
                unchecked[name] = error.kind
            except UnparseableError:
                unchecked[name] = "unparseable"
            except UnjudgedError as error:
                unchecked[name] = str(error)
            if name in unchecked:
                result = self._result(question, name, None, f"not checked: {unchecked[name]}")
            question = with_checks(result.question, result.checks)
            failed = next((each for each in result.checks if each.passed is False), None)
            if failed is not None:
                return Examined(question, failed, unchecked)
        return Examined(question, None, unchecked)

    async def _realistic(self, inbox: Inbox, question: Question) -> _Result:
        data = {"question": question.question, "inbox": question.inbox_address}
        rated = await self._ask("realism", data, Rating)
        rate = rated.how_realistic
        if not 0 <= rate <= 1:
            raise UnparseableError(f"{rate:g} is not from 0 to 1")
        if rate != question.how_realistic:
            question = mended(question, "verify", "realistic", how_realistic=rate)
        reason = f"rated {rate:g}: {cut_line(rated.reason, MAX_SAID_CHARS)}"
        return self._result(question, "realistic", rate >= self.min_realism, reason)

    async def _needs_mail(self, inbox: Inbox, question: Question) -> _Result:
        name = "needs-mail"
        data = {**_question(question), "inbox": question.inbox_address}
        read = await self._read("closed_book", data, ())
        if read.answer is None:
            reason = f"without mail there is no answer: {read.reason}"
            return self._result(question, name, True, reason)
        if not await self._is_gold(question, read.answer):
            reason = f"without mail the answer is another one: {_quoted(read.answer)}"
            return self._result(question, name, True, reason)
        reason = f"without mail the answer is {_quoted(read.answer)}: {read.reason}"
        if asks_yes_no(question.question) or is_choice(question.question):
            # One of two answers is guessed every other time.
            return self._result(question, name, None, f"one of two, guessed; {reason}")
        return self._result(question, name, False, reason)

    async def _answerable(self, inbox: Inbox, question: Question) -> _Result:
        read = await self._read_mails(question, mails_of(inbox, question.message_ids))
        if read.answer is None:
            reason = f"the cited mails give no answer: {read.reason}"
            return self._result(question, "answerable", False, reason)
        passed = await self._is_gold(question, read.answer)
        answer = f"{_quoted(read.answer)}: {read.reason}"
        reason = f"the cited mails give {'' if passed else 'another answer, '}{answer}"
        return self._result(question, "answerable", passed, reason)

    async def _unanswerable(self, inbox: Inbox, question: Question) -> _Result:
        found = possible_answers(inbox, question)
        if not found:
            return self._nothing_found(question, "unanswerable")
        read = await self._read_mails(question, found)
        if read.answer is None:
            reason = f"{len(found)} mails found give no answer: {read.reason}"
            return self._result(question, "unanswerable", True, reason)
        reason = f"the mail found gives {_quoted(read.answer)}: {read.reason}"
        return self._result(question, "unanswerable", False, reason)

    async def _unambiguous(self, inbox: Inbox, question: Question) -> _Result:
        name = "unambiguous"
        gold = mails_of(inbox, question.message_ids)
        found = rivals(inbox, question, gold)
        if not found:
            return self._nothing_found(question, name)
        if question.kind in ("count", "multi-mail"):
            return await self._same_with_more(question, gold, found)
        claims = await self._claims(question, by_date(found))
        checks: tuple[Check, ...] = ()
        while True:
            # This ends, because the gold mail of each round is newer than the one before.
            compared = await self._compare(question, gold, claims)
            question = compared.question
            if compared.stands is not None:
                return self._result(question, name, False, compared.stands, *checks)
            if compared.replacing is None:
                break
            answer, gold = compared.replacing.answer, by_date(compared.replacing.mails)[-1:]
            renewed = superseded(question, answer, gold[0])
            passed, fault = _fit_for_gold(renewed)
            if not passed:
                later = f"{gold[0].message_id} gives a later answer, {_quoted(answer)}"
                return self._result(question, name, passed, f"{later}: {fault}", *checks)
            question, checks = renewed, (await self._answerable(inbox, renewed)).checks
            if checks[0].passed is False:
                reason = f"with a newer mail as gold, {checks[0].reason}"
                return _Result(question, (dataclasses.replace(checks[0], reason=reason),))
        reason = "; ".join(compared.notes) or f"{len(found)} mails found support no other answer"
        return self._result(question, name, True if compared.is_sure else None, reason, *checks)

    async def _same_with_more(
        self, question: Question, gold: Sequence[Email], found: Sequence[Email]
    ) -> _Result:
        """With the found mails the answer must stay the same."""
        read = await self._read_mails(question, [*gold, *found])
        if read.answer is not None and await self._is_gold(question, read.answer):
            reason = f"with {len(found)} mails found besides, the answer is the same"
            return self._result(question, "unambiguous", True, reason)
        other = "there is none" if read.answer is None else f"the answer is {_quoted(read.answer)}"
        reason = f"with the mails found besides, {other}: {read.reason}"
        return self._result(question, "unambiguous", False, reason)

    async def _compare(
        self, question: Question, mails: Sequence[Email], claims: Sequence[Claim]
    ) -> _Round:
        """How each claim compares to the gold answer; the first contradiction ends it."""
        gold = Claim(question.answer or "", tuple(by_date(mails)))
        notes: list[str] = []
        replacing: list[Claim] = []
        is_sure = True
        for claim in claims:
            ids = ", ".join(each.message_id for each in claim.mails)
            answer = _quoted(claim.answer)
            if await self._is_gold(question, claim.answer):
                notes.append(f"confirmed by {ids}" if ids else "confirmed")
            elif not claim.mails:
                is_sure = False
                notes.append(f"the reader also gives {answer}, of no mail that it names")
            elif is_quoted(question, claim, gold.mails):
                notes.append(f"{ids} only quotes a gold mail")
            else:
                settled = by_dates(await self._settle(question, gold, claim), gold, claim)
                note = f"{ids} gives {answer}, {settled.relation}: {settled.reason}"
                if settled.relation == "both_stand":
                    return _Round(question, None, note, notes, is_sure)
                notes.append(note)
                if settled.relation == "gold_replaced":
                    replacing.append(claim)
                elif settled.relation == "rival_replaced" and question.kind != "latest-update":
                    question = mended(question, "verify", "unambiguous", kind="latest-update")
        newest = max(replacing, key=lambda each: each.newest or _LONG_AGO, default=None)
        return _Round(question, newest, None, notes, is_sure)

    async def _is_gold(self, question: Question, answer: str) -> bool:
        verdict = await self.judge.judge(question, answer)
        if verdict.correct is None:
            is_over = verdict.reason.startswith(_OUT_OF_BUDGET)
            raise UnjudgedError("budget" if is_over else "judge")
        return verdict.correct

    async def _read_mails(self, question: Question, mails: Sequence[Email]) -> Reading:
        return await self._read("read", _with_mails(question, mails), by_date(mails))

    async def _read(self, prompt: Prompt, data: dict[str, Any], mails: Sequence[Email]) -> Reading:
        """The reader's answer on one line, uncut, and its reason with message ids."""
        reply = await self._ask(prompt, data, Reading)
        answer = None if is_abstention(reply.answer) else _one_line(reply.answer or "")
        return Reading(reason=_with_ids(reply.reason, mails), answer=answer)

    async def _claims(self, question: Question, mails: Sequence[Email]) -> list[Claim]:
        reply = await self._ask("candidates", _with_mails(question, mails), Candidates)
        named = {f"m{number}": mail for number, mail in enumerate(mails, start=1)}
        return [
            Claim(
                _one_line(each.answer),
                tuple(named[name] for name in dict.fromkeys(each.mails) if name in named),
            )
            for each in reply.answers
            if not is_abstention(each.answer)
        ]

    async def _settle(self, question: Question, gold: Claim, rival: Claim) -> Settlement:
        mails = (*gold.mails, *rival.mails)
        shown, cut = shown_mails(mails), len(gold.mails)
        data = {
            **_question(question),
            "gold": {"answer": gold.answer, "mails": shown[:cut]},
            "rival": {"answer": rival.answer, "mails": shown[cut:]},
        }
        reply = await self._ask("settle", data, Settlement)
        return Settlement(reason=_with_ids(reply.reason, mails), relation=reply.relation)

    async def _ask(self, prompt: Prompt, data: Mapping[str, Any], form: type[Form]) -> Form:
        return await self.reader.ask(prompt_text(prompt), data, form)

    def _result(
        self, question: Question, name: str, passed: bool | None, reason: str, *more: Check
    ) -> _Result:
        by = f"{self.reader.name}, judged by {self.judge.name}"
        return _Result(question, (Check(name, "verify", passed, reason, by), *more))

    @staticmethod
    def _nothing_found(question: Question, name: str) -> _Result:
        check = Check(name, "verify", True, "the search finds no mail", "search")
        return _Result(question, (check,))


def superseded(question: Question, answer: str, mail: Email) -> Question:
    """The question with a later answer and the mail that gives it."""
    changes = {"kind": "latest-update", "answer": answer, "message_ids": (mail.message_id,)}
    return mended(question, "verify", "unambiguous", **changes)


def _fit_for_gold(question: Question) -> tuple[bool | None, str]:
    """Whether a new answer can be gold, which the filter has not seen, and why not."""
    length = len(question.answer or "")
    if length > MAX_NEW_ANSWER_CHARS:
        return None, f"{length:,} characters are too long for a gold answer"
    fault = answer_fault(question)
    return fault is None, f"the row then fails {fault.name}: {fault.reason}" if fault else ""


def by_dates(settled: Settlement, gold: Claim, rival: Claim) -> Settlement:
    """The settlement if the dates support it, else both answers stand.

    Only an answer with a newer mail replaces another one.
    """
    if settled.relation not in ("gold_replaced", "rival_replaced"):
        return settled
    old, new = (gold, rival) if settled.relation == "gold_replaced" else (rival, gold)
    if old.newest is not None and new.newest is not None and new.newest > old.newest:
        return settled
    reason = f"the reader says {settled.relation}, but no mail is later; {settled.reason}"
    return Settlement(reason=reason, relation="both_stand")


def is_quoted(question: Question, claim: Claim, gold: Sequence[Email]) -> bool:
    """Whether a claim's mails only quote its answer from the gold mails."""
    own = [own_part(each, gold) for each in claim.mails]
    return (
        grounded_in(question.question, claim.answer, gold).grounded is True
        and grounded_in(question.question, claim.answer, own).grounded is False
    )


def _one_line(text: str) -> str:
    return " ".join(encodable(text).split())


def _quoted(text: str) -> str:
    return repr(cut_line(text, MAX_SAID_CHARS))


def _with_ids(reason: str, mails: Sequence[Email]) -> str:
    """The reason, cut, with message ids in place of handles."""
    ids = {f"m{number}": mail.message_id for number, mail in enumerate(mails, start=1)}
    text = cut_line(reason, MAX_SAID_CHARS)
    return re.sub(r"\bm\d+\b", lambda match: ids.get(match[0], match[0]), text)
