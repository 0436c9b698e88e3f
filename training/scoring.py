"""From rollouts to verdicts and rewards: the judges are asked about all at the same time.

Knows nothing of groups and of who generated.
"""

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

from art_e.agent import episode_record
from art_e.message import compact_json
from art_e.text import digest
from evals.judge import Judge
from evals.scored import Scored
from training.judging import judged
from training.reward import RewardWeights, reward_of
from training.rollout import Rollout


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
