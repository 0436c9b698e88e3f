"""What a recipe takes before it is run: memory, tokens, hours, money.

    art-e train plan --recipe talk --gpu h100-80gb

Memory comes from `footprint`, tokens from `workload`, seconds from `pace`, fees from `fees`.
Knows nothing of how it is printed, and of what to change (`remedies`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from art_e.errors import UserError
from training.engine import AT_ONCE, BATCH
from training.judging import is_paid
from training.planning.cards import Card
from training.planning.fees import Fee, asked_in, fees_of, validations_in
from training.planning.footprint import (
    KvRoom,
    Phase,
    Trained,
    generating_phase,
    serving_phase,
    training_phase,
)
from training.planning.geometry import Shape, shape_of
from training.planning.pace import (
    JUDGE_S,
    TOOLS_S,
    Generators,
    generating_seconds,
    training_seconds,
    transfer_seconds,
)
from training.planning.workload import EpisodeTokens, another_search, expected, stage_tokens
from training.recipe import Grpo, Recipe, Sft


@dataclass(frozen=True, slots=True)
class Gpus:
    """How many cards train, and how many vLLM's server has for itself."""

    train: int
    serve: int = 0

    @property
    def all(self) -> int:
        """All that are paid for."""
        return self.train + self.serve


@dataclass(frozen=True, slots=True)
class StagePlan:
    """The warm start ("sft") or GRPO ("grpo"): its `steps`; a step's `episodes`, its tokens
    `generated`, `read` and `trained_on`, and its `seconds` by what they go to; how many
    `examinations` of held-out questions there are, the test as the last, and the seconds of all
    of these together; what is in memory, and the `room` for keys and values."""

    name: str
    steps: int
    episodes: float
    generated: float
    read: float
    trained_on: float
    seconds: Mapping[str, float]
    examinations: int
    examining_seconds: float
    phases: tuple[Phase, ...]
    room: KvRoom

    @property
    def step_seconds(self) -> float:
        """Seconds of a step, validations apart."""
        return sum(self.seconds.values())

    @property
    def hours(self) -> float:
        """Hours of all steps, of validations and the test."""
        return (self.steps * self.step_seconds + self.examining_seconds) / 3600


@dataclass(frozen=True, slots=True)
class Plan:
    """What a recipe takes on so many cards of a kind."""

    recipe: Recipe
    shape: Shape
    trained: Trained
    card: Card
    gpus: Gpus
    usd_per_hour: float
    episode: EpisodeTokens
    stages: tuple[StagePlan, ...]
    fees: tuple[Fee, ...]

    @property
    def hours(self) -> float:
        """Hours of all stages."""
        return sum(stage.hours for stage in self.stages)

    @property
    def gpu_usd(self) -> float:
        """What the cards cost for so long."""
        return self.hours * self.gpus.all * self.usd_per_hour

    @property
    def judge_usd(self) -> float | None:
        """What judges are paid; None where a price is not known."""
        paid = [fee.usd for fee in self.fees]
        return None if None in paid else sum(each for each in paid if each is not None)

    @property
    def faults(self) -> list[str]:
        """Why it can't be carried out so, in words; none where it can."""
        found = []
        for stage in self.stages:
            found += [
                f"{stage.name}, {phase.name}: {-phase.left / 1e9:.1f} GB too much"
                for phase in stage.phases
                if phase.left < 0
            ]
            if stage.room.episodes < 1:
                found.append(
                    f"{stage.name}: keys and values of one whole episode of"
                    f" {self.recipe.episode.episode_tokens:,} tokens have no room"
                )
        return found

    @property
    def warnings(self) -> list[str]:
        """What is no fault of memory, and worth a look."""
        most, usd = self.recipe.judging.max_cost_usd, self.judge_usd
        if most is not None and usd is not None and usd > most:
            return [
                f"judges are expected to be paid ${usd:.2f}, and training pauses at ${most:.2f}:"
                f" --set judging.max_cost_usd={usd:.0f}"
            ]
        return []


