"""SFT, then GRPO, for several seeds: what training gains on the test questions.

The figures of the start (the SFT run's best checkpoint) and of the end (the GRPO run's), over
questions and seeds, sampled and greedy, with the gain; questions about strangers, names that
training has not, apart; the validations of all seeds as curves. Knows nothing of how runs are made.
"""

from collections.abc import Sequence
from pathlib import Path

from evals.report.charts import Curve, CurveChart, Mark, Scale
from training.experiments.chain import Job, carry_out
from training.experiments.pages import finite, shown, table, write_page, write_picture
from training.experiments.pooled import Asked, asked_alike
from training.experiments.results import (
    ABSTENTION,
    ACCURACY,
    EFFORT_RIGHT,
    FORMAT_ERRORS,
    HALLUCINATION,
    INVENTED,
    TURNS_RIGHT,
    WAYS,
    episodes_of_test,
    metrics_of,
    minutes,
)

MEASURES = (
    ACCURACY,
    INVENTED,
    HALLUCINATION,
    ABSTENTION,
    FORMAT_ERRORS,
    TURNS_RIGHT,
    EFFORT_RIGHT,
)
CURVES: tuple[tuple[str, str, Scale], ...] = (
    ("accuracy", "Accuracy, held out", "share"),
    ("hallucination_unanswerable", "Hallucination on unanswerable, held out", "share"),
    ("format_errors", "Format errors an episode, held out", "number"),
    ("effort_when_correct", "Effort when correct, held out", "number"),
)


def run_seeds(out: Path, recipe: str, seeds: Sequence[int], changes: Sequence[str]) -> str:
    """Make the runs that are missing in `out`, write `seeds.md` and `seeds.png`; the page."""
    made = tuple(changes)
    starts = {seed: out / f"sft-{seed}" for seed in seeds}
    ends = {seed: out / f"grpo-{seed}" for seed in seeds}
    for seed in seeds:
        carry_out(
            [
                Job("sft", starts[seed], recipe, seed, made),
                Job("grpo", ends[seed], recipe, seed, made, starts[seed]),
            ]
        )
    before, after = list(starts.values()), list(ends.values())
    write_picture(out / "seeds.png", curves(after, [f"seed {each}" for each in seeds]))
    took = minutes([*before, *after]) / len(seeds)
    return write_page(
        out / "seeds.md",
        [
            f"# {recipe}, {len(seeds)} seeds",
            f"95 % intervals over questions and seeds; {took:.1f} minutes a seed.",
            *_tables(before, after),
            "![validations of all seeds](seeds.png)",
        ],
    )


def gains(before: Asked, after: Asked) -> list[list[str]]:
    """A row for each measure: its title, before, after, and the gain, with intervals."""
    pool = before.pool
    rows = []
    for each in MEASURES:
        first, last = before.matrix(each), after.matrix(each)
        told = [pool.mean(values, share=each.share) for values in (first, last)]
        rows.append(
            [
                each.title,
                *(shown(each, estimate) for estimate in told),
                shown(each, pool.gain(first, last), gain=True),
            ]
        )
    return rows


def curves(folders: Sequence[Path], labels: Sequence[str]) -> list[CurveChart]:
    """The validations of the runs, a chart for each of `CURVES` that one of them has."""
    validations = [metrics_of(each)["validation"] for each in folders]
    charts = []
    for name, title, scale in CURVES:
        drawn = tuple(
            Curve(
                label,
                tuple(row["step"] for row in rows),
                tuple(Mark(finite(row.get(name)), "") for row in rows),
            )
            for label, rows in zip(labels, validations, strict=True)
        )
        if any(mark.value is not None for curve in drawn for mark in curve.marks):
            note = "By a judge that is not the reward's; sampled."
            charts.append(CurveChart(name, title, note, scale, drawn))
    return charts


def _tables(before: Sequence[Path], after: Sequence[Path]) -> list[str]:
    parts = []
    for part, named in (("", ""), ("strangers", ", names that training has not")):
        first, last = ([episodes_of_test(each, part) for each in runs] for runs in (before, after))
        for way in WAYS:
            pair = [[each[way] for each in runs] for runs in (first, last)]
            if not any(run for runs in pair for run in runs):
                continue
            # Both sides together: the pairs of a gain are of the same questions.
            asked = asked_alike([run for runs in pair for run in runs]).runs
            sides = Asked(asked[: len(before)]), Asked(asked[len(before) :])
            parts += [f"## {way}{named}, n = {len(asked[0])} questions a seed", _gains(*sides)]
    return parts


def _gains(before: Asked, after: Asked) -> str:
    return table(["", "before", "after", "gain"], gains(before, after))
