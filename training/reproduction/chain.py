"""The chain of the talk as one script: mail, questions, baselines, training, test, report.

`steps` is that script, and each step calls a function below it. A step fills a folder whose name
ends in a hash of what decides its content, so it is done once, another setting makes another
folder, and a second run resumes after a kill.
"""

import atexit
import hashlib
import json
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import typer
from pydantic import BaseModel

from art_e import __version__
from art_e.cli.output import tolerate_any_character
from art_e.errors import UserError
from art_e.models.checkpoint import EPISODE
from art_e.models.model import full_name
from art_e.parent import ends_with_parent
from art_e.question import Split
from art_e.runs import Run
from art_e.storage import expanded
from data_pipeline import cli as mail_commands
from data_pipeline.golden import cli as golden_commands
from evals import cli as eval_commands
from training.cli import carry_out
from training.recipe import Recipe, Setting
from training.reproduction.profile import GENERATED, WORLD, Profile
from training.reproduction.report import chosen_seed, write_report
from training.run import opened

Stage = Literal["ingest", "golden", "baselines", "sft", "grpo", "evaluation", "report"]
STAGES: tuple[Stage, ...] = get_args(Stage)
# Written last into the folder of a step that is done.
RECORD = "step.json"
_LIMIT = "golden.max_cost_usd"
INBOX, QUESTIONS, GOLDEN, RUN = "inbox.duckdb", "inbox.questions.jsonl", "golden", "run"


@dataclass(frozen=True)
class Step:
    """A step of the chain: what it does in words, its folder, what fills that, the models that it
    asks, and the most that they may cost."""

    stage: Stage
    name: str
    does: str
    folder: Path
    work: Callable[[Path], object]
    asks: Sequence[str] = ()
    max_cost_usd: float | None = None

    def to_row(self) -> dict[str, Any]:
        """The step as a plan shows it."""
        names = ("stage", "name", "does", "state", "max_cost_usd")
        return {**{name: getattr(self, name) for name in names}, "folder": str(self.folder)}

    @property
    def run(self) -> Path:
        """The folder of the run that it makes, if it makes one."""
        return self.folder / RUN

    @property
    def state(self) -> Literal["done", "begun", "to do"]:
        """How far the step is."""
        if (self.folder / RECORD).exists():
            return "done"
        return "begun" if self.folder.is_dir() else "to do"

    def do(self) -> None:
        """Do what is missing. Raises `UserError` if it fails."""
        self.folder.mkdir(parents=True, exist_ok=True)
        begun = time.monotonic()
        try:
            _in_own_process(partial(self.work, self.folder))
        except (typer.Exit, BrokenProcessPool):
            what = f"{self.name} failed, in {self.folder}"
            raise UserError(f"{what}: see above; run this again to resume") from None
        Run(self.folder).write_json(RECORD, {"seconds": time.monotonic() - begun})


def reproduce(
    profile: Profile, out: Path, last: Stage, tell: Callable[[str], None] | None = None
) -> list[Step]:
    """Do the steps of a profile up to the stage `last`; without `tell` only list them.

    Raises `UserError` if one fails.
    """
    found: list[Step] = []
    for step in steps(profile, out):
        if STAGES.index(step.stage) > STAGES.index(last):
            break
        found.append(step)
        if tell is not None and step.state == "done":
            tell(f"{step.name}: done before, in {step.folder}")
        elif tell is not None:
            tell(f"{step.name}: {step.does}{', resuming' if step.state == 'begun' else ''}")
            step.do()
    return found