def plan(
    recipe: Recipe,
    card: Card,
    *,
    gpus: int = 1,
    usd_per_hour: float | None = None,
    told: EpisodeTokens | None = None,
) -> Plan:
    """The plan of a recipe on `gpus` cards; `told` is how many tokens its episodes have, where a
    run has told.

    Where vLLM has cards of its own they are divided as is fastest, of the ways that fit. Raises
    `UserError` for what can't be divided among them.
    """
    shape = shape_of(recipe.model, recipe.episode.prompt)
    episode = told or expected(recipe)
    usd = card.usd_per_hour if usd_per_hour is None else usd_per_hour
    ways = [_plan(recipe, shape, card, way, usd, episode) for way in _ways(recipe.grpo, gpus)]
    return min(ways, key=lambda each: (bool(each.faults), each.hours))


def with_another_search(planned: Plan) -> Plan:
    """The same plan for episodes of a search more: how much hangs on what is assumed of them."""
    told = another_search(planned.episode, planned.recipe)
    return _plan(
        planned.recipe,
        planned.shape,
        planned.card,
        planned.gpus,
        planned.usd_per_hour,
        told,
    )


def _ways(table: Grpo | None, gpus: int) -> list[Gpus]:
    """How so many cards may be divided. Raises `UserError` where they can't be."""
    if table is None:
        return [Gpus(1)]
    served = table.vllm is not None and table.vllm.mode == "server"
    if served and gpus < 2:
        raise UserError("vLLM's server needs GPUs beside those that train: --gpus 2 or more")
    ways = [Gpus(train, gpus - train) for train in range(1, gpus)] if served else [Gpus(gpus)]
    fitting = [way for way in ways if _divides(table, way.train)]
    if not fitting:
        raise UserError(
            f"{table.questions} questions of {table.rollouts} episodes, {table.micro_batch} in a"
            f" pass, can't be divided among {gpus} GPUs: set grpo.questions or grpo.micro_batch"
        )
    return fitting


def _divides(table: Grpo, processes: int) -> bool:
    try:
        table.passes(processes)
    except ValueError:
        return False
    return True


def _plan(
    recipe: Recipe, shape: Shape, card: Card, gpus: Gpus, usd: float, episode: EpisodeTokens
) -> Plan:
    trained = Trained(shape, recipe.model)
    stages = []
    asked = 0
    if recipe.sft is not None:
        stages.append(_sft(recipe, recipe.sft, trained, card, episode))
    if recipe.grpo is not None:
        table = recipe.grpo
        stages.append(_grpo(recipe, table, trained, card, gpus, episode))
        asked = asked_in(table)
    judging = recipe.judging
    validations = sum(stage.examinations - 1 for stage in stages)
    examined = validations * judging.questions + 2 * len(stages) * judging.test_questions
    fees = tuple(fees_of(recipe, episode, asked, examined))
    return Plan(recipe, shape, trained, card, gpus, usd, episode, tuple(stages), fees)


def _sft(
    recipe: Recipe, table: Sft, trained: Trained, card: Card, episode: EpisodeTokens
) -> StagePlan:
    """The warm start, which one card makes, and transformers validates."""
    tokens = [stage_tokens(recipe, stage.part) for stage in table.stages]
    learnt = [
        stage.steps * stage.batch * mean
        for stage, (mean, _) in zip(table.stages, tokens, strict=True)
    ]
    seconds = sum(
        stage.steps
        * training_seconds(trained, card, stage.batch, mean, at_once=stage.batch, scored=0)
        for stage, (mean, _) in zip(table.stages, tokens, strict=True)
    )
    # The pass that takes the most memory.
    batch, longest = max(
        ((stage.batch, most) for stage, (_, most) in zip(table.stages, tokens, strict=True)),
        key=lambda each: each[0] * each[1],
    )
    batch_made = (recipe.grpo.generate_batch if recipe.grpo else None) or BATCH
    at_once = min(batch_made, recipe.judging.questions)
    made, room = generating_phase(trained, card, None, at_once, recipe.episode.episode_tokens)
    by = Generators(card, 1, None, batch_made, room.tokens)
    ends = set(accumulate(stage.steps for stage in table.stages))
    ends |= set(range(table.validate_every, table.steps + 1, table.validate_every))
    return StagePlan(
        name="sft",
        steps=table.steps,
        episodes=sum(stage.steps * stage.batch for stage in table.stages) / table.steps,
        generated=0.0,
        read=0.0,
        trained_on=sum(learnt) / table.steps,
        seconds={"training": seconds / table.steps},
        examinations=1 + len(ends) + 1,
        examining_seconds=_examining(recipe, trained, by, episode, 1 + len(ends)),
        phases=(made, training_phase(trained, card, 1, batch, longest, None)),
        room=room,
    )


