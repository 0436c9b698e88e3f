"""The chain of the talk: mail, questions, prompts, baselines, a start, GRPO, the test, the report.

Each unit runs the commands that a user would; what it hands on is in its folder. Training does
not wait on what baselines answered: another baseline is asked without training anew. Knows
nothing of how commands are carried out, and of what is done already.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from art_e.runs import Run
from art_e.storage import expanded
from evals.benchmark import model_name, read_prompt
from training.experiments.chain import Job
from training.recipe import RECIPE, Recipe
from training.reproduction.budget import check_golden, check_run
from training.reproduction.choice import CHOSEN, choose_prompt, chosen_seed
from training.reproduction.page import REPORT, write_report
from training.reproduction.profile import GENERATED, WORLD, Golden, Profile, prompt_path
from training.reproduction.unit import Unit
from training.reproduction.work import Work

INBOX, QUESTIONS, GOLDEN = "inbox.duckdb", "inbox.questions.jsonl", "golden"
Words = list[str | Path]
# An evaluation's two: the model before GRPO, and after.
START, TRAINED = "start", "trained"


def units_of(profile: Profile) -> list[Unit]:
    """The units of a profile, each after those that it needs."""
    before = [_ingest(profile), _golden(profile), *_prompts(profile)]
    baselines = [_baseline(profile, each) for each in profile.baselines.models]
    trained = [
        _training(profile, seed, kind)
        for seed in profile.training.seeds
        for kind in _kinds(profile)
    ]
    evaluations = [_evaluation(profile, which) for which in (START, TRAINED)]
    measured = [
        *before,
        *baselines,
        *sorted(trained, key=lambda each: each.stage != "sft"),
        *evaluations,
    ]
    return [*measured, _report(profile, measured)]


def _ingest(profile: Profile) -> Unit:
    told = profile.ingest
    paths = [expanded(each) for each in profile.sources]

    def do(work: Work) -> None:
        limit = [] if told.limit is None else ["--limit", str(told.limit)]
        where: Words = ["--format", told.format, *limit, "--db", work.folder / INBOX]
        work.art_e("ingest", *profile.sources, *where)

    asked = (QUESTIONS,) if profile.golden.questions == WORLD else ()
    return Unit(
        "ingest",
        "ingest",
        {"sources": profile.sources, "format": told.format, "limit": told.limit},
        (INBOX, *asked),
        do,
        reads=tuple(each for each in paths if each.exists()),
    )


def _golden(profile: Profile) -> Unit:
    told = profile.golden
    path = expanded(told.questions)

    def do(work: Work) -> None:
        ingested = work.of("ingest")
        where: Words = ["--db", ingested / INBOX, "--out", work.folder / GOLDEN]
        if told.questions == GENERATED:
            how = ["--batches", str(told.batches), "--min-mails", str(told.min_mails)]
            how += [*_splits(told), *_most(told.max_cost_usd)]
            work.art_e("golden", "generate", "--model", told.writer, *how, *where)
        else:
            of_world = told.questions == WORLD
            work.art_e(
                "golden", "import", ingested / QUESTIONS if of_world else told.questions, *where
            )
        work.art_e("golden", "filter", *where)
        reader = ["--model", told.reader, "--judge", told.judge, *_most(told.max_cost_usd)]
        work.art_e("golden", "verify", *reader, *where)
        # A world's questions come with their splits.
        shares = [] if told.questions == WORLD else _splits(told)
        work.art_e("golden", "split", *shares, *where)
        work.art_e("golden", "stats", work.folder / GOLDEN)
        if not work.planned:
            check_golden(work.folder / GOLDEN)

    return Unit(
        "golden",
        "golden",
        told.model_dump(mode="json"),
        (f"{GOLDEN}/questions.jsonl",),
        do,
        ("ingest",),
        (path,) if path.exists() else (),
    )


def _prompts(profile: Profile) -> list[Unit]:
    """A unit for each prompt and model, asked of validation, and one that chooses."""
    compared = {each: _prompt_text(each, profile.recipe) for each in profile.prompts.compared}
    asked = {name: [(name, model) for model in profile.asks_prompted] for name in compared}
    units = [_prompt(profile, *each, compared[name]) for name in compared for each in asked[name]]

    def choose(work: Work) -> None:
        if not work.planned:
            runs = {
                name: [Run(work.of(_prompt_name(*each)) / "run") for each in pairs]
                for name, pairs in asked.items()
            }
            choose_prompt(work.folder, compared, runs)

    settings = {"compared": compared, "models": profile.asks_prompted}
    needs = tuple(each.name for each in units)
    return [*units, Unit("prompts", "prompts", settings, (CHOSEN,), choose, needs)]


def _prompt(profile: Profile, name: str, model: str, text: str | None) -> Unit:
    def do(work: Work) -> None:
        recipe = _recipe_folder(profile, work, text)
        run = work.folder / "run"
        most = _most(profile.prompts.max_cost_usd)
        how: Words = ["--recipe", recipe, "--split", "validation", *_judges(profile), *most]
        work.art_e("eval", "run", "-m", model, *how, "--out", run, run=run)
        if not work.planned:
            check_run(run, "prompts.max_cost_usd")

    form = {"judges": profile.judges, "recipe": _form(profile.recipe)}
    settings = {**form, "prompt": text, "model": model_name(model)}
    return Unit("prompts", _prompt_name(name, model), settings, ("run",), do, ("ingest", "golden"))


def _baseline(profile: Profile, model: str) -> Unit:
    def do(work: Work) -> None:
        recipe = _recipe_folder(profile, work, _chosen_prompt(work))
        run = work.folder / "run"
        how: Words = ["--recipe", recipe, *_judges(profile), *_most(profile.baselines.max_cost_usd)]
        work.art_e("eval", "run", "-m", model, *how, "--out", run, run=run)
        if not work.planned:
            check_run(run, "baselines.max_cost_usd")

    return Unit(
        "baselines",
        _baseline_name(model),
        {"model": model_name(model), "judges": profile.judges, "recipe": _form(profile.recipe)},
        ("run",),
        do,
        ("ingest", "golden", "prompts"),
    )


def _training(profile: Profile, seed: int, kind: str) -> Unit:
    """The warm start ("sft") or GRPO ("grpo") of a seed."""
    told, recipe = profile.training, profile.recipe
    has_start = recipe.sft is not None
    start = (f"sft-{seed}",) if kind == "grpo" and has_start else ()

    def do(work: Work) -> None:
        run = work.folder / "run"
        init = work.of(start[0]) / "run" if start else None
        job = Job(
            "grpo" if kind == "grpo" else "sft",
            run,
            told.recipe,
            seed,
            _changes(profile, work),
            init,
        )
        more: Words = []
        if told.base_model is not None:
            more += ["--base-model", told.base_model]
        if kind == "grpo":
            first = work.of(_baseline_name(profile.baselines.models[0]))
            more += ["--baseline", first / "run"]
        work.art_e(*job.command.words, *more, run=run)

    row = recipe.to_row()
    # What only the other stage reads does not make this one anew.
    del row["grpo" if kind == "sft" else "sft"]
    return Unit(
        "grpo" if kind == "grpo" else "sft",
        f"{kind}-{seed}",
        {"recipe": row, "seed": seed},
        ("run/metrics.json", "run/trajectories.jsonl", "run/checkpoints"),
        do,
        ("ingest", "golden", "prompts", *start),
    )


def _evaluation(profile: Profile, which: str) -> Unit:
    """The start or the trained checkpoint of the seed that validation chose, served and asked."""
    told, seeds = profile.evaluation, profile.training.seeds
    has_start = profile.recipe.sft is not None
    trained = [f"grpo-{each}" for each in seeds]

    def do(work: Work) -> None:
        runs = {seed: work.of(f"grpo-{seed}") / "run" for seed in seeds}
        seed = seeds[0] if work.planned else chosen_seed(runs)
        base = profile.recipe.model.base
        if which == TRAINED:
            checkpoint: str | Path = runs[seed]
        elif has_start:
            checkpoint = work.of(f"sft-{seed}") / "run"
        else:
            assert base is not None
            checkpoint = base
        name, run = f"{profile.name}-{which}", work.folder / "run"
        how: Words = [
            "--recipe",
            runs[seed],
            "--concurrency",
            str(told.concurrency),
            *_judges(profile),
        ]
        if told.usd_per_hour is not None:
            how += ["--gpu-usd-per-hour", str(told.usd_per_hour)]
        with work.serving(checkpoint, name, told.server):
            work.art_e("eval", "run", "-m", f"hosted_vllm/{name}", *how, "--out", run, run=run)

    starts = [f"sft-{each}" for each in seeds] if which == START and has_start else []
    return Unit(
        "evaluation",
        which,
        {"judges": profile.judges, **told.model_dump(mode="json")},
        ("run",),
        do,
        ("ingest", "golden", *starts, *trained),
    )


def _report(profile: Profile, measured: Sequence[Unit]) -> Unit:
    names = tuple(each.name for each in measured)

    def do(work: Work) -> None:
        if not work.planned:
            write_report(profile, work.folder, {each: work.of(each) for each in names})

    return Unit("report", "report", {"profile": profile.to_row()}, (REPORT,), do, names)


def _kinds(profile: Profile) -> list[str]:
    return ["sft", "grpo"] if profile.recipe.sft is not None else ["grpo"]


def _recipe_folder(profile: Profile, work: Work, prompt: str | None) -> Path:
    """A folder with the recipe on the questions of the golden set, for `--recipe`."""
    folder = work.folder / "recipe"
    if not work.planned:
        form = profile.recipe.episode.model_copy(update={"prompt": prompt})
        data = profile.recipe.data.model_copy(update=_data(work))
        recipe = profile.recipe.model_copy(update={"episode": form, "data": data})
        folder.mkdir(exist_ok=True)
        Run(folder).write_json(RECIPE, {"recipe": recipe.to_row()})
    return folder


def _data(work: Work) -> dict[str, str]:
    return {
        "questions": str(work.of("golden") / GOLDEN),
        "db": str(work.of("ingest") / INBOX),
    }


def _changes(profile: Profile, work: Work) -> tuple[str, ...]:
    """What a training run changes in its recipe. A model that is made from nothing knows no
    words but those of its mail, and keeps the recipe's prompt."""
    made = [f"data.{name}={json.dumps(value)}" for name, value in _data(work).items()]
    prompt = _chosen_prompt(work) if profile.recipe.model.base is not None else None
    if prompt is not None:
        made.append(f"episode.prompt={json.dumps(prompt)}")
    return (*profile.training.changes, *made)


