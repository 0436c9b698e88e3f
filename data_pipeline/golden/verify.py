"""The verify step: is each row's answer right, the only one, and to be had from mail alone?

    art-e golden verify --db DB --out DIR --model gemini/gemini-2.5-flash

Rows are checked side by side; what becomes of one depends on no other, nor on the order in
which replies come. With a model the checks are those of `model_checks.py`, without one those
of `offline_reader.py`. Knows nothing of prompts.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from art_e.message import observation_json
from art_e.models.base import Usage
from art_e.models.prices import expected_cost
from art_e.question import Question
from data_pipeline.golden.asking import Asker
from data_pipeline.golden.golden_set import Check, GoldenSet, Rejected, checks_of
from data_pipeline.golden.inboxes import inbox_of, mails_of
from data_pipeline.golden.model_checks import (
    Examined,
    ModelChecks,
    Prompt,
    Reader,
    by_date,
    closed_book_data,
    mails_data,
    possible_answers,
    prompt_digests,
    prompt_text,
    rivals,
)
from data_pipeline.golden.offline_reader import examine_by_words
from evals.judges import needs_model, spent_by
from evals.judges.offline import Judge

# ---- What verifying a set will cost, before any row is checked.

CHARS_PER_TOKEN = 4
# Assumed of each reply, with what a model thinks before it.
COMPLETION_TOKENS = 300
# Assumed of each verdict of the judge, and how many there are for a row that has an answer:
# on the answer without mail, from the cited mails, and on a claim of another one.
JUDGE_USAGE = Usage(600, 0, 300, 0)
VERDICTS_PER_ROW = 3


class VerifyCost(NamedTuple):
    """What is expected; a cost is None where the model's price is not known."""

    requests: int
    prompt_tokens: int
    reader_usd: float | None
    verdicts: int
    judge_usd: float | None

    @property
    def reader_share(self) -> float:
        """Of all costs, the reader's; by tokens where a price is not known."""
        if self.reader_usd is None or self.judge_usd is None:
            return 1.0 if self.judge_usd == 0 else 0.8
        total = self.reader_usd + self.judge_usd
        return self.reader_usd / total if total else 1.0

    def __str__(self) -> str:
        known = self.reader_usd is not None and self.judge_usd is not None
        cost = (
            f"at most about ${(self.reader_usd or 0) + (self.judge_usd or 0):,.2f}"
            if known
            else "cost unknown"
        )
        return (
            f"{cost} for {self.requests:,} questions to the reader ({self.prompt_tokens:,} tokens"
            f" of prompts at {CHARS_PER_TOKEN} characters each; {COMPLETION_TOKENS} of each reply,"
            f" assumed) and {self.verdicts:,} verdicts of the judge (assumed)"
        )


def estimate(file: InboxFile, golden: GoldenSet, model: str, judge: str) -> VerifyCost:
    """What verifying every row of `golden` will cost with a reader and a judge of those names.

    Rows that fail are asked less, and settlements are left out. Raises `UserError` for an
    inbox that the file lacks.
    """
    prompts = [
        (len(prompt_text(prompt)) + len(observation_json(data))) // CHARS_PER_TOKEN
        for question in golden.questions
        for prompt, data in _requests(file, question)
    ]
    answerable = sum(each.answerable is not False for each in golden.questions)
    verdicts = VERDICTS_PER_ROW * answerable if needs_model(judge) else 0
    reader_usd = expected_cost(model, [Usage(each, 0, COMPLETION_TOKENS) for each in prompts])
    judge_usd = expected_cost(judge, [JUDGE_USAGE], verdicts) if verdicts else 0.0
    return VerifyCost(len(prompts), sum(prompts), reader_usd, verdicts, judge_usd)


def _requests(file: InboxFile, question: Question) -> Iterator[tuple[Prompt, Mapping[str, Any]]]:
    inbox = inbox_of(file, question)
    if question.answerable is False:
        yield "read", mails_data(question, by_date(possible_answers(inbox, question)))
        return
    gold = mails_of(inbox, question.message_ids)
    found = rivals(inbox, question, gold)
    yield "closed_book", closed_book_data(question)
    yield "read", mails_data(question, by_date(gold))
    if question.kind in ("count", "multi-mail"):
        yield "read", mails_data(question, by_date([*gold, *found]))
    elif found:
        yield "candidates", mails_data(question, by_date(found))


# ---- The verify step: is each row's answer right, the only one, and to be had from mail alone?

# Rows that are checked at a time.
CONCURRENCY = 8


