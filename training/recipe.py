"""The recipe that a model was trained by, by the name of what says it.

A small model knows only its own system prompt and its own view of the tools; whoever asks it
needs the same, and whoever measures it needs the questions that were kept for that. Knows
nothing of models.
"""

import itertools
import json
import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from art_e.episode import DEFAULT_MAX_TURNS
from art_e.errors import UserError
from art_e.question import Kind, Split
from art_e.tools import MAX_RESULTS, View
from training.expert import Noise
from training.reward import RewardWeights

# ---- A TOML file by its name or path, with what `--set` changes in it.

_PACKAGE = "training"

_Model = TypeVar("_Model", bound=BaseModel)


class FileKind(NamedTuple):
    """What the file is, in words, and the folder of those that come with the package."""

    word: str
    folder: str

    def names(self) -> list[str]:
        """Those that come with the package."""
        files = resources.files(_PACKAGE).joinpath(self.folder).iterdir()
        return sorted(Path(each.name).stem for each in files if each.name.endswith(".toml"))


class Content(NamedTuple):
    """What a file says, and what it is called in errors."""

    table: dict[str, Any]
    called: str


def read_content(kind: FileKind, name: str, changes: Sequence[str] = ()) -> Content:
    """The content of the file of that name or path, with `changes` such as "reward.effort=0.1".

    Its `name` is the file's where it does not say. Raises `UserError` for what is no such file
    and for a change that is none.
    """
    text, called = _read(kind, name)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{called} is no TOML: {error}; mend it") from None
    table.setdefault("name", Path(called).stem)
    for change in changes:
        _change(table, change, kind)
    return Content(table, called)


def validated(model: type[_Model], content: Content, kind: FileKind) -> _Model:
    """The content as `model`. Raises `UserError`, naming the field, for what it does not take."""
    try:
        return model.model_validate(content.table)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or f"the {kind.word}"
        said = first["msg"].removeprefix("Value error, ")
        raise UserError(
            f"{content.called}: {where}: {said}; mend the {kind.word} or --set"
        ) from None


def _read(kind: FileKind, name: str) -> tuple[str, str]:
    """The file's text, and what it is called in errors."""
    own = resources.files(_PACKAGE).joinpath(f"{kind.folder}/{name}.toml")
    path = Path(name)
    try:
        if path.name == name and path.suffix != ".toml" and own.is_file():
            return own.read_text("utf-8"), f"{name}.toml"
        return path.read_text("utf-8"), str(path)
    except (OSError, UnicodeDecodeError):
        known = ", ".join(kind.names())
        raise UserError(
            f"no {kind.word} {name!r}; there are {known}, or give a TOML file"
        ) from None


def _change(content: dict[str, Any], change: str, kind: FileKind) -> None:
    """Put one `table.field=value` into the content; the value is TOML, or else plain text."""
    key, has_value, value = change.partition("=")
    *tables, last = key.strip().split(".")
    if not has_value or not last or not all(tables):
        raise UserError(f"--set {change!r} is no change; write it as table.field=value")
    place: Any = content
    for name in tables:
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            raise UserError(f"--set {change!r}: {name} is no table of the {kind.word}")
    try:
        place[last] = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        place[last] = value.strip()


# ---- The tables of a recipe, as models whose fields say what may stand there.