def _chosen_prompt(work: Work) -> str | None:
    """The text of the prompt that was chosen; None for the usual one, and in a plan."""
    if work.planned:
        return None
    chosen: str | None = json.loads((work.of("prompts") / CHOSEN).read_text("utf-8"))["text"]
    return chosen


def _prompt_text(name: str, recipe: Recipe) -> str | None:
    """The text of a prompt; "default" is the recipe's own. Raises `UserError` for no file."""

    path = prompt_path(name)
    return recipe.episode.prompt if path is None else read_prompt(path).text


def _form(recipe: Recipe) -> dict[str, Any]:
    """What of the recipe decides how any model is asked, and what."""
    row = recipe.to_row()
    return {each: row[each] for each in ("data", "episode", "judging")}


def _splits(told: Golden) -> list[str]:
    counts = {"train": told.train, "validation": told.validation, "test": told.test}
    return [part for name, count in counts.items() for part in (f"--{name}", str(count))]


def _judges(profile: Profile) -> list[str]:
    return [part for each in profile.judges for part in ("--judge", each)]


def _most(usd: float | None) -> list[str]:
    return [] if usd is None else ["--max-cost", f"{usd:g}"]


def _prompt_name(prompt: str, model: str) -> str:
    return f"prompt-{_slug(prompt)}-{_slug(model)}"


def _baseline_name(model: str) -> str:
    return f"baseline-{_slug(model)}"


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", Path(name).name.lower()).strip("-")
