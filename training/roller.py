"""The rollouts of a step: groups of episodes with verdicts and rewards, in TRL's form.

If several processes train, each rolls out its own groups; the figures cover all groups."""

import asyncio
import dataclasses
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any, NamedTuple

from art_e.agent import episode_record
from art_e.cli.output import note
from art_e.episode import Rubric
from art_e.message import compact_json
from art_e.question import Question
from art_e.text import digest
from evals.scored import Judge, Scored, Verdict, judge_episode, limited_gather
from training.engine import Dispatch
from training.judging import Judges, ask_again
from training.optimizer import FLAT
from training.processes import PausedError
from training.recipe import TEMPERATURE, Grpo
from training.reward import RewardWeights, brevity, malformed_calls, reward_of
from training.rollout import ChatTokens, Generate, Material, Rollout, in_groups, in_passes, roll_out
from training.run import TrainingRun, mean_of

# If a larger share of the episodes is unjudged, judges are asked again after each of these waits
# (in seconds), for ten minutes in all: most outages are shorter. Then the run pauses.
MOST_UNJUDGED = 0.1
WAITS, OUTAGE_S = (10.0, 20.0, 40.0, 80.0, 150.0, 300.0), 600.0
# Episodes judged at a time; providers refuse more concurrent requests.
JUDGED_AT_ONCE = 32

# ---- From episodes to verdicts and rewards.


async def score(
    groups: Sequence[Sequence[Rollout]], settings: Sequence[dict[str, Any]],
    judges: Sequence[Judge], weights: RewardWeights, run_id: str, model: str,
) -> list[Scored]:  # fmt: skip
    """Return all episodes with verdicts and rewards. The first judge decides; if it fails there is
    no reward. Wait out an outage. `settings` has the policy of each group's trajectories, from
    which episode ids are derived, so that a resumed run assigns the same ones."""

    async def score_one(case: tuple[Rollout, int, dict[str, Any]]) -> Scored:
        (episode, _), number, policy = case
        question = episode.question
        trajectory = dataclasses.replace(
            episode_record(episode, run_id, model, dict(policy)),
            episode_id=digest(compact_json([run_id, policy, question.id, number])),
            question=question.to_row(),
        )
        scored = await judge_episode(Scored(question, trajectory), judges, episode.tools.inbox)
        return rewarded(weights, scored, episode.rubric)

    cases = [
        (rollout, number, policy)
        for group, policy in zip(groups, settings, strict=True)
        for number, rollout in enumerate(group)
    ]
    scored = await limited_gather(JUDGED_AT_ONCE, score_one, cases)
    end = time.monotonic() + OUTAGE_S  # retries within a call take time, too
    for wait in WAITS:
        paused = outage(scored, judges)
        if paused is None or not paused.passes or time.monotonic() > end:
            break
        note(f"{paused}; asking again in {wait:g} s")
        await asyncio.sleep(wait)
        places = list(failures(scored))
        again = await limited_gather(JUDGED_AT_ONCE, score_one, [cases[each] for each in places])
        for place, episode in zip(places, again, strict=True):
            scored[place] = episode
    return scored


def rewarded(
    weights: RewardWeights, scored: Scored, rubric: Rubric, rank: float | None = None
) -> Scored:
    """Return the episode with its reward, unless its judge failed; `rank`: its relative score."""
    row = scored.trajectory.verdict
    length = brevity(scored.trajectory.final_answer, scored.question.answer)
    reward = reward_of(rubric, Verdict(**row) if row else None, weights, rank, length)
    trajectory = dataclasses.replace(scored.trajectory, reward=reward and reward._asdict())
    return Scored(scored.question, trajectory)


class Played(NamedTuple):
    """This process's groups of a step, scored; `unranked` of them could not be compared."""

    groups: list[list[Rollout]]
    scored: list[list[Scored]]
    unranked: int


