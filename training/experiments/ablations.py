"""GRPO from one start, with a part of the reward left out: what each does to the test.

`VARIANTS` are changes to a recipe. "no abstention band" pays "I don't know" where something
answers as a wrong answer; "0/1 reward" pays 1 for a right answer and else 0, and asks answerable
questions only in training, while validation and test keep the others. Knows nothing of how runs
are made.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from art_e.question import KINDS
from evals.report.charts import Bar, BarChart, Mark, Scale
from training.experiments.chain import Job, carry_out
from training.experiments.pages import cell, shown, table, write_page, write_picture
from training.experiments.pooled import Asked, Measure, asked_alike
from training.experiments.results import (
    ABSTENTION,
    ACCURACY,
    EFFORT_RIGHT,
    INVENTED,
    TURNS,
    WAYS,
    episodes_of_test,
)
from training.recipe import load_recipe

MEASURES = (EFFORT_RIGHT, TURNS, INVENTED, ABSTENTION, ACCURACY)
START = "the start"


def variants(recipe: str, changes: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """By name, the changes of each variant to the recipe."""
    asked = load_recipe(recipe, changes).data.kinds or KINDS
    answerable = [each for each in asked if each != "unanswerable"]
    return {
        "full reward": (),
        "no effort component": ("reward.effort=0",),
        "no abstention band": ('reward.scheme="no-abstention-band"',),
        "0/1 reward, answerable only": (
            'reward.scheme="binary"',
            f"data.train_kinds={json.dumps(answerable)}",
        ),
    }


def run_ablations(
    out: Path, recipe: str, seeds: Sequence[int], changes: Sequence[str], start: Path | None
) -> str:
    """Make the runs that are missing in `out`, write `ablations.md` and `ablations.png`; the page.

    All begin from `start`, or from a start made in `out` with the first seed.
    """
    made, changed = tuple(changes), variants(recipe, changes)
    if start is None:
        start = out / "start"
        carry_out([Job("sft", start, recipe, seeds[0], made)])
    folders: dict[str, list[Path]] = {START: [start]}
    for name, own in changed.items():
        slug = "-".join("".join(each if each.isalnum() else " " for each in name).split())
        folders[name] = [out / f"{slug}-{seed}" for seed in seeds]
        carry_out(
            [
                Job("grpo", folder, recipe, seed, (*made, *own), start)
                for folder, seed in zip(folders[name], seeds, strict=True)
            ]
        )
    read = {name: [episodes_of_test(each) for each in runs] for name, runs in folders.items()}
    parts = [f"# {recipe}: the reward with a part left out"]
    parts.append(f"GRPO from one start, {len(seeds)} seeds; 95 % intervals.")
    for way in WAYS:
        asked = {name: asked_alike([each[way] for each in runs]) for name, runs in read.items()}
        parts += [f"## {way}, n = {len(asked[START].runs[0])} questions a run", compared(asked)]
        if way == "sampled":
            write_picture(out / "ablations.png", bars(asked))
            parts.append("![the figures as bars](ablations.png)")
    return write_page(out / "ablations.md", parts)


def compared(asked: Mapping[str, Asked]) -> str:
    """The table: a row for each variant, a column for each measure."""
    rows = [
        [
            name,
            *(
                shown(each, runs.pool.mean(runs.matrix(each), share=each.share))
                for each in MEASURES
            ),
        ]
        for name, runs in asked.items()
    ]
    return table(["", *(each.title for each in MEASURES)], rows)


def bars(asked: Mapping[str, Asked]) -> list[BarChart]:
    """A chart for each measure, a bar with its interval for each variant."""
    return [_chart(each, asked) for each in MEASURES]


def _chart(measure: Measure, asked: Mapping[str, Asked]) -> BarChart:
    drawn = []
    for name, runs in asked.items():
        estimate = runs.pool.mean(runs.matrix(measure), share=measure.share)
        mark = Mark(
            estimate["value"], cell(measure, estimate).line, estimate["low"], estimate["high"]
        )
        drawn.append(Bar(name, (mark,)))
    title = measure.title[0].upper() + measure.title[1:]
    scale: Scale = "share" if measure.share else "number"
    return BarChart(measure.name, title, "On the test, sampled.", scale, tuple(drawn))
