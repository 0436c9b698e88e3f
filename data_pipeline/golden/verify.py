"""`verify`: is each answer right, the only one, and impossible to guess without mail?

    realistic      the reader, who did not write the question, rates it from examples
    needs-mail     without mail the reader must not give the gold answer
    answerable     from the cited mails alone the reader must give it
    unambiguous    other mails that a search finds must not support another answer; those that
                   support the same one become `equivalent_ids`
    unanswerable   the mails that a search finds must not give an answer

The cheapest check comes first; after a failed one the row's others are skipped. If a call fails, or
a reply can't be read, the check is "not checked": unsure, and the row stays."""

import asyncio
import datetime as dt
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel

from art_e.abstention import is_abstention
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from art_e.inbox.mail import Email
from art_e.inbox.tokenizer import stems, words
from art_e.models.base import PolicyError
from art_e.passages import informative_words, name_stems, split_sentences
from art_e.question import Question
from art_e.text import cut_line, digest, encodable, prompt_text
from data_pipeline.golden.filtering import MIN_REALISM, answer_fault
from data_pipeline.golden.golden_set import Check, GoldenSet, Outcome, checks_of, with_checks
from data_pipeline.golden.inboxes import added_words, mails_of, new_texts, passages, prompt_mails
from evals.judges.claims import CHOICE, YES_NO
from evals.scored import Judge, limited_gather
from evals.structured import StructuredModel, UnparseableError, parse_reply

PROMPTS = ("realism", "read", "closed_book", "candidates", "settle")
Relation = Literal["same", "gold_replaced", "rival_replaced", "other_matter", "both_stand"]
Form = TypeVar("Form", bound=BaseModel)
Excerpt = tuple[Email, dict[str, Any]]  # a mail, and what a prompt shows of it

MAX_QUOTED_CHARS = 300  # of a model's text in a reason
MAX_NEW_ANSWER_CHARS = 300  # a gold answer is a short fact
MAX_RIVALS = 5  # best hits that are read for a question, copies of gold mails aside
_MAX_COPIES = 20  # further hits that are fetched, because copies of gold mails drop out
NOT_CHECKED = "not checked: "  # prefix of the reason of a check that failed to run; a kind follows

# ---- The step.


def verify(
    file: InboxFile, golden: GoldenSet, checks: "ModelChecks", *, strict: bool = False,
    concurrency: int, on_row: Callable[[], None] = lambda: None,
) -> None:  # fmt: skip
    """Check every row, `concurrency` at a time; drop those that fail (`strict`: unsure ones too),
    and replace superseded answers. Raises `UserError` for an inbox that the file lacks."""

    async def examine(question: Question) -> Outcome:
        return await checks.examine(file.inbox_of(question), question)

    rows, unchecked = [], defaultdict[str, Counter[str]](Counter)
    outcomes = asyncio.run(limited_gather(concurrency, examine, golden.questions, on_row))
    for question, fault in outcomes:
        verified = (each for each in checks_of(question).values() if each.step == "verify")
        unsure = [each for each in verified if each.passed is None]
        rows.append((question, fault or (unsure[0] if strict and unsure else None)))
        for check in unsure:
            if check.reason.startswith(NOT_CHECKED):
                unchecked[check.name][check.reason.removeprefix(NOT_CHECKED)] += 1
    settings = {
        "model": checks.reader.model, "judge": checks.judge.name, "min_realism": checks.min_realism,
        "prompts": {name: digest(prompt_text(__package__, name)) for name in PROMPTS},
        "strict": strict,
        "unchecked": {name: dict(sorted(why.items())) for name, why in sorted(unchecked.items())},
    }  # fmt: skip
    golden.finish("verify", rows, settings)


def refuse_own_rows(golden: GoldenSet, model: str) -> None:
    """Raise `UserError` if `model` wrote rows of the set, through any provider."""
    writers = {str(each.provenance.get("model", "")) for each in golden.questions}
    for name in sorted(writers):
        if name.rpartition("/")[2] == model.rpartition("/")[2]:
            why = f"{name} wrote rows of this set and can't be their reader too"
            raise UserError(f"{why}; name another --model")


# ---- The forms of replies. Reasons come first, so that the model thinks first. Docstrings are part
# of the schema and so of the cache key: changing one means paying for the replies again.


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
        return max((each.date for each in self.mails if each.date is not None), default=None)


# ---- Mails that might answer a question, found by searching.

_LONG_AGO = dt.datetime.min.replace(tzinfo=dt.UTC)


