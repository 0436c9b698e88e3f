"""The model card of a training run: its README.md, in the form of the Hugging Face hub.

Every figure is one of the run's metrics, and one that they do not have is "not measured".
What recipes, judges and alarms say is escaped, so that it can be nothing but text where
Markdown is shown. Knows nothing of how training is done.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import ModelCardData

from art_e.files import write_whole
from art_e.markdown import Own, template
from art_e.public import is_hub_id, public_model, public_name
from training.recipe import Recipe, load_recipe, recipe_names
from training.tables import EpisodeForm

CARD = "README.md"
UNKNOWN = "not measured"
_SPAN = " to "
# The figures that are told where they were measured, in this order.
_LABELS = {
    "n": "questions asked",
    "correct": "handled right (right answers and right abstentions)",
    "accuracy": "accuracy (answerable questions)",
    "unanswerable_accuracy": "accuracy (unanswerable questions)",
    "hallucination": "hallucination (wrong answers, all questions)",
    "hallucination_unanswerable": "hallucination (unanswerable questions)",
    "abstention": "abstention (all questions)",
    "turns": "turns an episode",
    "effort": "effort an episode",
    "turns_when_correct": "turns, answer right",
    "effort_when_correct": "effort, answer right",
    "format_errors": "format errors an episode",
    "reward": "reward, by its own judge",
}
_BASELINE = ("n", "accuracy", "unanswerable_accuracy", "hallucination", "abstention", "turns")
_PLAIN = re.compile(r"[\w./-]+", re.ASCII)
_STEP = re.compile(r"checkpoint-(\d+)$")


class Copy(NamedTuple):
    """A checkpoint that is shared: its card lies beside the weights.

    `checkpoint` is its name in the run, `best` whether validation chose it. `adapter_to` is
    the hub id of the model that it stands on; None: it is whole.
    """

    checkpoint: str
    best: bool
    adapter_to: str | None


class _Table(NamedTuple):
    """Columns by their titles, and rows of a label and a cell for each column."""

    columns: list[str]
    rows: list[tuple[str, list[str]]]

    @property
    def intervals(self) -> bool:
        """Whether a cell has one."""
        return any(_SPAN in each for _, cells in self.rows for each in cells)


def write_card(
    folder: Path,
    *,
    recipe: Recipe,
    kind: str,
    seed: int,
    metrics: Mapping[str, Any],
    baseline: Mapping[str, Any] | None,
) -> None:
    """Write README.md into a run's folder, whole or not at all.

    `kind` is "sft" or "grpo". `metrics` is the run's `metrics.json`; its `test`, where there
    is one, maps figures to numbers or estimates (`evals.intervals`), or names such as "greedy"
    to such figures. `baseline` is the `metrics.json` of an `art-e eval run` on the same
    questions, or figures likewise.
    """
    text = card(recipe=recipe, kind=kind, seed=seed, metrics=metrics, baseline=baseline)
    write_whole(folder / CARD, text)


def card(
    *,
    recipe: Recipe,
    kind: str,
    seed: int,
    metrics: Mapping[str, Any],
    baseline: Mapping[str, Any] | None,
    copy: Copy | None = None,
) -> str:
    """The text of the card; see `write_card`. With `copy` it is that of a shared checkpoint."""
    best = metrics.get("best_checkpoint")
    has_best = isinstance(best, str) and _PLAIN.fullmatch(best) is not None
    own = _own_recipe(recipe)
    base = recipe.model.base if copy is None or copy.adapter_to is None else copy.adapter_to
    is_adapter = recipe.model.lora is not None if copy is None else copy.adapter_to is not None
    text = template("training", "card.md.j2").render(
        front_matter=Own(_front_matter(kind, base, is_adapter=is_adapter)),
        kind=kind,
        recipe=recipe,
        seed=str(seed),
        base=None if base is None else public_name(base),
        questions=None if recipe.data.questions is None else public_name(recipe.data.questions),
        recipe_option=Own(recipe.name if own is not None else "RECIPE.toml"),
        own_recipe=own is not None,
        changed=own is not None and own != recipe,
        has_best=has_best,
        copy=copy,
        adapter_to=None if copy is None or copy.adapter_to is None else Own(copy.adapter_to),
        recipe_file=Own("config.json" if copy is None else "recipe.json"),
        checkpoint=Own(f"RUN/{best if has_best else 'checkpoints/CHECKPOINT'}"),
        validation=_validation(metrics),
        test=_table(_parts(metrics.get("test"), "test"), list(_LABELS)),
        baseline=_table(_parts(baseline, "baseline"), _BASELINE),
        baseline_given=baseline is not None,
        hours=_hours(metrics.get("seconds")),
        tokens=_figure(metrics.get("tokens")),
        money=_money(metrics.get("cost_usd")),
        alarms=metrics.get("alarms"),
        own_form=_is_own(recipe.episode),
        unknown=UNKNOWN,
    )
    return f"{text.rstrip()}\n"


def _front_matter(kind: str, base: str | None, *, is_adapter: bool) -> str:
    """What the hub reads. No license: that of the base is not known here."""
    data = ModelCardData(
        base_model=base if base is not None and is_hub_id(base) else None,
        language="en",
        library_name="peft" if is_adapter else "transformers",
        pipeline_tag="text-generation",
        tags=["art-e", "email", "agent", "retrieval", kind],
    )
    return str(data.to_yaml())


def _own_recipe(recipe: Recipe) -> Recipe | None:
    """The recipe of that name that comes with the project; None where none does."""
    if recipe.name not in recipe_names():
        return None
    return load_recipe(recipe.name)


def _validation(metrics: Mapping[str, Any]) -> _Table:
    """The first, the best and the last of the validations."""
    rows = [each for each in metrics.get("validation") or () if isinstance(each, dict)]
    if not rows:
        return _Table([], [])
    named = _STEP.search(str(metrics.get("best_checkpoint")))
    best = [each for each in rows if named and each.get("step") == int(named[1])][:1]
    chosen = {"first": rows[0], **({"best": best[0]} if best else {}), "last": rows[-1]}
    titled = {f"{name} (step {_figure(row.get('step'))})": row for name, row in chosen.items()}
    return _table(titled, [name for name in _LABELS if name != "unanswerable_accuracy"], every=True)


def _parts(figures: Mapping[str, Any] | None, title: str) -> dict[str, Mapping[str, Any]]:
    """Figures by the title of their column: of an eval run's models, of named parts, or alone."""
    if not figures:
        return {}
    parts = figures.get("models", figures)
    if any(name in parts and _is_figure(parts[name]) for name in _LABELS):
        return {title: parts}
    return {public_model(name): each for name, each in parts.items() if isinstance(each, dict)}


