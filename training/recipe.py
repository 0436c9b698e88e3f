"""A recipe: all settings of a training run, from a TOML file and the command line.

    art-e train grpo --recipe nano --set grpo.steps=20

A run's `config.json` stores the whole recipe."""

import itertools
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
from evals.judges import needs_model
from training.reward import RewardWeights

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Schedule = Literal["constant", "cosine"]
Part = Literal["whole", "first", "read", "answer"]

BATCH = 128  # default number of prompts in a batch of transformers' generation
AT_ONCE = 256  # held-out questions that run at a time
TEMPERATURE = 1.0  # of sampling in training
HEAD_WIDTH = 64  # dimensions of a head: with 32 a small model copies names less reliably


class RecipeTable(BaseModel):
    """A table of a recipe; unknown fields are an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Scratch(RecipeTable):
    """A new Qwen2 with a tokenizer of at most `vocabulary` learned tokens."""

    layers: Count = 3
    hidden: Count = 128
    widening: Count = 3  # the MLP's width as a multiple of the hidden size
    heads: Count = 4  # vLLM needs hidden = heads * HEAD_WIDTH
    vocabulary: Count = 4_000
    init: Positive = 0.06  # standard deviation of the new weights
    rope_theta: Positive = 1e6  # base of the rotary wavelengths, as in Qwen2.5


class ModelTable(RecipeTable):
    """The model: a checkpoint `base` (folder or hub id), or else a new one from `scratch`.
    `lora` is the rank of an adapter that is trained instead of a loaded model's weights (0: train
    all weights, as is always done with a new model); `bits` 4 means NF4."""

    base: str | None = None
    scratch: Scratch | None = None
    lora: Annotated[int, Field(ge=0)] = 0
    bits: Literal[4, 16] = 16

    @model_validator(mode="before")
    @classmethod
    def _base_instead(cls, value: Any) -> Any:
        """Let `--set model.base=NAME` replace a table [model.scratch]."""
        named = isinstance(value, dict) and value.get("base") is not None
        return {**value, "scratch": None} if named else value

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.base is None and self.scratch is None:
            raise ValueError("give base or a table [model.scratch]")
        if self.bits == 4 and (not self.lora or self.base is None):
            raise ValueError("weights of 4 bits can't be trained: give base and lora too")
        return self

    @property
    def checkpointing(self) -> bool:
        """Recompute activations if True: a third more time, a fraction of the memory."""
        return self.base is not None


class Worlds(RecipeTable):
    """Synthetic companies to train and evaluate on, one for each seed of the spans [first, end).
    All share a pool of names, cities and words, which they combine differently."""

    size: Count = 1_000
    short: bool = True
    vocabulary: Count | None = 1_000
    stories: str | None = None
    train: tuple[int, int]
    validation: tuple[int, int]
    test: tuple[int, int]

    @model_validator(mode="after")
    def _apart(self) -> Self:
        spans = sorted([self.train, self.validation, self.test])
        if any(end <= first for first, end in spans):
            raise ValueError("a span of seeds is [first, end) and holds at least one seed")
        if any(one[1] > other[0] for one, other in itertools.pairwise(spans)):
            raise ValueError("train, validation and test share a seed")
        return self


class Data(RecipeTable):
    """The questions: of synthetic `worlds`, or of the golden set `questions` on the inbox file `db`
    (default: those of `ART_E_HOME`); with both, only training uses the worlds. `unanswerable` caps
    the share of unanswerable questions, `train_questions` the number of training questions."""

    worlds: Worlds | None = None
    questions: str | None = None
    db: str | None = None
    kinds: tuple[Kind, ...] = ()
    unanswerable: Annotated[float, Field(gt=0, lt=1)] | None = None
    train_questions: Count | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.worlds is not None and (self.questions is None) != (self.db is None):
            raise ValueError("with [data.worlds] give both questions and db, or neither")
        return self

    @property
    def inbox_file(self) -> Path:
        return Path(self.db).expanduser() if self.db else default_db()

    def has_worlds(self, split: Split) -> bool:
        return self.worlds is not None and (split == "train" or self.questions is None)


class Noise(RecipeTable):
    """The scripted expert's error rates per episode."""

    lazy_searches: Share = 0.3  # searches for only one word
    wrong_reads: Share = 0.3  # reads hits in order until it has read the gold mails
    needless_turns: Share = 0.15  # reads the mail again
    reads_one: Share = 0.3  # abstains after the first hit if that is not a gold mail
    gives_up: Share = 0.1  # abstains after its search