class StepBatch(NamedTuple):
    """This process's rollouts of a step, scored and grouped. `figures` (those of `Step`) and the
    `sampled` tokens cover all processes; `outage` is the reason to pause, if any."""

    rollouts: list[list[Rollout]]
    scored: list[list[Scored]]
    figures: dict[str, Any]
    sampled: int
    outage: PausedError | None

    def for_trl(self, end_id: int) -> dict[str, Any]:
        """Return TRL's columns; its reward function gets `scored`. A group with an unjudged member
        is masked: its abstentions, which need no judge, would get all the advantage. An empty
        completion becomes one masked end token, because TRL rejects empty ones."""
        transcripts = [each.transcript for group in self.rollouts for each in group]
        judged = [rewards_of(group) is not None for group in self.scored for _ in group]
        logprobs = [each.logprobs if each.completion_ids else [0.0] for each in transcripts]
        return {
            "prompt_ids": [each.prompt_ids for each in transcripts],
            "completion_ids": [each.completion_ids or [end_id] for each in transcripts],
            "env_mask": [
                [int(sampled and counts) for sampled in row.sampled] or [0]
                for row, counts in zip(transcripts, judged, strict=True)
            ],
            "logprobs": None if None in logprobs else logprobs,
            "scored": [each for members in self.scored for each in members],
        }


@dataclass(frozen=True, eq=False)
class Roller:
    """Rolls out the groups of a step and scores them."""

    training: TrainingRun
    table: Grpo
    tokens: ChatTokens
    material: Material
    judges: Judges

    def questions_for_step(self, step: int) -> Sequence[Question]:
        training, size = self.training, self.table.asked
        # A batch serves `minibatches` steps; batch b asks questions b * size to (b + 1) * size - 1.
        first = (step - 1) // self.table.minibatches * size
        order = in_passes(self.material.questions, first + size, f"{training.setting.seed}/grpo")
        return training.processes.share(order[first:])

    def roll(self, questions: Sequence[Question], step: int, dispatch: Dispatch) -> StepBatch:
        with dispatch.awake():
            return self.collected(self.played(questions, step, dispatch))

    def played(self, questions: Sequence[Question], step: int, generate: Generate) -> Played:
        """Roll out and score a group for each question. Safe in a thread: no collective calls."""
        form, size = self.training.setting.recipe.episode, self.table.rollouts
        episodes = [self.material.episode(each, form) for each in questions for _ in range(size)]
        groups = in_groups(roll_out(episodes, self.tokens, generate, form), size)
        return Played(groups, *asyncio.run(self._scored(groups, step)))

    def collected(self, played: Played) -> StepBatch:
        """Store the episodes of all processes; return this one's part, with the figures of all."""
        training, size = self.training, self.table.rollouts
        groups, scored, unranked = played
        gather = training.processes.gather
        everyone = gather([each for group in scored for each in group])
        training.add_episodes(everyone)
        spread = list(map(has_spread, in_groups(everyone, size)))
        # Prefer groups with spread, then fill up with flat ones; in each kind spare ones are last.
        count = self.table.questions // training.processes.count  # groups that this process keeps
        places = sorted(range(len(groups)), key=lambda place: not has_spread(scored[place]))
        chosen = sorted(places[:count])
        step_figures = {
            **figures(everyone),
            "groups": len(spread),
            "flat_groups": spread.count(False),  # their advantages are 0
            "replaced": sum(gather([sum(place >= count for place in chosen)])),
            "unranked": sum(gather([unranked])) if self.judges.relative else None,
            "cost_usd": training.cost_before + sum(gather([self.judges.cost_usd()])),
        }
        rollouts = [each for group in groups for each in group]  # with spare groups
        sampled = sum(gather([sum(sum(each.transcript.sampled) for each in rollouts)]))
        groups, scored = [groups[place] for place in chosen], [scored[place] for place in chosen]
        return StepBatch(groups, scored, step_figures, sampled, outage(everyone, self.judges))

    async def _scored(
        self, groups: Sequence[Sequence[Rollout]], step: int
    ) -> tuple[list[list[Scored]], int]:
        ask_again(self.judges)  # retry a model that was given up in an earlier step
        run_id, setting = self.training.run.id, self.training.setting
        judges, weights, model = [self.judges.reward], setting.recipe.reward, setting.recipe.name
        same = {"temperature": TEMPERATURE, "seed": setting.seed}
        names = [f"{step}/{group[0].episode.question.id}" for group in groups]
        settings = [{"step": step, "group": name, **same} for name in names]
        everyone = await score(groups, settings, judges, weights, run_id, model)
        scored = in_groups(everyone, self.table.rollouts)
        if (relative := self.judges.relative) is None:
            return scored, 0
        # Groups with an unjudged member are masked anyway.
        places = [place for place, group in enumerate(scored) if rewards_of(group) is not None]
        ranks = await limited_gather(JUDGED_AT_ONCE, relative.rank, [scored[at] for at in places])
        for place, scores in zip(places, ranks, strict=True):
            if scores is not None:
                facts = (rollout.episode.rubric for rollout in groups[place])
                scored[place] = list(map(partial(rewarded, weights), scored[place], facts, scores))
        return scored, ranks.count(None)


