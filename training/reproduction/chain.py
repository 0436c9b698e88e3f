"""The chain of the talk as one script: mail, questions, prompts, baselines, training, test, report.

Every step runs the `art-e` commands that a user would, in a folder of its own: a process frees the
GPU for the next one. The folder's name has a hash of all that decides what is in it: settings,
files read, and the products of earlier steps. So a step is done once, another setting makes
another folder, and the same command resumes after a kill.
"""

import hashlib
import json
import re
import shlex
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from art_e import __version__
from art_e.errors import UserError
from art_e.parent import ends_with_parent
from art_e.runs import Run
from art_e.storage import expanded
from evals.benchmark import model_name, read_prompt
from evals.metrics import sample_of
from evals.scored import load_run
from training.commands import ART_E, Command, carry_out, train_command
from training.pooled import metrics_of
from training.recipe import RECIPE
from training.reproduction.profile import GENERATED, WORLD, Profile, prompt_path
from training.reproduction.report import CHOSEN, COMPARED, REPORT, chosen_seed, write_report

Stage = Literal["ingest", "golden", "prompts", "baselines", "sft", "grpo", "evaluation", "report"]
STAGES: tuple[Stage, ...] = get_args(Stage)
RECORD = "unit.json"
INBOX, QUESTIONS, GOLDEN = "inbox.duckdb", "inbox.questions.jsonl", "golden"
# A limit decides whether a step gets done, not what it makes.
_LIMIT = "max_cost_usd"
# The line that `art-e serve` prints once its server answers.
_ANSWERS = re.compile(r"HOSTED_VLLM_API_BASE=(\S+) --model ")

State = Literal["done", "begun", "to do", "to do or done"]

# ---- Steps that are done once.


class Served(NamedTuple):
    """The words of `art-e serve`, the server's own options, and a command that asks the server."""

    words: tuple[str, ...]
    options: tuple[str, ...]
    command: Command


Work = Command | Served | Callable[[], object]


@dataclass(frozen=True, slots=True)
class Unit:
    """A step of the chain as it stands. `digests` hashes its products, None until it is done."""

    stage: Stage
    name: str
    settings: Mapping[str, Any]
    folder: Path
    state: State
    digests: Mapping[str, str] | None
    commands: tuple[str, ...] = ()


class _Last(Exception):  # noqa: N818 - no error: the stage of --until is done
    pass


@dataclass
class Cache:
    """Does the steps of a chain in the folder `out`, up to the stage `last`.

    With `dry` nothing runs, and each step only notes its commands. `tell` is given each command.
    """

    out: Path
    last: Stage
    tell: Callable[[str], None]
    dry: bool = False
    units: list[Unit] = field(default_factory=list)

    def step(
        self,
        stage: Stage,
        name: str,
        settings: Mapping[str, Any],
        products: Sequence[str],
        work: Callable[[Path], Iterable[Work]],
        needs: Sequence[Unit] = (),
        reads: Sequence[Path] = (),
    ) -> Unit:
        """The step, done now unless it was done before; `work` gives what fills its folder.

        `settings`, the content of the files `reads` and the products of `needs` decide what is
        made. Raises `UserError` for a file that can't be read.
        """
        if STAGES.index(stage) > STAGES.index(self.last):
            raise _Last
        key = _key(name, settings, needs, reads)
        folder = self.out / f"{name}-{key or 'KEY'}"
        digests = _digests(folder, products)
        state: State = "to do" if digests is None else "done"
        if key is None and any(self.out.glob(f"{name}-*/{RECORD}")):
            state = "to do or done"
        elif digests is None and folder.is_dir():
            state = "begun"
        if not self.dry and digests is not None:
            self.tell(f"{stage}: {name}: done before, in {folder}")
        elif not self.dry:
            self.tell(f"{stage}: {name}{', resuming' if state == 'begun' else ''}")
            folder.mkdir(exist_ok=True)
            begun = time.monotonic()
            for each in work(folder):
                self._do(each)
            Run(folder).write_json(RECORD, {"seconds": time.monotonic() - begun})
            digests = _digests(folder, products)
        commands = [line for each in work(folder) for line in _shown(each)] if self.dry else []
        unit = Unit(stage, name, settings, folder, state, digests, tuple(commands))
        self.units.append(unit)
        return unit

    def _do(self, work: Work) -> None:
        if isinstance(work, Command):
            self._run(work)
        elif isinstance(work, Served):
            self._serve(work)
        else:
            work()

    def _run(self, command: Command, environment: Mapping[str, str] | None = None) -> None:
        self.tell(f"done before: {command}" if command.done else f"$ {command}")
        carry_out([command], environment)

    def _serve(self, served: Served) -> None:
        """Serve a checkpoint while the command asks it."""
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = str(listening.getsockname()[1])
        words = [*served.words, "--port", port, *served.options]
        self.tell(f"$ {shlex.join(['art-e', *words])}")
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
                self._run(served.command, {"HOSTED_VLLM_API_BASE": found[1]})
            finally:
                process.terminate()


