"""A recipe: all settings of a training run, from a TOML file and the command line.

    art-e train grpo --recipe nano --set grpo.steps=20

A run's `config.json` holds its recipe whole (`run_recipe`).
"""

import itertools
import json
import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from art_e.episode import EpisodeForm
from art_e.errors import UserError, fault_of
from art_e.question import Kind, Split
from art_e.storage import default_db
from training.reward import RewardWeights

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Schedule = Literal["constant", "cosine"]
Part = Literal["whole", "first", "read", "answer"]

# Prompts that transformers generates for at a time, unless the recipe says otherwise, and held-out
# questions that are under way at a time: rollouts are long.
BATCH, AT_ONCE = 128, 256

# ---- The tables of a recipe.


class RecipeTable(BaseModel):
    """A table of a recipe; unknown fields are an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Scratch(RecipeTable):
    """A new Qwen2, and its tokenizer of at most `vocabulary` learnt tokens.

    With an `init` (standard deviation of weights) of 0.02 so small a model never learns to copy.
    """

    layers: Count = 3
    hidden: Count = 128
    heads: Count = 2
    vocabulary: Count = 4_000
    init: Positive = 0.06
    rope_theta: Positive = 1e6
    context: Count = 2_048


class Lora(RecipeTable):
    """A LoRA adapter, trained in place of all weights: of all layers from `first_layer` on."""

    rank: Count = 16
    alpha: Count = 32
    first_layer: Annotated[int, Field(ge=0)] = 0


class ModelTable(RecipeTable):
    """The model: a checkpoint `base` (folder or hub id), or else a new one from `scratch`. The
    `template` "qwen3" replaces the base's own by TRL's, which keeps earlier messages as they were.

    `lora` trains an adapter instead of all weights; with `bits` 4 the weights under it are held in
    NF4. `checkpointing` recomputes activations: a third more time, a fraction of the memory.
    """

    base: str | None = None
    scratch: Scratch | None = None
    template: Literal["qwen3"] | None = None
    lora: Lora | None = None
    bits: Literal[4, 16] = 16
    checkpointing: bool = False

    @model_validator(mode="before")
    @classmethod
    def _base_instead(cls, value: Any) -> Any:
        """Take `--set model.base=NAME` in place of a table [model.scratch]."""
        named = isinstance(value, dict) and value.get("base") is not None
        return {**value, "scratch": None} if named else value

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.base is None and self.scratch is None:
            raise ValueError("give base or a table [model.scratch]")
        if self.bits == 4 and (self.lora is None or self.base is None):
            raise ValueError("weights of 4 bits can't be trained: give base and [model.lora] too")
        return self


class Worlds(RecipeTable):
    """Synthetic companies to train and measure on, one for each seed of the spans [first, end).

    `names` is a seed of names that all worlds share (`WorldConfig`).
    """

    size: Count = 1_000
    short: bool = True
    vocabulary: Count | None = 1_000
    train: tuple[int, int]
    validation: tuple[int, int]
    test: tuple[int, int]
    names: int | None = None

    @model_validator(mode="after")
    def _apart(self) -> Self:
        spans = sorted([self.train, self.validation, self.test])
        if any(end <= first for first, end in spans):
            raise ValueError("a span of seeds is [first, end) and holds at least one seed")
        if any(one[1] > other[0] for one, other in itertools.pairwise(spans)):
            raise ValueError("train, validation and test share a seed")
        return self


class Data(RecipeTable):
    """The questions: of synthetic `worlds`, or of the golden set `questions` about the inbox file
    `db` (default: those of `ART_E_HOME`); with both, only training uses the worlds, and the
    questions as well if `both`.

    `unanswerable` caps the share of unanswerable questions. `train_kinds` and `train_questions`
    limit those of training alone.
    """

    worlds: Worlds | None = None
    questions: str | None = None
    db: str | None = None
    kinds: tuple[Kind, ...] = ()
    train_kinds: tuple[Kind, ...] = ()
    unanswerable: Annotated[float, Field(gt=0, lt=1)] | None = None
    train_questions: Count | None = None
    both: bool = False

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.worlds is not None and (self.questions is None) != (self.db is None):
            raise ValueError("beside [data.worlds] give both questions and db, or neither")
        return self

    @property
    def inbox_file(self) -> Path:
        """The inbox file that `questions` are about."""
        return Path(self.db).expanduser() if self.db else default_db()

    def has_worlds(self, split: Split) -> bool:
        """Whether the questions of the split come from `worlds`."""
        return self.worlds is not None and (split == "train" or self.questions is None)

    def has_questions(self, split: Split) -> bool:
        """Whether questions of the split come from a golden set."""
        return not self.has_worlds(split) or self.both


class Noise(RecipeTable):
    """How often, per episode, the scripted expert makes each mistake."""

    malformed: Share = 0.05  # begins with a message without a call
    lazy_searches: Share = 0.3  # searches for one word first
    wrong_reads: Share = 0.3  # reads the hits in order until it has read the right ones
    needless_turns: Share = 0.15  # reads the mail again
    wrong_answers: Share = 0.15  # answers with some words of a mail
    guesses: Share = 0.3  # does so for an unanswerable question
    gives_up: Share = 0.1  # abstains though a mail answers
    lists: Share = 0.0  # answers with a list of candidates, unread: to replay a reward hack
    looks: Share = 0.0  # no mistake: reads two hits before "I don't know"


class SftStage(RecipeTable):
    """A stretch of supervised training: `steps` of `batch` conversations each.

    `part` is what to imitate: "first" (question and first turn), "read" (question, first mail
    read, next turn), "answer" (question, last mail read, final answer), or "whole". "read" and
    "answer" carry loss on their last turn only, and skip conversations without such a mail.
    """

    part: Part = "whole"
    steps: Count
    batch: Count = 16
    rate: Positive = 2.5e-3
    warmup: Annotated[int, Field(ge=0)] = 30
    schedule: Schedule = "constant"


class Sft(RecipeTable):
    """The warm start: stages that follow each other; steps are counted over all of them.

    It imitates the scripted expert, who errs by `noise`, or the best right episode of each question
    in `runs`. With `early_noise` for all stages but the last, only checkpoints of the last are
    chosen. `muon`: Muon's multiple of a stage's rate for weight matrices; 0 is AdamW for all.
    `parts` of a batch go through the model one after another, which takes less memory.
    """

    stages: Annotated[tuple[SftStage, ...], Field(min_length=1)]
    runs: tuple[str, ...] = ()
    noise: Noise = Noise()
    early_noise: Noise | None = None
    muon: NotNegative = 0.0
    parts: Count = 1
    validate_every: Count = 200

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if any(each.batch % self.parts for each in self.stages):
            raise ValueError(f"a stage's batch is no multiple of parts, {self.parts}")
        return self

    @property
    def steps(self) -> int:
        """The steps of all stages."""
        return sum(each.steps for each in self.stages)

    @property
    def noises(self) -> list[Noise]:
        """The expert's noise in each stage."""
        early = self.noise if self.early_noise is None else self.early_noise
        return [*[early] * (len(self.stages) - 1), self.noise]

    @property
    def chosen_from(self) -> int:
        """The first step whose checkpoint may be chosen as the best."""
        if self.early_noise is None:
            return 1
        return self.steps - self.stages[-1].steps + 1


