"""Tokens of an episode and of a stage, against a recipe's limits and the sums they are made of."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.planning.workload import (
    FRAME,
    PROMPT,
    READ,
    READS,
    SEARCH,
    SEARCHES,
    EpisodeTokens,
    another_search,
    expected,
    stage_tokens,
)
from training.recipe import load_recipe


def test_an_episode_on_real_mail_is_the_sum_of_its_parts() -> None:
    told = expected(load_recipe("talk"))
    assert told.turns == SEARCHES + READS + 1
    shown = SEARCHES * (SEARCH + FRAME) + READS * (READ + FRAME)
    assert told.length == pytest.approx(PROMPT + told.own + shown)
    fewer = expected(load_recipe("talk", ["episode.hits=5"]))
    assert told.length - fewer.length == pytest.approx(SEARCHES * SEARCH / 2)


def test_no_episode_is_longer_than_it_may_be() -> None:
    short = expected(load_recipe("talk", ["episode.episode_tokens=3_000", "episode.max_turns=3"]))
    assert (short.length, short.turns) == (3_000, 3)
    assert short.own < expected(load_recipe("talk")).own


def test_made_up_worlds_have_tokens_of_their_own() -> None:
    nano, mini = expected(load_recipe("nano")), expected(load_recipe("mini"))
    assert nano.length < mini.length < expected(load_recipe("talk")).length
    mean, most = stage_tokens(load_recipe("mini"), "whole")
    assert mean < most <= 6_000
    assert stage_tokens(load_recipe("nano", ["episode.episode_tokens=100"]), "whole") == (100, 100)


def test_stages_on_real_mail_grow_with_what_they_show() -> None:
    recipe = load_recipe("talk")
    first, answer, whole = (stage_tokens(recipe, part)[0] for part in ("first", "answer", "whole"))
    assert PROMPT < first < answer < whole


def test_another_search_is_a_turn_and_what_it_shows() -> None:
    recipe = load_recipe("talk")
    told = expected(recipe)
    more = another_search(told, recipe)
    assert more.turns == told.turns + 1
    assert SEARCH < more.length - told.length < SEARCH + 100
    assert more.prompts > told.prompts + more.length - told.length


@given(st.integers(1, 10), st.integers(1, 2_000), st.integers(1, 60), st.integers(0, 1_500))
def test_the_prompts_of_all_turns_are_their_sum(
    turns: int, prompt: int, own: int, shown: int
) -> None:
    """Every turn's prompt is the one before with what was said and shown."""
    prompts = [prompt + turn * (own + shown) for turn in range(turns)]
    told = EpisodeTokens(turns, prompt, turns * own, prompts[-1] + own, 1, "")
    assert told.prompts == pytest.approx(sum(prompts))