Count = Annotated[int, Field(ge=1)]
Part = Literal["whole", "first", "read", "answer"]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Table(BaseModel):
    """A table of a recipe: what it does not know is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Scratch(Table):
    """A Qwen2 made from nothing, and its tokenizer of at most `vocabulary` learnt tokens.

    `init` is the standard deviation of new weights: with transformers' 0.02 so small a model
    never learns to copy. `template` names a chat template of `training/templates`.
    """

    layers: Count = 3
    hidden: Count = 128
    heads: Count = 2
    vocabulary: Count = 4_000
    init: Positive = 0.06
    rope_theta: Positive = 1e6
    context: Count = 2_048
    template: str = "nano"


class Lora(Table):
    """An adapter in place of all weights; `alpha` is as many times the rank as is usual."""

    rank: Count = 16
    alpha: Count = 32
    dropout: Share = 0.0


class ModelTable(Table):
    """What is trained: a checkpoint `base`, a folder or a hub id, or one made from `scratch`;
    all its weights, or those of an adapter (`lora`).

    With 4 `bits` the weights that an adapter stands beside are held in NF4 (bitsandbytes), else
    in bfloat16, and in float32 on a CPU. With `checkpointing` activations are computed anew on
    the way back: a third more time, and a fraction of the memory.
    """

    base: str | None = None
    scratch: Scratch | None = None
    lora: Lora | None = None
    bits: Literal[4, 16] = 16
    checkpointing: bool = False

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.base is None) == (self.scratch is None):
            raise ValueError("give either base or a table [model.scratch]")
        if self.bits == 4 and (self.lora is None or self.base is None):
            raise ValueError("weights of 4 bits can't be trained: give base and [model.lora] too")
        return self


class Worlds(Table):
    """Synthetic worlds that are trained and measured on, a seed each.

    The seeds of `train`, `validation`, `test` and `strangers` are [first, end), and no seed is
    in two. With `names` all worlds but the strangers' are about the same names, in other pairs
    (`WorldConfig`): the test's questions about strangers are those of which training has no
    name at all, and are reported apart.
    """

    size: Count = 1_000
    short: bool = True
    vocabulary: Count | None = 1_000
    train: tuple[int, int]
    validation: tuple[int, int]
    test: tuple[int, int]
    strangers: tuple[int, int] | None = None
    names: int | None = None

    @model_validator(mode="after")
    def _apart(self) -> Self:
        told = (self.train, self.validation, self.test, self.strangers)
        spans = sorted(each for each in told if each is not None)
        if any(end <= first for first, end in spans):
            raise ValueError("a span of seeds is [first, end), and holds one at least")
        if any(one[1] > other[0] for one, other in itertools.pairwise(spans)):
            raise ValueError("train, validation, test and strangers share a seed")
        return self


class Data(Table):
    """What is asked: the questions of `worlds`, or those of the golden set `questions` about
    the inbox file `db` (None: those of `ART_E_HOME`); of both, the worlds' are trained on and
    the golden set's validation and test are held out. Only those of `kinds` where they are
    named, and in training of `train_kinds` where those are. With `unanswerable` no greater share of
    them is such that nothing answers: some of those are left out. Training has
    `train_questions` at most."""

    worlds: Worlds | None = None
    questions: str | None = None
    db: str | None = None
    kinds: tuple[Kind, ...] = ()
    train_kinds: tuple[Kind, ...] = ()
    unanswerable: Annotated[float, Field(gt=0, lt=1)] | None = None
    train_questions: Count | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.worlds is not None and (self.questions is None) != (self.db is None):
            raise ValueError("beside [data.worlds] give both questions and db, or neither")
        return self

    def has_worlds(self, split: Split) -> bool:
        """Whether the questions of the split are those of `worlds`."""
        return self.worlds is not None and (split == "train" or self.questions is None)


class EpisodeForm(Table):
    """How an episode is held: its turns, the system prompt (None: the usual one), and how
    much of mail the tools show (`art_e.tools.View`).

    `turn_tokens` bounds a turn, `episode_tokens` an episode with its prompt.
    """

    max_turns: Count = DEFAULT_MAX_TURNS
    prompt: str | None = None
    handles: bool = True
    hits: Annotated[int, Field(ge=1, le=MAX_RESULTS)] = MAX_RESULTS
    snippet_chars: Count | None = None
    addresses: bool = True
    spaced: bool = False
    turn_tokens: Count = 2_048
    episode_tokens: Count = 8_000

    @property
    def view(self) -> View:
        """What the tools show."""
        return View(self.handles, self.hits, self.snippet_chars, self.addresses, self.spaced)


class Stage(Table):
    """A stretch of supervised training: `steps` of `batch` conversations each.

    `part` of a conversation is imitated: "first" is the question and the model's first turn,
    "read" the question, the mail read first, and the turn after it, "answer" the question, the
    mail read last, and the final answer. Of these two there is loss on what was said after the
    mail alone, and conversations without such a mail are left out. What a part teaches costs
    little, and whole conversations build on it.
    With `loss` "all" it learns to foretell all of the conversation, mail as well, as a base
    model has: what it only reads it can't copy. `rate` is the learning rate, reached after
    `warmup` steps.
    """

    part: Part = "whole"
    loss: Literal["own", "all"] = "own"
    steps: Count
    batch: Count = 16
    rate: Positive = 2.5e-3
    warmup: Annotated[int, Field(ge=0)] = 30
    schedule: Literal["constant", "cosine"] = "constant"


class Sft(Table):
    """The warm start. Its stages follow each other, and steps are counted over all of them.

    It imitates the scripted expert, who errs by `noise`, or the best of what the runs
    `trajectories` have stored, where it earned `least_reward` or more. With `early_noise` the
    expert errs by that one in all stages but the last, of which the start is chosen then. With
    `leading_space` its texts begin with a space (see `training.examples`). Every `validate_every`
    steps there is a validation and a checkpoint, and at the end of a stage. With `muon` the
    weight matrices are trained by Muon, at as many times a stage's rate; 0 is AdamW for all.
    """

    stages: Annotated[tuple[Stage, ...], Field(min_length=1)]
    noise: Noise = Noise()
    early_noise: Noise | None = None
    leading_space: bool = False
    trajectories: tuple[str, ...] = ()
    least_reward: float = 1.0
    muon: NotNegative = 0.0
    validate_every: Count = 200

    @property
    def steps(self) -> int:
        """The steps of all stages."""
        return sum(each.steps for each in self.stages)

    @property
    def noises(self) -> list[Noise]:
        """By stage, how the expert errs."""
        early = self.noise if self.early_noise is None else self.early_noise
        return [*[early] * (len(self.stages) - 1), self.noise]

    @property
    def chosen_from(self) -> int:
        """The first step whose checkpoint may be the start. Where the expert errs in the last
        stage otherwise than before, it is meant to show."""
        if self.early_noise is None or self.trajectories:
            return 1
        return self.steps - self.stages[-1].steps + 1


class Vllm(Table):
    """Who generates in place of transformers.

    colocate: vLLM in the process that trains, on the same GPU, of whose memory it takes the
    share `memory`; with `sleep` it gives that back while weights are trained. server: vLLM's own
    server at the address `server`, on other GPUs, started by `training/launch/vllm_server.sh`.
    Either gets the new weights once a step. With the mode "off" transformers generates.
    """

    mode: Literal["colocate", "server"]
    memory: Annotated[float, Field(gt=0, lt=1)] = 0.5
    sleep: bool = True
    server: str = "http://127.0.0.1:8000"


class Grpo(Table):
    """Reinforcement learning: a step has `questions` groups of `rollouts` episodes each, over
    all processes.

    micro_batch: episodes of one forward pass of a process. generate_batch: episodes that
    transformers generates for at a time (None: all). vllm: who generates else. rate: learning
    rate, reached after `warmup` steps; with the `schedule` cosine it falls to 0 at the last of
    `steps`. logit_scale_rate: learning rate of one factor for all logits
    (`training.optimizer.LogitScaleAdamW`); with 0 there is none, and the last norm's weights
    learn as all others. loss, scale, clip, beta: as TRL's `loss_type`, `scale_rewards`,
    `epsilon` and `beta` (0: no KL term). iterations: optimizer steps on the same episodes.
    resample: how often at most a group without spread is replaced. patience: validations
    without a better one after which training stops.
    """

    steps: Count
    questions: Count = 8
    rollouts: Annotated[int, Field(ge=2)] = 8
    micro_batch: Count = 16
    generate_batch: Count | None = None
    vllm: Vllm | None = None
    iterations: Count = 1
    rate: Positive = 3e-4
    logit_scale_rate: NotNegative = 0.0
    warmup: Annotated[int, Field(ge=0)] = 0
    schedule: Literal["constant", "cosine"] = "constant"
    temperature: Positive = 1.0
    loss: Literal["grpo", "dapo", "dr_grpo", "bnpo", "cispo", "sapo", "luspo", "vespo"] = "dapo"
    scale: Literal["group", "batch", "none"] = "group"
    clip: Positive = 0.2
    beta: NotNegative = 0.0
    resample: Annotated[int, Field(ge=0)] = 1
    validate_every: Count = 20
    patience: Count | None = None

    def passes(self, processes: int) -> int:
        """The passes forward and back of each process in a step.

        Raises `ValueError`, in a line that names the field to set, where a step can't be divided.
        """
        if self.questions % processes:
            raise ValueError(
                f"{self.questions} questions a step can't be divided among {processes} processes:"
                f" set grpo.questions to a multiple of {processes}"
            )
        passes, rest = divmod(self.questions // processes * self.rollouts, self.micro_batch)
        if rest:
            raise ValueError(
                f"the {self.questions // processes * self.rollouts} episodes of each of"
                f" {processes} processes are no multiple of grpo.micro_batch, {self.micro_batch}:"
                " set another"
            )
        return passes

    @field_validator("vllm", mode="before")
    @classmethod
    def _off(cls, told: Any) -> Any:
        """None for a table whose mode is "off": --set can't take a table away."""
        return None if isinstance(told, dict) and told.get("mode") == "off" else told

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.questions * self.rollouts % self.micro_batch:
            raise ValueError("questions times rollouts is no multiple of micro_batch")
        if self.validate_every % self.iterations:
            # A checkpoint between them would lose the episodes that are still trained on.
            raise ValueError("validate_every is no multiple of iterations")
        return self


class Judging(Table):
    """Who judges: `reward` in training, `validation` on held-out questions, which is another
    one so that a hole in the first shows (see `training/roller.py` for the names).

    max_cost_usd: the most that both are paid in a run, where `--max-cost` does not say.
    questions: how many a validation asks, sampled at the temperature of training;
    test_questions: how many are asked of the test split when training is over.
    """

    reward: str = "offline"
    validation: str = "f1"
    max_cost_usd: NotNegative | None = None
    questions: Count = 200
    test_questions: Count = 400


# ---- A recipe: all that a training run is made by, from a TOML file and the command line.

_KIND = FileKind("recipe", "recipes")


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


# ---- The recipe that a model was trained by, by the name of what says it.

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
