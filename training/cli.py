"""`art-e train`: plan a recipe, export its questions, train, merge an adapter."""

import dataclasses
import functools
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal, cast

import typer
from huggingface_hub import ModelCardData
from typer import Argument, Option

from art_e.cli.options import JsonOption, OutOption, integer
from art_e.cli.output import note, plural, print_json, print_lines
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.message import compact_json
from art_e.models import checkpoint as checkpoints
from art_e.publish import Own, is_hub_id, public_name, template
from art_e.question import Question, Split, load_questions
from art_e.storage import default_golden, partial_of, runs_folder, write_whole
from data_pipeline.ingest.build import synthetic_file
from data_pipeline.synthetic.stage import Planted
from data_pipeline.synthetic.world import WorldConfig, ledger, messages
from evals.scored import check_questions
from training.expert import best_conversations, conversations_of, search_words
from training.judging import JudgeFee, judge_fees, judges_of
from training.planning import GPUS, NOTES, expected_episode
from training.planning import plan as make_plan
from training.processes import LostError, joined, launched
from training.recipe import Data, Setting, Worlds, load_recipe, toml_names
from training.rollout import Material
from training.run import PAUSED, TrainingRun, open_training

app = typer.Typer(rich_markup_mode=None)

_RECIPES = f"{', '.join(toml_names('recipe'))}, or a TOML file."
RecipeOption = Annotated[str, Option("--recipe", metavar="NAME|FILE", help=_RECIPES)]
SetOption = Annotated[
    list[str] | None,
    Option("--set", metavar="[TABLE.]FIELD=VALUE", help="Change that file; may be repeated."),
]
InitOption = Annotated[
    str | None, Option("--init", metavar="DIR", help="Checkpoint or run to start from.")
]
MinutesOption = Annotated[
    float | None,
    Option("--minutes", metavar="N", min=0, help="Pause after N minutes, with exit code 75."),
]
SeedOption = Annotated[int, Option("--seed", min=0, help="Same seed, same run.")]
ResumeOption = Annotated[bool, Option("--resume", help="Continue the killed run of --out.")]

# ---- Before a run: its plan and its questions.