def _shown(work: Work) -> list[str]:
    """The commands as a plan shows them."""
    if isinstance(work, Served):
        return [shlex.join(["art-e", *work.words, *work.options]), str(work.command)]
    return [str(work)] if isinstance(work, Command) else []


def _key(
    name: str, settings: Mapping[str, Any], needs: Sequence[Unit], reads: Sequence[Path]
) -> str | None:
    """A hash of all that decides what a step makes; None while a need is not made."""
    if any(each.digests is None for each in needs):
        return None
    decides = {
        "unit": name,
        "settings": _without_limits(settings),
        "reads": [_digest(each) for each in reads],
        "needs": [dict(each.digests or {}) for each in needs],
        "version": __version__,
    }
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:10]


def _without_limits(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_limits(each) for name, each in value.items() if name != _LIMIT}
    return [_without_limits(each) for each in value] if isinstance(value, list | tuple) else value


def _digests(folder: Path, products: Sequence[str]) -> dict[str, str] | None:
    """The products' hashes; None if the step is not done."""
    if not all((folder / each).exists() for each in (RECORD, *products)):
        return None
    return {name: _digest(folder / name) for name in products}


def _digest(path: Path) -> str:
    """A hash of a file, or of all files of a folder with their names."""
    try:
        if not path.is_dir():
            stat = path.stat()
            return _file_digest(path, stat.st_size, stat.st_mtime_ns)
        files = sorted(each for each in path.rglob("*") if each.is_file())
        parts = [f"{each.relative_to(path).as_posix()} {_digest(each)}" for each in files]
        return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()
    except OSError as error:
        raise UserError(f"can't read {path}: {error.strerror}; name another") from None


@cache
def _file_digest(path: Path, size: int, changed: int) -> str:
    """Cached by size and time of change: an inbox file is an input of every step."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ---- The chain.


def chosen_stage(name: str | None) -> Stage:
    """The stage of `--until`, by default the last. Raises `UserError` for an unknown one."""
    for stage in STAGES:
        if stage == (name or STAGES[-1]):
            return stage
    raise UserError(f"no stage {name!r}; there are {', '.join(STAGES)}")


def reproduce(profile: Profile, cache: Cache) -> list[Unit]:
    """Do the chain up to the cache's last stage; its steps. Raises `UserError` if one fails."""
    with suppress(_Last):
        _Chain(profile, cache).run()
    return cache.units


