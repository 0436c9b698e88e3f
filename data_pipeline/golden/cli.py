"""`art-e golden`: make a set of questions whose answers are known to be right."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from rich import box
from rich.table import Table

from art_e.cli.options import (
    HOSTED_CONCURRENCY,
    DbOption,
    JsonOption,
    MaxCostOption,
    chosen_db,
    chosen_split,
    db_argument,
)
from art_e.cli.output import (
    console,
    example,
    note,
    one_line,
    plural,
    print_json,
    print_line,
    progress,
    shown_usd,
    text,
)
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.models.model import Model
from art_e.privacy import load_env
from art_e.storage import default_golden
from art_e.text import cut_line
from data_pipeline.golden import (
    export,
    filtering,
    generate,
    importing,
    model_checks,
    review,
    split,
    stats,
    verify,
)
from data_pipeline.golden.asking import Asker, left_of, responses_folder, settled_on, spent_on
from data_pipeline.golden.golden_set import READY, SET_FILES, GoldenSet, Step, check_db, held
from data_pipeline.golden.inboxes import MIN_MAILS, TEST, TRAIN, VALIDATION, Counts
from data_pipeline.golden.offline_reader import WordChecks
from data_pipeline.sharing import (
    DryRunOption,
    PrivateOption,
    PushOption,
    ToOption,
    destination,
    send,
)
from evals.judges import choose_judge, needs_model, spent_by
from evals.judges.offline import Judge

app = typer.Typer(
    help="Make a set of questions with known answers, and check it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

# ---- Options and steps.

SetOption = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="DIR", help="Folder of the golden set [default: golden in ART_E_HOME]."
    ),
]
SetArgument = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the golden set.")]
ModelOption = typer.Option("--model", "-m", help="Any litellm name.")
TrainOption = Annotated[
    int, typer.Option("--train", metavar="N", min=0, help="Number of inboxes to train on.")
]
ValidationOption = Annotated[
    int, typer.Option("--validation", metavar="N", min=0, help="Number of inboxes to validate on.")
]
TestOption = Annotated[
    int, typer.Option("--test", metavar="N", min=0, help="Number of inboxes to test on.")
]
ConcurrencyOption = Annotated[
    int, typer.Option("--concurrency", metavar="N", min=1, help="Number of parallel requests.")
]
LINE_EVERY_S = 10.0


class _Opened(NamedTuple):
    file: InboxFile
    golden: GoldenSet
    folder: Path


@contextmanager
def _step(
    step: Step, folder: Path, db: Path | None, *, as_json: bool, is_new: bool = False
) -> Iterator[_Opened]:
    """Open the set in `folder`, save what the step makes of it, and print its counts."""
    if is_new:
        _check_new(folder)
    with InboxFile(chosen_db(db)) as file, held(folder):
        if is_new and not (folder / "manifest.json").exists():
            golden = GoldenSet()
        else:
            golden = GoldenSet.load(folder)
        if not is_new:
            check_db(golden, file)
        later = golden.later(step)
        yield _Opened(file, golden, folder)
        golden.save(folder, export.card(golden))
    if later:
        note(f"{step} anew: {', '.join(later)} must be run again")
    record: dict[str, Any] = golden.manifest["steps"][step]
    if as_json:
        print_json({"set": str(folder), "step": step, **record})
        return
    sums = record["sums"]
    print_line(f"{step}: {plural(sums['in'], 'row')}, {sums['kept']:,} kept")
    for what in ("dropped", "mended", "unsure"):
        for check, count in sums[what].items():
            print_line(f"  {count:>7,}  {what}: {one_line(check)}")


def _check_new(folder: Path) -> None:
    """Raise `UserError` if the folder has files with the names of a set's, but no set."""
    # READY is there if a save was killed.
    if any((folder / each).exists() for each in ("manifest.json", READY)):
        return
    for each in SET_FILES:
        if (folder / each).exists():
            raise UserError(
                f"{folder} holds other files, and a {each}; name a new folder with --out"
            )


@contextmanager
def live(things: str, total: int) -> Iterator[Callable[[str], None]]:
    """A progress bar, and now and then a line with the status; call the function for each thing."""
    done, last = 0, time.monotonic()
    with progress(things, total) as advance:

        def show(status: str) -> None:
            nonlocal done, last
            advance()
            done += 1
            if time.monotonic() - last >= LINE_EVERY_S:
                last = time.monotonic()
                note(f"{done:,} of {total:,} {things}, {status}")

        yield show