def steps(profile: Profile, out: Path) -> Iterator[Step]:
    """The chain, step by step.

    Do each step before you ask for the next one: which seed is served depends on what training
    made. In a plan the first seed stands for the best.
    """
    golden, recipe, seeds = profile.golden, profile.recipe, profile.training.seeds
    more, judges = len(profile.sources) - 1, f"judged by {', '.join(profile.judges)}"

    def step(
        stage: Stage,
        name: str,
        does: str,
        work: Callable[[Path], object],
        *decide: object,
        reads: Sequence[str] = (),
        asks: Sequence[str] = (),
        most: float | None = None,
    ) -> Step:
        folder = out / f"{name}-{hash_of(decide, reads)}"
        return Step(stage, name, does, folder, work, asks, most)

    mail = step(
        "ingest",
        "ingest",
        f"ingest {profile.sources[0]}{f' and {more} more sources' if more else ''}",
        partial(make_inbox, profile),
        *(profile.ingest, profile.sources),
        reads=profile.sources,
    )
    yield mail

    source = {
        GENERATED: f"questions that {golden.writer} writes",
        WORLD: "the questions of the made-up companies",
    }.get(golden.questions, f"the questions of {golden.questions}")
    verify = f"verify with {golden.reader} (judge {golden.judge}), " if golden.reader else ""
    questions = step(
        "golden",
        "golden",
        f"{source}: filter, {verify}split by inbox",
        partial(make_golden, profile, mail),
        *(golden, mail),
        reads=[golden.questions],
        asks=[
            *([golden.writer] if golden.questions == GENERATED else []),
            *([golden.reader, golden.judge] if golden.reader else []),
        ],
        # One limit for writing, and one for verifying.
        most=None if golden.max_cost_usd is None else 2 * golden.max_cost_usd,
    )
    yield questions

    data = {"questions": str(questions.folder / GOLDEN), "db": str(mail.folder / INBOX)}
    about = recipe.model_copy(update={"data": recipe.data.model_copy(update=data)})
    baselines = [
        step(
            "baselines",
            f"baseline-{re.sub(r'[^a-z0-9.]+', '-', Path(model).name.lower()).strip('-')}",
            f"ask {model} the test questions, {judges}",
            partial(ask_baseline, profile, about, model),
            *(model, profile.judges, recipe.data, recipe.episode, recipe.judging, mail, questions),
            asks=[model, *profile.judges],
            most=profile.baselines.max_cost_usd,
        )
        for model in map(full_name, profile.baselines.models)
    ]
    yield from baselines

    starts = {
        seed: step(
            "sft",
            f"sft-{seed}",
            f"train {recipe.name} to imitate the expert, seed {seed}",
            partial(train, Setting("sft", about, seed)),
            *(recipe.model_copy(update={"grpo": None}), seed, mail, questions),
        )
        for seed in (() if recipe.sft is None else seeds)
    }
    yield from starts.values()

    base = str(recipe.model.base)
    begin = {seed: str(starts[seed].run) if starts else None for seed in seeds}
    trained = {
        seed: step(
            "grpo",
            f"grpo-{seed}",
            f"train {starts[seed].name if starts else base} with GRPO, seed {seed}",
            partial(train, Setting("grpo", about, seed, begin[seed])),
            *(recipe.model_copy(update={"sft": None}), seed, mail, questions, starts.get(seed)),
            asks=[recipe.judging.reward, recipe.judging.validation],
        )
        for seed in seeds
    }
    yield from trained.values()

    runs = {seed: each.run for seed, each in trained.items()}
    done = all(each.state == "done" for each in trained.values())
    best = chosen_seed(runs) if done else seeds[0]
    made = [*starts.values(), *trained.values()]
    served = [
        step(
            "evaluation",
            name,
            f"serve the {name} model of seed {best}, and ask it the test questions, {judges}",
            partial(evaluate, profile, about, runs[best], checkpoint, f"{profile.name}-{name}"),
            *(best, profile.judges, profile.evaluation, *made),
            asks=profile.judges,
        )
        for name, checkpoint in (("start", begin[best] or base), ("trained", str(runs[best])))
    ]
    yield from served

    made += [*baselines, *served]
    yield step(
        "report",
        "report",
        "write report.html, figures.json and seeds.png",
        partial(write_report, profile, {each.name: each.run for each in made}),
        *(profile.name, *made),
    )


def hash_of(decide: object, reads: Sequence[str]) -> str:
    """A hash of settings, earlier steps, and those of `reads` that are files or folders here.

    Raises `UserError` for a file that can't be read.
    """

    def row(value: Any) -> Any:
        if isinstance(value, Step):
            return value.folder.name
        # A limit decides whether a step gets done, not what it makes.
        assert isinstance(value, BaseModel)
        names = type(value).model_fields
        return {name: getattr(value, name) for name in names if name != "max_cost_usd"}

    digests = [_digest(path) for each in reads if (path := expanded(each)).exists()]
    inputs = json.dumps([decide, digests, __version__], default=row, sort_keys=True)
    return hashlib.sha256(inputs.encode()).hexdigest()[:10]


def _digest(path: Path) -> str:
    """A hash of a file, or of all files of a folder with their names."""
    whole = hashlib.sha256()
    files = [each for each in path.rglob("*") if each.is_file()] if path.is_dir() else [path]
    try:
        for each in sorted(files):
            with each.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            whole.update(f"{each.relative_to(path)} {digest} ".encode(errors="surrogateescape"))
    except OSError as error:
        raise UserError(f"can't read {path}: {error.strerror}; name another") from None
    return whole.hexdigest()


# ---- What the steps do. Each function fills the folder of its step, or resumes in it.


def make_inbox(profile: Profile, folder: Path) -> None:
    """Ingest the mail."""
    form, limit = profile.ingest.format, profile.ingest.limit
    mail_commands.ingest(list(profile.sources), folder / INBOX, form, replace=True, limit=limit)


