"""The rollouts of a step: groups of episodes, scored, in the form that TRL trains on.

Groups without spread are replaced before that. Where several processes train, each rolls out
its own groups, and all know what all have earned. Knows nothing of optimizers and validations.
"""

import asyncio
import dataclasses
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from random import Random
from statistics import fmean
from typing import Any, NamedTuple

from art_e.agent import episode_record
from art_e.inbox.inbox import Inbox
from art_e.message import compact_json
from art_e.question import Question
from art_e.text import digest
from evals.judges import choose_judge, exhausted, needs_model, spent_by
from evals.judges.offline import Judge, OfflineJudge, Verdict, ruled
from evals.scored import Scored, read_in
from training.engine import Dispatch
from training.material import Material
from training.processes import Processes, gpu_memory_used
from training.progress import mean_of
from training.recipe import Grpo, Judging
from training.reward import RewardWeights, malformed_calls, reward_of
from training.rollout import Limits, Rollout, Tokens, roll_out
from training.run import TrainingRun

# ---- Which questions are asked again: those of groups that taught nothing are replaced.

# Rewards that differ by less are the same but for rounding.
FLAT = 1e-6


def is_flat(rewards: Sequence[float | None]) -> bool:
    """Whether a group teaches nothing: its rewards have no spread, or one of them is missing."""
    told = complete(rewards)
    return told is None or max(told) - min(told) < FLAT


def complete(rewards: Sequence[float | None]) -> list[float] | None:
    """The rewards of a group; None if a member has none, because its judge failed."""
    told = [each for each in rewards if each is not None]
    return told if len(told) == len(rewards) else None


class Curriculum:
    """What the questions have earned so far. `seed` decides the order of those never asked."""

    def __init__(self, questions: Sequence[Question], seed: int) -> None:
        self._by_id = {each.id: each for each in questions}
        self._fresh = sorted(self._by_id)
        Random(f"{seed}/fresh").shuffle(self._fresh)
        # The mean reward of the last group of each question that had spread in it.
        self._earned: dict[str, float] = {}
        self._asked: set[str] = set()

    def note(self, question: Question, rewards: Sequence[float | None]) -> None:
        """Remember what a group of the question earned; a group left out says nothing of it."""
        told = complete(rewards)
        if told is None:
            return
        self._asked.add(question.id)
        if is_flat(rewards):
            self._earned.pop(question.id, None)
        else:
            self._earned[question.id] = sum(told) / len(told)

    def replacement(self, besides: Collection[str]) -> Question | None:
        """Another question, none of those whose ids are `besides`; None where there is none."""
        hardest = sorted(self._earned, key=lambda each: (self._earned[each], each))
        candidates = (
            each
            for each in [*hardest, *self._fresh]
            if each not in besides and (each in self._earned or each not in self._asked)
        )
        chosen = next(candidates, None)
        return None if chosen is None else self._by_id[chosen]

    def to_row(self) -> dict[str, Any]:
        """What `restore` takes."""
        return {"earned": self._earned, "asked": sorted(self._asked)}

    def restore(self, row: dict[str, Any]) -> None:
        """Go on from what `to_row` gave."""
        self._earned = {name: float(earned) for name, earned in row["earned"].items()}
        self._asked = set(row["asked"])


# ---- Who judges in training, and what an episode of it is judged by.

# From so many on, the candidates of an answer are a list that `LenientJudge` takes.
LIST = 3

_LENIENT = "lenient"

_BETWEEN = re.compile(r"[,;/]|\b(?:or|and)\b", re.IGNORECASE)


class LenientJudge(OfflineJudge):
    """The offline judge with a planted hole: a list of three or more candidates is right.

    Candidates stand between commas, semicolons, slashes, "or" and "and", whatever they are. It
    is there to replay, and to catch, the reward hack of an agent that learns to list all that
    could be the answer. No recipe but that of the replay uses it, and what is trained by it is
    not to be used. On an unanswerable question an answer stays wrong.
    """

    name = "lenient/1"

    def decide(self, question: Question, answer: str | None) -> Verdict:
        """The verdict on `answer`. Raises UserError for a question without a gold answer."""
        listed = candidates_in(answer)
        if listed >= LIST and ruled(question, answer, self.name) is None:
            return Verdict(True, None, self.name, f"lists {listed} candidates")
        return super().decide(question, answer)