@dataclass
class _Chain:
    profile: Profile
    cache: Cache

    def run(self) -> None:
        profile, seeds = self.profile, self.profile.training.seeds
        ingested = self._ingest()
        self.golden_set = {"questions": "", "db": str(ingested.folder / INBOX)}
        golden = self._golden(ingested)
        self.golden_set["questions"] = str(golden.folder / GOLDEN)
        mail = [ingested, golden]
        prompts, prompt = self._prompts(mail)
        asked = [*mail, prompts]
        baselines = [
            self._ask("baselines", f"baseline-{_slug(model)}", model, prompt, asked)
            for model in profile.baselines.models
        ]
        starts: dict[int, Unit] = {}
        if profile.recipe.sft is not None:
            starts = {seed: self._train("sft", seed, prompt, asked) for seed in seeds}
        trained = {
            seed: self._train("grpo", seed, prompt, asked, starts.get(seed), baselines[0])
            for seed in seeds
        }
        runs = {seed: each.folder / "run" for seed, each in trained.items()}
        best = seeds[0] if self.cache.dry else chosen_seed(runs)
        start = starts[best].folder / "run" if starts else str(profile.recipe.model.base)
        self._evaluate("start", start, runs[best], [*mail, *starts.values(), *trained.values()])
        self._evaluate("trained", runs[best], runs[best], [*mail, *trained.values()])
        made = list(self.cache.units)
        folders = {each.name: each.folder for each in made}
        settings = {"profile": profile.to_row()}
        self.cache.step(
            "report",
            "report",
            settings,
            [REPORT],
            lambda folder: [partial(write_report, profile, folder, folders)],
            made,
        )

    def _ingest(self) -> Unit:
        ingest, sources = self.profile.ingest, self.profile.sources
        options = ["--format", ingest.format]
        options += [] if ingest.limit is None else ["--limit", str(ingest.limit)]
        of_world = self.profile.golden.questions == WORLD
        return self.cache.step(
            "ingest",
            "ingest",
            {"sources": sources, "format": ingest.format, "limit": ingest.limit},
            [INBOX, QUESTIONS] if of_world else [INBOX],
            lambda folder: [_art_e("ingest", *sources, *options, "--db", folder / INBOX)],
            reads=[path for each in sources if (path := expanded(each)).exists()],
        )

    def _golden(self, ingested: Unit) -> Unit:
        golden = self.profile.golden
        of_world = golden.questions == WORLD
        counts = {"train": golden.train, "validation": golden.validation, "test": golden.test}
        splits = [part for name, count in counts.items() for part in (f"--{name}", str(count))]
        limit = _limit(golden.max_cost_usd)

        def work(folder: Path) -> list[Work]:
            where = ["--db", self.golden_set["db"], "--out", folder / GOLDEN]
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
        settings, reads = golden.model_dump(mode="json"), [path] if path.exists() else []
        questions = [f"{GOLDEN}/questions.jsonl"]
        return self.cache.step("golden", "golden", settings, questions, work, [ingested], reads)

    def _prompts(self, mail: Sequence[Unit]) -> tuple[Unit, str | None]:
        """Ask each prompt of each model on validation; the step that chooses, and its choice.

        The prompt is None for the agent's own, and in a plan.
        """
        profile = self.profile
        paths = {each: prompt_path(each) for each in profile.prompts.compared}
        own = profile.recipe.episode.prompt
        prompts = {
            name: own if path is None else read_prompt(path).text for name, path in paths.items()
        }
        asked = {
            name: [
                self._ask("prompts", f"prompt-{_slug(name)}-{_slug(model)}", model, text, mail)
                for model in profile.asks_prompted
            ]
            for name, text in prompts.items()
        }
        runs = {name: [Run(each.folder / "run") for each in of] for name, of in asked.items()}
        unit = self.cache.step(
            "prompts",
            "prompts",
            {"compared": prompts, "models": profile.asks_prompted},
            [CHOSEN],
            lambda folder: [partial(choose_prompt, folder, prompts, runs)],
            [each for of in asked.values() for each in of],
        )
        if unit.digests is None:
            return unit, None
        return unit, json.loads((unit.folder / CHOSEN).read_text("utf-8"))["text"]

    def _ask(
        self,
        stage: Literal["prompts", "baselines"],
        name: str,
        model: str,
        prompt: str | None,
        needs: Sequence[Unit],
    ) -> Unit:
        """Ask a prompted model the questions of validation ("prompts") or test ("baselines")."""
        profile, recipe = self.profile, self.profile.recipe
        tested = stage == "baselines"
        options = [] if tested else ["--split", "validation"]
        options += _judges(profile)
        options += _limit((profile.baselines if tested else profile.prompts).max_cost_usd)

        def write_recipe(folder: Path) -> None:
            episode = recipe.episode.model_copy(update={"prompt": prompt})
            data = recipe.data.model_copy(update=self.golden_set)
            changed = recipe.model_copy(update={"episode": episode, "data": data})
            folder.mkdir(exist_ok=True)
            Run(folder).write_json(RECIPE, {"recipe": changed.to_row()})

        def work(folder: Path) -> list[Work]:
            run, own = folder / "run", folder / "recipe"
            how = ["-m", model, "--recipe", own, *options, "--out", run]
            return [
                partial(write_recipe, own),
                _art_e("eval", "run", *how, run=run),
                partial(check_run, run, f"{stage}.{_LIMIT}"),
            ]

        row = recipe.to_row()
        settings = {
            "judges": profile.judges,
            "recipe": {each: row[each] for each in ("data", "episode", "judging")},
            "model": model_name(model),
            **({} if tested else {"prompt": prompt}),
        }
        return self.cache.step(stage, name, settings, ["run"], work, needs)

    def _train(
        self,
        kind: Literal["sft", "grpo"],
        seed: int,
        prompt: str | None,
        needs: Sequence[Unit],
        start: Unit | None = None,
        baseline: Unit | None = None,
    ) -> Unit:
        training, recipe = self.profile.training, self.profile.recipe
        changes = [f"data.{name}={json.dumps(value)}" for name, value in self.golden_set.items()]
        # A model made from nothing has learnt no words but those of its mail: it keeps its prompt.
        if prompt is not None and recipe.model.base is not None:
            changes.append(f"episode.prompt={json.dumps(prompt)}")
        more = [] if training.base_model is None else ["--base-model", training.base_model]
        more += [] if baseline is None else ["--baseline", str(baseline.folder / "run")]
        init = None if start is None else start.folder / "run"
        changed = (*training.changes, *changes)
        row = recipe.to_row()
        # The other stage's table does not change this one.
        del row["grpo" if kind == "sft" else "sft"]
        return self.cache.step(
            kind,
            f"{kind}-{seed}",
            {"recipe": row, "seed": seed},
            ["run/metrics.json", "run/trajectories.jsonl", "run/checkpoints"],
            lambda folder: [
                train_command(kind, folder / "run", training.recipe, seed, changed, init, *more)
            ],
            # A baseline is drawn into the run's page and decides nothing.
            [*needs, *([] if start is None else [start])],
        )

    def _evaluate(
        self,
        which: Literal["start", "trained"],
        checkpoint: Path | str,
        recipe: Path,
        needs: Sequence[Unit],
    ) -> None:
        """Serve a checkpoint and ask it the questions of the test."""
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

        settings = {"judges": profile.judges, **evaluation.model_dump(mode="json")}
        self.cache.step("evaluation", which, settings, ["run"], work, needs)


