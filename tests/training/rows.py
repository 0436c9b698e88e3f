"""Steps and validations as training runs have them, made up."""

import dataclasses
from typing import Any

import numpy as np

from training.progress import Step, Validation

STEPS = 60


def rise(seed: int, steps: int = STEPS, questions: int = 8, rollouts: int = 8) -> list[Step]:
    """A policy that learns: questions differ in difficulty, and their rollouts are alike."""
    rng = np.random.default_rng(seed)
    first, last = rng.uniform(0.2, 0.5), rng.uniform(0.6, 0.9)
    made = []
    for number in range(steps):
        part = number / steps
        accuracy = first + (last - first) * part
        chances = rng.beta(1.5 * accuracy, 1.5 * (1 - accuracy), questions)
        rights = rng.binomial(rollouts, chances)
        total = questions * rollouts
        right = int(rights.sum())
        wrong = int(rng.binomial(total - right, 0.1 + 0.6 * (1 - part)))
        withheld = total - right - wrong
        bonus = float(rng.normal(0, 0.02))
        made.append(
            Step(
                step=number + 1,
                seconds=2.0 * number,
                tokens=10_000 * number,
                learning_rate=3e-4,
                reward=(1.6 * right - 0.9 * wrong + 0.1 * withheld) / total + bonus,
                accuracy=right / total,
                hallucination=wrong / total,
                abstention=withheld / total,
                format_errors=float(rng.poisson(total * (0.02 + 0.3 * (1 - part)))) / total,
                groups=questions,
                # Effort gives most groups a spread, were all of their answers right.
                flat_groups=int(rng.binomial(int(np.isin(rights, (0, rollouts)).sum()), 0.5)),
            )
        )
    return made


def validation(step: int, **figures: Any) -> Validation:
    """One with these figures, and no other but that of its questions."""
    names = [each.name for each in dataclasses.fields(Validation)]
    return Validation(**{**dict.fromkeys(names), "step": step, "n": 200, **figures})
