"""How many tokens episodes, steps and runs have, before anything is run.

What is measured here was measured once (2026-11), as each constant says; how many turns an episode
takes is assumed, until a run tells (`reported`). Knows nothing of GPUs and of money.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from art_e.tools import MAX_RESULTS
from training.recipe import Part, Recipe

# Tokens of real mail, measured on the 73 questions of the public ART-E set and its Enron mail,
# through the offline policy, by the byte-pair merges of cl100k_base (which Qwen's tokenizer began
# from) on text cut as Qwen2 cuts it, digit by digit: 3.4 characters a token of what tools show,
# 4.0 of the system prompt. Means:
PROMPT = 729  # system prompt 147, schemas 486, question 13, the rest Qwen2.5's chat template
SEARCH = 1_090  # what a search of ten hits shows; 585 is a mail that is read
READ = 585
FRAME = 11  # around what a tool shows
SEARCH_CALL, READ_CALL, ANSWER_CALL = 42, 26, 43  # written as Qwen does, with the end mark
# Assumed: a search and a half besides the one that finds, and as many mails read.
SEARCHES, READS = 2.5, 1.5


class WorldTokens(NamedTuple):
    """Tokens of a made-up world's conversations, by the scripted expert: of each part that a stage
    imitates the mean and the most, and of whole ones the prompt, the model's own, the turns."""

    parts: Mapping[Part, tuple[float, int]]
    prompt: float
    own: float
    turns: float


# By the tokenizers of nano (715 conversations of ten worlds) and of mini (695 of three).
SHORT_WORLD = WorldTokens(
    {"first": (18, 27), "answer": (62, 88), "read": (61, 88), "whole": (165, 400)}, 11, 20, 3.2
)
LONG_WORLD = WorldTokens(
    {"first": (19, 27), "answer": (82, 121), "read": (80, 119), "whole": (543, 1_221)}, 11, 20, 3.4
)


@dataclass(frozen=True, slots=True)
class EpisodeTokens:
    """A mean episode: its `turns`, its `prompt` and its whole `length` in tokens, and how many of
    these the model wrote (`own`). `reads` are the mails read. `source` says where from."""

    turns: float
    prompt: float
    own: float
    length: float
    reads: float
    source: str

    @property
    def prompts(self) -> float:
        """Tokens of the prompts of all turns together, which grow evenly: what is read where
        nothing is kept between turns."""
        return self.turns * (self.prompt + self.length - self.own / self.turns) / 2

    @property
    def turn(self) -> float:
        """Tokens that the model writes in a turn."""
        return self.own / self.turns


def expected(recipe: Recipe) -> EpisodeTokens:
    """What an episode of the recipe is expected to have, no longer than it may be."""
    form = recipe.episode
    worlds = recipe.data.worlds
    if recipe.model.scratch is not None and worlds is not None:
        world = SHORT_WORLD if worlds.short else LONG_WORLD
        told = EpisodeTokens(
            world.turns,
            world.prompt,
            world.own,
            world.parts["whole"][0],
            world.turns / 3,
            "measured on the scripted expert's episodes",
        )
    else:
        turns = SEARCHES + READS + 1
        shown = SEARCHES * (SEARCH * form.hits / MAX_RESULTS + FRAME) + READS * (READ + FRAME)
        own = SEARCHES * SEARCH_CALL + READS * READ_CALL + ANSWER_CALL
        told = EpisodeTokens(
            turns,
            PROMPT,
            own,
            PROMPT + shown + own,
            READS,
            f"measured on Enron mail; {SEARCHES:g} searches and {READS:g} reads are assumed",
        )
    return _bounded(told, recipe)


def _bounded(told: EpisodeTokens, recipe: Recipe) -> EpisodeTokens:
    form = recipe.episode
    turns = min(told.turns, form.max_turns)
    own = min(told.own * turns / told.turns, turns * form.turn_tokens)
    prompt = min(told.prompt, form.episode_tokens)
    length = min(told.length, form.episode_tokens)
    return EpisodeTokens(turns, prompt, min(own, length), length, told.reads, told.source)


def another_search(told: EpisodeTokens, recipe: Recipe) -> EpisodeTokens:
    """The same with a search more on real mail, no longer than the recipe lets it be."""
    shown = SEARCH * recipe.episode.hits / MAX_RESULTS + FRAME
    more = replace(
        told,
        turns=told.turns + 1,
        own=told.own + SEARCH_CALL,
        length=told.length + shown + SEARCH_CALL,
    )
    return _bounded(more, recipe)


def stage_tokens(recipe: Recipe, part: Part) -> tuple[float, int]:
    """Tokens of a conversation that a stage of supervised training imitates: the mean, and the
    most that may be."""
    worlds = recipe.data.worlds
    limit = recipe.episode.episode_tokens
    if recipe.model.scratch is not None and worlds is not None:
        mean, most = (SHORT_WORLD if worlds.short else LONG_WORLD).parts[part]
        return min(mean, limit), min(most, limit)
    whole = expected(recipe)
    mean = {
        "first": whole.prompt + SEARCH_CALL,
        "answer": whole.prompt + READ + FRAME + READ_CALL + ANSWER_CALL,
        "read": whole.prompt + READ + FRAME + 2 * READ_CALL,
        "whole": whole.length,
    }[part]
    return min(mean, limit), limit
