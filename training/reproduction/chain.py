"""The chain of the talk as one script: mail, questions, baselines, training, test, report.

`steps` is that script. Every step runs the `art-e` commands that a user would, in a folder of its
own: a process frees the GPU for the next one. The folder's name ends in a hash of all that decides
what is in it: settings, files read, and the folders of earlier steps. So a step is done once,
another setting makes another folder, and the same command resumes after a kill.
"""

import hashlib
import json
import re
import shlex
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from art_e import __version__
from art_e.errors import UserError
from art_e.parent import ends_with_parent
from art_e.runs import Run
from art_e.storage import expanded
from evals.benchmark import model_name
from training.commands import ART_E, Command, carry_out, train_command
from training.pooled import metrics_of
from training.recipe import RECIPE
from training.reproduction.profile import GENERATED, WORLD, Profile
from training.reproduction.report import chosen_seed, write_report

Stage = Literal["ingest", "golden", "baselines", "sft", "grpo", "evaluation", "report"]
STAGES: tuple[Stage, ...] = get_args(Stage)
# Written last into the folder of a step that is done.
RECORD = "step.json"
INBOX, QUESTIONS, GOLDEN = "inbox.duckdb", "inbox.questions.jsonl", "golden"
# A limit decides whether a step gets done, not what it makes.
_LIMIT = "max_cost_usd"
# The line that `art-e serve` prints once its server answers.
_ANSWERS = re.compile(r"HOSTED_VLLM_API_BASE=(\S+) --model ")


class Served(NamedTuple):
    """The words of `art-e serve`, the server's own options, and a command that asks the server."""

    words: tuple[str, ...]
    options: tuple[str, ...]
    command: Command


Work = Command | Served | Callable[[], object]


class Step(NamedTuple):
    """A step of the chain: what it does, in which folder, and the most that it may cost."""

    stage: Stage
    name: str
    folder: Path
    work: tuple[Work, ...]
    max_cost_usd: float | None

    @property
    def state(self) -> Literal["done", "begun", "to do"]:
        """How far the step is."""
        if (self.folder / RECORD).exists():
            return "done"
        return "begun" if self.folder.is_dir() else "to do"

    @property
    def commands(self) -> list[str]:
        """Its commands as a user would type them."""
        lines: list[str] = []
        for each in self.work:
            if isinstance(each, Served):
                lines.append(shlex.join(["art-e", *each.words, *each.options]))
                lines.append(str(each.command))
            elif isinstance(each, Command):
                lines.append(str(each))
        return lines

    def do(self, tell: Callable[[str], None]) -> None:
        """Do what is missing; `tell` is given each command. Raises `UserError` if one fails."""
        tell(f"{self.stage}: {self.name}{', resuming' if self.state == 'begun' else ''}")
        self.folder.mkdir(parents=True, exist_ok=True)
        begun = time.monotonic()
        for each in self.work:
            if isinstance(each, Command):
                tell(f"done before: {each}" if each.done else f"$ {each}")
                carry_out([each])
            elif isinstance(each, Served):
                _serve(each, tell)
            else:
                each()
        Run(self.folder).write_json(RECORD, {"seconds": time.monotonic() - begun})