def verify(
    file: InboxFile,
    golden: GoldenSet,
    reader: Asker | None,
    judge: Judge,
    *,
    strict: bool = False,
    concurrency: int = CONCURRENCY,
    judged_before_usd: float | None = 0.0,
    on_progress: Callable[[float | None], None] = lambda _: None,
) -> None:
    """Check every row of `golden`; those that fail are dropped, those superseded mended.

    `reader` None: without a model, by `offline_reader`, and `judge` has nothing to do.
    `strict` drops rows with an unsure check too, be it one that could not be made.
    `on_progress` is called as each row is done, with `spent_usd` of then. Raises `UserError`
    where the reader is the model that wrote the rows, and for an inbox that the file lacks.
    """
    if reader is not None:
        refuse_own_rows(golden, reader.name)
    golden.undo("verify")
    checks = None if reader is None else ModelChecks(Reader(reader), judge)
    rows = list(golden.questions)

    async def examine_all() -> list[Examined]:
        turn = asyncio.Semaphore(concurrency)

        async def examine(question: Question) -> Examined:
            async with turn:
                inbox = inbox_of(file, question)
                fault = unfit(inbox, question)
                if fault is not None:
                    examined = Examined(question, fault)
                elif checks is None:
                    examined = Examined(examine_by_words(inbox, question))
                else:
                    examined = await checks.examine(inbox, question)
                on_progress(spent_usd(reader, judge, judged_before_usd))
                return examined

        return await asyncio.gather(*(examine(each) for each in rows))

    examined = asyncio.run(examine_all())
    golden.questions = []
    for each in examined:
        failed = each.failed or (_unsure(each.question) if strict else None)
        if failed is None:
            golden.questions.append(each.question)
        else:
            golden.rejected.append(Rejected.of(each.question, failed))
    golden.record("verify", len(rows), _settings(examined, reader, judge, strict))


def refuse_own_rows(golden: GoldenSet, model: str) -> None:
    """Raise `UserError` where `model` wrote rows of the set, by whatever provider it is called."""
    rows = [*golden.questions, *(each for row in golden.rejected if (each := row.question))]
    writers = {str(each.provenance.get("model", "")) for each in rows}
    own = sorted(each for each in writers if _bare(each) == _bare(model))
    if own:
        raise UserError(
            f"{own[0]} wrote rows of this set and can't be their reader too; name another --model"
        )


def unfit(inbox: Inbox, question: Question) -> Check | None:
    """What makes a row impossible to verify: an answerable one without answer or mails."""
    if question.answerable is False:
        return None
    if not question.answer:
        return Check("answerable", "verify", False, "there is no gold answer", "rule")
    if not question.message_ids:
        return Check("answerable", "verify", False, "no mail is cited", "rule")
    lacking = [each for each in question.message_ids if inbox.canonical_id(each) is None]
    if lacking:
        reason = f"the inbox has no mail {lacking[0]} when the question is asked"
        return Check("answerable", "verify", False, reason, "rule")
    return None


def spent_usd(reader: Asker | None, judge: Judge, judged_before_usd: float | None) -> float | None:
    """USD that all replies have cost so far; None where a price is not known.

    `judged_before_usd` is what the judge's replies of earlier runs have cost.
    """
    judged = spent_by(judge)
    costs = [
        judged_before_usd,
        0.0 if reader is None else reader.spent_usd,
        0.0 if judged is None else judged.cost_usd,
    ]
    known = [each for each in costs if each is not None]
    return None if len(known) < len(costs) else sum(known)


def _unsure(question: Question) -> Check | None:
    """The first check of this step that is not sure."""
    found = checks_of(question).values()
    return next((each for each in found if each.step == "verify" and each.passed is None), None)


def _settings(
    examined: list[Examined], reader: Asker | None, judge: Judge, strict: bool
) -> dict[str, Any]:
    """How the step was run, and by check and reason how many rows it could not check."""
    unchecked: dict[str, Counter[str]] = {}
    for each in examined:
        for name, reason in each.unchecked.items():
            unchecked.setdefault(name, Counter())[reason] += 1
    counted = {name: dict(sorted(unchecked[name].items())) for name in sorted(unchecked)}
    if reader is None:
        return {"model": "offline", "judge": judge.name, "strict": strict, "unchecked": counted}
    return {
        "model": reader.name,
        "judge": judge.name,
        "prompts": prompt_digests(),
        "strict": strict,
        "unchecked": counted,
    }


def _bare(model: str) -> str:
    """The model's name without its provider's."""
    return model.rpartition("/")[2]
