"""Held-out questions put to the model in training, and the figures that checkpoints are chosen by.

The same questions at every step, sampled as in training, through the same episodes. The figures
are those of the benchmark (`evals.metrics`) by a judge that is not the reward's; what the
reward's judge says of the same answers is kept beside it, so that a hole in it shows. Knows
nothing of trainers.
"""

import asyncio
import dataclasses
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

from art_e.question import Question
from evals.metrics import model_metrics
from evals.scored import Scored
from training.judging import Judges
from training.material import Material, load_material
from training.processes import ALONE, Processes
from training.progress import Validation, mean_of
from training.reward import malformed_calls
from training.rollout import Generate, Limits, roll_out
from training.run import TrainingRun
from training.scoring import Scorer
from training.tables import EpisodeForm
from training.tokens import Tokens

# Rollouts are long; so many are in memory at the same time.
AT_ONCE = 256


class Examiner(NamedTuple):
    """Asks `questions` of `material`, each process its share of them. The scorer's judge is the
    reward's, its first other one decides the figures."""

    material: Material
    questions: Sequence[Question]
    form: EpisodeForm
    tokens: Tokens
    scorer: Scorer
    processes: Processes = ALONE

    def examine(self, generate: Generate, settings: dict[str, Any]) -> list[Scored]:
        """An episode for each question; `settings` are what trajectories hold as their policy."""
        limits = Limits(self.form.turn_tokens, self.form.episode_tokens)
        mine = self.processes.share(self.questions)
        scored: list[Scored] = []
        for start in range(0, len(mine), AT_ONCE):
            asked = mine[start : start + AT_ONCE]
            episodes = [self.material.episode(each, self.form) for each in asked]
            rollouts = roll_out(episodes, self.tokens, generate, limits)
            scored += asyncio.run(self.scorer.score(rollouts, settings))
        return self.processes.gather_shares(scored, len(self.questions))


def examiner_of(training: TrainingRun, judges: Judges, tokens: Tokens) -> Examiner:
    """The one that asks the recipe's validation questions."""
    recipe = training.setting.recipe
    material = load_material(recipe.data, "validation")
    return Examiner(
        material,
        held_out(material, recipe.judging.questions),
        recipe.episode,
        tokens,
        Scorer(judges.reward, recipe.reward, training.run.id, recipe.name, (judges.validation,)),
        training.processes,
    )


def held_out(material: Material, number: int) -> list[Question]:
    """The first `number` questions in an order that is always the same, whatever the seed."""
    shuffled = list(material.questions)
    Random("held out").shuffle(shuffled)
    return shuffled[:number]


def validation_of(scored: Sequence[Scored], step: int) -> Validation:
    """The figures of `metrics.json`; see `Validation`."""
    decided = [by_second(each) for each in scored]
    figures = model_metrics(decided, ["validation", "reward"], timed=False)
    facts = [each.trajectory.rubric for each in scored]
    right = [
        each.trajectory.rubric["effort"]
        for each in decided
        if each.question.answerable and each.correct
    ]
    answered = [
        bool(each.trajectory.rubric["answered"]) for each in scored if not each.question.answerable
    ]
    rewards = [each.trajectory.reward["total"] for each in scored if each.trajectory.reward]
    return Validation(
        step=step,
        n=len(scored),
        correct=mean_of([each.correct for each in decided]),
        accuracy=figures["accuracy"]["value"],
        hallucination=figures["hallucination"]["value"],
        hallucination_unanswerable=mean_of(answered),
        abstention=figures["abstention"]["value"],
        turns=figures["turns"]["value"],
        effort=figures["effort"]["value"],
        turns_when_correct=figures["turns_when_correct"]["value"],
        effort_when_correct=mean_of(right),
        format_errors=mean_of([malformed_calls(each) for each in facts]),
        reward=mean_of(rewards),
    )


def by_second(each: Scored) -> Scored:
    """The episode as the second judge sees it."""
    trajectory = each.trajectory
    if not trajectory.other_verdicts:
        return each
    first, *others = trajectory.other_verdicts
    verdict = trajectory.verdict
    return Scored(
        each.question,
        dataclasses.replace(
            trajectory, verdict=first, other_verdicts=[*others, *([verdict] if verdict else [])]
        ),
    )
