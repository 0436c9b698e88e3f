"""The rollouts of a step: groups of episodes, judged, paid, and handed to TRL as tokens.

Groups without spread in reward teach nothing and are replaced first. Where several processes
train, each rolls out its own groups, and all learn the rewards of all.
"""

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from random import Random
from statistics import fmean
from typing import Any, NamedTuple

from art_e.agent import episode_record
from art_e.inbox.inbox import Inbox
from art_e.message import compact_json
from art_e.question import Question
from art_e.text import digest
from evals.scored import Scored, read_in
from evals.verdict import Judge, Verdict
from training.engine import Dispatch
from training.processes import gpu_memory_used
from training.progress import mean_of
from training.recipe import Grpo
from training.reward import RewardWeights, malformed_calls, reward_of
from training.rollout import ChatTokens, Material, Rollout, roll_out
from training.run import Judges, TrainingRun

# Rewards that differ by less are equal but for rounding.
FLAT = 1e-6
# A run pauses when a larger share of a step's episodes is unjudged: a judge that is down wastes
# rollouts.
MOST_UNJUDGED = 0.1

# A group: the episodes of one question, each with its score.
Group = list[tuple[Rollout, Scored]]


# ---- From episodes to verdicts and rewards.


class Scorer(NamedTuple):
    """Scores episodes: `judge` decides, `weights` pay, and `others` add their verdicts."""

    judge: Judge
    weights: RewardWeights
    run_id: str
    model: str
    others: tuple[Judge, ...] = ()

    async def score(self, rollouts: Sequence[Rollout], settings: dict[str, Any]) -> list[Scored]:
        """The episodes with verdicts and rewards, in order; without a reward if the judge failed.

        `settings`, the policy of the trajectories, decide an episode's id, so that a run that was
        killed gives it the same one again.
        """
        scores = (self._score(each, number, settings) for number, each in enumerate(rollouts))
        return await asyncio.gather(*scores)

    async def _score(self, rollout: Rollout, number: int, settings: dict[str, Any]) -> Scored:
        episode = rollout.episode
        question = episode.question
        trajectory = dataclasses.replace(
            episode_record(episode, self.run_id, self.model, dict(settings)),
            episode_id=digest(compact_json([self.run_id, settings, question.id, number])),
            question=question.to_row(),
        )
        scored = Scored(question, trajectory)
        first, *others = await asyncio.gather(
            *(judged(scored, each, episode.tools.inbox) for each in (self.judge, *self.others))
        )
        reward = reward_of(episode.rubric, first, self.weights)
        trajectory = dataclasses.replace(
            trajectory,
            verdict=None if first is None else dataclasses.asdict(first),
            other_verdicts=[dataclasses.asdict(each) for each in others if each is not None],
            reward=None if reward is None else reward.to_row(),
        )
        return Scored(question, trajectory)


async def judged(scored: Scored, judge: Judge, inbox: Inbox) -> Verdict | None:
    """The judge's verdict on an episode of `inbox`; None if it neither answered nor abstained.

    `correct` is None if the judge failed. `grounded` is False for an answer without a mail read.
    Raises `UserError` for a question without a gold answer.
    """
    if not scored.ended:
        return None
    trajectory = scored.trajectory
    mails = read_in(trajectory, inbox)
    verdict = await judge.judge(scored.question, trajectory.final_answer, mails)
    if trajectory.rubric["answered"] and not mails:
        note = "" if verdict.correct is None else "; no mail was read"
        return dataclasses.replace(verdict, grounded=False, reason=verdict.reason + note)
    return verdict


# ---- Which questions to ask in place of those that taught nothing.


def rewards_of(group: Sequence[Scored]) -> list[float] | None:
    """The rewards of a group; None if a member has none, because its judge failed."""
    rewards = [each.trajectory.reward for each in group]
    return None if None in rewards else [float(each["total"]) for each in rewards if each]


def is_flat(rewards: Sequence[float] | None) -> bool:
    """Whether a group teaches nothing: its rewards have no spread, or one of them is missing."""
    return rewards is None or max(rewards) - min(rewards) < FLAT


class Curriculum:
    """What the questions have earned so far. `seed` orders those never asked."""

    def __init__(self, questions: Sequence[Question], seed: int) -> None:
        self._by_id = {each.id: each for each in questions}
        self._fresh = sorted(self._by_id)
        Random(f"{seed}/fresh").shuffle(self._fresh)
        # The mean reward of each question's last group, if that had spread.
        self._earned: dict[str, float] = {}
        self._asked: set[str] = set()

    def note(self, name: str, rewards: Sequence[float] | None) -> None:
        """Remember the rewards of a question's group; None changes nothing."""
        if rewards is None:
            return
        self._asked.add(name)
        if is_flat(rewards):
            self._earned.pop(name, None)
        else:
            self._earned[name] = sum(rewards) / len(rewards)

    def replacement(self, besides: Collection[str]) -> Question | None:
        """The hardest question that had spread, else a fresh one, whose id is not in `besides`."""
        hardest = sorted(self._earned, key=lambda each: (self._earned[each], each))
        fresh = (each for each in self._fresh if each not in self._asked)
        chosen = next((each for each in (*hardest, *fresh) if each not in besides), None)
        return None if chosen is None else self._by_id[chosen]

    def to_row(self) -> dict[str, Any]:
        """The state as JSON, for `restore`."""
        return {"earned": self._earned, "asked": sorted(self._asked)}

    def restore(self, row: dict[str, Any]) -> None:
        """Continue from a state that `to_row` gave."""
        self._earned = {name: float(earned) for name, earned in row["earned"].items()}
        self._asked = set(row["asked"])