def _table(title: str, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; numbers stand on the right, and texts from outside are made safe."""
    table = Table(title=title, box=box.SQUARE)
    shown = [
        [f"{each:,}" if isinstance(each, int) else one_line(str(each)) for each in row]
        for row in rows
    ]
    if not shown:
        return
    for number, heading in enumerate(headings):
        is_number = all(row[number][:1] in "-0123456789" for row in shown)
        table.add_column(text(one_line(heading)), justify="right" if is_number else "left")
    for row in shown:
        table.add_row(*map(text, row))
    console().print(table)


def _line(line: str) -> None:
    console().print(text(one_line(line)), soft_wrap=True)


def _refuse_local(model: str) -> None:
    if Model(model).kind == "local":
        raise UserError(
            "a checkpoint can't be asked in this process: art-e serve it,"
            " and name it as --model hosted_vllm/NAME"
        )


# ---- generate and import.


@app.command(
    "generate",
    epilog=example(
        "art-e golden generate --dry-run",
        "art-e golden generate --db enron.duckdb --out golden --max-cost 40",
        "art-e golden generate --inbox me@example.com --test 1 --train 0 --validation 0"
        " --model ollama_chat/qwen2.5:14b",
    ),
)
def generate_command(
    model: Annotated[str, ModelOption] = "gemini/gemini-2.5-pro",
    seed: Annotated[
        int, typer.Option("--seed", help="Another seed draws other splits and mails.")
    ] = 0,
    batches: Annotated[
        int,
        typer.Option("--batches", metavar="N", min=1, help="Number of 20-mail batches an inbox."),
    ] = generate.BATCHES,
    questions: Annotated[
        int, typer.Option("--questions", metavar="N", min=1, help="Number of questions a batch.")
    ] = generate.QUESTIONS,
    train: TrainOption = TRAIN,
    validation: ValidationOption = VALIDATION,
    test: TestOption = TEST,
    min_mails: Annotated[
        int,
        typer.Option(
            "--min-mails", metavar="N", min=1, help="Minimum number of mails in an inbox."
        ),
    ] = MIN_MAILS,
    inboxes: Annotated[
        list[str] | None,
        typer.Option(
            "--inbox",
            metavar="ADDRESS",
            help="Use this inbox; may be repeated [default: the largest of persons].",
        ),
    ] = None,
    concurrency: ConcurrencyOption = HOSTED_CONCURRENCY,
    max_cost: MaxCostOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the requests and their cost; ask nothing.")
    ] = False,
    db: DbOption = None,
    out: SetOption = None,
    json_output: JsonOption = False,
) -> None:
    """Draw batches of mails from the largest inboxes; a model writes questions about each.

    Replies are kept as they arrive. After a kill, a reached --max-cost or a failure of the
    provider, the same command asks only for what is missing.
    """
    load_env()
    if model == "offline":
        raise UserError(
            "questions are written by a model; those of the synthetic world need none:"
            " art-e golden import world.questions.jsonl"
        )
    _refuse_local(model)
    notice = str(Model(model).notice)
    counts = Counts(train, validation, test)
    options = generate.Options(seed, counts, min_mails, tuple(inboxes or ()), batches, questions)
    if dry_run:
        with InboxFile(chosen_db(db)) as file, progress("batches read", None) as advance:
            planned = generate.make_plan(file, options, model, advance)
        _print_plan(planned, as_json=json_output)
        return
    folder = out or default_golden()
    with _step("generate", folder, db, as_json=json_output, is_new=True) as (file, golden, _):
        generate.check_same(golden, generate.settings_of(file, options, model))
        asker = Asker(
            model,
            folder,
            "generate",
            concurrency=concurrency,
            max_cost_usd=max_cost,
            temperature=generate.TEMPERATURE,
        )
        with progress("batches read", None) as advance:
            planned = generate.make_plan(file, options, model, advance)
        for line in [*planned.notes, notice, f"estimate: {planned.estimate}"]:
            note(line)
        if kept := spent_on(folder, "generate", model).calls:
            note(f"{kept:,} kept of an earlier run are not paid for again")
        with live("batches", len(planned.batches)) as show:
            lost = generate.generate(
                file, golden, asker, planned, lambda state: show(_status(state, planned))
            )
    for kind, count in sorted(Counter(each.kind for each in lost).items()):
        reason = next(each.reason for each in lost if each.kind == kind)
        note(f"{count:,} of {len(planned.batches):,} batches gave nothing ({kind}): {reason}")
    _note_retry({each.kind for each in lost} - {"unreadable"}, "asks for those that are missing")
    if not json_output:
        note(f"the set is in {folder}; next: art-e golden filter{db_argument(db)} --out {folder}")


def _status(state: generate.Progress, plan: generate.Plan) -> str:
    cost = shown_usd(state.cost_usd, 2)
    if state.cost_usd is not None and plan.estimate.usd is not None:
        cost += f" of about ${plan.estimate.usd:,.2f}"
    lost = f", {state.lost} lost" if state.lost else ""
    return f"{plural(state.questions, 'question')}, {cost}{lost}"


def _note_retry(kinds: set[str], does: str) -> None:
    """Say what to do about calls that failed for reasons of these kinds."""
    if "budget" in kinds:
        note(f"the same command with a higher --max-cost {does}")
    elif kinds:
        note(f"the same command again {does}")


def _print_plan(plan: generate.Plan, *, as_json: bool) -> None:
    rows = []
    for address, name in plan.splits.items():
        drawn = [len(batch.message_ids) for batch in plan.batches if batch.inbox == address]
        rows.append({"address": address, "split": name, "batches": len(drawn), "mails": sum(drawn)})
    if as_json:
        estimate = plan.estimate._asdict()
        data = {"model": plan.model, "inboxes": rows, "estimate": estimate, "notes": plan.notes}
        print_json(data)
        return
    _table("inboxes", ("inbox", "split", "batches", "mails"), [list(row.values()) for row in rows])
    for line in plan.notes:
        note(line)
    print_line(f"{one_line(plan.model)}: {plan.estimate}")


@app.command(
    "import",
    epilog=example(
        "art-e golden import corbt/enron_emails_sample_questions --db enron.duckdb --out golden",
        "art-e golden import world.questions.jsonl --db world.duckdb --out world-golden",
    ),
)
def import_command(
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="Parquet or JSONL file, a folder of them, hub id."),
    ],
    db: DbOption = None,
    out: SetOption = None,
    json_output: JsonOption = False,
) -> None:
    """Read questions, check their inboxes and gold mails, report the other offline checks.

    Rows that are not questions, or whose inbox or gold mail the inbox file lacks, are
    rejected with the reason. The report drops nothing: filter and verify do.
    """
    folder = out or default_golden()
    if Path(source).exists() and Path(source).resolve().is_relative_to(folder.resolve()):
        raise UserError(f"{source} lies in {folder}, where the set is written; name another --out")
    with _step("import", folder, db, as_json=json_output, is_new=True) as (file, golden, _):
        made = golden.manifest["steps"].get("import", {})
        if golden.manifest["steps"] and made.get("source") != importing.source_name(source):
            raise UserError(f"{folder} holds another golden set; name another --out")
        if made and made.get("digest") != importing.source_digest(source):
            raise UserError(
                f"{folder} holds a golden set of other rows than {source} has; name another --out"
            )
        with progress("rows checked", None) as advance:
            importing.import_questions(file, golden, source, advance)
    if json_output:
        return
    report = golden.manifest["steps"]["import"]["report"]
    _table(
        "checks that need no model (they drop nothing yet)",
        ("check", "passed", "failed", "unsure", "for example"),
        [
            [name, *(found[each] for each in ("passed", "failed", "unsure")), example_row]
            for name, found in report.items()
            for example_row in [
                next((f"{each['id']}: {each['reason']}" for each in found["examples"]), "")
            ]
        ],
    )
    note(f"the set is in {folder}; next: art-e golden filter{db_argument(db)} --out {folder}")


# ---- filter, verify and split.


@app.command(
    "filter", epilog=example("art-e golden filter --db enron.duckdb --out golden --min-realism 0.6")
)
def filter_command(
    db: DbOption = None,
    out: SetOption = None,
    min_realism: Annotated[
        float,
        typer.Option(
            "--min-realism", metavar="X", min=0.0, max=1.0, help="Least realism, from 0 to 1."
        ),
    ] = filtering.MIN_REALISM,
    json_output: JsonOption = False,
) -> None:
    """Drop questions that break a rule, and duplicates; each is kept with its reason.

    Rules: an answer, cited mails that are in the inbox, no message ids, no answer in the
    question, the owner's own words, and realism. A rerun starts from the rows before it.
    """
    folder = out or default_golden()
    with _step("filter", folder, db, as_json=json_output) as (file, golden, _):
        filtering.filter_rows(file, golden, min_realism=min_realism)
    if not json_output:
        note(
            "dropped rows are in rejected.jsonl; next: art-e golden verify"
            f"{db_argument(db)} --out {folder}"
        )


DEFAULT_MODEL = "gemini/gemini-2.5-flash"


@app.command(
    "verify",
    epilog=example(
        "art-e golden verify --db inbox.duckdb --out golden --max-cost 5",
        "art-e golden verify --db world.duckdb --out golden --model offline",
        "art-e golden verify --out golden --model openai/o3 --judge openai/gpt-4.1 --strict",
    ),
)
def verify_command(
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
            help="Model that compares answers, or offline"
            f" [default: {DEFAULT_MODEL}, offline if the model is].",
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Also drop rows with an unsure or missing check.")
    ] = False,
    concurrency: ConcurrencyOption = HOSTED_CONCURRENCY,
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

    A superseded answer becomes a latest-update question. A rerun asks only for missing
    replies. Without a model (offline) nothing is dropped: what words alone make suspect is
    unsure.
    """
    if model == "offline" and judge not in (None, "offline"):
        raise UserError(
            f"without a model there is no answer for {judge} to judge;"
            " leave out --judge, or name a --model"
        )
    folder = out or default_golden()
    with _step("verify", folder, db, as_json=json_output) as opened:
        golden = opened.golden
        golden.undo("verify")
        checks: verify.Checks
        reader: Asker | None = None
        chosen: Judge = choose_judge("offline")
        judged_before: float | None = 0.0
        if model == "offline":
            note("offline: words alone can't find a wrong answer; name a model with --model")
            checks = WordChecks()
        else:
            reader, chosen, judged_before = _reader_and_judge(
                opened, model, judge or DEFAULT_MODEL, concurrency, max_cost
            )
            checks = model_checks.ModelChecks(reader, chosen)

        with live("rows", len(golden.questions)) as show:
            verify.verify(
                opened.file,
                golden,
                checks,
                strict=strict,
                concurrency=concurrency,
                on_row=lambda: show(shown_usd(_spent(reader, chosen, judged_before))),
            )
        if reader is not None:
            usd = _spent(reader, chosen, judged_before)
            note("cost unknown" if usd is None else f"cost so far: ${usd:.4f}")
    unchecked = golden.manifest["steps"]["verify"]["unchecked"]
    for check, why in unchecked.items():
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in why.items())
        note(f"not checked: {check} of {plural(sum(why.values()), 'row')} ({reasons})")
    kinds = {reason for why in unchecked.values() for reason in why}
    _note_retry(kinds - {"unparseable"}, "makes the checks that are missing")


