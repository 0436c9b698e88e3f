"""Models that are asked on behalf of a golden set: so many at a time, and nothing paid twice.

Every reply is kept in the set's folder as it arrives, also one that can't be read, so
that a killed step that is run again asks only what it had no reply to. What is there
already counts towards the limit. Knows nothing of what is asked.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel

from art_e.inbox.mail import Email, format_date
from art_e.message import observation_json
from art_e.models.base import Usage
from art_e.models.hosted import Retries
from art_e.models.prices import expected_cost, price_of
from art_e.models.providers import capabilities_of, load_litellm
from art_e.models.responses import Responses
from art_e.privacy import load_env
from art_e.text import digest, encodable
from art_e.tools import MAX_BODY_CHARS, MAX_RECIPIENTS
from evals.judges.llm import Spent, StructuredModel, UnparseableError, parsed

# ---- What the questions of a plan will cost, before any is asked.

# Of an item as `GeneratedItems` has it: about 60 words of content and as much of form.
TOKENS_PER_ITEM = 130
# A model that thinks does so for about that long over 20 mails; it is paid as output.
THINKING_TOKENS = 4_000


class GenerationCost(NamedTuple):
    """What is expected; `usd` None: the model's price is not known."""

    requests: int
    prompt_tokens: int
    completion_tokens: int
    usd: float | None

    def __str__(self) -> str:
        cost = "cost unknown" if self.usd is None else f"about ${self.usd:,.2f}"
        return (
            f"{cost} for {self.requests:,} requests ({self.prompt_tokens:,} tokens of prompts,"
            f" counted; {self.completion_tokens:,} of replies, assumed)"
        )


def estimate(
    model: str, prompt: str, data: Iterable[Mapping[str, Any]], form: Mapping[str, Any], items: int
) -> GenerationCost:
    """What asking `model`, a litellm name, about each of `data` for `items` items will cost.

    Prompt, data and the reply's form (a JSON schema) are counted by litellm's tokenizer for
    the model, which for some is a like one.
    """
    litellm = load_litellm()
    frame = litellm.token_counter(model=model, text=json.dumps(form))
    completion = items * TOKENS_PER_ITEM + (THINKING_TOKENS if _thinks(model) else 0)
    prompts = [
        frame
        + litellm.token_counter(
            model=model,
            messages=[
                {"role": "system", "content": prompt},
                {"role": "user", "content": encodable(observation_json(each))},
            ],
        )
        for each in data
    ]
    usd = expected_cost(model, [Usage(each, 0, completion) for each in prompts])
    rounded = None if usd is None else round(usd, 6)
    return GenerationCost(len(prompts), sum(prompts), completion * len(prompts), rounded)


def _thinks(model: str) -> bool:
    # Not by `capabilities_of`, which wants the key that a mere estimate does without.
    prices = load_litellm().model_cost
    entry = prices.get(model) or prices.get(model.partition("/")[2]) or {}
    return entry.get("supports_reasoning") is True


# ---- Mails as a model that works on a golden set is shown them. Knows nothing of models.


def handles(mails: Sequence[object]) -> list[str]:
    """What the mails, or those of these ids, are called: "m1", "m2", ... in their order."""
    return [f"m{number}" for number in range(1, len(mails) + 1)]


def shown_mails(mails: Sequence[Email]) -> list[dict[str, Any]]:
    """The mails as far as an episode could see them."""
    return [
        {
            "id": handle,
            "date": format_date(mail.date),
            "from": str(mail.sender),
            "to": [str(each) for each in (*mail.to, *mail.cc, *mail.bcc)][:MAX_RECIPIENTS],
            "subject": mail.subject,
            "body": mail.body[:MAX_BODY_CHARS],
        }
        for handle, mail in zip(handles(mails), mails, strict=True)
    ]


# ---- Models that are asked on behalf of a golden set: so many at a time, and nothing paid twice.

# How often a model is asked for what can't be read.
ATTEMPTS = 3

Form = TypeVar("Form", bound=BaseModel)
Result = TypeVar("Result")


def responses_folder(folder: Path, role: str, model: str) -> Path:
    """Where the replies of `model` in that role are, in the set's `folder`."""
    return folder / "responses" / f"{role}-{digest(model)}"


def spent_on(folder: Path, role: str, model: str) -> Spent:
    """What the replies that are kept have cost, whenever they were paid for."""
    usages = Responses(responses_folder(folder, role, model)).usages()
    price = price_of(model)
    known = [each for each in usages if each is not None]
    # One whose usage was not told may have cost anything.
    cost = None if price is None or len(known) < len(usages) else sum(map(price.cost, known))
    return Spent(len(usages), sum(known, Usage()), cost)


class Asker:
    """Asks `model`, a litellm name, `concurrency` requests at a time.

    `role` ("generate", "read") parts the replies of one model. `max_cost_usd` bounds what
    the replies cost together with those kept in `folder` already. Raises `UserError` where
    the model can't be asked. `retries` is for tests.
    """

    def __init__(
        self,
        model: str,
        folder: Path,
        role: str,
        *,
        concurrency: int,
        max_cost_usd: float | None = None,
        temperature: float = 0.0,
        retries: Retries | None = None,
    ) -> None:
        load_env()
        self._folder, self._role = folder, role
        before = settled_on(folder, role, model)
        self._model = StructuredModel(
            model,
            # Without a price a limit is refused there.
            max_cost_usd=left_of(max_cost_usd, before or 0.0),
            cache=responses_folder(folder, role, model),
            temperature=temperature,
            retries=retries,
        )
        self._before = before
        self._turn = asyncio.Semaphore(concurrency)

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model.model

    @property
    def spent(self) -> Spent:
        """What all replies of the role that are kept have cost, this run's and earlier ones'."""
        return spent_on(self._folder, self._role, self.name)

    @property
    def spent_usd(self) -> float | None:
        """USD so far, with what earlier runs of the step have paid; None: price not known."""
        cost = self._model.spent.cost_usd
        return None if cost is None or self._before is None else self._before + cost

    async def ask(self, prompt: str, data: Mapping[str, Any], form: type[Form]) -> Form:
        """The model's reply as `form`; otherwise as `read`."""
        return await self.read(prompt, data, form, lambda text: parsed(text, form))

    async def read(
        self,
        prompt: str,
        data: Mapping[str, Any],
        form: type[BaseModel],
        reading: Callable[[str], Result],
    ) -> Result:
        """What `reading` makes of the model's reply when it is asked for `form`.

        What can't be read is asked for again, `ATTEMPTS` times in all. Raises
        `UnparseableError`, as `reading` does, where none can be read, and `PolicyError` where
        a call is given up.
        """
        attempt = 0
        while True:
            async with self._turn:
                said = await self._model.reply(prompt, data, form, attempt=attempt)
            try:
                return reading(said)
            except UnparseableError:
                attempt += 1
                if attempt == ATTEMPTS:
                    raise


def settled_on(folder: Path, role: str, model: str) -> float | None:
    """USD that the kept replies count as: one whose usage was not told as the longest there is.

    None where there are replies and the model's price is not known.
    """
    usages = Responses(responses_folder(folder, role, model)).usages()
    if not usages:
        return 0.0
    price = price_of(model)
    if price is None:
        return None
    most = price.most(0, capabilities_of(model).most_tokens) if None in usages else 0.0
    return sum(most if each is None else price.cost(each) for each in usages)


def left_of(limit: float | None, before: float) -> float | None:
    """What is left of the limit; one that is none is handed on, to be refused."""
    if limit is None or not limit >= 0:
        return limit
    return max(0.0, limit - before)
