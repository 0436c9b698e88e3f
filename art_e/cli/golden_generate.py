"""`art-e golden generate`: have a model write questions about batches of mails."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from art_e.cli.clean import one_line
from art_e.cli.golden_options import SetOption, chosen_new_set, print_step, set_in
from art_e.cli.golden_progress import live
from art_e.cli.models import HOSTED_CONCURRENCY, MaxCostOption, mail_notice
from art_e.cli.options import DbOption, JsonOption, chosen_db, db_argument, example
from art_e.cli.output import console, note, plural, print_json, print_line, progress, text
from art_e.errors import UserError

if TYPE_CHECKING:
    from data_pipeline.golden.generate import Lost, Plan, Progress


def generate(
    model: Annotated[
        str, typer.Option("--model", "-m", help="Any litellm name.")
    ] = "gemini/gemini-2.5-pro",
    seed: Annotated[
        int, typer.Option("--seed", help="Another seed draws other splits and mails.")
    ] = 0,
    batches: Annotated[
        int, typer.Option("--batches", metavar="N", min=1, help="Batches of 20 mails an inbox.")
    ] = 25,
    questions: Annotated[
        int, typer.Option("--questions", metavar="N", min=1, help="Asked for of each batch.")
    ] = 8,
    train: Annotated[
        int, typer.Option("--train", metavar="N", min=0, help="Inboxes to train on.")
    ] = 18,
    validation: Annotated[
        int, typer.Option("--validation", metavar="N", min=0, help="Inboxes to validate on.")
    ] = 2,
    test: Annotated[
        int, typer.Option("--test", metavar="N", min=0, help="Inboxes to test on.")
    ] = 8,
    min_mails: Annotated[
        int, typer.Option("--min-mails", metavar="N", min=1, help="That an inbox has to hold.")
    ] = 500,
    inboxes: Annotated[
        list[str] | None,
        typer.Option(
            "--inbox",
            metavar="ADDRESS",
            help="Use this inbox; may be repeated [default: the largest of persons].",
        ),
    ] = None,
    concurrency: Annotated[
        int, typer.Option("--concurrency", metavar="N", min=1, help="Requests at a time.")
    ] = HOSTED_CONCURRENCY,
    max_cost: MaxCostOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tell what would be asked and its cost; ask nothing.")
    ] = False,
    db: DbOption = None,
    out: SetOption = None,
    json_output: JsonOption = False,
) -> None:
    """Draw batches of mails from the largest inboxes; a model writes questions about each.

    Replies are kept as they arrive. The same command again asks only for what is missing,
    be it that it was killed, that --max-cost was reached or that the provider failed.
    """
    from art_e.inbox.file import InboxFile
    from art_e.policies.secrets import load_env
    from data_pipeline.golden.asking import Asker, spent_on
    from data_pipeline.golden.generate import (
        TEMPERATURE,
        Options,
        check_same,
        make_plan,
        settings_of,
    )
    from data_pipeline.golden.generate import generate as run
    from data_pipeline.golden.golden_set import held
    from data_pipeline.golden.inboxes import Counts

    load_env()
    notice = _notice(model)
    named = tuple(inboxes or ())
    counts = Counts(train, validation, test)
    options = Options(seed, counts, min_mails, named, batches, questions)
    with InboxFile(chosen_db(db)) as file:
        if dry_run:
            with progress("batches read", None) as advance:
                planned = make_plan(file, options, model, advance)
            _print_plan(planned, as_json=json_output)
            return
        folder = chosen_new_set(out)
        with held(folder):
            golden = set_in(folder)
            check_same(golden, settings_of(file, options, model))
            asker = Asker(
                model,
                folder,
                "generate",
                concurrency=concurrency,
                max_cost_usd=max_cost,
                temperature=TEMPERATURE,
            )
            with progress("batches read", None) as advance:
                planned = make_plan(file, options, model, advance)
            for line in [*planned.notes, notice, f"estimate: {planned.estimate}"]:
                note(line)
            if kept := spent_on(folder, "generate", model).calls:
                note(f"{kept:,} kept of an earlier run are not paid for again")
            later = golden.later("generate")
            with live("batches", len(planned.batches)) as show:
                lost = run(
                    file,
                    golden,
                    asker,
                    planned,
                    lambda state: show(told(state, planned.estimate.usd)),
                )
            golden.save(folder)
    _note_lost(lost, len(planned.batches))
    print_step(golden, "generate", folder, later, as_json=json_output)
    if not json_output:
        note(f"the set is in {folder}; next: art-e golden filter{db_argument(db)} --out {folder}")


def _notice(model: str) -> str:
    """One line on where mail text goes. Raises `UserError` for what can't write questions."""
    from art_e.policies.choose import LOCAL_PREFIX

    if model == "offline":
        raise UserError(
            "questions are written by a model; those of the synthetic world need none:"
            " art-e golden import world.questions.jsonl"
        )
    if model.startswith(LOCAL_PREFIX):
        raise UserError(
            "a checkpoint can't be asked in this process: art-e serve it,"
            " and name it as --model hosted_vllm/NAME"
        )
    from art_e.policies.host import receiving_host

    host = receiving_host(model)
    assert host is not None, f"{model} is neither offline nor local"
    return mail_notice(model, host)