def _spent(reader: Asker | None, judge: Judge, judged_before: float | None) -> float | None:
    """USD of all replies so far; None if a price is unknown."""
    judged = spent_by(judge)
    costs = (judged_before, reader.spent_usd if reader else 0.0, judged.cost_usd if judged else 0.0)
    return None if None in costs else sum(filter(None, costs))


def _reader_and_judge(
    opened: _Opened, model: str, judge: str, concurrency: int, max_cost: float | None
) -> tuple[Asker, Judge, float | None]:
    """Reader, judge and what the judge cost in earlier runs; notes where mail goes and the cost."""
    file, golden, folder = opened
    _refuse_local(model)
    verify.refuse_own_rows(golden, model)
    note(str(Model(model).notice))
    if judge != model and needs_model(judge):
        note(f"questions and answers go to {Model(judge).host} (judge {judge})")
    expected = model_checks.estimate_cost(file, golden, model, judge)
    note(f"estimate: {expected}; replies of an earlier run are not paid for again")
    judged_before = settled_on(folder, "judge", judge) if needs_model(judge) else 0.0
    readers = judges = None
    if max_cost is not None:
        # Shares of one limit, so that both together keep it.
        readers = max_cost * expected.reader_share
        judges = left_of(max_cost - readers, judged_before or 0.0)
        note(f"limit: ${readers:.4f} for the reader, ${max_cost - readers:.4f} for the judge")
    reader = Asker(model, folder, "read", concurrency=concurrency, max_cost_usd=readers)
    cache = responses_folder(folder, "judge", judge)
    return reader, choose_judge(judge, max_cost_usd=judges, cache=cache), judged_before