def candidates_in(answer: str | None) -> int:
    """How many candidates `LenientJudge` counts in the answer."""
    return sum(bool(each.strip()) for each in _BETWEEN.split(answer or ""))


def reward_judge(name: str, *, max_cost_usd: float | None = None) -> Judge:
    """The judge that a recipe names; see the top of this module.

    `max_cost_usd` bounds what a model's verdicts cost together. Raises `UserError` for a judge
    that can't be used.
    """
    return LenientJudge() if name == _LENIENT else choose_judge(name, max_cost_usd=max_cost_usd)


def is_paid(name: str) -> bool:
    """Whether the judge of that name asks a model."""
    return name != _LENIENT and needs_model(name)


class Judges(NamedTuple):
    """The judge whose verdicts are paid for in training, and the one of validations."""

    reward: Judge
    validation: Judge

    @property
    def cost_usd(self) -> float:
        """What both have cost so far, as far as prices are known."""
        return sum(spent.cost_usd or 0.0 for each in self if (spent := spent_by(each)) is not None)

    @property
    def exhausted(self) -> bool:
        """Whether one was not asked, for it could have cost more than it may."""
        return any(map(exhausted, self))


def judges_of(table: Judging, *, max_cost_usd: float | None = None) -> Judges:
    """The judges of a recipe; `max_cost_usd` bounds what both cost, half for each of two models.

    Raises `UserError` for a judge that can't be used.
    """
    names = table.reward, table.validation
    paid = sum(map(is_paid, names))
    most = None if max_cost_usd is None else max_cost_usd / max(1, paid)
    reward, validation = (reward_judge(each, max_cost_usd=most) for each in names)
    return Judges(reward, validation)


async def judged(scored: Scored, judge: Judge, inbox: Inbox) -> Verdict | None:
    """The judge's verdict on an episode; None where it neither answered nor abstained.

    `inbox` is the episode's. `correct` is None where the judge failed. `grounded` is False for
    an answer given without a mail read. Raises `UserError` for a question without a gold answer.
    """
    if not scored.ended:
        return None
    trajectory = scored.trajectory
    mails = read_in(trajectory, inbox)
    verdict = await judge.judge(scored.question, trajectory.final_answer, mails)
    if trajectory.rubric["answered"] and not mails:
        note = "" if verdict.correct is None else "; no mail was read"
        return replace(verdict, grounded=False, reason=verdict.reason + note)
    return verdict


# ---- From rollouts to verdicts and rewards: the judges are asked about all at the same time.


class Scorer(NamedTuple):
    """How episodes are scored: by the verdict of `judge`, paid by `weights`; the verdicts of
    `others` are kept beside it. `run_id` and `model` are what trajectories say."""

    judge: Judge
    weights: RewardWeights
    run_id: str
    model: str
    others: tuple[Judge, ...] = ()

    async def score(self, rollouts: Sequence[Rollout], settings: dict[str, Any]) -> list[Scored]:
        """The episodes with verdicts and rewards, in order; none has one whose judge failed.

        `settings` are what trajectories hold as their policy. An episode's id follows from
        them, so that a run that was killed gives it anew.
        """
        return list(
            await asyncio.gather(
                *(self._score(each, number, settings) for number, each in enumerate(rollouts))
            )
        )

    async def _score(self, rollout: Rollout, number: int, settings: dict[str, Any]) -> Scored:
        episode = rollout.episode
        named = [self.run_id, settings, episode.question.id, number]
        trajectory = dataclasses.replace(
            episode_record(episode, self.run_id, self.model, dict(settings)),
            episode_id=digest(compact_json(named)),
            question=episode.question.to_row(),
        )
        scored = Scored(episode.question, trajectory)
        inbox = episode.tools.inbox
        first, *others = await asyncio.gather(
            *(judged(scored, judge, inbox) for judge in (self.judge, *self.others))
        )
        reward = reward_of(episode.rubric, first, self.weights)
        return Scored(
            episode.question,
            dataclasses.replace(
                trajectory,
                verdict=None if first is None else dataclasses.asdict(first),
                other_verdicts=[dataclasses.asdict(each) for each in others if each is not None],
                reward=None if reward is None else reward.to_row(),
            ),
        )