def _note_lost(lost: "Sequence[Lost]", batches: int) -> None:
    """Tell which batches gave nothing, why, and what to do."""
    for kind, count in sorted(Counter(each.kind for each in lost).items()):
        reason = next(each.reason for each in lost if each.kind == kind)
        note(f"{count:,} of {batches:,} batches gave nothing ({kind}): {reason}")
    if any(each.kind == "budget" for each in lost):
        note("the same command with a higher --max-cost asks for those that are missing")
    elif any(each.kind != "unreadable" for each in lost):
        note("the same command again asks for those that are missing")


def _print_plan(plan: "Plan", *, as_json: bool) -> None:
    """What would be asked: of which inboxes, how much, and at what cost."""
    rows = [
        {
            "address": address,
            "split": split,
            "batches": sum(batch.inbox == address for batch in plan.batches),
            "mails": sum(
                len(batch.message_ids) for batch in plan.batches if batch.inbox == address
            ),
        }
        for address, split in plan.splits.items()
    ]
    if as_json:
        print_json(
            {
                "model": plan.model,
                "inboxes": rows,
                "estimate": plan.estimate._asdict(),
                "notes": plan.notes,
            }
        )
        return
    from rich.table import Table

    table = Table("inbox", "split", "batches", "mails", box=None, pad_edge=False)
    for column in table.columns[2:]:
        column.justify = "right"
    for row in rows:
        counts = [f"{row[each]:,}" for each in ("batches", "mails")]
        table.add_row(text(str(row["address"])), str(row["split"]), *counts)
    console().print(table)
    for line in plan.notes:
        note(line)
    print_line(f"{one_line(plan.model)}: {plan.estimate}")


def told(state: "Progress", expected_usd: float | None) -> str:
    """What is said beside the number of batches."""
    said = [plural(state.questions, "question")]
    if state.cost_usd is None:
        said.append("cost unknown")
    elif expected_usd is None:
        said.append(f"${state.cost_usd:.2f}")
    else:
        said.append(f"${state.cost_usd:.2f} of about ${expected_usd:,.2f}")
    if state.lost:
        said.append(f"{len(state.lost)} lost")
    return ", ".join(said)


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(
        "generate",
        epilog=example(
            "art-e golden generate --dry-run",
            "art-e golden generate --db enron.duckdb --out golden --max-cost 40",
            "art-e golden generate --inbox me@example.com --test 1 --train 0 --validation 0"
            " --model ollama_chat/qwen2.5:14b",
        ),
    )(generate)
