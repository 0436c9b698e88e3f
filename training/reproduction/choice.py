"""What validation decides: the prompt that is gone on with, and the seed that is measured.

Test questions have no say here. Knows nothing of how runs are made.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from art_e.runs import Run
from evals.metrics import sample_of
from evals.scored import Scored, load_run
from training.experiments.results import metrics_of

# The prompt that was chosen, and what was found of all of them.
CHOSEN, COMPARED = "chosen.json", "compared.json"


def choose_prompt(
    folder: Path, prompts: Mapping[str, str | None], runs: Mapping[str, Sequence[Run]]
) -> dict[str, Any]:
    """Choose the prompt with the largest share of episodes handled right, the first of equals.

    An episode is handled right where its answer is, or where it abstains rightly; those of all
    models count alike. `runs` has a prompt's run of each model, none where no model reads a
    prompt: then the first stays. Writes
    `chosen.json` and `compared.json` into `folder`; gives what the first holds.
    """
    scored = {name: [one for run in of for one in load_run(run)] for name, of in runs.items() if of}
    share = {name: _share(each) for name, each in scored.items()}
    best = max(share, key=share.__getitem__) if share else next(iter(prompts))
    chosen = {"name": best, "text": prompts[best]}
    rows = [
        {
            "name": name,
            "models": sorted({one.trajectory.model for one in each}),
            "correct": sample_of(each).share([one.correct for one in each]),
            "hallucination": sample_of(each).share([one.wrong for one in each]),
            "turns": sample_of(each).mean([float(one.trajectory.rubric["turns"]) for one in each]),
        }
        for name, each in scored.items()
    ]
    run = Run(folder)
    run.write_json(COMPARED, rows)
    run.write_json(CHOSEN, chosen)
    return chosen


def compared_in(folder: Path) -> tuple[str, list[dict[str, Any]]]:
    """The name of the prompt that was chosen there, and a row for each that was compared."""
    chosen, rows = (json.loads((folder / each).read_text("utf-8")) for each in (CHOSEN, COMPARED))
    return chosen["name"], rows


def chosen_seed(runs: Mapping[int, Path]) -> int:
    """The seed whose best checkpoint handled most of its validation right, the first of equals.

    `runs` has the folder of each seed's GRPO. Raises `UserError` where one can't be read.
    """
    return max(runs, key=lambda seed: _merit(runs[seed]))


def _share(scored: list[Scored]) -> float:
    return sum(each.correct for each in scored) / len(scored)


def _merit(run: Path) -> tuple[float, float]:
    metrics = metrics_of(run)
    step = int(str(metrics["best_checkpoint"]).rpartition("-")[2])
    best = next(each for each in metrics["validation"] if each["step"] == step)
    return best["correct"] or 0.0, -(best["hallucination"] or 0.0)
