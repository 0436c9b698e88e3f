"""What a model that reads mail is asked while a golden set is verified: forms, prompts, data.

Each question is one prompt with quoted JSON, which the prompts declare to be data. Mails are
called "m1", "m2", ... in the order in which they are given. Knows nothing of checks: what a
reply means for a row is said in `model_checks.py`.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel

from art_e.abstention import is_abstention
from art_e.inbox.mail import Email
from art_e.question import Question
from art_e.text import cut_line, digest, encodable
from data_pipeline.golden.asking import Asker
from data_pipeline.golden.shown import handles, shown_mails

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