class SftStage(RecipeTable):
    """A stage of supervised training: `steps` of `batch` conversations each. `part` is imitated:
    "first" (question and first turn), "whole", or, with loss on the last turn only, "read"
    (question, first mail read, next turn) or "answer" (question, last mail read, final answer)."""

    part: Part = "whole"
    steps: Count
    batch: Count = 16
    rate: Positive = 2.5e-3  # AdamW's peak; Muon's is `supervised.MUON` times that
    warmup: Annotated[int, Field(ge=0)] = 30  # steps in which the rate rises linearly
    schedule: Schedule = "constant"


class Sft(RecipeTable):
    """The warm start, on the scripted expert with error rates `noise`, or on stored episodes. With
    `early_noise`, all stages but the last use it, and only the last stage's checkpoints count."""

    stages: Annotated[tuple[SftStage, ...], Field(min_length=1)]
    noise: Noise = Noise()
    early_noise: Noise | None = None
    validate_every: Count = 200

    @property
    def steps(self) -> int:
        return sum(stage.steps for stage in self.stages)

    @property
    def noises(self) -> list[Noise]:
        return [*[self.early_noise or self.noise] * (len(self.stages) - 1), self.noise]

    @property
    def chosen_from(self) -> int:
        return self.steps - self.stages[-1].steps + 1 if self.early_noise else 1


class Vllm(RecipeTable):
    """Generation by vLLM: in the training process with the share `memory` of its GPU, or by servers
    on other GPUs (`training/launch/vllm_server.sh`; comma-separated URLs). With `overlap` servers
    generate the next batch while this one is trained on. Mode "off" removes the table."""

    mode: Literal["colocate", "server"]
    memory: Annotated[float, Field(gt=0, lt=1)] = 0.5
    server: str = "http://127.0.0.1:8000"
    overlap: bool = False

    @property
    def servers(self) -> list[str]:
        return self.server.split(",") if self.mode == "server" else []

    @property
    def overlaps(self) -> bool:
        return self.overlap and self.mode == "server"


class Grpo(RecipeTable):
    """Reinforcement learning: `questions` groups of `rollouts` episodes, over all processes, then
    one optimizer step on each of their `minibatches`. `spare` extra questions replace those whose
    rollouts have equal rewards (dynamic sampling: DAPO, Yu et al., 2025)."""

    steps: Count  # optimizer steps; so are `warmup` and `validate_every`
    questions: Count = 8
    spare: Annotated[int, Field(ge=0)] = 0
    rollouts: Annotated[int, Field(ge=2)] = 8  # alone in its group, an episode has A = 0
    minibatches: Count = 1
    micro_batch: Count = 16  # episodes in a forward pass of a process
    generate_batch: Count | None = None  # episodes that transformers generates at a time
    vllm: Vllm | None = None
    rate: Positive = 3e-4
    max_grad_norm: Positive = 1.0  # L2 norm over all trained weights
    warmup: Annotated[int, Field(ge=0)] = 0
    schedule: Schedule = "constant"
    validate_every: Count = 20

    @property
    def batches(self) -> int:
        return self.steps // self.minibatches

    @property
    def asked(self) -> int:
        return self.questions + self.spare

    def passes(self, processes: int) -> int:
        """Return a process's forward passes per batch. Raises `UserError` if not an integer."""
        if self.questions % processes or self.spare % processes:
            fault = f"{self.questions} questions and {self.spare} spare ones can't be shared"
            remedy = f"set grpo.questions and grpo.spare to multiples of {processes}"
            raise UserError(f"{fault} by {processes} processes: {remedy}")
        episodes = self.questions // processes * self.rollouts
        if episodes % self.micro_batch:
            fault = f"the {episodes} episodes of each process are not a multiple of"
            raise UserError(f"{fault} grpo.micro_batch, {self.micro_batch}: set another")
        passes = episodes // self.micro_batch
        if any(each % self.minibatches for each in (passes, self.steps, self.validate_every)):
            names = f"grpo.steps, grpo.validate_every and the {passes} forward passes of a batch"
            fault = f"grpo.minibatches is {self.minibatches}: {names}"
            raise UserError(f"{fault} must be multiples of it")
        return passes

    @field_validator("vllm", mode="before")
    @classmethod
    def _off(cls, value: Any) -> Any:
        """Let `--set grpo.vllm.mode=off` remove the table."""
        return None if isinstance(value, dict) and value.get("mode") == "off" else value

    @model_validator(mode="after")
    def _whole(self) -> Self:
        self.passes(1)
        return self


class Preference(RecipeTable):
    """DPO or KTO: `batch` pairs or episodes a step. `beta` penalizes leaving the initial model."""

    steps: Count
    batch: Annotated[int, Field(ge=2)] = 16
    rate: Positive = 5e-5
    beta: Positive = 0.1  # as in the loss of DPO (Rafailov et al., 2023)


