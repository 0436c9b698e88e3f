"""The option `--recipe`: the form of episode in which a model was trained, and its questions.

Recipes belong to `training`, above this package: its modules are loaded by name, as commands are.
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
    """The form of an episode; `turn_tokens` limits the turns of a self-hosted model."""

    max_turns: int = DEFAULT_MAX_TURNS
    prompt: str | None = None
    view: View = WHOLE_VIEW
    turn_tokens: int | None = None

    def turn_tokens_of(self, model: str) -> int | None:
        """The limit for a model; hosted ones may think first, and have none."""
        return self.turn_tokens if self.turn_tokens and Model(model).self_hosted else None


DEFAULT_FORM = Form()


def chosen_form(recipe: str | None, max_turns: int | None, *, other_prompt: bool = False) -> Form:
    """The form of `--recipe`, else the default one with the turns of `--max-turns`.

    Raises `UserError` for an unknown recipe, and for one beside options that it sets itself:
    `--max-turns`, or `--prompt` (`other_prompt`).
    """
    if recipe is None:
        return DEFAULT_FORM if max_turns is None else Form(max_turns)
    given = ["--max-turns"] * (max_turns is not None) + ["--prompt"] * other_prompt
    if given:
        raise UserError(f"--recipe decides {' and '.join(given)} too; leave one of them out")
    form = _training("recipe").named_recipe(recipe).episode
    return Form(form.max_turns, form.prompt, form.view, form.turn_tokens)


def of_recipe(recipe: str, split: Split) -> tuple[list[Question], Path]:
    """The questions of a split, as many as the recipe asks of it, and their inbox file."""
    chosen = _training("recipe").named_recipe(recipe)
    material = _training("material").load_material(chosen.data, split)
    judging = chosen.judging
    limits = {"validation": judging.questions, "test": judging.test_questions}
    number = limits.get(split, len(material.questions))
    return material.held_out(number), material.inbox_file.path


def _training(module: str) -> Any:
    return import_module(f"training.{module}")
