"""What verifying a set will cost, before any row is checked.

The prompts are those that the checks begin with, with the mails that the search finds; what
a model will write, and what the judge reads, is assumed. Knows nothing of replies.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from art_e.inbox.file import InboxFile
from art_e.message import observation_json
from art_e.policies.base import Usage
from art_e.policies.prices import price_of
from art_e.question import Question
from data_pipeline.golden.golden_set import GoldenSet
from data_pipeline.golden.reader import Prompt, closed_book_data, mails_data, prompt_text
from data_pipeline.golden.rivals import (
    by_date,
    inbox_of,
    mails_of,
    possible_answers,
    rivals,
)
from evals.judges import needs_model

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
    price = price_of(model)
    reader_usd = (
        None
        if price is None
        else sum(price.cost(Usage(each, 0, COMPLETION_TOKENS, 0)) for each in prompts)
    )
    return VerifyCost(len(prompts), sum(prompts), reader_usd, verdicts, _judge_usd(judge, verdicts))


def _judge_usd(judge: str, verdicts: int) -> float | None:
    if verdicts == 0:
        return 0.0
    price = price_of(judge)
    return None if price is None else verdicts * price.cost(JUDGE_USAGE)


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
