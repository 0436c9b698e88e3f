"""`art-e eval label` and `art-e eval judge`: human labels of answers, and the judges' agreement.

`label` shows the question, the gold answer, the answer and the mails as the model read them, but
neither the model nor a verdict. All of these are untrusted text from the run's folder."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from typer import Exit, Option

from art_e.cli import output
from art_e.cli.mail import mail_excerpt
from art_e.cli.model_options import HOSTED_CONCURRENCY, MaxCostOption
from art_e.cli.options import JsonOption, RunArgument
from art_e.errors import UserError
from art_e.models.model import Model, full_name
from art_e.runs import find_run
from art_e.storage import runs_folder
from art_e.trajectory import exchanges
from evals.judges import LlmJudge, choose_judge, labels, needs_model
from evals.report.tables import number, percent
from evals.scored import Judge, Scored, Verdict, limited_gather, load_run

_JUDGES = "offline, f1 or a model; may be repeated: the first decides [default: offline]."
_judge = Option("--judge", metavar="JUDGE", parser=full_name, help=_JUDGES)
JudgesOption = Annotated[list[str] | None, _judge]

ByJudge = dict[str, list[labels.JudgedCase]]

KEYS = "[r]ight [w]rong [s]kip [q]uit"


def label(name: RunArgument) -> None:
    """Label a run's answers by hand in random order, without seeing its verdicts. You can stop at
    any time and continue later."""
    run = find_run(name, runs_folder())
    chosen = labels.episodes_to_label(load_run(run))
    if not chosen:
        raise UserError(f"{run.id} has no judged answer to label; name another run")
    earlier = labels.read_labels(run)
    left = [each for each in chosen if each.trajectory.episode_id not in earlier]
    count = 0
    for place, scored in enumerate(left, start=len(chosen) - len(left) + 1):
        _show(scored, f"{place} of {len(chosen)}")
        key = output.read_key(KEYS, "rwsq", "labels")
        if key == "q":
            break
        if key != "s":
            labels.write_label(run, scored.trajectory.episode_id, correct=key == "r")
            count += 1
    output.note(f"{output.plural(count, 'label')} added to {labels.labels_file(run)}")
    output.note(f"art-e eval judge --run {name} compares the verdicts with them")


def _show(scored: Scored, heading: str) -> None:
    question, trajectory, show = scored.question, scored.trajectory, output.print_text
    gold = "(no mail has the answer)" if question.answer is None else question.answer
    show((f"\n{heading}", "dim"))
    # The mails that were read, once each, as the model saw them.
    calls = [call for exchange in exchanges(trajectory.messages) for call in exchange.calls]
    results = [call.results[0] for call in calls if call.results]
    mails = {str(each.get("message_id")): each for each in results if "body" in each}
    for name, mail in mails.items():
        fields = (str(mail.get(key, "")) for key in ("date", "from", "subject", "body"))
        date, sender, subject, body = fields
        cited = trajectory.handles.get(name, name) in trajectory.sources
        show(mail_excerpt(date, sender, subject, body, "cited" if cited else ""))
    asked_on = f"  (asked on {question.query_date})" if question.query_date else ""
    show(("question  ", "dim"), (output.one_line(question.question), "bold"), (asked_on, "dim"))
    show(("gold      ", "dim"), (output.one_line(gold), "green"))
    show(("answer    ", "dim"), (output.one_line(trajectory.final_answer or ""), "yellow"))


def judge(
    names: JudgesOption = None,
    pairs: Annotated[
        Path | None,
        Option(metavar="FILE", help="Labelled pairs [default: reporting half of ART-E's set]."),
    ] = None,
    run: Annotated[
        str | None,
        Option(metavar="RUN", help="Use this run's labels; without --judge, also its verdicts."),
    ] = None,
    max_cost: MaxCostOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure judges on answers that people labelled: agreement, kappa, confusion. --json also has
    the answers that a judge gets wrong. The exit code is 1 if a judge gave no verdict at all."""
    if run is not None:
        if pairs is not None:
            raise UserError("--run has its own answers; leave out --pairs")
        measured, on = _rate_run(run, names, max_cost), f"answers of {run}"
    else:
        cases = [each for each in labels.load_pairs(pairs) if pairs or each.half == "reporting"]
        measured = _rate(names or ["offline"], cases, max_cost)
        on = str(pairs or "the labelled set, reporting half")
    figures = {name: labels.agreement(rated) for name, rated in measured.items()}
    if as_json:
        for name, rated in measured.items():
            figures[name]["wrong"] = [_facts(*each) for each in rated if not each.agrees]
        output.print_json({"on": on, "judges": figures})
    for name, of_judge in () if as_json else figures.items():
        _print_judge(name, on, of_judge)
        for verdict in [one.verdict for one in measured[name] if one.verdict.correct is None][:1]:
            output.print_lines(f"unjudged, left out: {of_judge['unjudged']:,} ({verdict.reason})")
    if any(each["agreement"]["value"] is None for each in figures.values()):
        raise Exit(1)


