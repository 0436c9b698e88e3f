"""`verify`: is each answer right, the only one, and not to be guessed without mail?

    art-e golden verify --db DB --out DIR --model gemini/gemini-2.5-flash

Rows are checked side by side, and the result for one depends on no other. `model_checks.py` makes
the checks.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from art_e.question import Question
from data_pipeline.golden.golden_set import Check, GoldenSet, checks_of
from data_pipeline.golden.inboxes import Cited, CitedMails

# How the reason of an unsure check begins that could not be made. The kind of the `PolicyError`,
# "unparseable" or "judge" follows.
NOT_CHECKED = "not checked: "


# A row with its checks, and the one that drops it.
Examined = tuple[Question, Check | None]


def verify(
    file: InboxFile,
    golden: GoldenSet,
    examine: Callable[[Inbox, Question], Awaitable[Examined]],
    settings: Mapping[str, Any],
    *,
    strict: bool = False,
    concurrency: int,
    on_row: Callable[[], None] = lambda: None,
) -> None:
    """Check every row: rows that fail are dropped, superseded answers replaced.

    `examine` makes the checks of a row in its inbox as of its date; `settings` are those of the
    checks, for the manifest. `strict` also drops rows with an unsure check, or one that could not
    be made. `concurrency` limits the rows at a time; `on_row` is called after each. Raises
    `UserError` for an inbox that the file lacks.
    """
    golden.undo("verify")
    cited = CitedMails(file, golden.questions)

    async def examine_all() -> list[Examined]:
        turn = asyncio.Semaphore(concurrency)

        async def one(question: Question) -> Examined:
            async with turn:
                inbox, fault = file.inbox_of(question), unfit(question, cited.of(question))
                done = (question, fault) if fault else await examine(inbox, question)
                on_row()
                return done

        return await asyncio.gather(*map(one, golden.questions))

    made, unchecked = [], Counter[tuple[str, str]]()
    for question, failed in asyncio.run(examine_all()):
        checks = [each for each in checks_of(question).values() if each.step == "verify"]
        unsure = [each for each in checks if each.passed is None]
        made.append((question, failed or (unsure[0] if strict and unsure else None)))
        for each in unsure:
            if each.reason.startswith(NOT_CHECKED):
                unchecked[each.name, each.reason.removeprefix(NOT_CHECKED)] += 1
    counted: dict[str, dict[str, int]] = {}
    for (name, why), count in sorted(unchecked.items()):
        counted.setdefault(name, {})[why] = count
    golden.finish("verify", made, {**settings, "strict": strict, "unchecked": counted})


def refuse_own_rows(golden: GoldenSet, model: str) -> None:
    """Raise `UserError` if `model` wrote rows of the set, through any provider."""
    rows = [*golden.questions, *(each for row in golden.rejected if (each := row.question))]
    writers = {str(each.provenance.get("model", "")) for each in rows}
    own = sorted(each for each in writers if each.rpartition("/")[2] == model.rpartition("/")[2])
    if own:
        raise UserError(
            f"{own[0]} wrote rows of this set and can't be their reader too; name another --model"
        )


def unfit(question: Question, cited: Mapping[str, Cited]) -> Check | None:
    """The reason why a row can't be verified: an answerable one without answer or mails."""
    faults = [f"{name} {mail.fault}" for name, mail in cited.items() if mail.fault]
    if not question.answer:
        faults = ["there is no gold answer"]
    elif not cited:
        faults = ["no mail is cited"]
    if question.answerable is False or not faults:
        return None
    return Check("answerable", "verify", False, faults[0], "rule")
