"""The test questions put to a trained model, once, when training is over.

Sampled as in training and greedily, with the benchmark's figures and intervals by the judge
of validations. Questions about names that training has not are told apart. Knows
nothing of trainers.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from art_e.trajectory import TrajectoryLog
from evals.metrics import model_metrics, sample_of
from evals.scored import Scored
from training.callbacks import quiet
from training.engine import BATCH, Sampler, restore
from training.judging import Judges
from training.material import load_material, load_strangers
from training.processes import ALONE, Processes
from training.recipe import Recipe
from training.reward import malformed_calls
from training.rollout import Generate
from training.run import TrainingRun
from training.scoring import Scorer
from training.start import Start
from training.tokens import Tokens
from training.validation import Examiner, by_second, held_out

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
        with TrajectoryLog(file) as log:
            for each in episodes:
                log.append(each.trajectory)
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