# ---- A step.


class Roller:
    """Rolls out the groups of a step, scores them, and replaces those without spread."""

    def __init__(
        self,
        training: TrainingRun,
        table: Grpo,
        tokens: ChatTokens,
        material: Material,
        judges: Judges,
    ) -> None:
        recipe = training.setting.recipe
        self._training = training
        self._table = table
        self._form = recipe.episode
        self._tokens = tokens
        self._material = material
        self._judges = judges
        self._processes = training.processes
        self._scorer = Scorer(judges.reward, recipe.reward, training.run.id, recipe.name)
        self._by_id = {each.id: each for each in material.questions}
        self.curriculum = Curriculum(material.questions, training.setting.seed)
        self.figures: dict[str, Any] = {}
        self.outage: str | None = None
        # Tokens generated by all processes since the run began.
        self.generated = training.tokens

    def __call__(
        self, rows: Sequence[Mapping[str, Any]], step: int, dispatch: Dispatch
    ) -> dict[str, Any]:
        """The rollouts of this process's `rows` (each question `rollouts` times in a row), as
        TRL's `rollout_func` returns them."""
        questions = [self._by_id[row["question_id"]] for row in rows[:: self._table.rollouts]]
        with dispatch.awake():
            groups, resampled = self._with_spread(questions, dispatch, step)
            # vLLM in the process holds its keys and values now.
            self._training.note_memory(gpu_memory_used())
        gather = self._processes.gather
        scored = gather([each for group in groups for _, each in group])
        flat = gather([_flat(group) for group in groups])
        self._training.add_episodes(scored)
        self.outage = outage(scored)
        self.figures = {
            **figures(scored),
            "groups": len(flat),
            "flat_groups": sum(flat),
            "resampled": resampled,
            "cost_usd": self._training.cost_before + sum(gather([self._judges.cost_usd()])),
        }
        return _for_trl(groups, self._tokens.end_id)

    def _with_spread(
        self, questions: Sequence[Question], dispatch: Dispatch, step: int
    ) -> tuple[list[Group], int]:
        """A group for each question or its replacement; the number of replacements by all."""
        groups = self._roll(questions, dispatch, step)
        first = self._processes.index * len(questions)
        asked = self._processes.gather([each.id for each in questions])
        resampled = 0
        for _ in range(self._table.resample):
            flat = self._processes.gather([_flat(group) for group in groups])
            others: dict[int, Question] = {}
            for place in (place for place, each in enumerate(flat) if each):
                besides = {*asked, *(each.id for each in others.values())}
                other = self.curriculum.replacement(besides)
                if other is None:
                    break
                others[place] = other
            if not others:
                break
            own = [place for place in others if first <= place < first + len(questions)]
            rolled = self._roll([others[place] for place in own], dispatch, step)
            for place, group in zip(own, rolled, strict=True):
                groups[place - first] = group
            for place, question in others.items():
                asked[place] = question.id
            resampled += len(others)
        return groups, resampled

    def _roll(self, questions: Sequence[Question], dispatch: Dispatch, step: int) -> list[Group]:
        """A group for each question; all processes note its rewards."""
        size = self._table.rollouts
        episodes = [
            self._material.episode(each, self._form) for each in questions for _ in range(size)
        ]
        rollouts = roll_out(episodes, self._tokens, dispatch, self._form)
        groups = [rollouts[at : at + size] for at in range(0, len(rollouts), size)]
        settings = {
            "step": step,
            "group": "",
            "temperature": self._table.temperature,
            "seed": self._training.setting.seed,
        }

        async def score_all() -> list[list[Scored]]:
            scores = (
                self._scorer.score(group, {**settings, "group": f"{step}/{question.id}"})
                for question, group in zip(questions, groups, strict=True)
            )
            return await asyncio.gather(*scores)

        scored = asyncio.run(score_all())
        earned = [
            (each.id, rewards_of(group)) for each, group in zip(questions, scored, strict=True)
        ]
        for name, rewards in self._processes.gather(earned):
            self.curriculum.note(name, rewards)
        own = sum(sum(each.conversation.own) for each in rollouts)
        self.generated += sum(self._processes.gather([own]))
        return [list(zip(*pair, strict=True)) for pair in zip(groups, scored, strict=True)]


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
    return is_flat(rewards_of([scored for _, scored in group]))


def _for_trl(groups: Sequence[Group], end_id: int) -> dict[str, Any]:
    """What TRL takes.

    A group with an unjudged member is masked whole and is in no sum of the loss: abstentions need
    no judge, and would alone gain the advantage when it fails. A rollout whose prompt left no
    room for a turn becomes one masked end token, because TRL rejects empty completions.
    """
    rows: list[dict[str, Any]] = []
    for group in groups:
        rewards = rewards_of([scored for _, scored in group])
        for place, (rollout, _) in enumerate(group):
            conversation = rollout.conversation
            rows.append(
                {
                    "prompt_ids": conversation.prompt_ids,
                    "completion_ids": conversation.completion_ids or [end_id],
                    "env_mask": [int(own and rewards is not None) for own in conversation.own]
                    or [0],
                    "logprobs": conversation.logprobs if conversation.completion_ids else [0.0],
                    "earned": None if rewards is None else rewards[place],
                }
            )
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    if None in columns["logprobs"]:
        columns["logprobs"] = None
    return columns