@app.command(
    "split",
    epilog=example(
        "art-e golden split --db enron.duckdb --out golden",
        "art-e golden split --seed 7 --train 10 --validation 2 --test 4 --out golden",
    ),
)
def split_command(
    seed: Annotated[int, typer.Option("--seed", help="Another seed draws other inboxes.")] = 0,
    train: TrainOption = TRAIN,
    validation: ValidationOption = VALIDATION,
    test: TestOption = TEST,
    db: DbOption = None,
    out: SetOption = None,
    json_output: JsonOption = False,
) -> None:
    """Split the set by inbox; drop rows whose gold mails another split knows.

    Inboxes that have splits already, from generate or from the rows, keep them; others are
    drawn by --seed in the given proportions. No mail, copies included, stays gold in two
    splits, and no mail of a test inbox in train or validation; rows go from train first,
    never from test.
    """
    folder = out or default_golden()
    with _step("split", folder, db, as_json=json_output) as (file, golden, _):
        split.split(file, golden, seed=seed, wanted=Counts(train, validation, test))
    record: dict[str, Any] = golden.manifest["steps"]["split"]
    if not json_output:
        print_leaks(record["leaks"])
    inboxes: dict[str, int] = record["inboxes"]
    counts = ", ".join(f"{count} {name}" for name, count in inboxes.items())
    origin = {
        "generate": "as generate drew them (--seed and the numbers of inboxes have no effect)",
        "rows": "as the rows came with them (--seed and the numbers of inboxes have no effect)",
        "seed": f"drawn by seed {seed}",
    }[record["splits_from"]]
    note(f"{plural(sum(inboxes.values()), 'inbox')}: {counts}, {origin}")
    wanted = record.get("proportions", {})
    lacking = [name for name, count in inboxes.items() if wanted.get(name) and not count]
    if record["splits_from"] == "seed" and sum(inboxes.values()) == 1:
        note("a single inbox can't be split: all its rows are in one split")
    elif lacking:
        note(f"too few inboxes for all splits: none is in {' and '.join(lacking)}")
    used = {each.split for each in golden.questions}
    if empty := [name for name, count in inboxes.items() if count and name not in used]:
        note(f"no row is left in {' and '.join(empty)}")