def _is_figure(value: Any) -> bool:
    """Whether it is a number or an estimate, and no part that happens to have a figure's name."""
    return not isinstance(value, dict) or "value" in value


def _table(
    parts: Mapping[str, Mapping[str, Any]],
    names: Sequence[str],
    *,
    every: bool = False,
) -> _Table:
    """A row for each figure of `names` that a part has; with `every`, for each."""
    rows = [
        (_LABELS[name], [_figure(part.get(name)) for part in parts.values()])
        for name in names
        if every or any(name in part for part in parts.values())
    ]
    return _Table(list(parts), rows)


def _figure(value: Any) -> str:
    """A number or an estimate as it is shown."""
    if isinstance(value, dict):
        shown = _figure(value.get("value"))
        if shown == UNKNOWN or value.get("low") is None or value.get("high") is None:
            return shown
        span = f"{_figure(value['low'])}{_SPAN}{_figure(value['high'])}"
        return f"{shown} ({span}, n = {_figure(value.get('n'))})"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return UNKNOWN
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


def _hours(seconds: Any) -> str:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return UNKNOWN
    return f"{seconds / 3600:.2f} hours ({seconds:,.0f} seconds)"


def _money(usd: Any) -> str:
    if isinstance(usd, bool) or not isinstance(usd, int | float):
        return UNKNOWN
    return f"{usd:,.2f} USD"


def _is_own(form: EpisodeForm) -> bool:
    """Whether episodes are held otherwise than the commands do without `--recipe`."""
    usual = EpisodeForm()
    return (form.view, form.prompt, form.max_turns) != (usual.view, usual.prompt, usual.max_turns)