def _grpo(
    recipe: Recipe,
    table: Grpo,
    trained: Trained,
    card: Card,
    gpus: Gpus,
    episode: EpisodeTokens,
) -> StagePlan:
    form, vllm, shape = recipe.episode, table.vllm, trained.shape
    episodes = table.questions * table.rollouts
    tokens = form.episode_tokens
    learns = training_phase(trained, card, gpus.train, table.micro_batch, tokens, vllm)
    if vllm is not None and gpus.serve:
        made, room = serving_phase(shape, card, -(-episodes // gpus.serve), tokens)
    else:
        mine = episodes // gpus.train
        if vllm is None:
            # A validation asks its questions at the same time as well.
            most = min(AT_ONCE, recipe.judging.questions)
            mine = min(table.generate_batch or max(mine, most), max(mine, most))
        made, room = generating_phase(trained, card, vllm, mine, tokens)
    by = Generators(card, gpus.serve or gpus.train, vllm, table.generate_batch, room.tokens)
    again = 1 + table.resample
    most_turns = form.max_turns, form.turn_tokens
    generating = generating_seconds(trained, by, episodes, episode, most_turns)
    # TRL scores vLLM's tokens anew, and those of steps that follow on the same episodes; a KL term
    # takes the same of the model as it began.
    scored = (vllm is not None or table.iterations > 1) + (table.beta > 0)
    training = training_seconds(
        trained,
        card,
        episodes / gpus.train,
        episode.length,
        at_once=table.micro_batch,
        scored=scored,
    )
    seconds = {
        "generating": generating * again / table.iterations,
        "training": training,
        "weights to vLLM": transfer_seconds(shape, vllm) / table.iterations,
        "tools": episodes / gpus.train * episode.turns * TOOLS_S * again / table.iterations,
        "judges": JUDGE_S * again / table.iterations if is_paid(recipe.judging.reward) else 0.0,
    }
    made_tokens = episodes * again / table.iterations
    validations = validations_in(table)
    return StagePlan(
        name="grpo",
        steps=table.steps,
        episodes=float(episodes),
        generated=made_tokens * episode.own,
        read=made_tokens * (episode.prompts if vllm is None else episode.length - episode.own),
        trained_on=episodes * episode.length,
        seconds=seconds,
        examinations=validations + 1,
        examining_seconds=_examining(recipe, trained, by, episode, validations),
        phases=(made, learns),
        room=room,
    )


def _examining(
    recipe: Recipe, trained: Trained, by: Generators, episode: EpisodeTokens, validations: int
) -> float:
    """Seconds of all validations, and of the test, which is asked twice."""
    form, judging = recipe.episode, recipe.judging
    most = form.max_turns, form.turn_tokens
    paid = is_paid(judging.reward) or is_paid(judging.validation)
    vllm = by.vllm
    one, last = (
        generating_seconds(trained, by, asked, episode, most) + asked * episode.turns * TOOLS_S
        for asked in (judging.questions, judging.test_questions)
    )
    beside = transfer_seconds(trained.shape, vllm) + (JUDGE_S if paid else 0.0)
    return validations * (one + beside) + 2 * (last + beside)