# ---- stats.

_LEAKS = {
    "shared_gold": "mails that are gold in both",
    "gold_in_inboxes": "gold mails of the first in inboxes of the second",
    "shared_questions": "questions of the same words in both",
}
# The split step drops rows for these.
_FORBIDDEN = {
    *(("shared_gold", pair) for pair in ("train/validation", "train/test", "validation/test")),
    *(("gold_in_inboxes", pair) for pair in ("train/test", "validation/test")),
}


def print_leaks(leaks: dict[str, Any]) -> None:
    """Print what splits have in common, before rows were dropped and after."""
    rows: list[list[object]] = [
        [label + " *" * ((name, pair) in _FORBIDDEN), pair, count, leaks["after"][name][pair]]
        for name, label in _LEAKS.items()
        for pair, count in leaks["before"][name].items()
    ]
    rows += [
        ["mails that inboxes of both hold", pair, count, count]
        for pair, count in leaks["shared_mails"].items()
    ]
    title = "what splits have in common (*: not allowed, such rows were dropped)"
    _table(title, ("", "splits", "before", "after"), rows)
    for each in leaks["same_people"]:
        whose = " and ".join(f"{inbox} ({name})" for inbox, name in each["inboxes"].items())
        _line(f"maybe one person, in two splits: {whose} are both named {each['name']!r}")
    if leaks["unknown_gold"]:
        _line(f"{plural(leaks['unknown_gold'], 'gold mail')} not in the inbox file: not checked")


