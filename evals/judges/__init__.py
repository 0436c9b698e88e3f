"""Choose a judge by its name; a model as the judge.

offline          no model: a score of values, names and words (`evals.judges.offline`)
f1               no model: the share of common words (`evals.judges.offline`)
anything else    the litellm name of a model (`LlmJudge`)"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from art_e.inbox.mail import Email
from art_e.models.base import PolicyError
from art_e.models.clients import warm_up
from art_e.question import Question
from art_e.storage import home
from art_e.text import cut_line, digest, prompt_text
from art_e.tools import MAX_BODY_CHARS
from evals.judges.claims import MAX_CHARS
from evals.judges.offline import UNREAD, F1Judge, OfflineJudge, RuleJudge, is_unanswerable
from evals.scored import Judge, Verdict
from evals.structured import StructuredModel, UnparseableError

WITHOUT_MODEL: Mapping[str, type[RuleJudge]] = {"offline": OfflineJudge, "f1": F1Judge}

# ---- A model as the judge: is the answer right, and do the mails that were read say so?

# The model is called twice, with `prompts/judge.txt` and `prompts/grounded.txt`. Question, answers
# and mails are sent as JSON strings, so that they can't escape their quotes; the prompts call them
# data. The model also recognizes abstentions, which no pattern can list; only null and the exact
# gold answer need no call. A failed call or unreadable reply gives the verdict None with a reason.

MAX_REASON_CHARS = 300


class Correctness(BaseModel):
    """Whether the given answer is correct, and why."""

    reason: str  # comes first, so that the model reasons before it decides
    verdict: Literal["correct", "incorrect", "not_attempted"]


class Support(BaseModel):
    """Whether the mails support the given answer, and why."""

    reason: str
    verdict: Literal["supported", "unsupported"]


class LlmJudge(StructuredModel):
    """Judges with a model, many episodes at once; beyond `max_cost_usd` answers stay unjudged.
    `criterion` names the prompt: "judge" is ours, "published" the looser one of the reference."""

    criterion: Literal["judge", "published"] = "judge"

    @property
    def name(self) -> str:
        """The model and a hash of its prompts, such as "openai/o3@1f0c3a9b"."""
        prompts = prompt_text(__package__, self.criterion) + prompt_text(__package__, "grounded")
        return f"{self.model}@{digest(prompts)[:8]}"

    async def judge(
        self, question: Question, answer: str | None, mails: Sequence[Email] | None = None
    ) -> Verdict:
        """Return the verdict on `answer`, and with `mails` on its support. Raises as in `Judge`."""
        unanswerable = is_unanswerable(question)
        if answer is None:
            reason = f"abstained on an {'un' * unanswerable}answerable question"
            return Verdict(unanswerable, None, self.name, reason, attempted=False)
        gold = None if unanswerable else question.answer
        fields: dict[str, Any] = {"question": question.question}
        if question.query_date is not None:
            fields["asked_on"] = str(question.query_date)
        data = {**fields, "gold_answer": gold, "given_answer": _cut(answer)}
        if gold is None or answer.strip().casefold() != gold.strip().casefold():
            verdict, reason = await self._decide(self.criterion, data, Correctness)
        else:
            verdict, reason = "correct", "is the gold answer"
        if verdict is None:
            return Verdict(None, None, self.name, reason)
        attempted = verdict != "not_attempted"
        correct = not attempted if unanswerable else verdict == "correct"
        if not attempted or mails is None:
            return Verdict(correct, None, self.name, reason, attempted)
        if not mails:
            return Verdict(correct, False, self.name, f"{reason}; {UNREAD}", attempted)
        # Bodies are cut as in the episode.
        rows = [{**each.to_json(), "body": each.body[:MAX_BODY_CHARS]} for each in mails]
        data = {**fields, "mails": rows, "given_answer": _cut(answer)}
        support, why = await self._decide("grounded", data, Support)
        grounded = None if support is None else support == "supported"
        reason = reason if grounded else f"{reason}; support: {why}"
        return Verdict(correct, grounded, self.name, reason, attempted)

    async def _decide(
        self, prompt: str, data: Mapping[str, Any], form: type[Correctness | Support]
    ) -> tuple[str | None, str]:
        """Return the model's verdict, if any, and the reason; retry truncated replies once."""
        reason = ""
        for _ in range(2):
            try:
                reply = await self.ask(prompt_text(__package__, prompt), data, form)
                return reply.verdict, cut_line(reply.reason, MAX_REASON_CHARS)
            except UnparseableError as error:
                reason = f"unparseable: {error}"
            except PolicyError as error:
                reason = f"failed: {error.kind}: {error}"
                if error.kind not in ("content", "length"):
                    break
        return None, reason


def _cut(answer: str) -> str:
    left = len(answer) - MAX_CHARS
    return answer if left <= 0 else f"{answer[:MAX_CHARS]} [cut here: {left:,} more characters]"


# ---- From a name to the judge.


def needs_model(name: str) -> bool:
    """Return whether the judge calls a model, to which answers and mail are sent."""
    return name not in WITHOUT_MODEL


def choose_judge(
    name: str, *, max_cost_usd: float | None = None, cache: Path | None = None,
    published: bool = False,
) -> Judge:  # fmt: skip
    """Return the judge that `--judge` names. With `published` a model uses the reference's prompt.
    `max_cost_usd` limits the cost of its verdicts; `cache` (None: a folder in `ART_E_HOME`) stores
    its replies. Raises `UserError` for a judge that can't be used."""
    if name in WITHOUT_MODEL:
        return WITHOUT_MODEL[name]()
    judge = LlmJudge(name, max_cost_usd=max_cost_usd, cache=cache or home() / "cache" / "verdicts")
    judge.criterion = "published" if published else "judge"
    warm_up(name)  # loading its client later would delay the running episodes
    return judge
