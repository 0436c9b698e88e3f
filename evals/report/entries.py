"""What a report compares: each model of each run, with its episodes and their figures."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from art_e.runs import Run
from evals.gpu_time import servings
from evals.hacking import HELD_OUT, step_of, steps_of
from evals.judges.labels import read_labels, stored_agreement
from evals.metrics import model_metrics
from evals.scored import Scored, load_run


@dataclass(frozen=True, slots=True)
class Entry:
    """One model of one run; of a model in training, the episodes of its last step.

    `label` is unique in the report.
    """

    run: Run
    model: str
    label: str
    scored: list[Scored]
    figures: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Measured:
    """A run, its episodes and the models that it measured.

    `by_labels` is each judge's agreement with a person's labels of the run's answers, if any
    (`evals.judges.labels.agreement`).
    """

    run: Run
    scored: list[Scored]
    entries: list[Entry]
    judges: list[str]
    by_labels: dict[str, Any]

    @property
    def timed(self) -> bool:
        """Whether its latencies count: no cache could answer."""
        return not self.run.config.get("cache")


def measure(runs: Sequence[Run]) -> list[Measured]:
    """The runs with their models and figures, in the order given.

    Raises `UserError` where a run has no episode or can't be read.
    """
    loaded = [(run, load_run(run)) for run in runs]
    groups = [(run, group) for run, scored in loaded for group in _by_model(scored)]
    labels = _labels([(run, _model(group)) for run, group in groups])
    labelled = [(run, group, label) for (run, group), label in zip(groups, labels, strict=True)]
    measured = []
    for run, scored in loaded:
        by_labels = stored_agreement(scored, read_labels(run))
        found = Measured(run, scored, [], _judges(scored), by_labels)
        found.entries.extend(
            _entry(run, label, group, found.judges, timed=found.timed)
            for one, group, label in labelled
            if one == run
        )
        measured.append(found)
    return measured


def _by_model(scored: Sequence[Scored]) -> list[list[Scored]]:
    """The episodes of each model; all steps of a training are one, whatever it is called."""
    groups: dict[str | None, list[Scored]] = {}
    for each in scored:
        model = each.trajectory.model if step_of(each) is None else None
        groups.setdefault(model, []).append(each)
    return list(groups.values())


def _model(scored: Sequence[Scored]) -> str:
    return scored[-1].trajectory.model


def _entry(run: Run, label: str, scored: list[Scored], judges: list[str], *, timed: bool) -> Entry:
    model = _model(scored)
    if not steps_of(scored):
        serving = servings(run.config).get(model)
        figures = model_metrics(scored, judges, timed=timed, serving=serving)
        return Entry(run, model, label, scored, figures)
    # The last held-out questions, if there are any, else the last ones trained on.
    chosen = [each for each in scored if each.question.split in HELD_OUT] or scored
    last = steps_of(chosen)[-1]
    newest = [each for each in chosen if step_of(each) == last]
    figures = model_metrics(newest, judges, timed=timed)
    return Entry(run, model, f"{label}, step {last}", newest, figures)


def _judges(scored: Sequence[Scored]) -> list[str]:
    """The judges' names, from the episode that most of them judged."""
    verdicts = max((each.verdicts for each in scored), key=len)
    return [str(verdict["judge"]) for verdict in verdicts]


def _labels(models: Sequence[tuple[Run, str]]) -> list[str]:
    """The models' names, with as much of their runs as tells them apart."""
    names = run_names([run for run, _ in models])
    forms = [
        (
            model,
            f"{model}, prompt {prompt_name(run)}",
            f"{model} in {run.id}",
            f"{model} in {names[run]}",
        )
        for run, model in models
    ]
    rivals = [Counter(of) for of in zip(*forms, strict=True)]
    return [
        next((form for form, those in zip(of, rivals, strict=True) if those[form] == 1), of[-1])
        for of in forms
    ]


def run_names(runs: Iterable[Run]) -> dict[Run, str]:
    """A name for each run: its folder's, with as many folders above as tell it from the others."""
    distinct = list(dict.fromkeys(runs))
    names: dict[Run, str] = {}
    for run in distinct:
        others = [each.folder.parts for each in distinct if each != run]
        own = run.folder.parts
        parts = next(
            (
                own[-count:]
                for count in range(1, len(own))
                if all(each[-count:] != own[-count:] for each in others)
            ),
            own,
        )
        names[run] = str(Path(*parts))
    return names


def prompt_name(run: Run) -> str | None:
    """The name of the prompt that the run's models were given; None where it tells of none."""
    prompt = run.config.get("prompt")
    return str(prompt["name"]) if isinstance(prompt, dict) else None
