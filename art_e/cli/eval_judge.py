"""`art-e eval judge`: how far can a judge be believed? `art-e eval label`: what a person says.

Judges are measured on the labelled pairs that come with the package, on a file of one's
own, or on the labels that a person gave to a run. Heavy imports are made inside the
functions.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from art_e.cli.clean import one_line
from art_e.cli.eval_label import label
from art_e.cli.models import HOSTED_CONCURRENCY, MaxCostOption
from art_e.cli.options import JsonOption, example
from art_e.errors import UserError

if TYPE_CHECKING:
    from evals.agreement import Case, Rated
    from evals.judge import Judge

Half = Literal["tuning", "reporting", "all"]


def register(app: typer.Typer) -> None:
    """Add the commands `judge` and `label` to the group."""
    app.command(
        epilog=example(
            "art-e eval judge",
            "art-e eval judge --judge offline --judge gemini/gemini-2.5-flash --show-wrong",
            "art-e eval judge --run 20260101-120000-eval",
        )
    )(judge)
    app.command(epilog=example("art-e eval label 20260101-120000-eval --sample 50"))(label)


def judge(
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--judge",
            metavar="NAME",
            help="offline or a litellm name; may be repeated [default: offline].",
        ),
    ] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(
            "--pairs", metavar="FILE", help="Labelled pairs [default: the project's own]."
        ),
    ] = None,
    half: Annotated[
        Half | None, typer.Option("--half", help="Half of the pairs [default: reporting].")
    ] = None,
    run: Annotated[
        str | None,
        typer.Option(
            "--run",
            metavar="RUN",
            help="The answers of this run that art-e eval label has labels for;"
            " without --judge, its own verdicts.",
        ),
    ] = None,
    show_wrong: Annotated[
        bool, typer.Option("--show-wrong", help="Each answer that a judge gets wrong, and why.")
    ] = False,
    max_cost: MaxCostOption = None,
    json_output: JsonOption = False,
) -> None:
    """Measure judges on answers that people labelled: agreement, kappa, confusion."""
    from art_e.cli.output import print_json
    from evals.agreement import agreement

    if run is not None and (pairs is not None or half is not None):
        raise UserError("--run has answers of its own; leave out --pairs and --half")
    if run is not None:
        measured = _on_run(run, names, max_cost)
        on = f"answers of {run}"
    else:
        chosen = half or "reporting"
        measured = _asked(names or ["offline"], _pairs(pairs, chosen), max_cost)
        on = f"{pairs or 'the labelled set'}, {chosen if chosen == 'all' else f'{chosen} half'}"
    figures = {name: agreement(rated) for name, rated in measured.items()}
    if json_output:
        if show_wrong:
            for name, rated in measured.items():
                figures[name]["wrong"] = [_facts(each) for each in rated if not each.agrees]
        print_json({"on": on, "judges": figures})
        return
    for name, rated in measured.items():
        _print_figures(name, on, figures[name])
        if show_wrong:
            _print_wrong([each for each in rated if not each.agrees])


def _pairs(path: Path | None, half: Half) -> "list[Case]":
    from evals.agreement import Case
    from evals.labelled import load_pairs

    chosen = [each for each in load_pairs(path) if half in ("all", each.half)]
    if not chosen:
        raise UserError(f"{path} has no pair of the {half} half; choose another --half")
    return [
        Case(each.asked, each.answer, each.label, each.category, each.adversarial)
        for each in chosen
    ]


def _on_run(
    name: str, judges: list[str] | None, max_cost: float | None
) -> "dict[str, list[Rated]]":
    from art_e.home import runs_folder
    from art_e.runs import find_run
    from evals.labels import labelled_cases, read_labels, stored_ratings
    from evals.scored import load_run

    run = find_run(name, runs_folder())
    scored, labels = load_run(run), read_labels(run)
    cases = labelled_cases(scored, labels)
    if not cases:
        raise UserError(f"nobody has labelled answers of {run.id} yet; art-e eval label {name}")
    return _asked(judges, cases, max_cost) if judges else stored_ratings(scored, labels)


def _asked(
    names: list[str], cases: "Sequence[Case]", max_cost: float | None
) -> "dict[str, list[Rated]]":
    """The verdicts of judges that are asked now, by their names."""
    import asyncio

    from art_e.cli.output import note, progress
    from evals.agreement import rate
    from evals.judges import choose_judge

    judges = [choose_judge(each, max_cost_usd=max_cost) for each in dict.fromkeys(names)]
    for name in dict.fromkeys(names):
        if (where := _receiver(name)) is not None:
            note(f"questions and answers go to {where} ({name})")
    measured = {}
    for each in judges:
        with progress("answers", len(cases)) as advance:
            measured[each.name] = asyncio.run(
                rate(each, cases, concurrency=HOSTED_CONCURRENCY, on_rated=advance)
            )
        note_cost(each)
    return measured


def _receiver(name: str) -> str | None:
    from evals.judges import needs_model

    if not needs_model(name):
        return None
    from art_e.policies.host import receiving_host

    return receiving_host(name)


def note_cost(judge: "Judge") -> None:
    """Say on stderr what a judge's calls have cost; nothing of one that makes none."""
    from art_e.cli.output import note, plural, shown_usd
    from evals.judges import spent_by

    spent = spent_by(judge)
    if spent is not None:
        tokens = spent.usage.prompt_tokens + spent.usage.completion_tokens
        cost = shown_usd(spent.cost_usd)
        note(f"{judge.name}: {plural(spent.calls, 'call')}, {plural(tokens, 'token')}, {cost}")


