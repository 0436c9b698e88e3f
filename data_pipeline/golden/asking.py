"""Calls models for the golden set and keeps every reply, even an unreadable one, as it arrives.

So a killed step asks only for what is missing. Replies of earlier runs count towards the limit.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from art_e.inbox.mail import Email, format_date
from art_e.models.base import Usage
from art_e.models.calls import Retries
from art_e.models.prices import price_of
from art_e.models.providers import accepts
from art_e.privacy import load_env
from art_e.text import digest
from art_e.tools import MAX_BODY_CHARS, MAX_RECIPIENTS
from evals.structured import Responses, Spent, StructuredModel, UnparseableError

ATTEMPTS = 3  # for a reply that can't be read

Result = TypeVar("Result")


def shown_mails(mails: Sequence[Email]) -> list[dict[str, Any]]:
    """The mails as an episode would show them, with the handles m1, m2, ... as ids."""
    return [
        {
            "id": f"m{number}",
            "date": format_date(mail.date),
            "from": str(mail.sender),
            "to": [str(each) for each in (*mail.to, *mail.cc, *mail.bcc)][:MAX_RECIPIENTS],
            "subject": mail.subject,
            "body": mail.body[:MAX_BODY_CHARS],
        }
        for number, mail in enumerate(mails, start=1)
    ]


def responses_folder(folder: Path, role: str, model: str) -> Path:
    """Where the set in `folder` keeps the replies of `model` in that role."""
    return folder / "responses" / f"{role}-{digest(model)}"


def spent_on(folder: Path, role: str, model: str) -> Spent:
    """What the kept replies have cost; one without usage counts as the longest one possible."""
    usages = Responses(responses_folder(folder, role, model)).usages()
    known = [each for each in usages if each is not None]
    price, cost = price_of(model), None if usages else 0.0
    if price is not None and usages:
        most = price.most(0, accepts(model).most_tokens) if None in usages else 0.0
        cost = sum(map(price.cost, known)) + most * (len(usages) - len(known))
    return Spent(len(usages), sum(known, Usage()), cost)


def left_of(limit: float | None, before: float | None) -> float | None:
    """The rest of the limit. An invalid limit passes through, so that the budget rejects it."""
    if limit is None or not limit >= 0:
        return limit
    return max(0.0, limit - (before or 0.0))


class Asker:
    """Asks `model`, a litellm name, in a `role` ("generate", "read") with replies of its own.
    `max_cost_usd` limits what these cost, those kept in `folder` included."""

    def __init__(
        self,
        model: str,
        folder: Path,
        role: str,
        *,
        max_cost_usd: float | None = None,
        temperature: float = 0.0,
        retries: Retries | None = None,
    ) -> None:
        load_env()
        self.name, self._folder, self._role = model, folder, role
        self._model = StructuredModel(
            model,
            max_cost_usd=left_of(max_cost_usd, self.spent.cost_usd),
            cache=responses_folder(folder, role, model),
            temperature=temperature,
            retries=retries,
        )

    @property
    def spent(self) -> Spent:
        """What all replies of the role have cost, in this run and earlier ones."""
        return spent_on(self._folder, self._role, self.name)

    async def read(
        self,
        prompt: str,
        data: Mapping[str, Any],
        form: type[BaseModel],
        reading: Callable[[str], Result],
    ) -> Result:
        """What `reading` makes of the model's reply, which should have the form `form`. Raises what
        `reading` does after `ATTEMPTS` unreadable replies, and `PolicyError` if a call fails."""
        for attempt in range(ATTEMPTS - 1):
            with contextlib.suppress(UnparseableError):
                return reading(await self._model.reply(prompt, data, form, attempt=attempt))
        return reading(await self._model.reply(prompt, data, form, attempt=ATTEMPTS - 1))
