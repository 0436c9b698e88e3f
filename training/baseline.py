"""The run of another model that a training run is compared with: the same questions, measured.

Knows nothing of training.
"""

from pathlib import Path
from typing import Any

from art_e.errors import UserError
from art_e.runs import find_run
from evals.benchmark import fingerprint
from training.material import load_material
from training.recipe import Recipe
from training.validation import held_out


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
