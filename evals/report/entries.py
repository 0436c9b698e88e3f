"""What a report compares: each model of each run, with its episodes and their figures."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from art_e.runs import Run
from evals.judges.quality import figures_in
from evals.metrics import load_costed
from evals.scored import HELD_OUT, Scored


@dataclass(frozen=True, slots=True)
class Entry:
    """One model of one run, with the judges of the run and its own figures.

    `label` is unique in the report. Of a model in training, `scored` has the episodes of the last
    step alone, and the figures are over these.
    """

    run: Run
    model: str
    label: str
    episodes: list[Scored]
    scored: list[Scored]
    judges: list[str]
    figures: dict[str, Any]


def measure(runs: Sequence[Run]) -> list[Entry]:
    """The models of the runs with their figures, in the order given.

    Raises `UserError` if a run has no episode or can't be read.
    """
    groups = []
    for run in runs:
        scored = load_costed(run)
        # From the episode that most judges judged.
        verdicts = max((each.verdicts for each in scored), key=len)
        judges = [str(verdict["judge"]) for verdict in verdicts]
        models: dict[str | None, list[Scored]] = {}
        for each in scored:
            # All steps of a training are one model, whatever it is called.
            models.setdefault(each.trajectory.model if each.step is None else None, []).append(each)
        groups += [(run, judges, group) for group in models.values()]
    labels = _labels([(run, group[-1].trajectory.model) for run, _, group in groups])
    return [_entry(label, *group) for label, group in zip(labels, groups, strict=True)]


def _entry(label: str, run: Run, judges: list[str], episodes: list[Scored]) -> Entry:
    model, scored = episodes[-1].trajectory.model, episodes
    if episodes[-1].step is not None:
        # The last held-out questions, if there are any, else the last ones trained on.
        held_out = [each for each in episodes if each.question.split in HELD_OUT] or episodes
        last = max(each.step or 0 for each in held_out)
        scored = [each for each in held_out if each.step == last]
        label = f"{label}, step {last}"
    figures = figures_in(run, model, scored, judges)
    return Entry(run, model, label, episodes, scored, judges, figures)


def _labels(models: Sequence[tuple[Run, str]]) -> list[str]:
    """The models' names, with the prompt or the run where several have the same name."""
    names = run_names([run for run, _ in models])
    forms = []
    for run, model in models:
        prompt = (run.config.get("prompt") or {}).get("name")
        forms.append((model, f"{model}, prompt {prompt}", f"{model} in {names[run]}"))
    used = Counter(form for of in forms for form in of)
    return [next((form for form in of if used[form] == 1), of[-1]) for of in forms]


def run_names(runs: Iterable[Run]) -> dict[Run, str]:
    """A name for each run: its folder's, or its path if several folders have that name."""
    distinct = list(dict.fromkeys(runs))
    used = Counter(run.id for run in distinct)
    return {run: run.id if used[run.id] == 1 else str(run.folder) for run in distinct}