class Vllm(RecipeTable):
    """Generation by vLLM: in the training process with the share `memory` of its GPU, which
    `sleep` frees while weights are trained, or by vLLM's own server on other GPUs
    (`training/launch/vllm_server.sh`). The mode "off" removes the table.

    What vLLM samples from differs a little from what is trained. Each token counts by the ratio of
    its two probabilities; `ratios` is TRL's `vllm_importance_sampling_mode`, which cuts ratios at
    `ratio_cap` or masks tokens above it. TRL's default, "sequence_mask", masks an episode
    whose product of ratios exceeds the cap: of thousands of tokens, nearly every one.
    """

    mode: Literal["colocate", "server"]
    memory: Annotated[float, Field(gt=0, lt=1)] = 0.5
    sleep: bool = True
    server: str = "http://127.0.0.1:8000"
    ratios: Literal["token_truncate", "token_mask"] = "token_truncate"
    ratio_cap: Annotated[float, Field(gt=1)] = 3.0


Loss = Literal["dapo", "dr_grpo", "gspo", "cispo"]


class Curriculum(RecipeTable):
    """Before the first step the start answers `candidates` questions `rollouts` times each. The run
    asks those that it handles sometimes right, the hardest first."""

    candidates: Count
    rollouts: Annotated[int, Field(ge=2)] = 4


