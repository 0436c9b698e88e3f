"""What the judges of a run will be paid, before any is asked.

Tokens a call were measured (2026-11): the prompts and forms of the LLM judge, the questions and
gold mails of the public ART-E set, counted as in `training.planning.workload`. Knows nothing of
GPUs.
"""

from typing import NamedTuple

from art_e.models.base import Usage
from art_e.models.prices import expected_cost
from training.judging import is_paid
from training.planning.workload import EpisodeTokens, expected
from training.recipe import Grpo, Recipe

# The prompt, the form of the reply and the question with its two answers: 434 + 82 + 85; of the
# other question 267 + 82 + 62, and every mail that was read.
CORRECT_TOKENS = 601
GROUNDED_TOKENS, MAIL_TOKENS = 411, 622
# Assumed: a sentence and the verdict; and the share of episodes that give an answer, each judged
# by both questions. Abstentions and what is settled by rule cost nothing.
REPLY_TOKENS = 45
ANSWERED = 0.75


class Fee(NamedTuple):
    """What one judge is expected to be paid for its verdicts on `episodes`; `usd` is None where
    the price is not known."""

    judge: str
    episodes: int
    calls: int
    prompt_tokens: int
    completion_tokens: int
    usd: float | None


def asked_in(table: Grpo) -> int:
    """The episodes that are judged in all steps, at most."""
    made = table.questions * table.rollouts * table.steps // table.iterations
    return made * (1 + table.resample)


def validations_in(table: Grpo) -> int:
    """Before any step, every so many, and at the last."""
    return 1 + -(-table.steps // table.validate_every)


def grpo_fees(recipe: Recipe) -> list[Fee]:
    """What judges will be paid in the recipe's reinforcement learning, its test included."""
    if recipe.grpo is None:
        return []
    judging = recipe.judging
    examined = validations_in(recipe.grpo) * judging.questions + 2 * judging.test_questions
    return fees_of(recipe, expected(recipe), asked_in(recipe.grpo), examined)


def fees_of(recipe: Recipe, told: EpisodeTokens, trained: int, examined: int) -> list[Fee]:
    """What judges are paid for so many episodes of training, and of validations and the test:
    the reward's judge sees all of them, the validation's the latter."""
    seen = ((recipe.judging.reward, trained + examined), (recipe.judging.validation, examined))
    return [fee_of(judge, episodes, told) for judge, episodes in seen if is_paid(judge)]


def fee_of(judge: str, episodes: int, told: EpisodeTokens) -> Fee:
    """What a judge that asks a model is paid for its verdicts on so many episodes."""
    judged = round(episodes * ANSWERED)
    calls, prompt = judged, judged * CORRECT_TOKENS
    if told.reads:
        calls += judged
        prompt += round(judged * (GROUNDED_TOKENS + told.reads * MAIL_TOKENS))
    completion = calls * REPLY_TOKENS
    # By the call: long prompts have prices of their own.
    one = Usage(prompt_tokens=prompt // calls, completion_tokens=REPLY_TOKENS)
    usd = expected_cost(judge, [one], calls)
    return Fee(judge, episodes, calls, prompt, completion, usd)