class Judging(RecipeTable):
    """The judges: `reward` in training, `validation` on held-out questions: another one, so that
    reward hacking shows. "f1" suits the exact answers of worlds. `relative` compares the rollouts
    of a question (`training.judging`). `questions`, `test_questions`: sizes of both sets."""

    reward: str = "offline"
    validation: str = "f1"
    relative: str | None = None
    max_cost_usd: NotNegative | None = None
    questions: Count = 200  # a share of 1/2 has a standard error of 0.035
    test_questions: Count = 400  # of a share of 1/2: 0.025


class Recipe(RecipeTable):
    """All settings of a training run. `name` defaults to the file's. `runs` is the number of runs
    in a sweep, each with its own `--set`; a plan covers all of them."""

    name: str
    runs: Count = 1
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
            raise ValueError("set both judging.relative and reward.relative, or neither")
        reward, held_out = self.judging.reward, self.judging.validation
        if not self.data.has_worlds("validation"):
            # With training worlds the golden set is synthetic too, as nano's.
            if held_out == "f1" and self.data.worlds is None:
                fault = "f1 can't judge a golden set, whose right answers differ in wording"
                raise ValueError(f"judging.validation: {fault}; name a model, or offline")
            if needs_model(reward) and held_out in (reward, "offline"):
                raise ValueError("judging.validation: name another model than judging.reward")
        if self.model.bits == 4 and self.grpo is not None and self.grpo.vllm is not None:
            # TRL pushes merged 16-bit weights into a 4-bit vLLM (its issue 4973).
            raise ValueError("vLLM can't load 4-bit weights from training: leave out [grpo.vllm]")
        return self


class Setting(NamedTuple):
    """The settings of a run: `init` is the folder of its initial model; SFT, DPO and KTO learn from
    the episodes of `runs` ("ratings": the answers that the user rated)."""

    kind: Literal["sft", "grpo", "dpo", "kto"]
    recipe: Recipe
    seed: int
    init: str | None = None
    runs: tuple[str, ...] = ()

    @property
    def new(self) -> Scratch | None:
        """Return the form of the new model whose weights are all trained; None to load a model."""
        return self.recipe.model.scratch if self.init is None else None

    @property
    def steps(self) -> int:
        """Return the number of steps; 0 if the recipe lacks the table of this kind."""
        table = getattr(self.recipe, self.kind, self.recipe.preference)
        return 0 if table is None else int(table.steps)


# ---- Loading a TOML file by name or path, with the changes of `--set`.

_Model = TypeVar("_Model", bound=BaseModel)


def load_recipe(name: str, changes: Sequence[str] = ()) -> Recipe:
    """Return the recipe of that name or path with `changes` such as "reward.effort=0.1"."""
    return load_toml(Recipe, "recipe", name, changes)


def toml_names(kind: str) -> list[str]:
    """Return the names of the project's files of that kind."""
    folder = resources.files("training").joinpath(f"{kind}s")
    return sorted(Path(each.name).stem for each in folder.iterdir() if ".toml" in each.name)


def load_toml(model: type[_Model], kind: str, name: str, changes: Sequence[str]) -> _Model:
    """Return the file of that name or path with `changes`, as `model`. Raises `UserError` for a
    missing or invalid file, naming the invalid field."""
    names = toml_names(kind)
    file = f"{name}.toml" if name in names else name
    path = resources.files("training").joinpath(f"{kind}s", file)
    try:
        table = tomllib.loads((path if name in names else Path(name)).read_text("utf-8"))
    except (OSError, UnicodeDecodeError):
        choices = ", ".join(names)
        raise UserError(f"no {kind} {name!r}; there are {choices}, or give a TOML file") from None
    except ValueError as error:
        raise UserError(f"{file} is not valid TOML: {error}; fix it") from None
    table.setdefault("name", Path(file).stem)
    for change in changes:
        _change(table, change)
    try:
        return model.model_validate(table)
    except ValidationError as error:
        fault = fault_of(error, f"the {kind}")
        raise UserError(f"{file}: {fault}; fix the {kind} or --set") from None


def _change(content: dict[str, Any], change: str) -> None:
    """Set one `table.field=value`; the value is TOML, or else a string."""
    key, has_value, value = change.partition("=")
    *tables, last = key.strip().split(".")
    if not (has_value and last and all(tables)):
        raise UserError(f"--set expects TABLE.FIELD=VALUE, not {change!r}")
    place: Any = content
    for name in tables:
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            raise UserError(f"--set {change!r}: {name} is not a table")
    try:
        place[last] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        place[last] = value.strip()
