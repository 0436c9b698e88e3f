"""A profile: all settings of `art-e reproduce`, from a TOML file and the command line.

art-e reproduce --profile nano --set training.seeds=[0]
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Self

from pydantic import Field, model_validator

from data_pipeline.cli import FormatName
from training.material import NAMES
from training.recipe import (
    Count,
    NotNegative,
    Positive,
    Recipe,
    RecipeTable,
    load_recipe,
    load_toml,
)

# Sources of questions besides a file or a hub id.
GENERATED, WORLD = "generated", "world"

_Number = Annotated[int, Field(ge=0)]
_Many = Field(min_length=1)


class Ingest(RecipeTable):
    """The mail: `sources` as `art-e ingest` takes them; without any, the companies that the
    recipe holds out."""

    sources: tuple[str, ...] = ()
    format: FormatName = "auto"
    limit: Count | None = None


class Golden(RecipeTable):
    """The questions: "generated" by the model `writer`, of the synthetic "world", or those of a
    file or hub id. The model `reader` verifies them, if there is one; `judge` compares its answers.

    batches, train, validation, test and min_mails are options of `art-e golden generate`.
    max_cost_usd limits writing, and verifying likewise.
    """

    questions: str
    writer: str = "gemini/gemini-2.5-pro"
    reader: str | None = None
    judge: str = "offline"
    batches: Count = 25
    train: _Number = 18
    validation: _Number = 2
    test: _Number = 8
    min_mails: Count = 500
    max_cost_usd: NotNegative | None = None


class Baselines(RecipeTable):
    """The models that are prompted and not trained; `max_cost_usd` limits each."""

    models: Annotated[tuple[str, ...], _Many]
    max_cost_usd: NotNegative | None = None


class Training(RecipeTable):
    """A recipe with `changes` as `--set` makes them, trained once for each seed. `gpu` is the GPU
    that the plan calculates with; None without one."""

    recipe: str
    changes: tuple[str, ...] = ()
    seeds: Annotated[tuple[_Number, ...], _Many] = (0,)
    gpu: str | None = None


class Evaluation(RecipeTable):
    """The start and the trained checkpoint, served with the options `server` and asked the test's
    questions. Without `usd_per_hour`, the price of the machine, cost is not measured."""

    usd_per_hour: Positive | None = None
    concurrency: Count = 1
    server: tuple[str, ...] = ()


class Profile(RecipeTable):
    """A reproduction in all its settings. `judges` score all answers; the first decides."""

    name: str
    judges: Annotated[tuple[str, ...], _Many]
    ingest: Ingest
    golden: Golden
    baselines: Baselines
    training: Training
    evaluation: Evaluation

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.recipe.data.worlds is None and not self.ingest.sources:
            raise ValueError("ingest.sources are missing: the recipe has no worlds to hold out")
        if self.recipe.grpo is None:
            raise ValueError("training.recipe has no table [grpo]")
        return self

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe with its changes; its data is that of its file."""
        return load_recipe(self.training.recipe, self.training.changes)

    @property
    def sources(self) -> tuple[str, ...]:
        """What `art-e ingest` takes: by default each company that the recipe holds out."""
        worlds = self.recipe.data.worlds
        if self.ingest.sources or worlds is None:
            return self.ingest.sources
        options = {"vocabulary": worlds.vocabulary, "names": NAMES}
        shared = ["short"] if worlds.short else []
        shared += [f"{name}={value}" for name, value in options.items() if value is not None]
        return tuple(
            ",".join([f"synthetic:{worlds.size}", f"seed={seed}", *shared, f"split={split}"])
            for split, span in (("validation", worlds.validation), ("test", worlds.test))
            for seed in range(*span)
        )


def load_profile(name: str, changes: Sequence[str] = ()) -> Profile:
    """The profile of that name or path, with `changes` such as "training.seeds=[0]" made to it.
    Raises `UserError`, naming the field, for an invalid profile."""
    return load_toml(Profile, "profile", name, changes)
