"""What judges are paid, against the prompts that they are asked by and litellm's list."""

import pytest

from art_e.models.prices import price_of
from evals.judges.llm import prompt_text
from training.judging import is_paid
from training.planning.cards import card_of
from training.planning.fees import CORRECT_TOKENS, GROUNDED_TOKENS, fees_of, grpo_fees
from training.planning.plan import plan
from training.planning.workload import EpisodeTokens
from training.recipe import load_recipe

TOLD = EpisodeTokens(5, 700, 200, 4_500, 1.5, "")
JUDGE = "gemini/gemini-2.5-flash-lite"


def test_judges_without_a_model_are_not_paid() -> None:
    assert fees_of(load_recipe("nano"), TOLD, 1_000, 100) == []
    assert not is_paid("lenient")
    assert is_paid(JUDGE)


def test_a_fee_is_calls_at_the_price_of_the_list() -> None:
    [fee] = fees_of(load_recipe("talk"), TOLD, 48_000, 4_000)
    assert (fee.judge, fee.episodes) == (JUDGE, 52_000)
    assert fee.calls == 2 * 39_000
    price = price_of(JUDGE)
    assert price is not None
    expected = fee.prompt_tokens * price.prompt + fee.completion_tokens * price.completion
    assert fee.usd == pytest.approx(expected, rel=0.01)


def test_both_judges_may_be_models_and_a_price_unknown() -> None:
    recipe = load_recipe("talk", ["judging.validation='hosted_vllm/own'"])
    reward, validation = fees_of(recipe, TOLD, 48_000, 4_000)
    assert (reward.episodes, validation.episodes) == (52_000, 4_000)
    assert validation.usd is None


def test_without_mails_read_nobody_asks_about_them() -> None:
    [fee] = fees_of(load_recipe("talk"), EpisodeTokens(1, 700, 40, 740, 0, ""), 1_000, 0)
    assert fee.calls == 750


def test_the_fees_of_a_run_are_those_of_its_plan() -> None:
    recipe = load_recipe("talk")
    [fee] = grpo_fees(recipe)
    assert fee.episodes == 667 * 48 + 24 * 100 + 2 * 400
    assert plan(recipe, card_of("h100-80gb")).fees == (fee,)
    assert grpo_fees(load_recipe("nano")) == []


def test_prompts_are_of_the_length_that_was_measured() -> None:
    """Whoever changes a prompt measures again: 4.3 and 4.4 characters a token."""
    assert len(prompt_text("judge")) / 4.34 == pytest.approx(CORRECT_TOKENS - 82 - 85, rel=0.1)
    assert len(prompt_text("grounded")) / 4.43 == pytest.approx(GROUNDED_TOKENS - 82 - 62, rel=0.1)