def _serve(served: Served, tell: Callable[[str], None]) -> None:
    """Serve a checkpoint while the command asks it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = str(listening.getsockname()[1])
    words = [*served.words, "--port", port, *served.options]
    tell(f"$ {shlex.join(['art-e', *words])}")
    with subprocess.Popen(
        [*ART_E, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=ends_with_parent(),  # noqa: PLW1509 - no thread is beside this one
    ) as process:
        assert process.stdout is not None
        try:
            found = next(filter(None, map(_ANSWERS.search, process.stdout)), None)
            if found is None:
                raise UserError(f"art-e {served.words[0]} did not start; its output is above")
            tell(f"$ {served.command}")
            carry_out([served.command], {"HOSTED_VLLM_API_BASE": found[1]})
        finally:
            process.terminate()


def chosen_stage(name: str | None) -> Stage:
    """The stage of `--until`, by default the last. Raises `UserError` for an unknown one."""
    for stage in STAGES:
        if stage == (name or STAGES[-1]):
            return stage
    raise UserError(f"no stage {name!r}; there are {', '.join(STAGES)}")


def reproduce(
    profile: Profile, out: Path, last: Stage, tell: Callable[[str], None] | None = None
) -> list[Step]:
    """Do the steps of a profile up to the stage `last`; without `tell` only list them.

    Raises `UserError` if one fails.
    """
    done: list[Step] = []
    for step in steps(profile, out):
        if STAGES.index(step.stage) > STAGES.index(last):
            break
        done.append(step)
        if tell is not None and step.state == "done":
            tell(f"{step.stage}: {step.name}: done before, in {step.folder}")
        elif tell is not None:
            step.do(tell)
    return done


def steps(profile: Profile, out: Path) -> Iterator[Step]:
    """The chain, step by step.

    Each step is to be done before the next is asked for, for what is served depends on what
    training made; in a plan the first seed stands for the best.
    """
    chain, recipe = _Chain(profile, out), profile.recipe
    yield (ingested := chain.ingest())
    yield (golden := chain.golden(ingested))
    mail = [ingested, golden]
    data = {"questions": str(golden.folder / GOLDEN), "db": str(ingested.folder / INBOX)}
    made = [*mail]
    for model in profile.baselines.models:
        made.append(chain.baseline(model, data, mail))
        yield made[-1]
    baseline = made[len(mail)]
    starts: dict[int, Step] = {}
    if recipe.sft is not None:
        for seed in profile.training.seeds:
            yield (step := chain.train("sft", seed, data, mail))
            starts[seed] = step
    trained: dict[int, Step] = {}
    for seed in profile.training.seeds:
        yield (step := chain.train("grpo", seed, data, mail, starts.get(seed), baseline))
        trained[seed] = step
    runs = {seed: each.folder / "run" for seed, each in trained.items()}
    known = all(each.state == "done" for each in trained.values())
    best = chosen_seed(runs) if known else profile.training.seeds[0]
    start = starts[best].folder / "run" if starts else str(recipe.model.base)
    needs = [*mail, *starts.values(), *trained.values()]
    yield (before := chain.evaluate("start", best, start, runs[best], needs))
    yield (after := chain.evaluate("trained", best, runs[best], runs[best], needs))
    made += [*starts.values(), *trained.values(), before, after]
    folders = {each.name: each.folder for each in made}
    yield chain.step(
        "report",
        "report",
        {"profile": profile.model_dump(mode="json")},
        lambda folder: [partial(write_report, profile, folder, folders)],
        made,
    )


class _Chain(NamedTuple):
    """Makes the steps of a profile in the folder `out`."""

    profile: Profile
    out: Path

    def step(
        self,
        stage: Stage,
        name: str,
        settings: Mapping[str, Any],
        work: Callable[[Path], Sequence[Work]],
        needs: Sequence[Step] = (),
        reads: Sequence[Path] = (),
        max_cost_usd: float | None = None,
    ) -> Step:
        """A step whose folder follows from `settings`, the files `reads` and the steps `needs`.

        `work` gives what fills the folder. Raises `UserError` for a file that can't be read.
        """
        decides = {
            "settings": _without_limits(settings),
            "reads": [_digest(each) for each in reads],
            "needs": [each.folder.name for each in needs],
            "version": __version__,
        }
        digest = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()
        folder = self.out / f"{name}-{digest[:10]}"
        return Step(stage, name, folder, tuple(work(folder)), max_cost_usd)

    def ingest(self) -> Step:
        """The mail, in an inbox file."""
        ingest, sources = self.profile.ingest, self.profile.sources
        options = ["--format", ingest.format]
        options += [] if ingest.limit is None else ["--limit", str(ingest.limit)]
        return self.step(
            "ingest",
            "ingest",
            {"sources": sources, "format": ingest.format, "limit": ingest.limit},
            lambda folder: [_art_e("ingest", *sources, *options, "--db", folder / INBOX)],
            reads=[path for each in sources if (path := expanded(each)).exists()],
        )

    def golden(self, ingested: Step) -> Step:
        """The questions: written or imported, filtered, verified and split."""
        golden = self.profile.golden
        of_world = golden.questions == WORLD
        counts = {"train": golden.train, "validation": golden.validation, "test": golden.test}
        splits = [part for name, count in counts.items() for part in (f"--{name}", str(count))]
        limit = _limit(golden.max_cost_usd)

        def work(folder: Path) -> list[Work]:
            where = ["--db", ingested.folder / INBOX, "--out", folder / GOLDEN]
            if golden.questions == GENERATED:
                how = ["--batches", str(golden.batches), "--min-mails", str(golden.min_mails)]
                how += [*splits, *limit]
                first = _art_e("golden", "generate", "--model", golden.writer, *how, *where)
            else:
                source = ingested.folder / QUESTIONS if of_world else golden.questions
                first = _art_e("golden", "import", source, *where)
            reader = ["--model", golden.reader, "--judge", golden.judge]
            return [
                first,
                _art_e("golden", "filter", *where),
                _art_e("golden", "verify", *reader, *limit, *where),
                # A world's questions come with their splits.
                _art_e("golden", "split", *([] if of_world else splits), *where),
                _art_e("golden", "stats", folder / GOLDEN),
                partial(check_golden, folder / GOLDEN),
            ]

        path = expanded(golden.questions)
        reads = [path] if path.exists() else []
        # One limit for writing, and one for verifying.
        most = None if golden.max_cost_usd is None else 2 * golden.max_cost_usd
        settings = golden.model_dump(mode="json")
        return self.step("golden", "golden", settings, work, [ingested], reads, most)

    def baseline(self, model: str, data: Mapping[str, str], needs: Sequence[Step]) -> Step:
        """A prompted model, asked the questions of the test in the recipe's form."""
        profile, recipe = self.profile, self.profile.recipe
        most = profile.baselines.max_cost_usd

        def write_recipe(folder: Path) -> None:
            asked = recipe.model_copy(update={"data": recipe.data.model_copy(update=data)})
            folder.mkdir(exist_ok=True)
            Run(folder).write_json(RECIPE, {"recipe": asked.to_row()})

        def work(folder: Path) -> list[Work]:
            run, own = folder / "run", folder / "recipe"
            how = ["-m", model, "--recipe", own, *_judges(profile), *_limit(most), "--out", run]
            return [
                partial(write_recipe, own),
                _art_e("eval", "run", *how, run=run),
                partial(check_run, run),
            ]

        row = recipe.to_row()
        settings = {
            "judges": profile.judges,
            "recipe": {each: row[each] for each in ("data", "episode", "judging")},
            "model": model_name(model),
        }
        name = f"baseline-{re.sub(r'[^a-z0-9.]+', '-', Path(model).name.lower()).strip('-')}"
        return self.step("baselines", name, settings, work, needs, max_cost_usd=most)

    def train(
        self,
        kind: Literal["sft", "grpo"],
        seed: int,
        data: Mapping[str, str],
        needs: Sequence[Step],
        start: Step | None = None,
        baseline: Step | None = None,
    ) -> Step:
        """A training run of the recipe. The page of the run shows the baseline beside it."""
        training, row = self.profile.training, self.profile.recipe.to_row()
        changes = [f"data.{name}={json.dumps(value)}" for name, value in data.items()]
        more = [] if training.base_model is None else ["--base-model", training.base_model]
        more += [] if baseline is None else ["--baseline", str(baseline.folder / "run")]
        init = None if start is None else start.folder / "run"
        # The other stage's table does not change this one.
        del row["grpo" if kind == "sft" else "sft"]
        return self.step(
            kind,
            f"{kind}-{seed}",
            {"recipe": row, "seed": seed},
            lambda folder: [
                train_command(
                    kind,
                    folder / "run",
                    training.recipe,
                    seed,
                    (*training.changes, *changes),
                    init,
                    *more,
                )
            ],
            [*needs, *([] if start is None else [start])],
        )

    def evaluate(
        self,
        which: Literal["start", "trained"],
        seed: int,
        checkpoint: Path | str,
        recipe: Path,
        needs: Sequence[Step],
    ) -> Step:
        """A checkpoint of a seed, served and asked the questions of the test."""
        profile, evaluation = self.profile, self.profile.evaluation
        name = f"{profile.name}-{which}"
        how = ["-m", f"hosted_vllm/{name}", "--recipe", str(recipe)]
        how += ["--concurrency", str(evaluation.concurrency), *_judges(profile)]
        if evaluation.usd_per_hour is not None:
            how += ["--gpu-usd-per-hour", str(evaluation.usd_per_hour)]
        server = ("--", *evaluation.server) if evaluation.server else ()

        def work(folder: Path) -> list[Work]:
            run = folder / "run"
            asks = _art_e("eval", "run", *how, "--out", run, run=run)
            return [Served(("serve", str(checkpoint), "--name", name), server, asks)]

        asked = evaluation.model_dump(mode="json")
        settings = {"judges": profile.judges, "seed": seed, **asked}
        return self.step("evaluation", which, settings, work, needs)


