"""Options on the model that is asked: how it is called, and the form of its episodes (`--recipe`).

Recipes belong to `training`, above this package: its modules are loaded by name, as commands are.
"""

from collections.abc import Callable, Collection
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from typer import Option

from art_e.episode import DEFAULT_MAX_TURNS
from art_e.errors import UserError
from art_e.models import smol
from art_e.models.base import SMOL, ModelOptions, Policy
from art_e.models.model import Model
from art_e.models.providers import warm_up
from art_e.question import Question, Split
from art_e.tools import WHOLE_VIEW, View

# ---- How it is called.

# The default of `--concurrency` for hosted models.
HOSTED_CONCURRENCY = 8

Effort = Literal["minimal", "low", "medium", "high"]
ToolCalls = Literal["auto", "native", "text"]

EffortOption = Annotated[
    Effort | None, Option("--reasoning-effort", help="How long a reasoning model thinks.")
]
TemperatureOption = Annotated[
    float | None, Option("--temperature", min=0, max=2, help="Default: 0 where the model takes it.")
]
MaxCostOption = Annotated[
    float | None,
    Option("--max-cost", metavar="USD", min=0, help="Stop before a model has cost more."),
]
ToolCallsOption = Annotated[
    ToolCalls, Option("--tool-calls", help="text: for models that can't call tools natively.")
]


def model_options(
    effort: Effort | None,
    temperature: float | None,
    max_cost: float | None,
    tool_calls: ToolCalls,
    concurrency: int,
    turn_tokens: int | None = None,
    on_retry: Callable[[int, int], None] = lambda _, __: None,
    on_answer: Callable[[str], None] | None = None,
) -> ModelOptions:
    """How the command line has a model called; `turn_tokens` limits each message."""
    return ModelOptions(
        temperature=temperature,
        reasoning_effort=effort,
        max_output_tokens=turn_tokens,
        tool_calls=tool_calls,
        concurrency=concurrency,
        max_cost_usd=max_cost,
        on_retry=on_retry,
        on_answer=on_answer,
    )


def default_concurrency(models: list[str]) -> int:
    """Several questions at a time if all models but `offline` are hosted elsewhere, else 1."""
    called = [model for model in map(Model, models) if model.kind != "offline"]
    elsewhere = bool(called) and all(model.leaves_machine for model in called)
    return HOSTED_CONCURRENCY if elsewhere else 1


def ready_policy(model: Model, options: ModelOptions) -> Policy:
    """The model's policy. Raises `UserError` if its key or its address is missing."""
    host = model.host
    policy = model.policy(options)
    if host is not None:
        # Else loading would count as part of the first question's time.
        warm_up(model.name)
    return policy


# ---- The form of its episodes.

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


def own_form(models: Collection[str]) -> Form:
    """The form of the episodes that smol was trained in, if it is one of the models, else the
    default one."""
    return _form_of(str(smol.ADAPTER)) if SMOL in models and smol.shipped() else DEFAULT_FORM


def chosen_form(
    recipe: str | None,
    max_turns: int | None,
    models: Collection[str] = (),
    *,
    other_prompt: bool = False,
) -> Form:
    """The form of `--recipe`, else that of the models with the turns of `--max-turns`.

    Raises `UserError` for an unknown recipe, and for one beside options that it sets itself:
    `--max-turns`, or `--prompt` (`other_prompt`).
    """
    if recipe is None:
        form = own_form(models)
        turns = form.max_turns if max_turns is None else max_turns
        return form._replace(max_turns=turns, prompt=None if other_prompt else form.prompt)
    given = ["--max-turns"] * (max_turns is not None) + ["--prompt"] * other_prompt
    if given:
        raise UserError(f"--recipe decides {' and '.join(given)} too; leave one of them out")
    return _form_of(recipe)


def _form_of(recipe: str) -> Form:
    form = _training("recipe").named_recipe(recipe).episode
    return Form(form.max_turns, form.prompt, form.view, form.turn_tokens)


def of_recipe(recipe: str, split: Split) -> tuple[list[Question], Path]:
    """The questions of a split, as many as the recipe asks of it, and their inbox file."""
    chosen = _training("recipe").named_recipe(recipe)
    material = _training("material").load_material(chosen.data, split)
    judging = chosen.judging
    limits = {"validation": judging.questions, "test": judging.test_questions}
    number = limits.get(split, len(material.questions))
    asked = material.held_out(number)
    return asked, material.file_of[asked[0].id].path


def _training(module: str) -> Any:
    return import_module(f"training.{module}")
