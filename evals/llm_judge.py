"""A model as the judge: is the answer right, and do the mails that were read say so?

Two questions, each asked on its own, by `prompts/judge.txt` and `prompts/grounded.txt`.
Question, gold answer, given answer and mails are handed over as quoted JSON, so that
no text can end its quotes, and the prompts declare them data. What rule 1 of
`evals.judge` settles (abstentions, unanswerable questions, the gold answer word for
word) costs no call. Whatever fails or can't be read is no verdict: None, with the
reason. Knows nothing of runs and of how many judges there are.
"""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

from art_e.abstention import is_abstention
from art_e.inbox.mail import Email
from art_e.policies.base import PolicyError
from art_e.policies.retries import Retries
from art_e.question import Question
from art_e.text import encodable
from art_e.tools import MAX_BODY_CHARS
from evals.judge import Verdict, ruled
from evals.normalise import MAX_CHARS
from evals.structured import Spent, StructuredModel, UnparseableError

DEFAULT_MODEL = "gemini/gemini-2.5-flash"
MAX_REASON_CHARS = 300

Prompt = Literal["judge", "grounded"]


class Correctness(BaseModel):
    """Whether the given answer is correct, and why."""

    # First, so that it is thought of first.
    reason: str
    verdict: Literal["correct", "incorrect"]


class Support(BaseModel):
    """Whether the mails support the given answer, and why."""

    reason: str
    verdict: Literal["supported", "unsupported"]


class _Finding(NamedTuple):
    yes: bool | None
    reason: str


class LlmJudge:
    """Judges with `model`, a litellm name; it serves many episodes at once.

    `max_cost_usd` bounds all its calls together: past it, answers are unjudged. `cache` is
    a folder that keeps replies by the content they were given for. Raises `UserError`
    where the model can't be asked. `retries` is for tests.
    """

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        max_cost_usd: float | None = None,
        cache: Path | None = None,
        retries: Retries | None = None,
    ) -> None:
        self._model = StructuredModel(
            model, max_cost_usd=max_cost_usd, cache=cache, retries=retries
        )

    @property
    def name(self) -> str:
        """The model and the version of its prompts, such as "openai/o3@1f0c3a9b"."""
        return f"{self._model.model}@{prompts_hash()}"

    @property
    def spent(self) -> Spent:
        """What its calls have cost so far."""
        return self._model.spent

    @property
    def exhausted(self) -> bool:
        """Whether a call was not made, for it could have cost more than is left."""
        return self._model.exhausted

    async def judge(
        self, question: Question, answer: str | None, mails: Sequence[Email] = ()
    ) -> Verdict:
        """The verdict on `answer`; with `mails`, also whether they support it.

        Raises UserError for a question without a gold answer.
        """
        settled = ruled(question, answer, self.name)
        correct, grounded = await asyncio.gather(
            self._correct(question, answer) if settled is None else _settled(settled),
            self._grounded(question, answer, mails),
        )
        verdict = Verdict(correct.yes, grounded.yes, self.name, correct.reason)
        if grounded.reason:
            verdict = replace(verdict, reason=f"{verdict.reason}; {grounded.reason}")
        return verdict

    async def _correct(self, question: Question, answer: str | None) -> _Finding:
        data = {**_asked(question), "gold_answer": question.answer, "given_answer": _cut(answer)}
        return await self._ask("judge", data, Correctness)

    async def _grounded(
        self, question: Question, answer: str | None, mails: Sequence[Email]
    ) -> _Finding:
        """Whether the mails support an answer; nothing is asked about an abstention."""
        if answer is None or not mails or is_abstention(answer):
            return _Finding(None, "")
        data = {
            **_asked(question),
            "mails": [_shown(each) for each in mails],
            "given_answer": _cut(answer),
        }
        yes, reason = await self._ask("grounded", data, Support)
        # Of a supported answer there is nothing to say.
        return _Finding(yes, "" if yes else f"support: {reason}")

    async def _ask(
        self, prompt: Prompt, data: dict[str, Any], form: type[Correctness | Support]
    ) -> _Finding:
        try:
            reply = await self._model.ask(prompt_text(prompt), data, form)
        except UnparseableError as error:
            return _Finding(None, f"unparseable: {error}")
        except PolicyError as error:
            return _Finding(None, f"failed: {error.kind}: {error}")
        reason = " ".join(encodable(reply.reason).split())[:MAX_REASON_CHARS]
        return _Finding(reply.verdict in ("correct", "supported"), reason)


@cache
def prompt_text(name: Prompt) -> str:
    """The prompt of that name."""
    return resources.files("evals").joinpath(f"prompts/{name}.txt").read_text(encoding="utf-8")


@cache
def prompts_hash() -> str:
    """Names the prompts in verdicts that were given by them."""
    both = prompt_text("judge") + prompt_text("grounded")
    return hashlib.sha256(both.encode()).hexdigest()[:8]


async def _settled(verdict: Verdict) -> _Finding:
    return _Finding(verdict.correct, verdict.reason)


def _asked(question: Question) -> dict[str, Any]:
    day = question.query_date
    return {"question": question.question} | ({} if day is None else {"asked_on": str(day)})


def _cut(answer: str | None) -> str | None:
    """The answer as every judge reads it: the offline one stops there too."""
    if answer is None or len(answer) <= MAX_CHARS:
        return answer
    return f"{answer[:MAX_CHARS]} [cut here: {len(answer) - MAX_CHARS:,} more characters]"


def _shown(mail: Email) -> dict[str, Any]:
    """The mail as far as the episode could see it."""
    shown = mail.to_json()
    return {**shown, "body": shown["body"][:MAX_BODY_CHARS]}
