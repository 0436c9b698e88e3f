"""`art-e golden`: make a set of questions whose answers are known to be right."""

from collections import Counter
from collections.abc import Iterator, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option, Typer

from art_e.cli import output
from art_e.cli.model_options import HOSTED_CONCURRENCY, MaxCostOption, model_option
from art_e.cli.options import DbOption, JsonOption, chosen_db, db_argument, integer
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.models.base import OFFLINE
from art_e.models.model import Model, full_name
from art_e.models.providers import ending
from art_e.question import SHIPPED, Split, read_rows
from art_e.ratings import read_ratings
from art_e.storage import default_golden
from art_e.text import cut_line
from data_pipeline.golden import exchange, filtering, generate, review, verify
from data_pipeline.golden.golden_set import GoldenSet, Step, check_db, locked_set, responses_folder
from data_pipeline.golden.inboxes import MIN_MAILS, TEST, TRAIN, VALIDATION, Counts, split
from evals.judges import choose_judge, needs_model
from evals.structured import ResponseCache, StructuredModel

app = Typer(rich_markup_mode=None)

SetOption = Annotated[
    Path | None,
    Option("--out", metavar="DIR", help="Golden-set folder [default: golden in ART_E_HOME]."),
]
SetArgument = Annotated[Path, Argument(metavar="DIR", help="Folder of the golden set.")]
TrainOption = Annotated[int, integer("Number of inboxes to train on.", 0)]
ValidationOption = Annotated[int, integer("Number of inboxes to validate on.", 0)]
TestOption = Annotated[int, integer("Number of inboxes to test on.", 0)]
ConcurrencyOption = Annotated[int, integer("Number of parallel requests.")]
RealismOption = Annotated[float, Option(metavar="X", min=0.0, max=1.0, help="Minimum realism.")]
READER_SHARE = 0.8  # the reader's share of a cost limit for reader and judge
_NEXT = {"generate": "filter", "import": "split", "filter": "verify", "verify": "split"}


@contextmanager
def _step(
    step: Step, out: Path | None, db: Path | None, *, as_json: bool, source: str | None = None
) -> Iterator[tuple[InboxFile, GoldenSet, Path]]:
    """Open the set for a step, then save its rows and print its counts and the next step."""
    folder = out or default_golden()
    with InboxFile(chosen_db(db)) as file, locked_set(folder):
        is_first = step in ("generate", "import")
        golden = GoldenSet.new(folder, step, source) if is_first else GoldenSet.load(folder, step)
        check_db(golden, file)
        yield file, golden, folder
        later = golden.save(folder)
    if later:
        output.note(f"{step} has changed the set; run again: {', '.join(later)}")
    record: dict[str, Any] = golden.manifest["steps"][step]
    if as_json:
        output.print_json({"set": str(folder), "step": step, **record})
        return
    sums = record["sums"]
    output.print_line(f"{step}: kept {sums['kept']:,} of {output.plural(sums['in'], 'row')}")
    for what in ("dropped", "changed", "unsure"):
        for name, count in sums[what].items():
            output.print_line(f"  {count:>7,}  {what}: {output.one_line(name)}")
    if step in _NEXT:
        output.note(f"next: art-e golden {_NEXT[step]}{db_argument(db)} --out {folder}")


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        parts = ((output.one_line(name), each) for name, each in value.items() if each)
        return ", ".join(f"{name} {_cell(each)}" for name, each in parts)
    return f"{value:,}" if isinstance(value, int) else cut_line(output.one_line(str(value)), 100)


def _remaining_cost(limit: float | None, cache: Path, model: str) -> float | None:
    """Return the limit less what earlier replies cost; the budget rejects an invalid limit."""
    if limit is None or not limit >= 0:
        return limit
    return max(0.0, limit - (ResponseCache(cache).spent_on(model).cost_usd or 0))