@app.command()
def plan(
    recipe: RecipeOption = "nano",
    changes: SetOption = None,
    gpu: Annotated[str, Option(metavar="NAME", help=", ".join(GPUS))] = "h100-80gb",
    gpus: Annotated[int, integer("Number of GPUs.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Estimate the memory, hours and cost of GRPO by a recipe, without running it."""
    chosen = load_recipe(recipe, changes or ())
    planned = make_plan(chosen, gpu, gpus)
    if as_json:
        print_json(dataclasses.asdict(planned))
        return
    hours = (f"{part} {rough(value)}" for part, value in planned.hours.items())
    print_lines(
        f"{planned.recipe} {'does not fit' if planned.faults else 'fits'} on {gpus} x {gpu}:"
        f" {planned.parameters / 1e9:.3g} billion weights,"
        f" {rough(planned.trained_parameters / 1e6)} million trained",
        f"hours: {', '.join(hours)}; {rough(planned.batch_seconds)} s a batch;"
        f" ${rough(planned.gpu_usd)} for {plural(gpus, 'GPU')}"
        + (f", {chosen.runs} runs in all" if chosen.runs > 1 else ""),
        *map(fee_line, planned.judges),
    )
    for phase, sizes in planned.memory.items():
        parts = ", ".join(f"{part} {rough(size / 1e9)}" for part, size in sizes.items())
        total, room = sum(sizes.values()) / 1e9, GPUS[gpu].gib * 2**30 / 1e9
        print_lines(f"GB when {phase}: {parts}; {rough(total)} of {rough(room)}")
    tokens = f"whole episodes of {chosen.episode.episode_tokens:,} tokens"
    faults = [f"it does not fit: {fault}" for fault in planned.faults]
    faults += ["change grpo.micro_batch, grpo.vllm.memory or --gpu"] * (faults != [])
    print_lines(f"the KV cache holds {rough(int(planned.room))} {tokens}", *NOTES, *faults)


def rough(value: float) -> str:
    """Return the number with two significant digits: 24, 0.28, 1,600."""
    return f"{float(f'{value:.1e}'):,g}"


def fee_line(fee: JudgeFee) -> str:
    """Return the line of a judge's expected cost."""
    usd = "cost unknown" if fee.usd is None else f"about ${rough(fee.usd)}"
    return f"judge {fee.judge}: {usd} for {fee.episodes:,} episodes"


@app.command()
def questions(
    recipe: RecipeOption,
    split: Annotated[Split, Option(help="train, validation or test.")],
    out: Annotated[Path, Option(metavar="DIR", help="Folder for the files.")],
    changes: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Export a recipe's questions, so that other models can be asked them.

    DIR gets questions.jsonl, swapped.jsonl (the same questions asked in inboxes that lack their
    names), episode.json (the form, for --recipe DIR) and, for synthetic companies, their mail in
    inbox.duckdb."""
    chosen = load_recipe(recipe, changes or ())
    material = load_material(chosen.data, split)
    limits = {"validation": chosen.judging.questions, "test": chosen.judging.test_questions}
    rows = material.held_out(limits[split]) if split in limits else material.questions
    db = material.file.path
    out.mkdir(parents=True, exist_ok=True)
    if chosen.data.has_worlds(split):
        db = shutil.copyfile(db, out / "inbox.duckdb")
    file = out / "questions.jsonl"
    write_whole(out / checkpoints.EPISODE, chosen.episode.model_dump_json())
    for path, part in ((file, rows), (out / "swapped.jsonl", list(_swapped(material, rows)))):
        write_whole(path, "".join(f"{compact_json(each.to_row())}\n" for each in part))
    if as_json:
        print_json({"questions": str(file), "db": str(db), "n": len(rows)})
    else:
        print_lines(f"{plural(len(rows), 'question')}: --questions {file} --db {db} --recipe {out}")


def _swapped(material: Material, questions: Sequence[Question]) -> Iterator[Question]:
    """Yield the answerable questions, each moved to an inbox in which no mail has all its names."""
    inboxes = sorted({each.inbox_address for each in questions})
    for question in questions:
        names = search_words(question.question)[0]
        Random(question.id).shuffle(inboxes)
        for address in inboxes if names and question.answerable else ():
            other = dataclasses.replace(
                question, inbox_address=address, answer=None, message_ids=(), equivalent_ids=(),
                answerable=False, kind="unanswerable",
            )  # fmt: skip
            if not material.file.inbox_of(other).search(names, all_words=True):
                yield other
                break


# ---- The questions, and the inbox files that they are about.

NAMES = 0  # seed of the names that all worlds share


def load_material(data: Data, split: Split) -> Material:
    """Return the questions of `split`. Raises `UserError` if none, or if the file lacks mails."""
    if data.worlds is not None and data.has_worlds(split):
        configs = _configs(data.worlds, split)
        key = json.dumps([dataclasses.astuple(each) for each in configs])
        file = InboxFile(synthetic_file(key, lambda: chain.from_iterable(map(messages, configs))))
        questions = [each.question for each in _planted(data.worlds, split)]
    else:
        file = InboxFile(data.inbox_file)
        golden = data.questions or str(default_golden())
        if data.questions is None and not default_golden().is_dir():
            remedy = "art-e golden import FILE|HUB-ID and art-e golden split make one"
            other = "or name one with --set data.questions=..."
            raise UserError(f"there is no golden set at {golden}: {remedy}; {other}")
        questions = load_questions(golden, split)
        check_questions(questions, file)
    # An unanswerable question imitates a kind ("like"), which must be among `kinds`, too.
    chosen = [
        row
        for row in questions
        if not data.kinds or {row.kind, row.provenance.get("like", row.kind)} <= {*data.kinds}
    ]
    if not chosen:
        raise UserError(f"split {split} has no question of {', '.join(data.kinds)}")
    if data.unanswerable is not None:
        chosen = _fewer_unanswerable(chosen, data.unanswerable)
    if split == "train" and data.train_questions is not None:
        ids = sorted(each.id for each in chosen)
        Random("some").shuffle(ids)
        sample = set(ids[: data.train_questions])
        chosen = [each for each in chosen if each.id in sample]
    return Material(file, [dataclasses.replace(each, split=split) for each in chosen])


def planted_in(data: Data) -> dict[str, Planted]:
    """Return the worlds' training questions with the evidence that the expert uses, by id."""
    planted = _planted(data.worlds, "train") if data.worlds else []
    return {each.question.id: each for each in planted}


def _fewer_unanswerable(questions: list[Question], share: float) -> list[Question]:
    unanswerable = [each.id for each in questions if not each.answerable]
    answerable = len(questions) - len(unanswerable)
    limit = int(answerable * share / (1 - share))  # u / (a + u) <= share
    if not answerable or len(unanswerable) <= limit:
        return questions
    sample = set(Random("unanswerable").sample(unanswerable, limit))
    return [each for each in questions if each.answerable or each.id in sample]


def _configs(worlds: Worlds, split: Split) -> list[WorldConfig]:
    form = (worlds.short, worlds.vocabulary, NAMES)
    seeds = range(*getattr(worlds, split))
    return [WorldConfig(worlds.size, seed, *form, stories=worlds.stories) for seed in seeds]


@functools.cache
def _planted(worlds: Worlds, split: Split) -> list[Planted]:
    return [each for config in _configs(worlds, split) for each in ledger(config)]


# ---- Training runs.


@app.command("sft", help="Imitate the scripted expert, or with --from the best stored episodes.")
@app.command("dpo", help="Learn from pairs of a better and a worse stored episode of a question.")
@app.command(
    "kto", help="Learn from good and bad stored episodes, or from your ratings (--from ratings)."
)
def from_episodes(
    context: typer.Context, recipe: RecipeOption = "nano", changes: SetOption = None,
    init: InitOption = None,
    runs: Annotated[
        list[str] | None,
        Option("--from", metavar="RUN", help="Run to learn from; may be repeated."),
    ] = None,
    seed: SeedOption = 0, minutes: MinutesOption = None, resume: ResumeOption = False,
    out: OutOption = None, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Train on the scripted expert's episodes, or on stored ones."""
    kind = cast(Literal["sft", "dpo", "kto"], context.info_name)
    checkpoints.require_train_extra()
    if launched().count > 1:
        raise UserError(f"art-e train {kind} runs in one process: start it without a launcher")
    setting = Setting(kind, load_recipe(recipe, changes or ()), seed, init, tuple(runs or ()))
    _train(setting, out, resume, minutes, as_json)


@app.command()
def grpo(
    recipe: RecipeOption = "nano", changes: SetOption = None, init: InitOption = None,
    max_cost: Annotated[
        float | None,
        Option(metavar="USD", min=0, help="Limit of the judges' fees [default: the recipe's]."),
    ] = None,
    seed: SeedOption = 0, minutes: MinutesOption = None, resume: ResumeOption = False,
    out: OutOption = None, as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Train with GRPO on the composite reward."""
    checkpoints.require_train_extra()
    limit = [] if max_cost is None else [f"judging.max_cost_usd={max_cost}"]
    chosen = load_recipe(recipe, [*(changes or ()), *limit])
    if launched().leads:
        usd, alone = chosen.judging.max_cost_usd, chosen.model_copy(update={"sft": None})
        capped = "no limit: --max-cost sets one" if usd is None else f"${usd:,.2f} at most"
        for fee in judge_fees(alone, expected_episode(chosen).reads):
            note(f"{fee_line(fee)}; {capped}")
    _train(Setting("grpo", chosen, seed, init), out, resume, minutes, as_json)


# Exit code of a pause that the same command can continue (EX_TEMPFAIL of sysexits.h): launchers
# start it again. If the user has to change something first (a limit, a key), the code is that of a
# user's error: a restarted run would only ask the judges again, and pause again.
PAUSE = 75


def _train(
    setting: Setting, out: Path | None, resume: bool, minutes: float | None, as_json: bool
) -> None:
    try:
        with joined() as processes:
            opening = open_training(setting, out, runs_folder(), resume, processes, minutes)
            with opening as training:
                metrics = run_training(training)
                paused = training.paused
                if paused is not None and paused.passes:
                    (training.run.folder / PAUSED).touch()
    except LostError:
        lost = "another process of this run has ended, so this one stops too: see the error above"
        note(f"Error: {lost}, if the system did not kill it; continue with --resume")
        raise typer.Exit(1) from None
    folder = training.run.folder
    if not processes.leads:
        return
    if as_json:
        print_json({**metrics, "run": str(folder), "paused": paused and str(paused)})
    elif paused is None:
        note(f"done: {folder}; art-e eval report {folder}")
        if metrics["best_checkpoint"]:
            note(f"art-e ask --model local:{folder} QUESTION")
    if paused is not None:
        when = "" if paused.passes else "then "
        note(f"paused: {paused}; {when}continue: the same command with --resume --out {folder}")
        raise typer.Exit(PAUSE if paused.passes else 2)


def run_training(training: TrainingRun) -> dict[str, Any]:
    """Train a run with its recipe's questions and judges, and return its metrics."""
    setting, recipe = training.setting, training.setting.recipe
    judging, load = recipe.judging, functools.cache(partial(load_material, recipe.data))
    if not setting.steps:
        raise UserError(f"the recipe {recipe.name} has no table for {setting.kind}; use another")
    if setting.kind == "grpo":
        from training.grpo import train_grpo

        spent, count = training.cost_before, training.processes.count
        judges = judges_of(judging, judging.max_cost_usd, spent=spent, processes=count)
        metrics = train_grpo(training, load, judges)
    else:
        from training.supervised import train_preference, train_sft

        judges = judges_of(judging)
        if recipe.sft is None or setting.kind != "sft":
            metrics = train_preference(training, load, judges)
        elif setting.runs:
            best = best_conversations(setting.runs, setting.seed)
            metrics = train_sft(training, [best] * len(recipe.sft.stages), load, judges)
        else:
            planted = planted_in(recipe.data)
            conversations = conversations_of(recipe, load("train"), planted, setting.seed)
            metrics = train_sft(training, conversations, load, judges)
    if training.paused is None and training.processes.leads:
        write_whole(training.run.folder / "README.md", card(setting, metrics))
        training.run.finish()
    return metrics


# ---- The model card: README.md, in the form of the Hugging Face hub.


def card(setting: Setting, metrics: Mapping[str, Any]) -> str:
    """Return a run's model card; `metrics` is its `metrics.json`, without paths."""
    recipe, model = setting.recipe, setting.recipe.model
    # No license: the base model's is unknown here.
    front_matter = ModelCardData(
        base_model=model.base if is_hub_id(model.base or "") else None, language="en",
        library_name="peft" if model.lora and not setting.new else "transformers",
        pipeline_tag="text-generation", tags=["art-e", "email", "agent", "retrieval", setting.kind],
    )  # fmt: skip
    text = template("training", "card.md.j2").render(
        metrics, figure=_figure, front_matter=Own(front_matter.to_yaml()),
        kind=setting.kind, recipe=recipe, seed=str(setting.seed),
        base=public_name(model.base or ""),
        questions=public_name(recipe.data.questions or ""),
        checkpoint=Own(f"RUN/{metrics['best_checkpoint'] or 'checkpoints/CHECKPOINT'}"),
    )  # fmt: skip
    return f"{text.rstrip()}\n"


def _figure(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    if "range" in value:
        low, high = value["range"]
        return f"{low:.3f} to {high:.3f} ({value['unjudged']:,} of {value['n']:,} unjudged)"
    if value["value"] is None:
        return "not measured"
    interval = "" if value["low"] is None else f"{value['low']:.3f} to {value['high']:.3f}, "
    return f"{value['value']:.3f} ({interval}n = {value['n']:,})"


# ---- Merging an adapter into its model.


def merge_adapter(checkpoint: Path, out: Path) -> float:
    """Merge the adapter of `checkpoint` (or of a run's best one) into its base, and write the model
    to `out` atomically, in the base's dtype, with the checkpoint's tokenizer or else the base's.
    Return `rounding_retention`. Raises `UserError` if it can't."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise UserError(f"{out} already exists; name a new folder with --out")
    chosen = checkpoints.best_checkpoint_of(checkpoint)
    base = checkpoints.base_of(chosen)
    if base is None:
        remedy = f"name a training run with one, or use a whole model as --model local:{chosen}"
        raise UserError(f"{chosen} holds no adapter: {remedy}")
    checkpoints.require_train_extra()
    from transformers import AutoConfig

    from art_e.models.loading import load_checkpoint, load_tokenizer

    base_folder = checkpoints.checkpoint_folder(base)
    folder = chosen if (chosen / checkpoints.TOKENIZER).is_file() else base_folder
    tokenizer = load_tokenizer(folder, str(folder))
    loaded = load_checkpoint(base, str(chosen))
    adapted: Any = loaded.model
    saved = AutoConfig.from_pretrained(base_folder, trust_remote_code=False).dtype
    retention = rounding_retention(adapted, saved or next(adapted.parameters()).dtype)
    model = adapted.merge_and_unload()
    model = model if saved is None else model.to(saved)
    model.generation_config = loaded.generation_config
    whole = partial_of(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(whole, ignore_errors=True)  # left by a merge that was killed
        model.save_pretrained(whole)
        tokenizer.save_pretrained(whole)
        if (form := chosen / checkpoints.EPISODE).is_file():
            shutil.copy(form, whole)
        whole.replace(out)
    except OSError as error:
        shutil.rmtree(whole, ignore_errors=True)
        reason = error.strerror or error
        raise UserError(f"can't write {out}: {reason}; name another --out") from None
    return retention


def rounding_retention(adapted: Any, dtype: Any) -> float:
    """Return the share of an adapter's change that survives rounding to `dtype`: a young adapter
    changes weights by less than bfloat16 resolves."""
    # <r, d> / <d, d> over all layers, for a change d of the weights and its rounded value r.
    changed = left = 0.0
    for module in (each for each in adapted.modules() if hasattr(each, "get_delta_weight")):
        weight = module.get_base_layer().weight.data.float()
        delta = module.get_delta_weight("default").detach().float()
        rounded = (weight + delta).to(dtype).float() - weight.to(dtype).float()
        changed += float((delta * delta).sum())
        left += float((rounded * delta).sum())
    return left / changed if changed else 1.0


@app.command()
def merge(
    checkpoint: Annotated[Path, Argument(metavar="DIR", help="Adapter's checkpoint, or its run.")],
    out: Annotated[Path, Option(metavar="DIR", help="New folder.")],
    as_json: JsonOption = False,
) -> None:
    """Fold an adapter into the weights of its model."""
    retention = merge_adapter(checkpoint, out)
    if as_json:
        print_json({"out": str(out), "kept": retention})
        return
    if retention < 0.995:
        rest = "art-e serve BASE --adapter DIR keeps it all"
        note(f"rounding leaves {retention:.0%} of the adapter: {rest}")
    note(f"merged: art-e ask --model local:{out} QUESTION")