def by_date(mails: Iterable[Email]) -> list[Email]:
    """Return the mails, oldest first; one without a date counts as the oldest."""
    return sorted(mails, key=lambda each: (each.date or _LONG_AGO, each.message_id))


def _search(inbox: Inbox, keywords: list[str], gold: Sequence[Email]) -> list[Email]:
    if not keywords:
        return []  # a search without keywords finds everything
    gold_ids = {each.message_id for each in gold}
    hits = inbox.search(keywords, max_results=MAX_RIVALS + len(gold) + _MAX_COPIES)
    return mails_of(inbox, [each.message_id for each in hits if each.message_id not in gold_ids])


def _excerpts(
    question: Question, mails: Iterable[Email], gold: Collection[Email] = ()
) -> list[Excerpt]:
    """Return the mails, oldest first: `gold` in full, of others the passages near the question's
    words. Text that earlier mails contain is left out, and so is a mail without new text."""
    keywords, in_order = stems(informative_words(question.question)), by_date(mails)
    added = zip(in_order, new_texts(mail.body for mail in in_order), strict=True)
    texts = [mail.body if mail in gold else passages(text, keywords) for mail, text in added]
    rows = zip(in_order, prompt_mails(in_order, texts), texts, strict=True)
    return [(mail, row) for mail, row, text in rows if added_words(text) or text == mail.body]


@lru_cache(maxsize=64)
def _lines(body: str) -> tuple[str, ...]:
    lines = (" ".join(words(each.text)) for each in split_sentences(body) if not each.frame)
    return tuple(filter(None, lines))


def with_equivalents(
    question: Question, gold: Iterable[Email], mails: Sequence[Email], known: Iterable[str] = ()
) -> Question:
    """Add `known` to the equivalent ids, and the `mails` that repeat the best sentence of a gold
    mail and its neighbours. A sentence scores 1 for a stem of the question, 2 for the answer's."""
    about, answer = (stems(words(text or "")) for text in (question.question, question.answer))
    weights, ids = Counter({*about}) + Counter([*{*answer}] * 2), [*question.equivalent_ids, *known]
    bodies = [(mail.message_id, f" {' '.join(words(mail.body))} ") for mail in mails]
    for lines in (_lines(mail.body) for mail in gold):
        scores = [sum(weights[stem] for stem in {*stems(line.split())}) for line in lines]
        at = max(range(len(lines)), key=scores.__getitem__, default=0)
        passage = f" {' '.join(lines[max(0, at - 1) : at + 2])} "
        ids += [name for name, body in bodies if lines and passage in body]
    equivalent = (each for each in dict.fromkeys(ids) if each not in question.message_ids)
    return replace(question, equivalent_ids=tuple(equivalent))


# ---- The checks.


class _Result(NamedTuple):
    """A check's result; `question` is the row if changed, `name` and `by` replace the check's."""

    passed: bool | None
    reason: str
    question: Question | None = None
    name: str | None = None
    by: str | None = None


_NO_MAIL = _Result(True, "the search finds no mail", by="search")