@app.command("generate")
def generate_command(
    model: Annotated[str, model_option("Any hosted model.")] = "gemini/gemini-3.8-flash",
    seed: Annotated[int, Option(help="Another seed draws other splits and mails.")] = 0,
    batches: Annotated[int, integer("Batches of 8 to 12 mails per inbox.")] = generate.BATCHES,
    questions: Annotated[int, integer("Maximum questions per batch.")] = generate.QUESTIONS,
    train: TrainOption = TRAIN, validation: ValidationOption = VALIDATION, test: TestOption = TEST,
    min_mails: Annotated[int, integer("Minimum number of mails in an inbox.")] = MIN_MAILS,
    inboxes: Annotated[
        list[str] | None,
        Option("--inbox", metavar="ADDRESS", help="Inbox; repeatable [default: people's largest]."),
    ] = None,
    concurrency: ConcurrencyOption = HOSTED_CONCURRENCY, max_cost: MaxCostOption = None,
    db: DbOption = None, out: SetOption = None, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Draw batches of mails from the largest inboxes; a model writes questions about each.

    After a kill, a reached --max-cost or a failure of the provider, the same command asks for
    the missing replies only."""
    if model == OFFLINE:
        why = "questions are written by a model; those of the synthetic world need none"
        raise UserError(f"{why}: art-e golden import world.questions.jsonl")
    counts = Counts(train, validation, test)
    named = tuple(inboxes or ())
    options = generate.GoldenOptions(seed, counts, min_mails, named, batches, questions)
    with _step("generate", out, db, as_json=as_json) as (file, golden, folder):
        cache, temperature = responses_folder(folder, "generate", model), generate.TEMPERATURE
        left = _remaining_cost(max_cost, cache, model)
        writer = StructuredModel(model, max_cost_usd=left, cache=cache, temperature=temperature)
        plan = generate.make_plan(file, options)
        splits = Counter(plan.splits.values())
        requested = output.plural(sum(counts), "inbox")
        output.note(f"{len(plan.splits)} of {requested} requested: {_cell(splits)}")
        output.note(str(Model(model).notice))
        if cached := writer.total_spent.calls:
            output.note(f"{cached:,} replies of earlier runs are reused at no cost")
        with output.progress("batches", len(plan.batches)) as advance:
            lost = generate.generate(golden, writer, plan, concurrency, advance)
        output.note(f"cost so far: {output.format_usd(writer.total_spent.cost_usd)}")
    reasons, failed = dict(lost), f"{len(plan.batches):,} batches failed"
    for kind, count in sorted(Counter(kind for kind, _ in lost).items()):
        output.note(f"{count:,} of {failed} ({kind}): {reasons[kind]}")
    _note_retry(reasons.keys() - {"unreadable"}, "asks for the missing ones")


def _note_retry(kinds: Set[str], effect: str) -> None:
    if "budget" in kinds:
        output.note(f"the same command with a higher --max-cost {effect}")
    elif kinds:
        output.note(f"the same command again {effect}")


@app.command("import")
def import_command(
    source: Annotated[
        str,
        Argument(metavar="SOURCE", help="JSONL, Parquet, a folder, hub id, enron, enron-hard."),
    ],
    db: DbOption = None, out: SetOption = None, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Read questions, and check their inboxes and gold mails.

    Rows that are not questions, or whose inbox or gold mail the inbox file lacks, are
    rejected with the reason."""
    is_path = source not in SHIPPED and Path(source).exists()  # record no private path
    name = Path(source).resolve().name if is_path else source
    with _step("import", out, db, as_json=as_json, source=name) as (file, golden, _):
        exchange.import_rows(file, golden, list(read_rows(source)), name)


@app.command("from-ratings")
def from_ratings(db: DbOption = None, out: SetOption = None, as_json: JsonOption = False) -> None:
    """Make questions from the answers that you rated good or corrected (art-e rate)."""
    ratings = read_ratings()
    if not ratings:
        raise UserError("nothing is rated yet: art-e rate good, after an answer of art-e ask")
    with _step("import", out, db, as_json=as_json, source=exchange.RATINGS) as (file, golden, _):
        rows = list(map(exchange.rated_row, ratings))
        exchange.import_rows(file, golden, rows, exchange.RATINGS)


@app.command("filter")
def filter_command(
    db: DbOption = None, out: SetOption = None, min_realism: RealismOption = filtering.MIN_REALISM,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Drop questions that break a rule, and duplicates; each is kept with its reason.

    Rules: an answer, cited mails that are in the inbox, no message ids, no instructions, no
    password, no answer in the question, more than yes or no, one short fact, no "yesterday", no
    "he" without a name, the mail's language, the owner's own words, and realism."""
    with _step("filter", out, db, as_json=as_json) as (file, golden, _):
        filtering.filter_rows(file, golden, min_realism=min_realism)


READER = "gemini/gemini-3.5-flash-lite"


@app.command("verify")
def verify_command(
    model: Annotated[str, model_option("Model that reads mail; not the rows' writer.")] = READER,
    judge: Annotated[
        str,
        Option(metavar="JUDGE", parser=full_name, help="Model that compares answers, or offline."),
    ] = READER,
    min_realism: RealismOption = filtering.MIN_REALISM,
    strict: Annotated[bool, Option("--strict", help="Also drop unsure or unchecked rows.")] = False,
    concurrency: ConcurrencyOption = HOSTED_CONCURRENCY,
    max_cost: Annotated[
        float | None,
        Option(metavar="USD", min=0, help="Cost limit of reader and judge together."),
    ] = None,
    db: DbOption = None, out: SetOption = None, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Rate how realistic each row is; check that its answer is right, unique and needs mail.

    A superseded answer becomes a latest-update question. A rerun asks only for missing replies."""
    if model == OFFLINE:
        what = "the offline policy can't check answers; name a model with --model"
        raise UserError(f"{what}, or go on without this step: art-e golden split")
    with _step("verify", out, db, as_json=as_json) as (file, golden, folder):
        verify.refuse_own_rows(golden, model)
        readings = responses_folder(folder, "read", model)
        verdicts = responses_folder(folder, "judge", judge)
        for_reader, for_judge = max_cost, None
        if max_cost is not None and needs_model(judge):
            for_reader = max_cost * READER_SHARE
            for_judge = _remaining_cost(max_cost - for_reader, verdicts, judge)
        left = _remaining_cost(for_reader, readings, model)
        reader = StructuredModel(model, max_cost_usd=left, cache=readings)
        judging = choose_judge(judge, max_cost_usd=for_judge, cache=verdicts)
        output.note(str(Model(model).notice))
        if judge != model and needs_model(judge):
            where = f"questions and answers go to {Model(judge).host} (judge {judge})"
            output.note("; ".join(filter(None, [where, ending(judge)])))
        checks = verify.ModelChecks(reader, judging, min_realism)
        with output.progress("rows", len(golden.questions)) as done:
            verify.verify(file, golden, checks, strict=strict, concurrency=concurrency, on_row=done)
        models = (each for each in (reader, judging) if isinstance(each, StructuredModel))
        costs = [each.total_spent.cost_usd for each in models]
        output.note(f"cost so far: {output.format_usd(output.total_usd(costs))}")
    unchecked = golden.manifest["steps"]["verify"]["unchecked"]
    for name, why in unchecked.items():
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in why.items())
        output.note(f"not checked: {name} of {output.plural(sum(why.values()), 'row')} ({reasons})")
    kinds = set[str]().union(*unchecked.values()) - {"unparseable"}
    _note_retry(kinds, "makes the missing checks")


@app.command("split")
def split_command(
    seed: Annotated[int, Option(help="Another seed draws other inboxes.")] = 0,
    train: TrainOption = TRAIN, validation: ValidationOption = VALIDATION, test: TestOption = TEST,
    db: DbOption = None, out: SetOption = None, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Split the set by inbox; drop rows that share gold mails with another split.

    Inboxes that have a split keep it; --seed draws the others in the given proportions. In the
    result no mail or copy of it is gold in two splits, and no mail of a test inbox is gold in
    train or validation. Rows are dropped from train first, and never from test."""
    with _step("split", out, db, as_json=as_json) as (file, golden, _):
        split(file, golden, seed=seed, targets=Counts(train, validation, test))
    record: dict[str, Any] = golden.manifest["steps"]["split"]
    quoted, learned = record["contained"]["contained"], record["contained"]["gold_mails"]
    share = f"({quoted / max(learned, 1):.1%}) have 80% or more of their text in test mail"
    gold = output.plural(learned, "gold mail")
    output.note(f"leakage: {quoted:,} of {gold} of other splits {share}")
    inboxes: dict[str, int] = record["inboxes"]
    origins = {"generate": "as generate drew them", "rows": "as the rows say"}
    origin = origins.get(record["splits_from"], f"drawn by seed {seed}")
    output.note(f"{output.plural(sum(inboxes.values()), 'inbox')}: {_cell(inboxes)}, {origin}")


@app.command("stats")
def stats_command(folder: SetArgument, as_json: JsonOption = False) -> None:
    """Print what is in the set, and what each step dropped."""
    figures = exchange.stats(GoldenSet.load(folder))
    if as_json:
        output.print_json({"set": str(folder), **figures})
        return
    output.print_line(f"{output.plural(figures['rows'], 'row')}, {figures['rejected']:,} rejected")
    for name in ("kinds", "difficulties"):
        figures[name] = [{"": label, **counts} for label, counts in figures[name].items()]
    for name in ("kinds", "difficulties", "splits", "steps"):
        if rows := figures[name]:
            output.print_line(f"\n{name}")
            cells = [[_cell(value) for value in row.values()] for row in rows]
            output.print_table(list(map(output.one_line, rows[0])), cells, lines=False)


@app.command("review")
def review_command(
    folder: SetArgument,
    sample: Annotated[int, integer("Number of rows.")] = 100,
    seed: Annotated[int, Option(help="Another seed draws another sample.")] = 0,
    of_split: Annotated[
        Split | None,
        Option("--split", metavar="SPLIT", help="Only rows of train, validation or test."),
    ] = None,
    db: DbOption = None,
    as_json: JsonOption = False,
) -> None:
    """Review a random sample by hand, and measure how much of the set is right.

    A dropped row leaves the set. The precision is the share of the sample that you keep. If an
    earlier step is run again, review applies the verdicts on rows that have not changed."""
    chosen = review.ReviewSample(sample, seed, of_split)
    with _step("review", folder, db, as_json=as_json) as (file, golden, _):
        rows = review.sample_rows(golden.questions, chosen)
        if not rows:
            part = f" of split {chosen.split}" if chosen.split else ""
            raise UserError(f"{folder} has no row{part} to review; name another set or --split")
        count = review.ask(folder, file, rows, to_stderr=as_json)
        output.note(f"{output.plural(count, 'review')} added to {review.reviews_file(folder)}")
        review.review(golden, review.read_reviews(folder), chosen)
    record = golden.manifest["steps"]["review"]
    precision, where = record["precision"], record["split"] or "all splits"
    if precision["value"] is None:
        output.note(f"no row of the sample of {where} is reviewed yet; the precision is unknown")
        return
    share, *bounds = (f"{precision[name]:.1%}" for name in ("value", "low", "high"))
    right = f"{record['kept']} of {output.plural(record['reviewed'], 'row')} of {where} were right"
    output.note(f"precision {share} ({' to '.join(bounds)}, {precision['method']}): {right}")
    if record["stale"]:
        output.note(f"{output.plural(record['stale'], 'review')} not applied: the rows changed")


@app.command("export")
def export_command(
    folder: SetArgument,
    to: Annotated[Path, Option("--to", metavar="OUT", help="New folder to write.")],
    as_json: JsonOption = False,
) -> None:
    """Write Parquet and JSONL of each split with a card, for load_dataset and --questions.

    Rejected rows are left out. If a row has no split, all go into one file, questions."""
    golden = GoldenSet.load(folder)
    parts = exchange.export(golden, to)
    left_out = len(golden.rejected)
    if as_json:
        output.print_json({"to": str(to), "questions": parts, "rejected_left_out": left_out})
        return
    for name, count in parts.items():
        output.print_line(f"{count:>7,}  {name}")
    output.note(f"written to {to}; {output.plural(left_out, 'rejected row')} left out")
    if any(each.split is None for each in golden.questions):
        output.note(f"some rows have no split; art-e golden split --out {folder} gives them one")