def print_stats(figures: dict[str, Any]) -> None:
    """Print the figures of `data_pipeline.golden.stats`."""
    _line(f"{plural(figures['rows'], 'row')}, {figures['rejected']:,} rejected")
    splits = list(figures["days"])
    groups = {"kind": "kinds", "difficulty": "difficulties", "answer": "answerable"}
    _table(
        "rows",
        ("by", "", *splits, "all", "share"),
        [
            [by, label, *counts.values(), sum(counts.values()), share]
            for by, group in groups.items()
            for label, counts in figures[group].items()
            for share in [f"{sum(counts.values()) / figures['rows']:.1%}"]
        ],
    )
    _table(
        "inboxes",
        ("inbox", "split", "rows", "kinds"),
        [
            [each["inbox"], each["split"], each["rows"], kinds]
            for each in figures["inboxes"]
            for kinds in [", ".join(f"{kind} {count}" for kind, count in each["kinds"].items())]
        ],
    )
    _table(
        "days",
        ("split", "asked on", "gold mails sent on (UTC)"),
        [
            [name, _days(each["query"]), _days(each["gold"])]
            for name, each in figures["days"].items()
        ],
    )
    if figures["rows"] and figures["leaks"] is None:
        _line("art-e golden split finds out when gold mails were sent")
    for what, lengths in figures["lengths"].items():
        if lengths["words"]["median"] is not None:
            parts = [f"{unit}: median {of['median']:g}, p95 {of['p95']:g}"
                     for unit, of in lengths.items()]  # fmt: skip
            _line(f"{what}s in {'; '.join(parts)}")
    _print_steps(figures)
    if figures["leaks"] is not None:
        print_leaks(figures["leaks"])
    for each in figures["spent"]:
        replies = "" if each["replies"] is None else f"{each['replies']:,} replies, "
        tokens = f"{each['prompt_tokens']:,} + {each['completion_tokens']:,} tokens"
        cost = shown_usd(each["cost_usd"], 2)
        _line(f"{each['role']} ({each['model'] or 'model unknown'}): {replies}{tokens}, {cost}")
    for fault in figures["unbalanced"]:
        _line(f"the sums do not balance: {fault}")
    if not figures["unbalanced"]:
        _line("the sums of all steps balance")


def _days(found: dict[str, Any] | None) -> str:
    if found is None or found["first"] is None:
        return "unknown"
    undated = f", {found['undated']:,} undated" if found.get("undated") else ""
    return f"{found['first']} to {found['last']}{undated}"


def _print_steps(figures: dict[str, Any]) -> None:
    sums = ("dropped", "mended", "unsure")
    _table(
        "steps",
        ("step", "in", "kept", *sums),
        [
            [each["step"], each["in"], each["kept"], *(sum(each[what].values()) for what in sums)]
            for each in figures["steps"]
        ],
    )
    _table(
        "dropped",
        ("step", "check", "rows", "for example"),
        [
            [drop["step"], drop["check"], drop["rows"], "; ".join(map(_example, drop["examples"]))]
            for drop in figures["drops"]
        ],
    )
    columns = ("step", "check", "passed", "unsure", "failed", "without")
    _table(
        "checks of the kept rows (without: not made, or not for these rows)",
        columns,
        [[each[name] for name in columns] for each in figures["checks"]],
    )
    for each in figures["unchecked"]:
        _line(f"{each['step']}, {each['check']} not checked: {each['rows']:,} ({each['reason']})")


def _example(row: dict[str, str]) -> str:
    name, question, reason = (cut_line(row[key], 100) for key in ("id", "question", "reason"))
    return f"{name}: {question} ({reason})" if question else reason


@app.command(
    "stats", epilog=example("art-e golden stats golden", "art-e golden stats golden --json")
)
def stats_command(folder: SetArgument, json_output: JsonOption = False) -> None:
    """Print the set's figures; draw lengths, dates, kinds and dropped rows in DIR/plots."""
    from data_pipeline.golden.plots import write_plots  # matplotlib is slow to load

    golden = GoldenSet.load(folder)
    figures = stats.stats(golden, folder)
    if json_output:
        print_json({"set": str(folder), **figures})
    else:
        print_stats(figures)
    plots = folder / "plots"
    try:
        written = write_plots(golden, figures, plots)
    except OSError as error:
        # A read-only set has figures too.
        note(f"no plots: can't write to {plots}: {error.strerror}")
    else:
        note(f"{plural(len(written), 'plot')} in {plots}")