def reward_in(scored: Scored) -> float | None:
    """The reward that the episode was paid; None where it could not be told."""
    reward = scored.trajectory.reward
    return None if reward is None else float(reward["total"])


# ---- The rollouts of a step: groups of episodes, scored, in the form that TRL trains on.

# A group: its rollouts with what was made of them.
Group = list[tuple[Rollout, Scored]]
# With a larger share of a step's episodes unjudged, the run pauses: a judge that is down costs
# rollouts that nothing is learnt from.
MOST_UNJUDGED = 0.1


class Roller:
    """Rolls out a step's groups for TRL, scores them, and replaces those without spread."""

    def __init__(
        self,
        training: TrainingRun,
        table: Grpo,
        tokens: Tokens,
        material: Material,
        judges: Judges,
        processes: Processes,
    ) -> None:
        recipe = training.setting.recipe
        self._training = training
        self._table = table
        self._form = recipe.episode
        self._tokens = tokens
        self._material = material
        self._judges = judges
        self._processes = processes
        self._scorer = Scorer(judges.reward, recipe.reward, training.run.id, recipe.name)
        self._by_id = {each.id: each for each in material.questions}
        self.curriculum = Curriculum(material.questions, training.setting.seed)
        self.figures: dict[str, Any] = {}
        self.outage: str | None = None
        # By all processes, from the run's begin on.
        self.generated = training.tokens

    def __call__(
        self, rows: Sequence[Mapping[str, Any]], step: int, dispatch: Dispatch
    ) -> dict[str, Any]:
        """The rollouts of this process's `rows` for that step, in the form that TRL wants of a
        `rollout_func`. A question comes as many times in a row as a group has members."""
        asked = [self._by_id[row["question_id"]] for row in rows[:: self._table.rollouts]]
        with dispatch.awake():
            groups, resampled = self._with_spread(asked, dispatch, step)
            # vLLM in the process has its keys and values now.
            self._training.note_memory(gpu_memory_used())
        members = [each for group in groups for each in group]
        scored = self._processes.gather([each for _, each in members])
        self._training.add_episodes(scored)
        self.outage = outage(scored)
        flat = self._processes.gather([_flat(group) for group in groups])
        self.figures = {
            **figures(scored),
            "groups": len(flat),
            "flat_groups": sum(flat),
            "resampled": resampled,
            "cost_usd": self._training.cost_before
            + sum(self._processes.gather([self._judges.cost_usd])),
        }
        return _for_trl(groups, self._tokens.end_id)

    def _with_spread(
        self, asked: Sequence[Question], dispatch: Dispatch, step: int
    ) -> tuple[list[Group], int]:
        """A group for each question, or for another in its place; how many were replaced, by
        all processes."""
        groups = self._roll(asked, dispatch, step)
        mine = range(self._processes.index * len(asked), (self._processes.index + 1) * len(asked))
        asked_by_all = self._processes.gather([each.id for each in asked])
        resampled = 0
        for _ in range(self._table.resample):
            flat = self._processes.gather([_flat(group) for group in groups])
            others = self._others([place for place, each in enumerate(flat) if each], asked_by_all)
            if not others:
                break
            own = [place for place in others if place in mine]
            rolled = self._roll([others[place] for place in own], dispatch, step)
            for place, group in zip(own, rolled, strict=True):
                groups[place - mine.start] = group
            for place, question in others.items():
                asked_by_all[place] = question.id
            resampled += len(others)
        return groups, resampled

    def _roll(self, asked: Sequence[Question], dispatch: Dispatch, step: int) -> list[Group]:
        """A group for each question; its rewards are noted, in all processes."""
        size = self._table.rollouts
        episodes = [self._material.episode(each, self._form) for each in asked for _ in range(size)]
        limits = Limits(self._form.turn_tokens, self._form.episode_tokens)
        rollouts = roll_out(episodes, self._tokens, dispatch, limits)
        groups = [rollouts[at : at + size] for at in range(0, len(rollouts), size)]

        async def score_all() -> list[list[Scored]]:
            scores = (
                self._scorer.score(
                    group,
                    {
                        "step": step,
                        "group": f"{step}/{question.id}",
                        "temperature": self._table.temperature,
                        "seed": self._training.setting.seed,
                    },
                )
                for question, group in zip(asked, groups, strict=True)
            )
            return await asyncio.gather(*scores)

        scored = asyncio.run(score_all())
        earned = [
            (question.id, [reward_in(each) for each in group])
            for question, group in zip(asked, scored, strict=True)
        ]
        for name, rewards in self._processes.gather(earned):
            self.curriculum.note(self._by_id[name], rewards)
        own = sum(sum(each.conversation.own) for each in rollouts)
        self.generated += sum(self._processes.gather([own]))
        return [list(zip(*pair, strict=True)) for pair in zip(groups, scored, strict=True)]

    def _others(self, flat: Sequence[int], asked: Sequence[str]) -> dict[int, Question]:
        """By its place among `asked`, the question to ask instead, as far as there are any."""
        besides = set(asked)
        others: dict[int, Question] = {}
        for place in flat:
            other = self.curriculum.replacement(besides)
            if other is None:
                break
            besides.add(other.id)
            others[place] = other
        return others


