"""Whether money ran out in a unit: then it is not whole, and is not gone on from.

A figure from half of the questions would be another figure. Knows nothing of what things cost.
"""

import json
from pathlib import Path
from typing import Any

from art_e.errors import UserError
from art_e.runs import Run

# What a model's failure is called where it could have cost more than it may.
_KIND = "budget"


def check_golden(golden: Path) -> None:
    """Raise `UserError` where questions were not written, or not verified, for want of money."""
    steps = json.loads((golden / "manifest.json").read_text("utf-8"))["steps"]
    lost = steps.get("generate", {}).get("batches", {}).get("lost", {}).get(_KIND, 0)
    unchecked: dict[str, dict[str, int]] = steps.get("verify", {}).get("unchecked", {})
    missing = sum(each.get(_KIND, 0) for each in unchecked.values())
    if lost or missing:
        what = f"{lost} batches were not asked for" if lost else f"{missing} checks were not made"
        raise UserError(
            f"{what} within golden.max_cost_usd: give the same command with a higher one, by"
            " --set; what has been paid for is kept"
        )


def check_run(run: Path, field: str) -> None:
    """Raise `UserError` where a model was not asked all questions for want of money, which the
    profile's `field` bounds."""
    models: dict[str, dict[str, Any]] = Run(run).metrics["models"]
    for model, figures in models.items():
        missing = figures.get("not_asked")  # of which runs made before say nothing
        if missing:
            raise UserError(
                f"{missing} of {figures['n'] + missing} questions were not asked of {model} within"
                f" {field} ({figures['stopped']['message']}):"
                f" delete {run}, and give the same command with a higher one, by --set"
            )