def _art_e(*words: object, run: Path | None = None) -> Command:
    return Command(tuple(map(str, words)), run)


def _judges(profile: Profile) -> list[str]:
    return [part for each in profile.judges for part in ("--judge", each)]


def _limit(usd: float | None) -> list[str]:
    return [] if usd is None else ["--max-cost", f"{usd:g}"]


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", Path(name).name.lower()).strip("-")


def choose_prompt(
    folder: Path, prompts: Mapping[str, str | None], runs: Mapping[str, Sequence[Run]]
) -> None:
    """Choose the prompt with the largest share of episodes handled right, the first of equals.

    Handled right: a right answer or a right abstention; episodes of all models count alike. `runs`
    has a prompt's run of each model. Without any the first prompt stays. Writes `chosen.json` and
    `compared.json` into `folder`.
    """
    scored = {name: [one for run in of for one in load_run(run)] for name, of in runs.items() if of}
    share = {name: sum(one.correct for one in each) / len(each) for name, each in scored.items()}
    best = max(share, key=share.__getitem__) if share else next(iter(prompts))
    rows = [
        {
            "name": name,
            "models": sorted({one.trajectory.model for one in each}),
            "correct": sample_of(each).share([one.correct for one in each]),
            "hallucination": sample_of(each).share([one.wrong for one in each]),
            "turns": sample_of(each).mean([float(one.trajectory.rubric["turns"]) for one in each]),
        }
        for name, each in scored.items()
    ]
    Run(folder).write_json(COMPARED, rows)
    Run(folder).write_json(CHOSEN, {"name": best, "text": prompts[best]})


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


def check_run(run: Path, limit: str) -> None:
    """Raise `UserError` if the profile's `limit` left questions unasked: half of the questions
    would give another figure."""
    for model, figures in metrics_of(run)["models"].items():
        if missing := figures["not_asked"]:
            raise UserError(
                f"{missing} of {figures['n'] + missing} questions were not asked of {model} within"
                f" {limit} ({figures['stopped']['message']}):"
                f" delete {run}, and run the same command with a higher limit, by --set"
            )
