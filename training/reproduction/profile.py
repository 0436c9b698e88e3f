"""A profile: all settings of `art-e reproduce`, from a TOML file and the command line.

art-e reproduce --profile nano --set training.seeds=[0]
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from training.recipe import (
    Count,
    NotNegative,
    Positive,
    Recipe,
    RecipeTable,
    load_recipe,
    read_content,
    validated,
)
from training.recipe import FileKind as Kind

# The public questions, which `--questions public` names.
PUBLIC = "corbt/enron_emails_sample_questions"
# The baseline without a model.
OFFLINE = "offline"
# Sources of questions besides a file or a hub id.
GENERATED, WORLD = "generated", "world"

_KIND = Kind("profile", "reproduction/profiles")


class Ingest(RecipeTable):
    """The mail: `sources` as `art-e ingest` takes them; without any, the companies that the
    recipe holds out. `mails` is about how many there are, for the plan."""

    sources: tuple[str, ...] = ()
    format: str = "auto"
    limit: Count | None = None
    mails: Count


class Golden(RecipeTable):
    """The questions: "generated" by the model `writer`, of the synthetic "world", or those of a
    file or hub id. `reader` verifies them, and `judge` compares its answers.

    batches, train, validation, test, min_mails: as of `art-e golden generate`; the inboxes of
    the splits are those of `art-e golden split` too. max_cost_usd bounds writing, and verifying
    likewise.
    """

    questions: str
    writer: str = "gemini/gemini-2.5-pro"
    reader: str = OFFLINE
    judge: str = OFFLINE
    batches: Count = 25
    train: Annotated[int, Field(ge=0)] = 18
    validation: Annotated[int, Field(ge=0)] = 2
    test: Annotated[int, Field(ge=0)] = 8
    min_mails: Count = 500
    max_cost_usd: NotNegative | None = None


class Prompts(RecipeTable):
    """The system prompts that are compared on validation, by the `models` that read one: names
    of `training/reproduction/prompts`, paths, or "default", the agent's own."""

    models: tuple[str, ...] = ()
    compared: Annotated[tuple[str, ...], Field(min_length=1)] = ("default",)
    max_cost_usd: NotNegative | None = None


class Baselines(RecipeTable):
    """The models that are prompted and not trained; `max_cost_usd` bounds each."""

    models: Annotated[tuple[str, ...], Field(min_length=1)]
    max_cost_usd: NotNegative | None = None


class Training(RecipeTable):
    """What is trained: a recipe with `changes` as `--set` makes them, once for each seed.

    gpu: the GPU that the plan calculates with; None without one.
    """

    recipe: str
    changes: tuple[str, ...] = ()
    base_model: str | None = None
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] = (0,)
    gpu: str | None = None


class Evaluation(RecipeTable):
    """The start and the trained checkpoint, served and asked the test's questions.

    usd_per_hour: what the machine that serves costs; None: cost is not measured. server: options
    of the server, as after `--` of `art-e serve`.
    """

    usd_per_hour: Positive | None = None
    concurrency: Count = 1
    server: tuple[str, ...] = ()


class MeasuredStages(RecipeTable):
    """What a run of the profile took, by stage and for each of its units: minutes, and megabytes
    of disk; `source` says where and when. Without it time and disk are calculated."""

    source: str
    minutes: dict[str, NotNegative]
    megabytes: dict[str, NotNegative]


class Profile(RecipeTable):
    """A reproduction in all its settings. `judges` score all answers; the first decides."""

    name: str
    judges: Annotated[tuple[str, ...], Field(min_length=1)]
    ingest: Ingest
    golden: Golden
    prompts: Prompts
    baselines: Baselines
    training: Training
    evaluation: Evaluation
    measured: MeasuredStages | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        worlds = self.recipe.data.worlds
        if worlds is None and not self.ingest.sources:
            raise ValueError("ingest.sources are missing: the recipe has no worlds to hold out")
        if self.recipe.grpo is None:
            raise ValueError("training.recipe has no table [grpo]")
        return self

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe with its changes; its data is that of its file."""
        training = self.training
        return load_recipe(training.recipe, training.changes, base_model=training.base_model)

    @property
    def sources(self) -> tuple[str, ...]:
        """What is ingested: each as `art-e ingest` takes it."""
        return self.ingest.sources or _held_out(self.recipe)

    @property
    def asks_prompted(self) -> tuple[str, ...]:
        """The models that the prompts are compared by."""
        return tuple(each for each in self.prompts.models if each != OFFLINE)

    def to_row(self) -> dict[str, Any]:
        """The profile as JSON."""
        return self.model_dump(mode="json")


def load_profile(
    name: str,
    changes: Sequence[str] = (),
    *,
    questions: str | None = None,
    baselines: Sequence[str] = (),
) -> Profile:
    """The profile of that name or path, with `changes` such as "training.seeds=[0]" made to it.

    `questions` takes the place of the golden set's ("public": the public ones), and `baselines`
    are further models, also asked the compared prompts. Raises `UserError`, naming the field, for
    an invalid profile.
    """
    content = read_content(_KIND, name, changes)
    if questions is not None:
        golden = content.table.setdefault("golden", {})
        golden["questions"] = PUBLIC if questions == "public" else questions
    for table in ("baselines", "prompts"):
        fields = content.table.setdefault(table, {})
        fields["models"] = list(dict.fromkeys([*fields.get("models", ()), *baselines]))
    return validated(Profile, content, _KIND)


def profile_names() -> list[str]:
    """The profiles that come with the project."""
    return _KIND.names()


def prompt_path(name: str) -> Path | None:
    """The file of a prompt; None for "default"."""
    if name == "default":
        return None
    own = Path(__file__).parent / "prompts" / f"{name}.txt"
    return own if own.is_file() else Path(name)


def _held_out(recipe: Recipe) -> tuple[str, ...]:
    """The companies of the recipe's validation and test as sources, each of one split."""
    worlds = recipe.data.worlds
    assert worlds is not None
    more = [f"vocabulary={worlds.vocabulary}"] if worlds.vocabulary is not None else []
    more += [f"names={worlds.names}"] if worlds.names is not None else []
    more = [*(["short"] if worlds.short else []), *more]
    splits: tuple[tuple[Literal["validation", "test"], tuple[int, int]], ...] = (
        ("validation", worlds.validation),
        ("test", worlds.test),
    )
    return tuple(
        ",".join([f"synthetic:{worlds.size}", f"seed={seed}", *more, f"split={split}"])
        for split, (first, end) in splits
        for seed in range(first, end)
    )
