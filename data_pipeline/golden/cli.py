"""`art-e golden`: make a set of questions whose answers are known to be right."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from art_e.cli.options import (
    HOSTED_CONCURRENCY,
    DbOption,
    JsonOption,
    MaxCostOption,
    chosen_db,
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
from art_e.question import SPLITS
from art_e.text import cut_line
from data_pipeline.golden.asking import Asker, left_of, responses_folder, settled_on, spent_on
from data_pipeline.golden.export import QUESTION_FILES, contents
from data_pipeline.golden.export import export as export_set
from data_pipeline.golden.filtering import STEP, filter_rows
from data_pipeline.golden.generate import (
    TEMPERATURE,
    Lost,
    Options,
    Plan,
    Progress,
    check_same,
    make_plan,
    settings_of,
)
from data_pipeline.golden.generate import generate as run
from data_pipeline.golden.golden_set import GoldenSet, check_db, held
from data_pipeline.golden.importing import import_questions, source_digest, source_name
from data_pipeline.golden.inboxes import Counts
from data_pipeline.golden.output import (
    SetArgument,
    SetOption,
    chosen_new_set,
    chosen_set,
    print_step,
    set_in,
)
from data_pipeline.golden.split import split as apply_split
from data_pipeline.golden.stats import stats as figures_of
from data_pipeline.golden.verify import estimate, refuse_own_rows, spent_usd
from data_pipeline.golden.verify import verify as verify_set
from data_pipeline.sharing import (
    DryRunOption,
    PrivateOption,
    PushOption,
    ToOption,
    destination,
    send,
)
from evals.judges import choose_judge, needs_model
from evals.judges.offline import Judge

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table


from data_pipeline.golden.review import review_command

app = typer.Typer(
    help="Make a set of questions with known answers, and check it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


# ---- How far a golden step that asks models is, with what it has cost so far.

# Without a terminal a line is printed so often at most; what takes less prints none.
LINE_EVERY_S = 10.0


@contextmanager
def live(things: str, total: int) -> Iterator[Callable[[str], None]]:
    """Gives a function to call as each of `total` things is done, with what to say beside it."""
    if not sys.stderr.isatty():
        yield _lines(things, total)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = [
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(f"{things}, {{task.fields[told]}}", markup=False),
        TimeElapsedColumn(),
    ]
    with Progress(*columns, console=console(to_stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total, told="")
        yield lambda told: bar.update(task, advance=1, told=told)


def _lines(things: str, total: int) -> Callable[[str], None]:
    done = 0
    last = time.monotonic()

    def show(told: str) -> None:
        nonlocal done, last
        done += 1
        if time.monotonic() - last >= LINE_EVERY_S:
            last = time.monotonic()
            note(f"{done:,} of {total:,} {things}, {told}")

    return show


# ---- What the golden commands print for people: a set's figures and its leak report in tables.

_EXAMPLE_CHARS = 100
_LEAKS = {
    "shared_gold": "mails that are gold in both",
    "gold_in_inboxes": "gold mails of the first in inboxes of the second",
    "shared_questions": "questions of the same words in both",
}
# What the split step drops rows for; the rest is only told.
_FORBIDDEN = {
    "shared_gold": ("train/validation", "train/test", "validation/test"),
    "gold_in_inboxes": ("train/test", "validation/test"),
}


def print_leaks(leaks: dict[str, Any]) -> None:
    """Print what splits have in common, before rows were dropped and after."""
    table = _table("what splits have in common", ("", "splits", "before", "after"), left=2)
    for name, label in _LEAKS.items():
        before, after = leaks["before"][name], leaks["after"][name]
        for pair in sorted(before, key=_as_splits):
            mark = " *" if pair in _FORBIDDEN.get(name, ()) else ""
            _add(table, label + mark, pair, f"{before[pair]:,}", f"{after[pair]:,}")
    for pair in sorted(leaks["shared_mails"], key=_as_splits):
        count = f"{leaks['shared_mails'][pair]:,}"
        _add(table, "mails that inboxes of both hold", pair, count, count)
    if table.row_count:
        table.caption = "*: not allowed, rows that did it were dropped; the rest is only told"
        console().print(table)
    for each in leaks["same_people"]:
        whose = " and ".join(f"{inbox} ({split})" for inbox, split in each["inboxes"].items())
        _line(f"maybe one person, in two splits: {whose} are both named {each['name']!r}")
    if leaks["unknown_gold"]:
        _line(f"{plural(leaks['unknown_gold'], 'gold mail')} not in the inbox file: not checked")


def _as_splits(pair: str) -> list[int]:

    places = {str(each): place for place, each in enumerate(SPLITS)}
    return [places[part] for part in pair.split("/")]


def print_stats(figures: dict[str, Any]) -> None:
    """Print the figures of `data_pipeline.golden.stats`."""
    _line(f"{plural(figures['rows'], 'row')}, {figures['rejected']:,} rejected")
    if figures["rows"]:
        _print_rows(figures)
        _print_days(figures["days"])
        for line in _lines_golden_tables(figures):
            _line(line)
    _print_steps(figures)
    _print_checks(figures)
    if figures["leaks"] is not None:
        print_leaks(figures["leaks"])
    for each in figures["spent"]:
        _line(_spent(each))
    if figures["unbalanced"]:
        for fault in figures["unbalanced"]:
            _line(f"the sums do not balance: {fault}")
    else:
        _line("the sums of all steps balance")


def _print_rows(figures: dict[str, Any]) -> None:
    splits = list(figures["days"])
    table = _table("rows", ("by", "", *splits, "all", "share"), left=2)
    for by, group in (("kind", "kinds"), ("difficulty", "difficulties"), ("answer", "answerable")):
        for number, (label, counts) in enumerate(figures[group].items()):
            cells = _counts([counts[split] for split in splits], figures["rows"])
            _add(table, "" if number else by, label, *cells)
        table.add_section()
    whole = [sum(counts[split] for counts in figures["kinds"].values()) for split in splits]
    _add(table, "all", "", *_counts(whole, figures["rows"]))
    console().print(table)
    table = _table("inboxes", ("inbox", "split", "rows", "share", "kinds"), left=2)
    table.columns[-1].justify = "left"
    for each in figures["inboxes"]:
        kinds = ", ".join(f"{kind} {count}" for kind, count in each["kinds"].items())
        share = f"{each['rows'] / figures['rows']:.1%}"
        _add(table, each["inbox"], each["split"], f"{each['rows']:,}", share, kinds)
    console().print(table)


def _counts(counts: Sequence[int], of: int) -> list[str]:
    total = sum(counts)
    return [*(f"{count:,}" for count in counts), f"{total:,}", f"{total / of:.1%}"]


def _print_days(days: dict[str, Any]) -> None:
    table = _table("days", ("split", "asked on", "gold mails sent on (UTC)"), left=3)
    for split, each in days.items():
        _add(table, split, _days(each["query"]), _days(each["gold"]))
    console().print(table)
    if all(each["gold"] is None for each in days.values()):
        _line("when gold mails were sent is told by art-e golden split")


def _days(found: dict[str, Any] | None) -> str:
    if found is None or found["first"] is None:
        return "-"
    undated = f", {found['undated']:,} undated" if found.get("undated") else ""
    return f"{found['first']} to {found['last']}{undated}"


def _lines_golden_tables(figures: dict[str, Any]) -> Iterable[str]:
    for what, lengths in figures["lengths"].items():
        words, chars = lengths["words"], lengths["chars"]
        if words["median"] is not None:
            yield (
                f"{what}s: median {words['median']:g} words ({chars['median']:g} characters),"
                f" p95 {words['p95']:g} ({chars['p95']:g})"
            )
    numbers = ", ".join(f"{number}: {count:,}" for number, count in figures["gold_mails"].items())
    yield f"rows by number of gold mails: {numbers}"
    bins = [
        f"{each['from']:.1f}-{each['to']:.1f}: {each['rows']:,}"
        for each in figures["realism"]["bins"]
        if each["rows"]
    ]
    unscored = figures["realism"]["unscored"]
    yield "rows by realism: " + ", ".join(
        bins + ([f"not scored: {unscored:,}"] if unscored else [])
    )
    for mark, count in figures["marks"].items():
        yield f"marked {mark}: {plural(count, 'row')}"


def _print_steps(figures: dict[str, Any]) -> None:
    table = _table("steps", ("step", "in", "kept", "dropped", "mended", "unsure"))
    for each in figures["steps"]:
        sums = (sum(each[what].values()) for what in ("dropped", "mended", "unsure"))
        counts = (each["in"], each["kept"], *sums)
        _add(table, each["step"], *(f"{count:,}" for count in counts))
    console().print(table)
    if not figures["drops"]:
        return
    table = _table("dropped", ("step", "check", "rows", "for example"), left=2)
    table.columns[-1].justify = "left"
    for drop in figures["drops"]:
        cells = [drop["step"], drop["check"], f"{drop['rows']:,}"]
        for row in drop["examples"]:
            _add(table, *cells, _example(row))
            cells = [""] * len(cells)
    console().print(table)


def _example(example: dict[str, str]) -> str:
    name, asked, reason = (one_line(example[key]) for key in ("id", "question", "reason"))
    return f"{_cut(name)}: {_cut(asked)} ({_cut(reason)})" if asked else f"{_cut(reason)}"


def _cut(line: str) -> str:
    return cut_line(line, _EXAMPLE_CHARS)


def _print_checks(figures: dict[str, Any]) -> None:
    if not figures["checks"]:
        return
    columns = ("passed", "unsure", "failed", "without")
    table = _table("checks of the rows that are kept", ("step", "check", *columns), left=2)
    table.caption = "without: the check is not for these rows, or was not made"
    for each in figures["checks"]:
        cells = (f"{each[name]:,}" for name in columns)
        _add(table, each["step"], each["check"], *cells)
    console().print(table)
    for each in figures["unchecked"]:
        _line(f"{each['step']}, {each['check']} not checked: {each['rows']:,} ({each['reason']})")


def _spent(each: dict[str, Any]) -> str:
    replies = "" if each["replies"] is None else f"{each['replies']:,} replies, "
    cost = shown_usd(each["cost_usd"], 2)
    tokens = f"{each['prompt_tokens']:,} + {each['completion_tokens']:,} tokens"
    return f"{each['role']} ({each['model'] or 'model unknown'}): {replies}{tokens}, {cost}"


def _table(title: str, headings: Sequence[str], left: int = 1) -> "Table":
    """A table whose first `left` columns are words, the others figures."""
    from rich.table import Table

    table = Table(title=title)
    for number, heading in enumerate(headings):
        table.add_column(text(one_line(heading)), justify="left" if number < left else "right")
    return table


def _add(table: "Table", *cells: str) -> None:
    """Add a row: whatever a set holds, its cells are lines of plain text."""
    table.add_row(*(text(one_line(cell)) for cell in cells))


def _line(line: str) -> None:
    console().print(text(one_line(line)), soft_wrap=True)


# ---- `art-e golden generate`: have a model write questions about batches of mails.


@app.command(
    "generate",
    epilog=example(
        "art-e golden generate --dry-run",
        "art-e golden generate --db enron.duckdb --out golden --max-cost 40",
        "art-e golden generate --inbox me@example.com --test 1 --train 0 --validation 0"
        " --model ollama_chat/qwen2.5:14b",
    ),
)
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

    if model == "offline":
        raise UserError(
            "questions are written by a model; those of the synthetic world need none:"
            " art-e golden import world.questions.jsonl"
        )
    if Model(model).kind == "local":
        raise UserError(
            "a checkpoint can't be asked in this process: art-e serve it,"
            " and name it as --model hosted_vllm/NAME"
        )

    return str(Model(model).notice)


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


# ---- `art-e golden import`: questions that others wrote, put to an inbox file.


@app.command(
    "import",
    epilog=example(
        "art-e golden import corbt/enron_emails_sample_questions --db enron.duckdb --out golden",
        "art-e golden import world.questions.jsonl --db world.duckdb --out world-golden",
    ),
)
def import_(
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="Parquet or JSONL file, a folder of them, hub id."),
    ],
    db: DbOption = None,
    out: SetOption = None,
    json_output: JsonOption = False,
) -> None:
    """Read questions, check their inboxes and gold mails, report the other offline checks.

    Rows that are no question, or whose inbox or gold mail the inbox file lacks, are
    rejected with the reason. The report drops nothing: filter and verify do.
    """

    folder = chosen_new_set(out)
    _check_source(source, folder)
    with InboxFile(chosen_db(db)) as file, held(folder):
        golden = set_in(folder)
        _check_same(golden, source, folder)
        later = golden.later("import")
        with progress("rows checked", None) as advance:
            import_questions(file, golden, source, advance)
        golden.save(folder)
    print_step(golden, "import", folder, later, as_json=json_output)
    if not json_output:
        print_line("checks that need no model (they drop nothing yet):")
        _print_report(golden.manifest["steps"]["import"]["report"])
        note(f"the set is in {folder}; next: art-e golden filter{db_argument(db)} --out {folder}")


def _check_source(source: str, folder: "Path") -> None:
    """Raise `UserError` where the source is among the files that may be replaced."""
    from pathlib import Path

    path = Path(source)
    if path.exists() and path.resolve().is_relative_to(folder.resolve()):
        raise UserError(f"{source} lies in {folder}, where the set is written; name another --out")


def _check_same(golden: "GoldenSet", source: str, folder: "Path") -> None:
    """Raise `UserError` where the folder's set is of other rows than the source's."""

    steps: dict[str, Any] = golden.manifest["steps"]
    if not steps:
        return
    made = steps.get("import", {})
    if made.get("source") != source_name(source):
        raise UserError(f"{folder} holds another golden set; name another --out")
    if made.get("digest") != source_digest(source):
        raise UserError(
            f"{folder} holds a golden set of other rows than {source} has; name another --out"
        )


def _print_report(report: dict[str, dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table("check", "passed", "failed", "unsure", "such as", box=None, pad_edge=False)
    for column in table.columns[1:4]:
        column.justify = "right"
    for name, found in report.items():
        rows = found["examples"]
        first = one_line(f"{rows[0]['id']}: {rows[0]['reason']}") if rows else ""
        counts = [f"{found[each]:,}" for each in ("passed", "failed", "unsure")]
        table.add_row(text(name), *counts, text(first))
    console().print(table)


# ---- `art-e golden filter`: drop what is wrong by rule, without a model.

# `filtering.MIN_REALISM`, which is not imported for a help page; a test compares them.
MIN_REALISM = 0.7


@app.command(
    "filter",
    epilog=example("art-e golden filter --db enron.duckdb --out golden --min-realism 0.6"),
)
def filter_(
    db: DbOption = None,
    out: SetOption = None,
    min_realism: Annotated[
        float,
        typer.Option(
            "--min-realism", metavar="X", min=0.0, max=1.0, help="Least realism, from 0 to 1."
        ),
    ] = MIN_REALISM,
    json_output: JsonOption = False,
) -> None:
    """Drop questions that break a rule, and duplicates; each is kept with its reason.

    Rules: an answer, cited mails that are in the inbox, no message ids, no answer in the
    question, the owner's own words, and realism. A rerun starts from the rows before it.
    """

    folder = chosen_set(out)
    with InboxFile(chosen_db(db)) as file, held(folder):
        golden = GoldenSet.load(folder)
        check_db(golden, file)
        later = golden.later(STEP)
        filter_rows(file, golden, min_realism=min_realism)
        golden.save(folder)
    print_step(golden, STEP, folder, later, as_json=json_output)
    if not json_output:
        note(
            "dropped rows are in rejected.jsonl; next: art-e golden verify"
            f"{db_argument(db)} --out {folder}"
        )


# ---- `art-e golden verify`: is each answer right, the only one, and to be had from mail alone?

DEFAULT_MODEL = "gemini/gemini-2.5-flash"


@app.command(
    epilog=example(
        "art-e golden verify --db inbox.duckdb --out golden --max-cost 5",
        "art-e golden verify --db world.duckdb --out golden --model offline",
        "art-e golden verify --out golden --model openai/o3 --judge openai/gpt-4.1 --strict",
    )
)
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

    if Model(model).kind == "local":
        raise UserError(
            "a checkpoint can't read for a set in this process: art-e serve it,"
            " and name it as --model hosted_vllm/NAME"
        )
    if model == "offline":
        note("offline: words alone can't tell a wrong answer; name a model with --model")
        return _Asked(None, choose_judge("offline"), 0.0)
    refuse_own_rows(golden, model)
    note(str(Model(model).notice))
    if judge != model and needs_model(judge):
        note(f"questions and answers go to {Model(judge).host} (judge {judge})")
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


# ---- `art-e golden split`: inboxes into train, validation and test, without leaks between them.

# As data_pipeline.golden.inboxes has them, which would cost its imports here.
_TRAIN, _VALIDATION, _TEST = 18, 2, 8


@app.command(
    name="split",
    epilog=example(
        "art-e golden split --db enron.duckdb --out golden",
        "art-e golden split --seed 7 --train 10 --validation 2 --test 4 --out golden",
    ),
)
def split(
    seed: Annotated[int, typer.Option("--seed", help="Another seed draws other inboxes.")] = 0,
    train: Annotated[
        int, typer.Option("--train", metavar="N", min=0, help="Inboxes to train on, in proportion.")
    ] = _TRAIN,
    validation: Annotated[
        int,
        typer.Option("--validation", metavar="N", min=0, help="Inboxes that choose checkpoints."),
    ] = _VALIDATION,
    test: Annotated[
        int, typer.Option("--test", metavar="N", min=0, help="Inboxes to measure on.")
    ] = _TEST,
    db: DbOption = None,
    out: SetOption = None,
    json_output: JsonOption = False,
) -> None:
    """Part the set by inbox; drop rows whose gold mails another split knows.

    Inboxes that have splits already, drawn by generate or carried by the rows, keep them;
    others are drawn by --seed. No mail, copies included, stays gold in two splits, and no
    mail of a test inbox in train or validation; rows go from train first, never from test.
    """

    folder = chosen_set(out)
    with held(folder), InboxFile(chosen_db(db)) as file:
        golden = GoldenSet.load(folder)
        check_db(golden, file)
        later = golden.later("split")
        apply_split(file, golden, seed=seed, wanted=Counts(train, validation, test))
        golden.save(folder)
    record: dict[str, Any] = golden.manifest["steps"]["split"]
    print_step(golden, "split", folder, later, as_json=json_output)
    if not json_output:
        print_leaks(record["leaks"])
    for line in _origin(record):
        note(line)
    empty = [
        name
        for name, inboxes in record["inboxes"].items()
        if inboxes and not any(each.split == name for each in golden.questions)
    ]
    if empty:
        note(f"no row is left in {' and '.join(empty)}")


def _origin(record: dict[str, Any]) -> list[str]:
    """How the inboxes came by their splits, and what follows from their number."""
    inboxes: dict[str, int] = record["inboxes"]
    total = sum(inboxes.values())
    counts = ", ".join(f"{count} {name}" for name, count in inboxes.items())
    if record["splits_from"] != "seed":
        how = {"generate": "as generate drew them", "rows": "as the rows came with them"}
        told = how[record["splits_from"]]
        no_say = "--seed and the numbers of inboxes have no say"
        return [f"{plural(total, 'inbox')}: {counts}, {told} ({no_say})"]
    lines = [f"{plural(total, 'inbox')}: {counts}, drawn by seed {record['seed']}"]
    wanted: dict[str, int] = record["proportions"]
    lacking = [name for name, count in inboxes.items() if wanted[name] and not count]
    if total == 1:
        lines.append(
            "a single inbox can't be parted: all its rows are in one split, since mail that a"
            " model was trained on measures nothing"
        )
    elif lacking:
        lines.append(f"too few inboxes for all splits: none is in {' and '.join(lacking)}")
    return lines


# ---- `art-e golden stats`: what is in a golden set, and what each step dropped and why.


@app.command(
    name="stats",
    epilog=example("art-e golden stats golden", "art-e golden stats golden --json"),
)
def stats(folder: SetArgument, json_output: JsonOption = False) -> None:
    """Print the set's figures; draw lengths, dates, kinds and what was dropped in DIR/plots."""
    from data_pipeline.golden.plots import write_plots

    golden = GoldenSet.load(folder)
    figures = figures_of(golden, folder)
    if json_output:
        print_json({"set": str(folder), **figures})
    else:
        print_stats(figures)
    plots = folder / "plots"
    try:
        written = write_plots(golden, figures, plots)
    except OSError as error:
        # A set that can only be read has figures too.
        note(f"no plots: can't write to {plots}: {error.strerror}")
    else:
        note(f"{plural(len(written), 'plot')} in {plots}")


app.command(
    "review",
    epilog=example(
        "art-e golden review golden/ --db inbox.duckdb --sample 100 --split test",
        "art-e golden review golden/ --db inbox.duckdb --apply --json",
    ),
)(review_command)


# ---- `art-e golden export`: a golden set's folder as others load it, and on the hub if asked.


@app.command(
    epilog=example(
        "art-e golden export golden --to published",
        "art-e golden export golden --to published --push me/my-questions --dry-run",
        "art-e golden export golden --to published --push me/my-questions",
    )
)
def export(
    folder: SetArgument,
    to: ToOption,
    push: PushOption = None,
    private: PrivateOption = True,
    dry_run: DryRunOption = False,
    json_output: JsonOption = False,
) -> None:
    """Write Parquet and JSONL of each split with a card, for load_dataset and --questions.

    Rejected rows are left out. Rows without a split are written as one file, questions.
    """
    chosen = destination(push, private, dry_run)

    golden = GoldenSet.load(folder)
    parts = export_set(golden, to)
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
        contents(golden),
        replaces=QUESTION_FILES,
        message="Golden set",
        as_json=json_output,
    )
    if json_output:
        told = {"to": str(to), "questions": parts, "rejected_left_out": left_out}
        print_json({**told, **pushed})
