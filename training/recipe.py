"""A recipe: all that a training run is made by, from a TOML file and the command line.

    art-e train sft --recipe nano --set sft.validate_every=100

A recipe's name is that of a file in `training/recipes`, or a path. What the command line says
wins over the file; the resolved recipe is saved with the run. Its tables are those of
`training.tables`. Knows nothing of how it is carried out.
"""

import json
from collections.abc import Sequence
from typing import Any, Self

from pydantic import model_validator

from training.reward import RewardWeights
from training.tables import Data, EpisodeForm, Grpo, Judging, ModelTable, Sft, Table
from training.toml_file import Kind, read_content, validated

_KIND = Kind("recipe", "recipes")


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
    content = read_content(_KIND, name, changes)
    if base_model is not None:
        table = content.table
        table["model"] = {**table.get("model", {}), "base": base_model}
        table["model"].pop("scratch", None)
    return validated(Recipe, content, _KIND)


def recipe_names() -> list[str]:
    """The recipes that come with the project."""
    return _KIND.names()
