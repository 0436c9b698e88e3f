"""A recipe: all that a training run is made by, from a TOML file and the command line.

    art-e train sft --recipe nano --set sft.validate_every=100

A recipe's name is that of a file in `training/recipes`, or a path. What the command line says
wins over the file; the resolved recipe is saved with the run. Its tables are those of
`training.tables`. Knows nothing of how it is carried out.
"""

import json
import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError, model_validator

from art_e.errors import UserError
from training.reward import RewardWeights
from training.tables import Data, EpisodeForm, Grpo, Judging, ModelTable, Sft, Table

_FOLDER = "recipes"


class Recipe(Table):
    """A training run in all its settings. `name` is the file's, where it does not say."""

    name: str
    model: ModelTable
    data: Data
    episode: EpisodeForm = EpisodeForm()
    reward: RewardWeights = RewardWeights()
    judging: Judging = Judging()
    sft: Sft | None = None
    grpo: Grpo | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.model.bits == 4 and self.grpo is not None and self.grpo.vllm is not None:
            # TRL pushes merged weights of 16 bits into a vLLM that holds 4 (its issue 4973).
            raise ValueError("vLLM can't take on weights of 4 bits: leave out [grpo.vllm]")
        return self

    def to_row(self) -> dict[str, Any]:
        """The recipe as JSON, as a run's configuration holds it."""
        row: dict[str, Any] = json.loads(self.model_dump_json())
        return row


def load_recipe(name: str, changes: Sequence[str] = (), *, base_model: str | None = None) -> Recipe:
    """The recipe of that name or path, with `changes` such as "reward.effort=0.1" made to it.

    `base_model` takes the place of the recipe's model, also where that is made from nothing.
    Raises `UserError`, naming the field, for what is none.
    """
    text, called = _read(name)
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{called} is no TOML: {error}; mend it") from None
    content.setdefault("name", Path(called).stem)
    for change in changes:
        _change(content, change)
    if base_model is not None:
        content["model"] = {**content.get("model", {}), "base": base_model}
        content["model"].pop("scratch", None)
    try:
        return Recipe.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the recipe"
        said = first["msg"].removeprefix("Value error, ")
        raise UserError(f"{called}: {where}: {said}; mend the recipe or --set") from None


def recipe_names() -> list[str]:
    """The recipes that come with the project."""
    files = resources.files("training").joinpath(_FOLDER).iterdir()
    return sorted(Path(each.name).stem for each in files if each.name.endswith(".toml"))


def _read(name: str) -> tuple[str, str]:
    """The file's text, and what it is called in errors."""
    own = resources.files("training").joinpath(f"{_FOLDER}/{name}.toml")
    path = Path(name)
    try:
        if path.name == name and path.suffix != ".toml" and own.is_file():
            return own.read_text("utf-8"), f"{name}.toml"
        return path.read_text("utf-8"), str(path)
    except (OSError, UnicodeDecodeError):
        known = ", ".join(recipe_names())
        raise UserError(f"no recipe {name!r}; there are {known}, or give a TOML file") from None


def _change(content: dict[str, Any], change: str) -> None:
    """Put one `table.field=value` into the content; the value is TOML, or else plain text."""
    key, has_value, value = change.partition("=")
    *tables, last = key.strip().split(".")
    if not has_value or not last or not all(tables):
        raise UserError(f"--set {change!r} is no change; write it as table.field=value")
    place: Any = content
    for name in tables:
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            raise UserError(f"--set {change!r}: {name} is no table of the recipe")
    try:
        place[last] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        place[last] = value.strip()
