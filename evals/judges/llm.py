"""A model as the judge: is the answer right, and do the mails that were read say so?

These are two calls, with `prompts/judge.txt` and `prompts/grounded.txt`. Question, gold answer,
given answer and mails are sent as quoted JSON, so that no text can end its quotes, and the prompts
call them data. The model says correct, incorrect or not attempted. No pattern decides before it,
because there are more ways to say "I don't know" than a pattern knows; only null and the gold
answer word for word cost no call. A call that fails, or an unreadable reply, gives the verdict None
with the reason.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from art_e.errors import UserError
from art_e.inbox.mail import Email
from art_e.message import AssistantMessage, observation_json
from art_e.models.base import PolicyError, Usage
from art_e.models.hosted import Calls, Retries, make
from art_e.models.providers import capabilities_of, load_litellm, receiving_host
from art_e.models.responses import Response, Responses, request_key
from art_e.question import Question
from art_e.text import cut_line, digest, encodable
from art_e.tools import MAX_BODY_CHARS
from evals.judges.offline import is_unanswerable
from evals.judges.values import MAX_CHARS
from evals.verdict import Verdict

# ---- A model that is asked for JSON of a fixed form, and what that cost.

TIMEOUT_S = 120.0
_FRAME_TOKENS = 600  # of a prompt besides its messages: the schema
_SHOWN_CHARS = 80

Form = TypeVar("Form", bound=BaseModel)


class UnparseableError(Exception):
    """The model's reply is not of the form asked for. The message is one line."""


class Spent(NamedTuple):
    """What calls have cost so far, without those answered from the cache.

    `cost_usd` is None if the price is not known.
    """

    calls: int
    usage: Usage
    cost_usd: float | None


class StructuredModel:
    """Asks `model`, a litellm name.

    `max_cost_usd` limits all its calls together, `cache` is a folder that keeps responses, and
    `temperature` is used if the model takes one. Raises `UserError` for a model that litellm does
    not know, that lacks its key, that takes no form of reply, or that has no price under a limit.
    """

    def __init__(
        self,
        model: str,
        *,
        max_cost_usd: float | None = None,
        cache: Path | None = None,
        temperature: float = 0.0,
        retries: Retries | None = None,
    ) -> None:
        self.model = model
        self._temperature = temperature
        self._retries = retries or Retries()
        self._takes = capabilities_of(model)
        # Raises for an unknown host: litellm sends some such requests to OpenAI.
        receiving_host(model)
        taken = load_litellm().get_supported_openai_params(model) or []
        if "response_format" not in taken:
            raise UserError(f"{model} can't be held to a form of reply; name another judge")
        self._calls = Calls(
            model,
            max_cost_usd,
            max_output_tokens=self._takes.most_tokens,
            frame_tokens=_FRAME_TOKENS,
            timeout_s=TIMEOUT_S,
        )
        self._responses = None if cache is None else Responses(cache)
        self._answered = 0
        self._usage = Usage()

    @property
    def spent(self) -> Spent:
        """What its calls have cost so far."""
        cost = self._calls.spent_usd
        if cost is None and self._answered == 0:
            cost = 0.0
        return Spent(self._answered, self._usage, cost)

    @property
    def exhausted(self) -> bool:
        """Whether a call was not made because it could have cost more than is left."""
        return self._calls.exhausted

    async def ask(self, prompt: str, data: Mapping[str, Any], form: type[Form]) -> Form:
        """The model's reply to `prompt` about `data`, which it gets as quoted JSON.

        Raises `UnparseableError` if it is not of `form`; the cache does not keep such a reply.
        Raises `PolicyError` if the call is given up (the kinds are those of `LitellmPolicy.act`).
        """
        return parsed(await self.reply(prompt, data, form, only_readable=True), form)

    async def reply(
        self,
        prompt: str,
        data: Mapping[str, Any],
        form: type[BaseModel],
        *,
        attempt: int = 0,
        only_readable: bool = False,
    ) -> str:
        """The model's reply as text, of the form asked for or not.

        The cache keeps every reply, or those of the form; another `attempt` is another request to
        the cache, and the same to the model. Raises `PolicyError` as `ask` does.
        """
        request = self._request(prompt, data)
        named = {**request, "form": form.model_json_schema(), "endpoint": self._takes.endpoint}
        key = request_key(named | ({"attempt": attempt} if attempt else {}))
        if self._responses is not None and (kept := self._responses.get(key)) is not None:
            return kept.message.content or ""
        made = await make(lambda: self._call(request, form), self._retries)
        text = made.result.message.content or ""
        if only_readable:
            parsed(text, form)
        if self._responses is not None:
            self._responses.put(key, made.result)
        return text

    def _request(self, prompt: str, data: Mapping[str, Any]) -> dict[str, Any]:
        request: dict[str, Any] = {
            "model": self.model,
            self._takes.max_tokens: self._takes.most_tokens,
            "messages": [
                {"role": self._takes.system_role, "content": prompt},
                {"role": "user", "content": encodable(observation_json(data))},
            ],
        }
        return {**request, "temperature": self._temperature} if self._takes.temperature else request

    async def _call(self, request: Mapping[str, Any], form: type[BaseModel]) -> Response:
        """Make the call once. Raises `ProviderError`, or `PolicyError` if the budget forbids it."""
        called = await self._calls.make({**request, "response_format": form})
        self._answered += 1
        self._usage += called.usage or Usage()
        return Response(AssistantMessage(called.message.content), called.usage)