class Grpo(RecipeTable):
    """Reinforcement learning: `questions` groups of `rollouts` episodes each, over all processes,
    and then as many optimizer steps as there are `minibatches`, each on a part of the episodes.

    `loss` is TRL's `loss_type`; "gspo" (arXiv:2507.18071) is its "grpo" with one ratio for a whole
    episode. A ratio counts up to 1 + `clip_high`, in "cispo" (arXiv:2506.13585) up to `clip_high`;
    None is the paper's value, or TRL's. With `mask_truncated` an episode that was cut off teaches
    nothing. `scale` and `beta` are TRL's `scale_rewards` and `beta`. `turn_credit` adds to the
    advantage of a turn what it did for finding and reading the gold mails, so many times
    (`training.roller.turn_credits`).
    """

    steps: Count
    questions: Count = 8
    rollouts: Annotated[int, Field(ge=2)] = 8
    minibatches: Count = 1
    micro_batch: Count = 16  # episodes of one forward pass of a process
    generate_batch: Count | None = None  # episodes that transformers generates for at a time
    vllm: Vllm | None = None
    rate: Positive = 3e-4
    logit_scale_rate: NotNegative = 0.0  # of `training.optimizer.LogitScaleAdamW`
    warmup: Annotated[int, Field(ge=0)] = 0
    schedule: Schedule = "constant"
    temperature: Positive = 1.0
    loss: Loss = "dapo"
    clip_high: Positive | None = None
    mask_truncated: bool = False
    scale: Literal["group", "batch", "none"] = "batch"
    beta: NotNegative = 0.0
    turn_credit: NotNegative = 0.0
    curriculum: Curriculum | None = None
    validate_every: Count = 20

    @property
    def batches(self) -> int:
        """How often episodes are rolled out."""
        return self.steps // self.minibatches

    def passes(self, processes: int) -> int:
        """Forward passes of each process between rollouts; `UserError` if that can't be divided."""
        if self.questions % processes:
            raise UserError(
                f"{self.questions} questions a step can't be divided among {processes} processes:"
                f" set grpo.questions to a multiple of {processes}"
            )
        episodes = self.questions // processes * self.rollouts
        if episodes % self.micro_batch:
            raise UserError(
                f"the {episodes} episodes of each process are no multiple of grpo.micro_batch,"
                f" {self.micro_batch}: set another"
            )
        passes = episodes // self.micro_batch
        if any(each % self.minibatches for each in (passes, self.steps, self.validate_every)):
            raise UserError(
                f"grpo.minibatches is {self.minibatches}: grpo.steps, grpo.validate_every and the"
                f" {passes} forward passes of a batch must be multiples of it"
            )
        return passes

    @field_validator("vllm", mode="before")
    @classmethod
    def _off(cls, value: Any) -> Any:
        """Take `--set grpo.vllm.mode=off` as no table: --set can't remove one."""
        return None if isinstance(value, dict) and value.get("mode") == "off" else value

    @model_validator(mode="after")
    def _whole(self) -> Self:
        self.passes(1)
        return self


class Preference(RecipeTable):
    """Learning from the stored episodes of `runs` by `art-e train dpo` or `kto`, which takes the
    user's `ratings` too where that is true. `beta` holds the model to the start. `parts` of a batch
    go through the model one after another, which takes less memory."""

    runs: tuple[str, ...] = ()
    ratings: bool = False
    steps: Count
    batch: Count = 16
    parts: Count = 1
    rate: Positive = 5e-5
    beta: Positive = 0.1
    warmup: Annotated[int, Field(ge=0)] = 0
    validate_every: Count = 20

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.batch % self.parts or self.batch // self.parts < 2:
            raise ValueError("parts must divide batch into parts of two or more")
        return self


class Judging(RecipeTable):
    """The judges: `reward` in training, `validation` on held-out questions, a different one so
    that a hole in the first shows (`training.judging` has the names). `relative` compares the
    rollouts of a question (`training.ranking`), for which `reward.relative` pays. `max_cost_usd`
    limits the fees of all in a run; a validation asks `questions`, the test `test_questions`."""

    reward: str = "offline"
    validation: str = "f1"
    relative: str | None = None
    max_cost_usd: NotNegative | None = None
    questions: Count = 200
    test_questions: Count = 400


