"""`art-e golden verify`: is each answer right, the only one, and to be had from mail alone?"""

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from art_e.cli.golden_options import SetOption, chosen_set, print_step
from art_e.cli.golden_progress import live
from art_e.cli.models import HOSTED_CONCURRENCY, mail_notice
from art_e.cli.options import DbOption, JsonOption, chosen_db, example
from art_e.cli.output import note, plural, shown_usd
from art_e.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    from art_e.inbox.file import InboxFile
    from data_pipeline.golden.asking import Asker
    from data_pipeline.golden.golden_set import GoldenSet
    from evals.judge import Judge

DEFAULT_MODEL = "gemini/gemini-2.5-flash"


def register(app: typer.Typer) -> None:
    """Add the command to the group."""
    app.command(
        epilog=example(
            "art-e golden verify --db inbox.duckdb --out golden --max-cost 5",
            "art-e golden verify --db world.duckdb --out golden --model offline",
            "art-e golden verify --out golden --model openai/o3 --judge openai/gpt-4.1 --strict",
        )
    )(verify)


def verify(
    model: Annotated[
        str,
        typer.Option(
            "--model", "-m", help="Model that reads the mail, or offline; not the rows' writer."
        ),
    ] = DEFAULT_MODEL,
    judge: Annotated[
        str | None,
        typer.Option(
            "--judge",
            help=f"Model that compares answers, or offline"
            f" [default: {DEFAULT_MODEL}, offline where the model is].",
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Drop rows with an unsure check, or one not made, too.")
    ] = False,
    concurrency: Annotated[
        int, typer.Option("--concurrency", metavar="N", min=1, help="Rows at a time.")
    ] = HOSTED_CONCURRENCY,
    max_cost: Annotated[
        float | None,
        typer.Option(
            "--max-cost",
            metavar="USD",
            min=0,
            help="Stop before reader and judge have cost more together.",
        ),
    ] = None,
    db: DbOption = None,
    out: SetOption = None,
    json_output: JsonOption = False,
) -> None:
    """Check that each row can be answered from its mails, needs them, and has one answer.

    A superseded answer becomes a latest-update question. Run again, it asks only what it
    has no reply to. Without a model (offline) nothing is dropped: what words alone make
    suspect is unsure.
    """
    from art_e.inbox.file import InboxFile
    from data_pipeline.golden.golden_set import GoldenSet, check_db, held
    from data_pipeline.golden.verify import spent_usd
    from data_pipeline.golden.verify import verify as verify_set

    folder, judge_name = chosen_set(out), _judge_name(model, judge)
    with held(folder), InboxFile(chosen_db(db)) as file:
        golden = GoldenSet.load(folder)
        check_db(golden, file)
        later = golden.later("verify")
        golden.undo("verify")
        asked = _asked(file, golden, folder, model, judge_name, concurrency, max_cost)
        with live("rows", len(golden.questions)) as show:
            verify_set(
                file,
                golden,
                asked.reader,
                asked.judge,
                strict=strict,
                concurrency=concurrency,
                judged_before_usd=asked.judged_before_usd,
                on_progress=lambda cost: show(shown_usd(cost)),
            )
        golden.save(folder)
    if asked.reader is not None:
        spent = spent_usd(*asked)
        note("cost unknown" if spent is None else f"cost so far: ${spent:.4f}")
    _note_unchecked(golden)
    print_step(golden, "verify", folder, later, as_json=json_output)


def _judge_name(model: str, judge: str | None) -> str:
    if model != "offline":
        return judge or DEFAULT_MODEL
    if judge not in (None, "offline"):
        raise UserError(
            f"without a model there is no answer for {judge} to judge;"
            " leave out --judge, or name a --model"
        )
    return "offline"


class _Asked(NamedTuple):
    """Who is asked, and what the judge's replies of earlier runs have cost."""

    reader: "Asker | None"
    judge: "Judge"
    judged_before_usd: float | None


def _asked(
    file: "InboxFile",
    golden: "GoldenSet",
    folder: "Path",
    model: str,
    judge: str,
    concurrency: int,
    max_cost: float | None,
) -> _Asked:
    """Reader and judge, ready to be asked; says first where mail goes and what it will cost."""
    from art_e.policies.choose import LOCAL_PREFIX
    from art_e.policies.host import receiving_host
    from art_e.policies.secrets import load_env
    from data_pipeline.golden.asking import Asker, left_of, responses_folder, settled_on
    from data_pipeline.golden.verify import refuse_own_rows
    from data_pipeline.golden.verify_cost import estimate
    from evals.judges import choose_judge, needs_model

    if model.startswith(LOCAL_PREFIX):
        raise UserError(
            "a checkpoint can't read for a set in this process: art-e serve it,"
            " and name it as --model hosted_vllm/NAME"
        )
    if model == "offline":
        note("offline: words alone can't tell a wrong answer; name a model with --model")
        return _Asked(None, choose_judge("offline"), 0.0)
    refuse_own_rows(golden, model)
    load_env()
    host = receiving_host(model)
    assert host is not None  # only a local checkpoint has none, and can't be asked for a form
    note(mail_notice(model, host))
    if judge != model and needs_model(judge):
        note(f"questions and answers go to {receiving_host(judge)} (judge {judge})")
    expected = estimate(file, golden, model, judge)
    note(f"estimate: {expected}; what is kept from an earlier try is not paid again")
    judged_before = settled_on(folder, "judge", judge) if needs_model(judge) else 0.0
    readers = judges = None
    if max_cost is not None:
        # Shares of one limit, so that both together keep it whatever each does.
        readers = max_cost * expected.reader_share
        judges = left_of(max_cost - readers, judged_before or 0.0)
        note(f"limit: ${readers:.4f} for the reader, ${max_cost - readers:.4f} for the judge")
    reader = Asker(model, folder, "read", concurrency=concurrency, max_cost_usd=readers)
    cache = responses_folder(folder, "judge", judge)
    chosen = choose_judge(judge, max_cost_usd=judges, cache=cache)
    return _Asked(reader, chosen, judged_before)


def _note_unchecked(golden: "GoldenSet") -> None:
    """Tell what could not be checked, why, and what to do."""
    unchecked = golden.manifest["steps"]["verify"]["unchecked"]
    for check, why in unchecked.items():
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in why.items())
        note(f"not checked: {check} of {plural(sum(why.values()), 'row')} ({reasons})")
    kinds = {reason for why in unchecked.values() for reason in why}
    if "budget" in kinds:
        note("the same command with a higher --max-cost makes the checks that are missing")
    elif kinds - {"unparseable"}:
        note("the same command again makes the checks that are missing")
