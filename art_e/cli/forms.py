"""The option `--recipe`: the form of an episode as a model was trained, and the questions it kept.

Recipes belong to `training`, above this package. Its module is loaded by name when the option is
given, as the app loads commands, so that no import points up.
"""

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from typer import Option

from art_e.episode import DEFAULT_MAX_TURNS
from art_e.errors import UserError
from art_e.models.model import Model
from art_e.question import Question, Split
from art_e.tools import WHOLE_VIEW, View

RecipeOption = Annotated[
    str | None,
    Option(
        "--recipe",
        metavar="RECIPE",
        help="Turns with their length, prompt and tools as in training: a recipe's name or file,"
        " or the folder of a training run or checkpoint.",
    ),
]


class Form(NamedTuple):
    """How an episode is held. `prompt` None is the default one.

    `turn_tokens` limits the turns of a self-hosted model; None: only the model's own limit.
    """

    max_turns: int
    prompt: str | None
    view: View
    turn_tokens: int | None = None

    def turn_tokens_of(self, model: str) -> int | None:
        """The limit for a model: hosted ones may think first, and have none."""
        return self.turn_tokens if self.turn_tokens and Model(model).self_hosted else None


def chosen_form(recipe: str | None, max_turns: int | None, *, other_prompt: bool = False) -> Form:
    """The form of `--recipe`, else the default one with the turns of `--max-turns`.

    Raises `UserError` for an unknown recipe, and for one beside options that it decides:
    `--max-turns`, or `--prompt` (`other_prompt`).
    """
    if recipe is None:
        return Form(DEFAULT_MAX_TURNS if max_turns is None else max_turns, None, WHOLE_VIEW)
    given = {"--max-turns": max_turns is not None, "--prompt": other_prompt}
    twice = [option for option, is_given in given.items() if is_given]
    if twice:
        raise UserError(f"--recipe decides {' and '.join(twice)} too; leave one of them out")
    form = _training("recipe").named_recipe(recipe).episode
    return Form(form.max_turns, form.prompt, form.view, form.turn_tokens)


def of_recipe(recipe: str, split: Split) -> tuple[list[Question], Path]:
    """The questions of a split that the recipe asks, and their inbox file.

    For training these are all; for validation and test as many as the recipe asks there.
    """
    chosen = _training("recipe").named_recipe(recipe)
    material = _training("material").load_material(chosen.data, split)
    judging = chosen.judging
    limits = {"validation": judging.questions, "test": judging.test_questions}
    number = limits.get(split, len(material.questions))
    return material.held_out(number), material.inbox_file.path


def _training(module: str) -> Any:
    return import_module(f"training.{module}")
