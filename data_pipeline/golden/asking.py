"""Calls models for the golden set and keeps every reply, even an unreadable one, as it arrives.

So a killed step asks only for what is missing. Replies of earlier runs count towards the limit.
"""

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from art_e.inbox.mail import Email, format_date
from art_e.inbox.threads import LEFT_OUT, added_texts
from art_e.inbox.tokenizer import stems, words
from art_e.models.base import Usage
from art_e.models.calls import Retries
from art_e.models.prices import price_of
from art_e.models.providers import accepts
from art_e.privacy import load_env
from art_e.text import digest
from art_e.tools import MAX_BODY_CHARS
from evals.structured import Responses, Spent, StructuredModel, UnparseableError

ATTEMPTS = 3  # for a reply that can't be read
MAX_RECIPIENTS = 4
# Passages of a mail are at most so many pieces of so many characters.
_PIECES, _PIECE_CHARS = 6, 150

# What disclaimers say, the header above a quote that is left out, and a quoted list of recipients.
_DISCLAIMER = re.compile(r"(?is).*\b(?:intended recipient|property of Enron Corp)\b.*")
_OUT, _HEADER = re.escape(LEFT_OUT), r"[ \t>]*(?:from|sent|to|cc|bcc|date|subject|importance):"
_HEADERS = re.compile(rf"(?im)^(?:(?:[ \t>]*-{{3,}}.*|{_HEADER}.*|{_OUT}|[ \t>]*)\n)+(?={_OUT})")
_RECIPIENTS = re.compile(rf"(?im)(^[ \t>]*(?:to|cc):[^:]{{150}})[^:]*(?=\n{_HEADER})")

Result = TypeVar("Result")


def new_texts(bodies: Iterable[str]) -> list[str]:
    """What each mail adds to those before it, without disclaimers and long lists of recipients."""
    texts = []
    for text in added_texts([body[:MAX_BODY_CHARS] for body in bodies]):
        paragraphs = (_DISCLAIMER.sub("[disclaimer]", each) for each in text.split("\n\n"))
        texts.append(_RECIPIENTS.sub(r"\1 ...", _HEADERS.sub("", "\n\n".join(paragraphs))))
    return texts


def added_words(text: str) -> int:
    """How many words one of `new_texts` has of its own."""
    return len(words(text.replace(LEFT_OUT, "")))


def passages(text: str, wanted: Collection[str]) -> str:
    """The pieces of a text in which, or beside which, the rarest of the `wanted` stems are."""
    pieces = re.findall(rf"(?s).{{1,{_PIECE_CHARS}}}(?=\s|$)|\S+", text.strip())
    held = [{*wanted}.intersection(stems(words(piece))) for piece in pieces]
    frequency = Counter(stem for each in held for stem in each)
    hits = [*(sum(1 / frequency[stem] for stem in each) for each in held), 0.0]
    near = [hits[at - 1] + 2 * hits[at] + hits[at + 1] for at in range(len(pieces))]
    best = sorted(range(len(pieces)), key=near.__getitem__, reverse=True)[:_PIECES]
    chosen = (piece if at in best else "\n[...]" for at, piece in enumerate(pieces))
    return re.sub(r"(\n\[\.\.\.\])+", r"\1", "".join(chosen)).strip()


def shown_mails(mails: Sequence[Email], texts: Iterable[str]) -> list[dict[str, Any]]:
    """The mails with the handles m1, m2, ... as ids, and `texts` for their bodies."""
    return [
        {
            "id": f"m{number}",
            "date": format_date(mail.date, mail.message_id),
            "from": str(mail.sender),
            "to": _first([str(each) for each in (*mail.to, *mail.cc, *mail.bcc)]),
            "subject": mail.subject,
            "body": text[:MAX_BODY_CHARS],
        }
        for number, (mail, text) in enumerate(zip(mails, texts, strict=True), start=1)
    ]


def _first(names: list[str]) -> list[str]:
    more = len(names) - MAX_RECIPIENTS
    return names if more <= 0 else [*names[:MAX_RECIPIENTS], f"and {more} more"]


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
