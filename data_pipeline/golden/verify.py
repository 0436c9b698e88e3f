"""`verify`: is each answer right, the only one, and not to be guessed without mail?

    art-e golden verify --db DB --out DIR --model gemini/gemini-2.5-flash

Rows are checked side by side, and the result for one depends on no other. `model_checks.py` makes
the checks.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from art_e.question import Question
from data_pipeline.golden.golden_set import Check, GoldenSet, checks_of

CONCURRENCY = 8  # rows at a time


@dataclass(frozen=True, slots=True)
class Examined:
    """A row with its checks, possibly mended.

    `failed` is the check that drops it. `unchecked` has the checks that could not be made, by
    name, with one word on why: the kind of a `PolicyError`, "unparseable" or "judge". The row has
    them as unsure checks.
    """

    question: Question
    failed: Check | None = None
    unchecked: Mapping[str, str] = field(default_factory=dict)


class Checks(Protocol):
    """Makes the checks of a row."""

    def settings(self) -> dict[str, Any]:
        """Model, judge and prompts, for the manifest."""

    async def examine(self, inbox: Inbox, question: Question) -> Examined:
        """The row after its checks; `inbox` is as of the question's date."""


def verify(
    file: InboxFile,
    golden: GoldenSet,
    checks: Checks,
    *,
    strict: bool = False,
    concurrency: int = CONCURRENCY,
    on_row: Callable[[], None] = lambda: None,
) -> None:
    """Check every row: rows that fail are dropped, superseded answers replaced.

    `strict` also drops rows with an unsure check, or one that could not be made. `on_row` is called
    after each row. Raises `UserError` for an inbox that the file lacks.
    """
    golden.undo("verify")

    async def examine_all() -> list[Examined]:
        turn = asyncio.Semaphore(concurrency)

        async def examine(question: Question) -> Examined:
            async with turn:
                inbox = file.inbox_of(question)
                fault = unfit(inbox, question)
                if fault is not None:
                    examined = Examined(question, fault)
                else:
                    examined = await checks.examine(inbox, question)
                on_row()
                return examined

        return await asyncio.gather(*(examine(each) for each in golden.questions))

    examined = asyncio.run(examine_all())
    unchecked: dict[str, Counter[str]] = {}
    for each in examined:
        for name, reason in each.unchecked.items():
            unchecked.setdefault(name, Counter())[reason] += 1
    counted = {name: dict(sorted(unchecked[name].items())) for name in sorted(unchecked)}
    made = [
        (each.question, each.failed or (_unsure(each.question) if strict else None))
        for each in examined
    ]
    golden.finish("verify", made, {**checks.settings(), "strict": strict, "unchecked": counted})


def refuse_own_rows(golden: GoldenSet, model: str) -> None:
    """Raise `UserError` if `model` wrote rows of the set, through any provider."""
    rows = [*golden.questions, *(each for row in golden.rejected if (each := row.question))]
    writers = {str(each.provenance.get("model", "")) for each in rows}
    own = sorted(each for each in writers if each.rpartition("/")[2] == model.rpartition("/")[2])
    if own:
        raise UserError(
            f"{own[0]} wrote rows of this set and can't be their reader too; name another --model"
        )


def unfit(inbox: Inbox, question: Question) -> Check | None:
    """The reason why a row can't be verified: an answerable one without answer or mails."""
    if question.answerable is False:
        return None
    lacking = [each for each in question.message_ids if inbox.canonical_id(each) is None]
    if not question.answer:
        reason = "there is no gold answer"
    elif not question.message_ids:
        reason = "no mail is cited"
    elif lacking:
        reason = f"the inbox has no mail {lacking[0]} when the question is asked"
    else:
        return None
    return Check("answerable", "verify", False, reason, "rule")


def _unsure(question: Question) -> Check | None:
    found = checks_of(question).values()
    return next((each for each in found if each.step == "verify" and each.passed is None), None)