def make_golden(profile: Profile, mail: Step, folder: Path) -> None:
    """Write or import questions, filter, verify and split them."""
    golden, most = profile.golden, profile.golden.max_cost_usd
    place: dict[str, Any] = {"db": mail.folder / INBOX, "out": folder / GOLDEN}
    splits: dict[str, Any] = {name: getattr(golden, name) for name in get_args(Split)}
    if golden.questions == GENERATED:
        drawn = {"batches": golden.batches, "min_mails": golden.min_mails, **splits}
        golden_commands.generate_command(golden.writer, max_cost=most, **drawn, **place)
    elif golden.questions == WORLD:
        golden_commands.import_command(str(mail.folder / QUESTIONS), **place)
        splits = {}  # they come with their splits
    else:
        golden_commands.import_command(golden.questions, **place)
    golden_commands.filter_command(**place)
    if golden.reader:
        golden_commands.verify_command(golden.reader, golden.judge, max_cost=most, **place)
    golden_commands.split_command(**splits, **place)
    golden_commands.stats_command(folder / GOLDEN)
    check_golden(folder / GOLDEN)


def ask_baseline(profile: Profile, recipe: Recipe, model: str, folder: Path) -> None:
    """Ask a prompted model the questions of the recipe's test, in the recipe's form."""
    Run(folder).write_json(EPISODE, recipe.episode.model_dump())
    _ask(profile, model, recipe, folder, folder, max_cost=profile.baselines.max_cost_usd)


def train(setting: Setting, folder: Path) -> None:
    """Train by SFT or by GRPO."""
    run = Run(folder / RUN)
    if run.complete:
        return
    with opened(setting, run.folder, folder, run.begun) as (training, checkpoint):
        carry_out(training, checkpoint)


def evaluate(
    profile: Profile, recipe: Recipe, form: Path, checkpoint: str, name: str, folder: Path
) -> None:
    """Serve a checkpoint, and ask it the questions of the test."""
    evaluation = profile.evaluation
    with _served(checkpoint, name, evaluation.server) as address:
        os.environ["HOSTED_VLLM_API_BASE"] = address
        more = {"concurrency": evaluation.concurrency, "gpu_usd_per_hour": evaluation.usd_per_hour}
        _ask(profile, f"hosted_vllm/{name}", recipe, form, folder, **more)


def _ask(
    profile: Profile, model: str, recipe: Recipe, form: Path, folder: Path, **options: Any
) -> None:
    """Ask the test questions in the form of episode that the folder `form` holds."""
    run, judge = Run(folder / RUN), list(profile.judges)
    questions: dict[str, Any] = {
        "questions": recipe.data.questions,
        "split": "test",
        "limit": recipe.judging.test_questions,
        "db": recipe.data.inbox_file,
    }
    if not run.complete:
        options |= {"judge": judge, "out": run.folder, "resume": run.begun}
        eval_commands.run([model], recipe=str(form), **questions, **options)
    if not run.complete:
        # A share of the questions would give another figure.
        raise UserError(
            f"{model} was not asked every question: run this again, if money was short with a"
            " higher limit (--set baselines.max_cost_usd=USD)"
        )


def check_golden(golden: Path) -> None:
    """Raise `UserError` if the limit of cost left questions unwritten or unverified."""
    steps = json.loads((golden / "manifest.json").read_text("utf-8"))["steps"]
    lost = steps.get("generate", {}).get("batches", {}).get("lost", {}).get("budget", 0)
    unchecked: dict[str, dict[str, int]] = steps.get("verify", {}).get("unchecked", {})
    missing = sum(each.get("budget", 0) for each in unchecked.values())
    if lost or missing:
        what = f"{lost} batches were not asked for" if lost else f"{missing} checks were not made"
        raise UserError(f"{what}: run this again with a higher limit (--set {_LIMIT}=USD)")


# ---- Processes: one for each step, which frees the GPU for the next, and a server.


def _in_own_process(work: Callable[[], object]) -> None:
    """Do the work in a new process, which ends with this one however that ends."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn, _end_with_parent) as process:
        # The new process inherits that it ignores Ctrl-C, which this one passes on.
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
        done = process.submit(_as_a_command, work)
        signal.signal(signal.SIGINT, handler)
        try:
            done.result()
        except KeyboardInterrupt:
            for each in multiprocessing.active_children():
                each.terminate()
            raise


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()
    # Beside a thread DuckDB prints pages of leaks as the interpreter ends.
    atexit.register(os._exit, 0)


def _as_a_command(work: Callable[[], object]) -> None:
    """Do the work as `art-e` does a command; stdout is for the result of the chain alone."""
    tolerate_any_character()
    with redirect_stdout(sys.stderr):
        work()


@contextmanager
def _served(checkpoint: str, name: str, options: Sequence[str]) -> Iterator[str]:
    """The address at which `art-e serve` serves a checkpoint, while the block runs."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
    words = ["serve", checkpoint, "--name", name, "--port", port, "--", *options]
    with subprocess.Popen(
        [sys.executable, "-m", "art_e", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=ends_with_parent(),  # noqa: PLW1509 - the other thread only waits
    ) as process:
        assert process.stdout is not None
        try:
            # The line that it prints once its server answers.
            lines = (re.search(r"HOSTED_VLLM_API_BASE=(\S+)", each) for each in process.stdout)
            found = next(filter(None, lines), None)
            if found is None:
                raise UserError(f"art-e serve {checkpoint} did not start; its output is above")
            yield found[1]
        finally:
            process.terminate()
