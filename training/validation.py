"""The run of another model that a training run is compared with: the same questions, measured.

Knows nothing of training.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from art_e.errors import UserError
from art_e.question import Question
from art_e.runs import find_run
from art_e.storage import AppendLog
from evals.benchmark import fingerprint
from evals.metrics import model_metrics, sample_of
from evals.scored import Scored
from training.engine import BATCH, Sampler, restore
from training.material import Material, load_material, load_strangers
from training.processes import ALONE, Processes, quiet
from training.progress import Validation, mean_of
from training.recipe import EpisodeForm, Recipe
from training.reward import malformed_calls
from training.roller import Judges, Scorer
from training.rollout import Generate, Limits, Tokens, roll_out
from training.run import TrainingRun
from training.start import Start

# ---- Held-out questions put to the model in training, and what checkpoints are chosen by.

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


# ---- The test questions put to a trained model, once, when training is over.

# What generates, at a temperature (0: greedily).
GenerateAt = Callable[[float], Generate]

# The file of the run's folder that has the test's episodes.
EPISODES = "test.jsonl"
# As metrics.json has them, of the benchmark's figures.
FIGURES = (
    "accuracy",
    "unanswerable_accuracy",
    "hallucination",
    "abstention",
    "turns",
    "turns_when_correct",
    "effort",
)


def by_transformers(start: Start, recipe: Recipe, seed: int) -> GenerateAt:
    """Has transformers sample from the model of `start`, the same for the same seed."""
    batch = recipe.grpo.generate_batch if recipe.grpo else None
    form = recipe.episode

    def at(temperature: float) -> Sampler:
        return Sampler(
            start.model,
            start.end_id,
            start.pad_id,
            form.turn_tokens,
            temperature,
            seed,
            batch or BATCH,
        )

    return at


def examined(
    training: TrainingRun,
    judges: Judges,
    trainer: Any,
    tokens: Tokens,
    generate_at: GenerateAt,
    awake: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> dict[str, Any]:
    """End the run with its best checkpoint's figures on the test questions; its metrics.

    `trainer` gets the weights of that checkpoint, and what `generate_at` gives generates by
    them, while it is `awake`.
    """
    best = training.processes.told(training.best_checkpoint)
    if best is None:
        return training.finish(None)
    with quiet():  # transformers warns of the head, which tied weights don't have
        restore(trainer, best)
    setting = training.setting
    with awake():
        figures, episodes = figures_on_test(
            setting.recipe,
            tokens,
            generate_at,
            judges,
            training.run.id,
            setting.seed,
            training.processes,
        )
    if training.processes.leads:
        file = training.run.folder / EPISODES
        # Of a run that was killed in here: what it had written is made again.
        file.unlink(missing_ok=True)
        with AppendLog(file) as log:
            for each in episodes:
                log.append(each.trajectory.to_line())
    return training.finish(figures)


def figures_on_test(
    recipe: Recipe,
    tokens: Tokens,
    generate_at: GenerateAt,
    judges: Judges,
    run_id: str,
    seed: int,
    processes: Processes = ALONE,
) -> tuple[dict[str, Any], list[Scored]]:
    """What `metrics.json` holds as `test`, and the episodes.

    `{"sampled": figures, "greedy": figures}`, each with the estimates of `FIGURES`,
    `effort_when_correct`, `hallucination_unanswerable`, `format_errors`, and the same under
    "strangers" for the questions about names that training has not, where there are any.
    """
    parts = {"": load_material(recipe.data, "test"), "strangers": load_strangers(recipe.data)}
    scorer = Scorer(judges.reward, recipe.reward, run_id, recipe.name, (judges.validation,))
    found: dict[str, Any] = {}
    episodes: list[Scored] = []
    for name, temperature in (("sampled", 1.0), ("greedy", 0.0)):
        generate = generate_at(temperature)
        settings = {"temperature": temperature, "seed": seed}
        for part, material in parts.items():
            if material is None:
                continue
            asked = held_out(material, recipe.judging.test_questions)
            examiner = Examiner(material, asked, recipe.episode, tokens, scorer, processes)
            scored = examiner.examine(generate, {**settings, "part": part})
            episodes += scored
            if part:
                found[name][part] = figures_of(scored)
            else:
                found[name] = figures_of(scored)
    return found, episodes


def figures_of(scored: Sequence[Scored]) -> dict[str, Any]:
    """The estimates of one way of sampling, by the judge of validations."""
    decided = [by_second(each) for each in scored]
    figures: Mapping[str, Any] = model_metrics(decided, ["validation", "reward"], timed=False)
    right = [each for each in decided if each.question.answerable and each.correct]
    unanswerable = [each for each in decided if not each.question.answerable]
    return {
        "n": len(scored),
        **{name: figures[name] for name in FIGURES},
        "hallucination_unanswerable": sample_of(unanswerable).share(
            [bool(each.trajectory.rubric["answered"]) for each in unanswerable]
        ),
        "effort_when_correct": sample_of(right).mean(
            [each.trajectory.rubric["effort"] for each in right]
        ),
        "format_errors": sample_of(scored).mean(
            [malformed_calls(each.trajectory.rubric) for each in scored]
        ),
        "by_kind": {
            kind: {"n": each["n"], "accuracy": each["accuracy"]}
            for kind, each in figures["by_kind"].items()
        },
    }


# ---- The run of another model that a training run is compared with: the same questions, measured.


def baseline_metrics(name: str, parent: Path, recipe: Recipe) -> dict[str, Any]:
    """The metrics of the benchmark run of that name or folder.

    Raises `UserError` where there is none, where it is not complete, and where it asked other
    questions than the recipe keeps for its test.
    """
    run = find_run(name, parent)
    again = f"make one with: art-e eval run -m MODEL --recipe {recipe.name}"
    if not run.complete:
        raise UserError(f"the baseline {run.folder} is not complete; resume it, or {again}")
    material = load_material(recipe.data, "test")
    asked = fingerprint(held_out(material, recipe.judging.test_questions))
    if run.config.get("questions_hash") != asked:
        raise UserError(f"the baseline {run.folder} asked other questions; {again}")
    return run.metrics