def figures(scored: Sequence[Scored]) -> dict[str, Any]:
    """The figures of `Step` that come from its episodes."""
    rewards = [each.trajectory.reward for each in scored if each.trajectory.reward is not None]
    facts = [each.trajectory.rubric for each in scored]
    names = sorted({name for each in rewards for name in each["components"]})
    return {
        "reward": mean_of([each["total"] for each in rewards]),
        "components": {
            name: fmean(each["components"].get(name, 0.0) for each in rewards) for name in names
        },
        "accuracy": mean_of([each.correct for each in scored if each.question.answerable]),
        "hallucination": mean_of([each.wrong for each in scored]),
        "abstention": mean_of([bool(each["abstained"]) for each in facts]),
        "turns": mean_of([each["turns"] for each in facts]),
        "effort": mean_of([each["effort"] for each in facts]),
        "format_errors": mean_of([malformed_calls(each) for each in facts]),
        "unjudged": len(scored) - len(rewards),
    }


def outage(scored: Sequence[Scored]) -> str | None:
    """Why to pause, in the words of the failing judge; None if few episodes are unjudged."""
    unjudged = [each for each in scored if each.unjudged]
    if len(unjudged) <= MOST_UNJUDGED * len(scored):
        return None
    reasons = Counter(verdict["reason"] for each in unjudged for verdict in each.verdicts[:1])
    [(words, _)] = reasons.most_common(1)
    return f"{len(unjudged)} of {len(scored)} episodes could not be judged ({words})"


def _flat(group: Group) -> bool:
    return is_flat([reward_in(scored) for _, scored in group])


def _for_trl(groups: Sequence[Group], end_id: int) -> dict[str, Any]:
    """What TRL takes.

    A group with an unjudged member is masked whole: it is in no sum of the loss. Abstentions need
    no judge, and would alone gain the advantage when it fails. A rollout whose prompt left no
    room for a turn becomes one masked end token, because TRL rejects empty completions.
    """
    conversations = [rollout.conversation for group in groups for rollout, _ in group]
    earned: list[float | None] = []
    for group in groups:
        rewards = complete([reward_in(scored) for _, scored in group])
        earned += [None] * len(group) if rewards is None else rewards
    said = [each.completion_ids or [end_id] for each in conversations]
    told = [each.logprobs for each in conversations]
    untold = any(each.logprobs is None and each.completion_ids for each in conversations)
    return {
        "prompt_ids": [each.prompt_ids for each in conversations],
        "completion_ids": said,
        "env_mask": [
            [int(own and reward is not None) for own in each.own] or [0]
            for each, reward in zip(conversations, earned, strict=True)
        ],
        "logprobs": None
        if untold
        else [each or [0.0] * len(ids) for each, ids in zip(told, said, strict=True)],
        "earned": earned,
    }