def _without_limits(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_limits(each) for name, each in value.items() if name != _LIMIT}
    return [_without_limits(each) for each in value] if isinstance(value, list | tuple) else value


def _digest(path: Path) -> str:
    """A hash of a file, or of all files of a folder with their names."""
    try:
        if not path.is_dir():
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        files = sorted(each for each in path.rglob("*") if each.is_file())
        parts = [f"{each.relative_to(path).as_posix()} {_digest(each)}" for each in files]
        return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()
    except OSError as error:
        raise UserError(f"can't read {path}: {error.strerror}; name another") from None


def _art_e(*words: object, run: Path | None = None) -> Command:
    return Command(tuple(map(str, words)), run)


def _judges(profile: Profile) -> list[str]:
    return [part for each in profile.judges for part in ("--judge", each)]


def _limit(usd: float | None) -> list[str]:
    return [] if usd is None else ["--max-cost", f"{usd:g}"]


def check_golden(golden: Path) -> None:
    """Raise `UserError` if the limit of cost left questions unwritten or unverified."""
    steps = json.loads((golden / "manifest.json").read_text("utf-8"))["steps"]
    lost = steps.get("generate", {}).get("batches", {}).get("lost", {}).get("budget", 0)
    unchecked: dict[str, dict[str, int]] = steps.get("verify", {}).get("unchecked", {})
    missing = sum(each.get("budget", 0) for each in unchecked.values())
    if lost or missing:
        what = f"{lost} batches were not asked for" if lost else f"{missing} checks were not made"
        raise UserError(
            f"{what} within golden.max_cost_usd: run the same command with a higher limit, by"
            " --set; what was paid for is kept"
        )


def check_run(run: Path) -> None:
    """Raise `UserError` if the limit of cost left questions unasked: half of the questions would
    give another figure."""
    for model, figures in metrics_of(run)["models"].items():
        if missing := figures["not_asked"]:
            raise UserError(
                f"{missing} of {figures['n'] + missing} questions were not asked of {model} within"
                f" baselines.max_cost_usd ({figures['stopped']['message']}):"
                f" delete {run}, and run the same command with a higher limit, by --set"
            )