class Recipe(RecipeTable):
    """A training run in all its settings. `name` defaults to the file's."""

    name: str
    model: ModelTable
    data: Data
    episode: EpisodeForm = EpisodeForm()
    reward: RewardWeights = RewardWeights()
    judging: Judging = Judging()
    sft: Sft | None = None
    grpo: Grpo | None = None
    preference: Preference | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.judging.relative is None) != (self.reward.relative == 0):
            raise ValueError("judging.relative and reward.relative go together: set both or none")
        if self.model.bits == 4 and self.grpo is not None and self.grpo.vllm is not None:
            # TRL pushes merged weights of 16 bits into a vLLM that holds 4 (its issue 4973).
            raise ValueError("vLLM can't take on weights of 4 bits: leave out [grpo.vllm]")
        return self

    def to_row(self) -> dict[str, Any]:
        """The recipe as JSON, as a run's configuration holds it."""
        return self.model_dump(mode="json")


class Setting(NamedTuple):
    """The settings of a run; `init` is the folder of its start."""

    kind: Literal["sft", "grpo", "dpo", "kto"]
    recipe: Recipe
    seed: int
    init: str | None = None

    @property
    def steps(self) -> int:
        """The number of its steps; 0 if the recipe lacks the table of this kind."""
        recipe = self.recipe
        tables = {"sft": recipe.sft, "grpo": recipe.grpo}
        table = tables.get(self.kind, recipe.preference)
        return 0 if table is None else table.steps

    def to_row(self) -> dict[str, Any]:
        """The settings as config.json holds them."""
        return {**self._asdict(), "recipe": self.recipe.to_row()}


# ---- A TOML file by its name or path, with the changes of `--set`.

_Model = TypeVar("_Model", bound=BaseModel)
# Where the files lie that come with the project.
FOLDERS = {"recipe": "recipes", "profile": "reproduction/profiles"}


def load_recipe(name: str, changes: Sequence[str] = ()) -> Recipe:
    """The recipe of that name or path, with `changes` such as "reward.effort=0.1" made to it.
    Raises `UserError`, naming the field, for an invalid recipe."""
    return load_toml(Recipe, "recipe", name, changes)


def recipe_names() -> list[str]:
    """The recipes that come with the project."""
    return toml_names("recipe")


def toml_names(kind: str) -> list[str]:
    """The names of the files of that kind that come with the project."""
    folder = resources.files("training").joinpath(FOLDERS[kind])
    return sorted(Path(each.name).stem for each in folder.iterdir() if ".toml" in each.name)


def load_toml(model: type[_Model], kind: str, name: str, changes: Sequence[str]) -> _Model:
    """The file of that name or path with `changes`, as `model`.

    Raises `UserError` for a missing or invalid file, and names the field of an invalid change.
    """
    names = toml_names(kind)
    file = f"{name}.toml" if name in names else name
    path = resources.files("training").joinpath(FOLDERS[kind], file)
    try:
        table = tomllib.loads((path if name in names else Path(name)).read_text("utf-8"))
    except (OSError, UnicodeDecodeError):
        raise UserError(
            f"no {kind} {name!r}; there are {', '.join(names)}, or give a TOML file"
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{file} is no TOML: {error}; mend it") from None
    table.setdefault("name", Path(file).stem)
    for change in changes:
        _change(table, change)
    try:
        return model.model_validate(table)
    except ValidationError as error:
        fault = fault_of(error, f"the {kind}")
        raise UserError(f"{file}: {fault}; mend the {kind} or --set") from None


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
            raise UserError(f"--set {change!r}: {name} is no table")
    try:
        place[last] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        place[last] = value.strip()


# ---- The recipe that a model was trained by.


def run_recipe(folder: Path) -> Recipe:
    """The recipe of a training run. Raises `UserError` if its folder has none of this version."""
    try:
        row = json.loads((folder / "config.json").read_text("utf-8"))["recipe"]
        return Recipe.model_validate(row)
    except ValidationError as error:
        fault = fault_of(error, "the recipe")
        raise UserError(
            f"the config.json of {folder} does not fit this version: {fault}; name the recipe"
            " with --recipe"
        ) from None
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(
            f"{folder} is not a training run's folder: its config.json has no recipe"
        ) from None