@dataclass(frozen=True, slots=True)
class ModelChecks:
    """Checks rows with a reader and a judge."""

    reader: StructuredModel
    judge: Judge
    min_realism: float = MIN_REALISM

    async def examine(self, inbox: Inbox, question: Question) -> Outcome:
        """Return the row after its checks, and the failed one; `inbox` is as of the query date."""
        checks = {"realistic": self._realistic}
        if question.answerable is False:
            checks |= {"unanswerable": self._unanswerable}
        else:
            checks |= {"needs-mail": self._needs_mail, "answerable": self._answerable}
            checks |= {"unambiguous": self._unambiguous}
        for name, examine in checks.items():
            try:
                result = await examine(inbox, question)
            except (PolicyError, UnparseableError) as error:
                kind = error.kind if isinstance(error, PolicyError) else "unparseable"
                result = _Result(None, f"{NOT_CHECKED}{kind}")
            check = self._check(name, result)
            question = with_checks(result.question or question, [check])
            if check.passed is False:
                return question, check
        return question, None

    def _check(self, name: str, result: _Result) -> Check:
        by = result.by or f"{self.reader.model}, judged by {self.judge.name}"
        return Check(result.name or name, "verify", result.passed, result.reason, by)

    async def _realistic(self, inbox: Inbox, question: Question) -> _Result:
        rated = await self._ask("realism", _request(question), Rating)
        rate = rated.how_realistic
        if not 0 <= rate <= 1:
            raise UnparseableError(f"{rate:g} is not from 0 to 1")
        reason = f"rated {rate:g}: {cut_line(rated.reason, MAX_QUOTED_CHARS)}"
        return _Result(rate >= self.min_realism, reason, replace(question, how_realistic=rate))

    async def _needs_mail(self, inbox: Inbox, question: Question) -> _Result:
        read = await self._read("closed_book", question)
        if read.answer is None:
            return _Result(True, f"without mail there is no answer: {read.reason}")
        if not await self._is_gold(question, read.answer):
            return _Result(True, f"without mail the answer is different: {_quoted(read.answer)}")
        reason = f"without mail the answer is {_quoted(read.answer)}: {read.reason}"
        if YES_NO.match(question.question) or CHOICE.search(question.question):
            # A guess between two answers is right half the time.
            return _Result(None, f"one of two, guessed; {reason}")
        return _Result(False, reason)

    async def _answerable(self, inbox: Inbox, question: Question) -> _Result:
        gold = mails_of(inbox, question.message_ids)
        read = await self._read("read", question, _excerpts(question, gold, gold))
        if read.answer is None:
            return _Result(False, f"the cited mails give no answer: {read.reason}")
        passed = await self._is_gold(question, read.answer)
        other = "" if passed else "another answer, "
        return _Result(passed, f"the cited mails give {other}{_quoted(read.answer)}: {read.reason}")

    async def _unanswerable(self, inbox: Inbox, question: Question) -> _Result:
        # Search with the question's words, then with its names and numbers alone.
        names, keywords = name_stems(question.question), informative_words(question.question)
        named = [each for each in keywords if stems([each])[0] in names]
        results = (_search(inbox, each, ())[: 2 * MAX_RIVALS] for each in (keywords, named))
        mails = list({mail.message_id: mail for hits in results for mail in hits}.values())
        if not mails:
            return _NO_MAIL
        read = await self._read("read", question, _excerpts(question, mails))
        if read.answer is None:
            return _Result(True, f"{len(mails)} mails found give no answer: {read.reason}")
        return _Result(False, f"the mail found gives {_quoted(read.answer)}: {read.reason}")

    async def _unambiguous(self, inbox: Inbox, question: Question) -> _Result:
        gold = mails_of(inbox, question.message_ids)
        hits = _search(inbox, informative_words(question.question), gold)
        lines = {line for mail in gold for line in _lines(mail.body)}
        others = [each for each in hits if not lines.issuperset(_lines(each.body))][:MAX_RIVALS]
        if not hits:
            return _NO_MAIL
        if question.kind in ("count", "multi-mail"):
            # The other mails must not change the answer.
            read = await self._read("read", question, _excerpts(question, [*gold, *others], gold))
            if read.answer is not None and await self._is_gold(question, read.answer):
                reason = f"with {len(others)} other mails the answer is the same"
                return _Result(True, reason, with_equivalents(question, gold, hits))
            other = _quoted(read.answer) if read.answer else "none"
            return _Result(False, f"with the other mails, the answer is {other}: {read.reason}")
        claims = await self._claims(question, gold, others)
        while True:
            # This ends, because each round's gold mail is newer than the last one's.
            standing = Claim(question.answer or "", tuple(by_date(gold)))
            notes, supporting, replacing, is_sure = list[str](), list[str](), list[Claim](), True
            for claim in claims:
                settled = await self._settle(question, standing, claim)
                if settled.relation == "both_stand":
                    return _Result(False, settled.reason, question)
                notes.append(settled.reason)
                if settled.relation == "same":
                    supporting += [mail.message_id for mail in claim.mails]
                is_sure = is_sure and (bool(claim.mails) or settled.relation == "same")
                if settled.relation == "gold_replaced":
                    replacing.append(claim)
                elif settled.relation == "rival_replaced":
                    question = replace(question, kind="latest-update")
            if not replacing:
                reason = "; ".join(notes) or f"{len(others)} mails found support no other answer"
                question = with_equivalents(question, gold, hits, supporting)
                return _Result(True if is_sure else None, reason, question)
            latest = max(replacing, key=lambda each: each.newest or _LONG_AGO)
            renewed = await self._with_later_answer(inbox, question, latest)
            if not renewed.passed or renewed.question is None:
                return renewed
            question, gold = renewed.question, by_date(latest.mails)[-1:]

    async def _with_later_answer(self, inbox: Inbox, question: Question, latest: Claim) -> _Result:
        """Return the row with a later answer as gold, and whether it passes as gold."""
        name = by_date(latest.mails)[-1].message_id
        later = f"{name} gives a later answer, {_quoted(latest.answer)}"
        if (length := len(latest.answer)) > MAX_NEW_ANSWER_CHARS:
            reason = f"{later}: {length:,} characters are too long for a gold answer"
            return _Result(None, reason, question)
        row = replace(question, kind="latest-update", answer=latest.answer)
        row = replace(row, message_ids=(name,), equivalent_ids=())
        # The filter has not seen the new answer.
        if (fault := answer_fault(row)) is not None:
            return _Result(False, f"{later}: the row then fails {fault}", question)
        again = await self._answerable(inbox, row)
        reason = f"with a newer mail as gold, {again.reason}"
        row = with_checks(row, [self._check("answerable", again)])
        return _Result(again.passed, reason, row, "answerable")

    async def _claims(
        self, question: Question, gold: Sequence[Email], others: Sequence[Email]
    ) -> list[Claim]:
        rows = [each for each in _excerpts(question, [*gold, *others]) if each[0] in others]
        if not rows:
            return []
        reply = await self._ask("candidates", _request(question, rows), Candidates)
        named = {row["id"]: mail for mail, row in rows}
        claims = []
        for candidate in reply.answers:
            if not is_abstention(candidate.answer):
                names = dict.fromkeys(candidate.mails)
                cited = tuple(named[name] for name in names if name in named)
                claims.append(Claim(_one_line(candidate.answer), cited))
        return claims

    async def _settle(self, question: Question, gold: Claim, rival: Claim) -> Settlement:
        """Return how an answer relates to the gold one, by the judge, the reader and the dates."""
        ids = ", ".join(each.message_id for each in rival.mails)
        answer = _quoted(rival.answer)
        if await self._is_gold(question, rival.answer):
            return Settlement(reason=f"confirmed by {ids}" if ids else "confirmed", relation="same")
        if not rival.mails:
            reason = f"the reader also gives {answer}, of no mail that it names"
            return Settlement(reason=reason, relation="other_matter")
        mails = (*gold.mails, *rival.mails)
        keywords = stems(words(f"{question.question} {gold.answer} {rival.answer}"))
        rows = prompt_mails(mails, [passages(mail.body, keywords) for mail in mails])
        cut = len(gold.mails)
        data = {
            **_request(question),
            "gold": {"answer": gold.answer, "mails": rows[:cut]},
            "rival": {"answer": rival.answer, "mails": rows[cut:]},
        }
        reply = await self._ask("settle", data, Settlement)
        pairs = zip(mails, rows, strict=True)
        reason, relation = _with_ids(reply.reason, pairs), reply.relation
        # An answer replaces another one only if its mail is newer.
        if relation in ("gold_replaced", "rival_replaced"):
            in_order = (gold, rival) if relation == "gold_replaced" else (rival, gold)
            old, new = (each.newest for each in in_order)
            if old is None or new is None or new <= old:
                reason = f"the reader says {relation}, but no mail is later; {reason}"
                relation = "both_stand"
        return Settlement(reason=f"{ids} gives {answer}, {relation}: {reason}", relation=relation)

    async def _is_gold(self, question: Question, answer: str) -> bool:
        verdict = await self.judge.judge(question, answer)
        if verdict.correct is None:
            # An `LlmJudge` gives a reason like this if the cost limit forbids the call.
            is_over = verdict.reason.startswith("failed: budget:")
            raise PolicyError("budget" if is_over else "judge", verdict.reason)
        return verdict.correct

    async def _read(self, prompt: str, row: Question, mails: Sequence[Excerpt] = ()) -> Reading:
        reply = await self._ask(prompt, _request(row, mails), Reading)
        answer = None if is_abstention(reply.answer) else _one_line(reply.answer or "")
        return Reading(reason=_with_ids(reply.reason, mails), answer=answer)

    async def _ask(self, prompt: str, data: Mapping[str, Any], form: type[Form]) -> Form:
        text = prompt_text(__package__, prompt)
        return await self.reader.read(text, data, form, lambda reply: parse_reply(reply, form))


def _request(question: Question, mails: Sequence[Excerpt] = ()) -> dict[str, Any]:
    day = question.query_date
    asked_on = None if day is None else day.isoformat()
    data = {"question": question.question, "asked_on": asked_on, "inbox": question.inbox_address}
    return {**data, "mails": [row for _, row in mails]} if mails else data


def _one_line(text: str) -> str:
    return " ".join(encodable(text).split())


def _quoted(text: str) -> str:
    return repr(cut_line(text, MAX_QUOTED_CHARS))


def _with_ids(reason: str, mails: Iterable[Excerpt]) -> str:
    ids = {row["id"]: mail.message_id for mail, row in mails}
    text = cut_line(reason, MAX_QUOTED_CHARS)
    return re.sub(r"\bm\d+\b", lambda match: ids.get(match[0], match[0]), text)