def _rate_run(name: str, judges: list[str] | None, max_cost: float | None) -> ByJudge:
    run = find_run(name, runs_folder())
    cases = labels.labelled_cases(load_run(run), labels.read_labels(run))
    if not cases:
        raise UserError(f"{run.id} has no labels yet; run art-e eval label {name}")
    if judges:
        return _rate(judges, cases, max_cost)
    ratings = [labels.JudgedCase(case, verdict) for case in cases for verdict in case.stored]
    names = dict.fromkeys(each.verdict.judge for each in ratings)
    return {name: [each for each in ratings if each.verdict.judge == name] for name in names}


def _rate(names: list[str], cases: list[labels.Case], max_cost: float | None) -> ByJudge:
    measured = {}
    for judge in choose_judges(names, max_cost):
        with output.progress("answers", len(cases)) as advance:
            rating = limited_gather(HOSTED_CONCURRENCY, partial(labels.rate, judge), cases, advance)
            measured[judge.name] = asyncio.run(rating)
        note_cost(judge)
    return measured


def choose_judges(names: Sequence[str], max_cost: float | None) -> list[Judge]:
    """Return the judges of these names; note where they send answers and mail."""
    judges = [choose_judge(each, max_cost_usd=max_cost) for each in dict.fromkeys(names)]
    note_recipients(names)
    return judges


def note_recipients(judges: Iterable[str]) -> None:
    """Note where the judges send answers and mail, and which models will be shut down."""
    for name in filter(needs_model, dict.fromkeys(judges)):
        output.note(f"judge: {Model(name).notice}")


def note_cost(judge: Judge) -> None:
    """Note the cost of a judge's calls, if it is a model."""
    if isinstance(judge, LlmJudge):
        spent = judge.spent
        calls, cost = output.plural(spent.calls, "call"), output.format_usd(spent.cost_usd)
        tokens = spent.usage.prompt_tokens + spent.usage.completion_tokens
        output.note(f"{judge.name}: {calls}, {output.plural(tokens, 'token')}, {cost}")


def _facts(case: labels.Case, verdict: Verdict) -> dict[str, Any]:
    return {
        "category": case.category, "question": case.question.question, "gold": case.question.answer,
        "answer": case.answer, "label": case.label, "verdict": verdict.correct,
        "reason": verdict.reason,
    }  # fmt: skip


def _print_judge(name: str, on: str, figures: Mapping[str, Any]) -> None:
    headings = (
        "category", "n", "agreement", "right as right", "right as wrong", "wrong as right",
        "wrong as wrong", "unjudged",
    )  # fmt: skip
    caption = "in brackets: 95 % interval, over judged answers"
    rows = []
    for category, shares in [*sorted(figures["by_category"].items()), ("all", figures)]:
        counts = (*shares["confusion"].values(), shares["unjudged"])
        agreed = percent(shares["agreement"]).brief
        rows.append([category, str(shares["n"]), agreed, *map(str, counts)])
    output.print_table(headings, rows, title=f"{name} on {on}", caption=caption)
    line = f"kappa {number(figures['kappa']).brief}"
    if figures["unsure"]:
        sure = figures["sure"]
        agree = f"agreement {percent(sure['agreement']).brief}, kappa {number(sure['kappa']).brief}"
        line += f"; unsure of {figures['unsure']} of {figures['n']}, and of the others: {agree}"
    if figures["adversarial"]:
        hostile = f"{figures['adversarial_judged_correct']} of {figures['adversarial']}"
        line += f", adversarial answers judged correct: {hostile}"
    output.print_lines(line)
