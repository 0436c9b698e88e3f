"""The option `--recipe`, and what it decides: the form of an episode, and what is asked.

Knows nothing of models. Only here, and in functions alone, is `training` imported for it.
"""

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from art_e.episode import DEFAULT_MAX_TURNS
from art_e.errors import UserError
from art_e.models.model import Model
from art_e.question import Question, Split
from art_e.tools import WHOLE_VIEW, View
from training.material import load_material
from training.recipe import named_recipe

if TYPE_CHECKING:
    from pathlib import Path


RecipeOption = Annotated[
    str | None,
    typer.Option(
        "--recipe",
        metavar="RECIPE",
        help="Turns with their length, prompt and tools as in training: a recipe's name or file,"
        " or the folder of a training run or checkpoint.",
    ),
]


class Form(NamedTuple):
    """Turns an episode, its system prompt (None: the usual one), what the tools show, and the
    tokens of a turn that a model of one's own is held to (None: as many as any model's)."""

    max_turns: int
    prompt: str | None
    view: "View"
    turn_tokens: int | None = None

    def turn_tokens_of(self, model: str) -> int | None:
        """The bound for a model: hosted ones may think first, and have no such bound."""

        return self.turn_tokens if self.turn_tokens and Model(model).self_hosted else None


def chosen_form(recipe: str | None, max_turns: int | None, *, other_prompt: bool = False) -> Form:
    """The form of `--recipe`, else the usual one with the turns of `--max-turns`.

    Raises `UserError` for a recipe that is none, and for one beside options that it decides:
    `--max-turns`, or `--prompt` (`other_prompt`).
    """

    if recipe is None:
        return Form(DEFAULT_MAX_TURNS if max_turns is None else max_turns, None, WHOLE_VIEW)
    given = {"--max-turns": max_turns is not None, "--prompt": other_prompt}
    twice = [option for option, is_given in given.items() if is_given]
    if twice:
        raise UserError(f"--recipe says what {' and '.join(twice)} would; leave one of them out")

    form = named_recipe(recipe).episode
    return Form(form.max_turns, form.prompt, form.view, form.turn_tokens)


def of_recipe(recipe: str, split: "Split") -> "tuple[list[Question], Path]":
    """The questions of a split that the recipe asks, and the inbox file they are about: all of
    training's, and of the others as many as its validations and its test have."""
    chosen = named_recipe(recipe)
    material = load_material(chosen.data, split)
    judging = chosen.judging
    asked = {"validation": judging.questions, "test": judging.test_questions}
    number = asked.get(split, len(material.questions))
    return material.held_out(number), material.inbox_file.path
