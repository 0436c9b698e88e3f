"""The recipe that a model was trained by, by the name of what says it.

A small model knows only its own system prompt and its own view of the tools; whoever asks it
needs the same, and whoever measures it needs the questions that were kept for that. Knows
nothing of models.
"""

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from art_e.errors import UserError
from training.recipe import Recipe, load_recipe, recipe_names

_CONFIG = "config.json"
# Beside a model that was exported, whose config.json is another (`training.export`).
RECIPE = "recipe.json"
# A checkpoint lies in RUN/checkpoints/checkpoint-N.
_ABOVE = 2


def named_recipe(name: str) -> Recipe:
    """The recipe of `name`: the folder of a training run, of a checkpoint in one or of an
    exported model, a recipe's name, or a TOML file.

    Raises `UserError` for what is none of these.
    """
    path = Path(name).expanduser()
    if not path.is_dir():
        return load_recipe(name)
    folder = path.resolve()
    places = [folder / RECIPE, *(each / _CONFIG for each in (folder, *folder.parents[:_ABOVE]))]
    for place in places:
        row = _recipe_row(place)
        if row is not None:
            return _recipe(row, name)
    if name in recipe_names():
        return load_recipe(name)
    raise UserError(
        f"{name} is no training run's folder and in none: no {_CONFIG} there has a recipe;"
        f" name the recipe that the model was trained by ({', '.join(recipe_names())} or a"
        " TOML file)"
    )


def _recipe_row(path: Path) -> dict[str, Any] | None:
    """The recipe of a run's configuration; None where the file is something else."""
    try:
        config = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    row = config.get("recipe") if isinstance(config, dict) else None
    return row if isinstance(row, dict) else None


def _recipe(row: dict[str, Any], name: str) -> Recipe:
    try:
        return Recipe.model_validate(row)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"])) or "it"
        raise UserError(
            f"the recipe in the {_CONFIG} of {name} can't be read: {where} is not what this"
            " version knows; name the recipe or a TOML file"
        ) from None