def parsed(text: str | None, form: type[Form]) -> Form:
    """The reply as `form`. Raises `UnparseableError` if it is not of the form."""
    try:
        return form.model_validate_json(text or "")
    except ValidationError as error:
        shown = cut_line(text or "an empty reply", _SHOWN_CHARS)
        what = error.errors()[0]["msg"].partition(":")[0]
        raise UnparseableError(f"{what}: {shown!r}") from None


# ---- The judge.

MAX_REASON_CHARS = 300


class Correctness(BaseModel):
    """Whether the given answer is correct, and why."""

    # First, so that the model reasons before it decides.
    reason: str
    verdict: Literal["correct", "incorrect", "not_attempted"]


class Support(BaseModel):
    """Whether the mails support the given answer, and why."""

    reason: str
    verdict: Literal["supported", "unsupported"]


class _Finding(NamedTuple):
    """A reply's verdict and reason; the verdict is None if there was none."""

    verdict: str | None
    reason: str


class LlmJudge(StructuredModel):
    """Judges with a model; it serves many episodes at once.

    Past `max_cost_usd` answers are unjudged.
    """

    @property
    def name(self) -> str:
        """The model and the version of its prompts, such as "openai/o3@1f0c3a9b"."""
        return f"{self.model}@{prompts_hash()}"

    async def judge(
        self, question: Question, answer: str | None, mails: Sequence[Email] = ()
    ) -> Verdict:
        """The verdict on `answer`; with `mails`, also whether they support it.

        Raises UserError for a question without a gold answer.
        """
        unanswerable = is_unanswerable(question)
        if answer is None:
            reason = f"abstained on an {'un' * unanswerable}answerable question"
            return Verdict(unanswerable, None, self.name, reason, attempted=False)
        gold = None if unanswerable else question.answer
        day = question.query_date
        asked: dict[str, Any] = {"question": question.question}
        asked |= {} if day is None else {"asked_on": str(day)}
        data = {**asked, "gold_answer": gold, "given_answer": _cut(answer)}
        if gold is not None and answer.strip().casefold() == gold.strip().casefold():
            given, reason = _Finding("correct", "is the gold answer")
        else:
            given, reason = await self._finding("judge", data, Correctness)
        if given is None:
            return Verdict(None, None, self.name, reason)
        attempted = given != "not_attempted"
        correct = not attempted if unanswerable else given == "correct"
        if not attempted or not mails:
            return Verdict(correct, None, self.name, reason, attempted)
        # As far as the episode could see them.
        read = [{**each.to_json(), "body": each.body[:MAX_BODY_CHARS]} for each in mails]
        data = {**asked, "mails": read, "given_answer": _cut(answer)}
        support, why = await self._finding("grounded", data, Support)
        grounded = None if support is None else support == "supported"
        reason = reason if grounded else f"{reason}; support: {why}"
        return Verdict(correct, grounded, self.name, reason, attempted)

    async def _finding(
        self, prompt: str, data: Mapping[str, Any], form: type[Correctness | Support]
    ) -> _Finding:
        try:
            reply = await self.ask(prompt_text(prompt), data, form)
        except UnparseableError as error:
            return _Finding(None, f"unparseable: {error}")
        except PolicyError as error:
            return _Finding(None, f"failed: {error.kind}: {error}")
        return _Finding(reply.verdict, cut_line(reply.reason, MAX_REASON_CHARS))


@cache
def prompt_text(name: str) -> str:
    """The prompt of that name."""
    path = resources.files("evals.judges") / "prompts" / f"{name}.txt"
    return path.read_text(encoding="utf-8")


@cache
def prompts_hash() -> str:
    """Identifies the prompts in the verdicts that used them."""
    return digest(prompt_text("judge") + prompt_text("grounded"))[:8]


def _cut(answer: str) -> str:
    """The answer, cut where the offline judge stops reading too."""
    left = len(answer) - MAX_CHARS
    return answer if left <= 0 else f"{answer[:MAX_CHARS]} [cut here: {left:,} more characters]"