def rewards_of(group: Sequence[Scored]) -> list[float] | None:
    """Return the rewards of a group; None if a judge failed on a member."""
    rewards = [each.trajectory.reward for each in group]
    return None if None in rewards else [float(each["total"]) for each in rewards if each]


def has_spread(group: Sequence[Scored]) -> bool:
    """Return True if a group's rewards differ: otherwise all of its advantages are 0."""
    rewards = rewards_of(group)
    return rewards is not None and max(rewards) - min(rewards) >= FLAT


def figures(scored: Sequence[Scored]) -> dict[str, Any]:
    """Return the fields of `Step` that depend on its episodes."""
    rewards = [each.trajectory.reward for each in scored if each.trajectory.reward is not None]
    facts = [each.trajectory.rubric for each in scored]
    answers = [answer for each in scored if (answer := each.trajectory.final_answer)]
    judged = [each for each in scored if not each.unjudged]
    components = [each["components"] for each in rewards]
    names = sorted({name for row in components for name in row})
    keys = {"abstention": "abstained", "turns": "turns", "effort": "effort", "calls": "tool_calls"}
    return {
        "reward": mean_of([each["total"] for each in rewards]),
        "components": {name: fmean(each.get(name, 0.0) for each in components) for name in names},
        "accuracy": mean_of([each.correct for each in judged if each.question.answerable]),
        "hallucination": mean_of([each.wrong for each in judged]),
        **{name: mean_of([each[fact] for each in facts]) for name, fact in keys.items()},
        "format_errors": mean_of([malformed_calls(each) for each in facts]),
        "answer_words": mean_of([len(answer.split()) for answer in answers]),
        "unjudged": len(scored) - len(rewards),
    }


def failures(scored: Sequence[Scored]) -> dict[int, str]:
    """Map the places of unjudged episodes to the judge's reasons."""
    verdicts = ((place, verdict) for place, each in enumerate(scored) for verdict in each.verdicts)
    return {place: verdict["reason"] for place, verdict in verdicts if verdict["correct"] is None}


def outage(scored: Sequence[Scored], judges: Iterable[object]) -> PausedError | None:
    """Return the reason to pause, quoting a failing judge; None if few episodes are unjudged."""
    reasons = failures(scored)
    if len(reasons) <= MOST_UNJUDGED * len(scored):
        return None
    [(words, _)] = Counter(reasons.values()).most_common(1)
    reason = f"{len(reasons)} of {len(scored)} episodes could not be judged ({words})"
    return PausedError(reason, passes=ask_again(judges))