# ---- review and export.


@app.command(
    "review",
    epilog=example(
        "art-e golden review golden/ --db inbox.duckdb --sample 100 --split test",
        "art-e golden review golden/ --db inbox.duckdb --apply --json",
    ),
)
def review_command(
    folder: SetArgument,
    sample: Annotated[
        int | None,
        typer.Option("--sample", metavar="N", min=1, help="Number of rows [default: 100]."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Another seed draws another sample [default: 0].")
    ] = None,
    split_name: Annotated[
        str | None,
        typer.Option("--split", metavar="SPLIT", help="Only rows of train, validation or test."),
    ] = None,
    reviewer: Annotated[
        str | None,
        typer.Option("--reviewer", metavar="NAME", help="Who reviews; kept in reviews.jsonl."),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Apply earlier reviews, and show nothing.")
    ] = False,
    db: DbOption = None,
    as_json: JsonOption = False,
) -> None:
    """Review a random sample by hand, and measure how much of the set is right.

    A dropped row leaves the set, and an edit changes it. The precision is the share of the
    sample that was right as it stood: an edited row was not.
    """
    of_split = chosen_split(split_name)
    with _step("review", folder, db, as_json=as_json) as (file, golden, _):
        golden.undo("review")
        earlier = review.read_reviews(folder)
        if apply and not earlier:
            raise UserError(f"there are no reviews in {folder}; leave --apply out to make some")
        # Earlier reviews bring the sample of the last one.
        last = earlier[-1].sample if apply else review.Sample()
        chosen = review.Sample(
            size=sample or last.size,
            seed=last.seed if seed is None else seed,
            split=of_split or last.split,
        )
        rows = review.drawn(golden.questions, chosen)
        if not rows:
            of = f" of split {chosen.split}" if chosen.split else ""
            raise UserError(f"{folder} has no question{of} to review; name another set or --split")
        if not apply:
            person = review.Reviewer(folder, file, chosen, reviewer, to_stderr=as_json)
            given = person.review(rows, earlier)
            note(f"{plural(given, 'review')} added to {review.reviews_file(folder)}")
        review.review(file, golden, review.read_reviews(folder), chosen)
    record = golden.manifest["steps"]["review"]
    precision, of = record["precision"], record["split"] or "all splits"
    if precision["value"] is None:
        note(f"no row of the sample of {of} is reviewed; the precision is not known")
        return
    note(
        f"precision {precision['value']:.1%} ({precision['low']:.1%} to {precision['high']:.1%},"
        f" {precision['method']}): {record['kept']} of {plural(record['reviewed'], 'row')} of"
        f" {of} were right as they stood; an edited row was not"
    )
    if record["stale"]:
        note(f"{plural(record['stale'], 'row')} changed after the review: not applied")


@app.command(
    "export",
    epilog=example(
        "art-e golden export golden --to published",
        "art-e golden export golden --to published --push me/my-questions --dry-run",
        "art-e golden export golden --to published --push me/my-questions",
    ),
)
def export_command(
    folder: SetArgument,
    to: ToOption,
    push: PushOption = None,
    private: PrivateOption = True,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Write Parquet and JSONL of each split with a card, for load_dataset and --questions.

    Rejected rows are left out. If a row has no split, all are written as one file, questions.
    """
    chosen = destination(push, private, dry_run)
    golden = GoldenSet.load(folder)
    parts = export.export(golden, to)
    left_out = len(golden.rejected)
    if not json_output:
        for name, count in parts.items():
            print_line(f"{count:>7,}  {name}")
        note(f"written to {to}; {plural(left_out, 'rejected row')} left out")
        if any(each.split is None for each in golden.questions):
            note(f"some rows have no split; art-e golden split --out {folder} gives them one")
    pushed = send(
        to,
        chosen,
        "dataset",
        export.contents(golden),
        replaces=export.QUESTION_FILES,
        message="Golden set",
        as_json=json_output,
    )
    if json_output:
        data = {"to": str(to), "questions": parts, "rejected_left_out": left_out}
        print_json({**data, **pushed})