def _facts(rated: "Rated") -> dict[str, Any]:
    return {
        "category": rated.case.category,
        "question": rated.case.question.question,
        "gold": rated.case.question.answer,
        "answer": rated.case.answer,
        "label": rated.case.label,
        "verdict": rated.verdict.correct,
        "reason": rated.verdict.reason,
    }


def _print_figures(name: str, on: str, figures: dict[str, Any]) -> None:
    from rich.table import Table

    from art_e.cli.output import console, text

    hostile = f"{figures['adversarial_judged_correct']} of {figures['adversarial']}"
    table = Table(
        title=text(one_line(f"{name} on {on}")),
        caption="in brackets: 95 % interval; a missing verdict counts as a wrong one",
    )
    table.add_column("category")
    for heading in (
        "n", "agreement", "right as right", "right as wrong", "wrong as right", "wrong as wrong",
        "unjudged",
    ):  # fmt: skip
        table.add_column(heading, justify="right")
    for category, shares in [*sorted(figures["by_category"].items()), ("all", figures)]:
        cells = [*map(str, shares["confusion"].values()), str(shares["unjudged"])]
        agreed = _estimate(shares["agreement"], percent=True)
        table.add_row(text(one_line(category)), str(shares["n"]), agreed, *cells)
    console().print(table)
    summary = f"kappa {_estimate(figures['kappa'], percent=False)}"
    if figures["adversarial"]:
        summary += f", adversarial answers judged correct: {hostile}"
    console().print(summary, soft_wrap=True)


def _estimate(estimate: dict[str, Any], *, percent: bool) -> str:
    if estimate["value"] is None:
        return "-"
    form = ".1%" if percent else ".2f"
    shown = format(estimate["value"], form)
    if estimate["low"] is None:
        return shown
    return f"{shown} [{estimate['low']:{form}}, {estimate['high']:{form}}]"


def _print_wrong(wrong: "Sequence[Rated]") -> None:
    from art_e.cli.output import console, text

    words = {True: "right", False: "wrong", None: "no verdict"}
    for each in wrong:
        facts = _facts(each)
        gold, answer = (
            "(none)" if facts[name] is None else one_line(facts[name])
            for name in ("gold", "answer")
        )
        console().print(
            text(
                (one_line(facts["question"]), "bold"),
                ("\n  gold    ", "dim"), gold,
                ("\n  answer  ", "dim"), answer,
                ("\n  label   ", "dim"), words[facts["label"]],
                ("\n  judge   ", "dim"),
                f"{words[facts['verdict']]}: {one_line(facts['reason'])}\n",
            ),
            soft_wrap=True,
        )  # fmt: skip
