"""The chain of the talk as one script: mail, questions, prompts, baselines, training, test, report.

Every step runs the `art-e` commands that a user would, in a folder of its own. The folder's name
has a hash of all that decides what is in it: settings, files read, and the products of earlier
steps. So a step is done once, another setting makes another folder, and the same command resumes
after a kill.
"""

import hashlib
import json
import os
import re
import shlex
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
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
from training.recipe import RECIPE, Recipe
from training.reproduction.profile import GENERATED, WORLD, Golden, Profile, prompt_path
from training.reproduction.report import CHOSEN, COMPARED, REPORT, chosen_seed, write_report

Stage = Literal["ingest", "golden", "prompts", "baselines", "sft", "grpo", "evaluation", "report"]
STAGES: tuple[Stage, ...] = get_args(Stage)
RECORD = "unit.json"
INBOX, QUESTIONS, GOLDEN = "inbox.duckdb", "inbox.questions.jsonl", "golden"
_KEY_CHARS = 10
# A limit decides whether a step gets done, not what it makes.
_NO_SETTING = "max_cost_usd"
# The line that `art-e serve` prints once its server answers.
_ANSWERS = re.compile(r"HOSTED_VLLM_API_BASE=(\S+) --model (\S+)")

State = Literal["done", "begun", "to do", "to do or done"]


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
    _commands: list[str] = field(default_factory=list)
    _environment: dict[str, str] = field(default_factory=dict)
    _seen: dict[tuple[str, int, int], str] = field(default_factory=dict)

    def step(
        self,
        stage: Stage,
        name: str,
        settings: Mapping[str, Any],
        products: Sequence[str],
        make: Callable[[Path], None],
        needs: Sequence[Unit] = (),
        reads: Sequence[Path] = (),
    ) -> Unit:
        """The step, done now unless it was done before; `make` fills its folder.

        `settings`, the content of the files `reads` and the products of `needs` decide what is
        made. Raises `UserError` for a file that can't be read.
        """
        if STAGES.index(stage) > STAGES.index(self.last):
            raise _Last
        key = self._key(name, settings, needs, reads)
        folder = self.out / f"{name}-{key[:_KEY_CHARS] if key else 'KEY'}"
        digests = self._digests(folder, products)
        state: State = "done" if digests is not None else "to do"
        if digests is None and key is None and any(self.out.glob(f"{name}-*/{RECORD}")):
            state = "to do or done"
        elif digests is None and folder.is_dir():
            state = "begun"
        if not self.dry:
            resuming = ", resuming" if state == "begun" else ""
            shown = f"done before, in {folder}" if digests is not None else resuming
            self.tell(f"{stage}: {name}{': ' if digests is not None else ''}{shown}")
            if digests is None:
                folder.mkdir(exist_ok=True)
                begun = time.monotonic()
                make(folder)
                Run(folder).write_json(RECORD, {"seconds": time.monotonic() - begun})
                digests = self._digests(folder, products)
        else:
            self._commands = []
            make(folder)
        unit = Unit(stage, name, settings, folder, state, digests, tuple(self._commands))
        self.units.append(unit)
        return unit

    def art_e(self, *words: str | Path, run: Path | None = None) -> None:
        """Run a command that makes `run`. Raises `UserError` if it fails."""
        self.command(Command(tuple(map(str, words)), run))

    def command(self, command: Command) -> None:
        """Run a command unless it is done. Raises `UserError` if it fails."""
        if self.dry:
            self._commands.append(str(command))
            return
        self.tell(f"done before: {command}" if command.done else f"$ {command}")
        carry_out([command], self._environment)

    @contextmanager
    def serving(self, checkpoint: Path | str, name: str, options: Sequence[str]) -> Iterator[None]:
        """Serve the checkpoint as hosted_vllm/NAME. Raises `UserError` if it does not start."""
        words = ["serve", str(checkpoint), "--name", name]
        after = ["--", *options] if options else []
        if self.dry:
            self._commands.append(shlex.join(["art-e", *words, *after]))
            yield
            return
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = str(listening.getsockname()[1])
        self.tell(f"$ {shlex.join(['art-e', *words, '--port', port, *after])}")
        with subprocess.Popen(
            [*ART_E, *words, "--port", port, *after],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            env=dict(os.environ),
            preexec_fn=ends_with_parent(),  # noqa: PLW1509 - no thread is beside this one
        ) as process:
            assert process.stdout is not None
            try:
                found = next(filter(None, map(_ANSWERS.search, process.stdout)), None)
                if found is None:
                    raise UserError(f"art-e serve {checkpoint} did not start; its output is above")
                self._environment["HOSTED_VLLM_API_BASE"] = found[1]
                yield
            finally:
                self._environment.pop("HOSTED_VLLM_API_BASE", None)
                process.terminate()

    def _key(
        self, name: str, settings: Mapping[str, Any], needs: Sequence[Unit], reads: Sequence[Path]
    ) -> str | None:
        """A hash of all that decides what a step makes; None while a need is not made."""
        if any(each.digests is None for each in needs):
            return None
        decides = {
            "unit": name,
            "settings": _without_limits(dict(settings)),
            "reads": [self._digest(each) for each in reads],
            "needs": [dict(each.digests or {}) for each in needs],
            "version": __version__,
        }
        return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()

    def _digests(self, folder: Path, products: Sequence[str]) -> dict[str, str] | None:
        """The products' hashes; None if the step is not done."""
        record, paths = folder / RECORD, {each: folder / each for each in products}
        if not record.exists() or not all(each.exists() for each in paths.values()):
            return None
        try:
            json.loads(record.read_text("utf-8"))
        except (OSError, ValueError):
            raise UserError(f"{record} can't be read; delete {folder}") from None
        return {name: self._digest(path) for name, path in paths.items()}

    def _digest(self, path: Path) -> str:
        """A hash of a file, or of all files of a folder with their names."""
        try:
            if not path.is_dir():
                return self._digest_of_file(path)
            files = sorted(each for each in path.rglob("*") if each.is_file())
            parts = [
                f"{each.relative_to(path).as_posix()} {self._digest_of_file(each)}"
                for each in files
            ]
            return hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()
        except OSError as error:
            raise UserError(f"can't read {path}: {error.strerror}; name another") from None

    def _digest_of_file(self, path: Path) -> str:
        # Remembered by size and time of change: an inbox file is read for each step.
        stat = path.stat()
        place = str(path), stat.st_size, stat.st_mtime_ns
        if place not in self._seen:
            with path.open("rb") as file:
                self._seen[place] = hashlib.file_digest(file, "sha256").hexdigest()
        return self._seen[place]


def chosen_stage(name: str | None) -> Stage:
    """The stage of `--until`, by default the last. Raises `UserError` for an unknown one."""
    chosen = STAGES[-1] if name is None else next((each for each in STAGES if each == name), None)
    if chosen is None:
        raise UserError(f"no stage {name!r}; there are {', '.join(STAGES)}")
    return chosen


def reproduce(profile: Profile, cache: Cache) -> list[Unit]:
    """Do the chain up to the cache's last stage; its steps. Raises `UserError` if one fails."""
    with suppress(_Last):
        _Chain(profile, cache).run()
    return cache.units


class ChosenPrompt(NamedTuple):
    """The step that chose a prompt, and the prompt: None for the agent's own, and in a plan."""

    unit: Unit
    prompt: str | None


@dataclass
class _Chain:
    profile: Profile
    cache: Cache

    def run(self) -> None:
        profile = self.profile
        ingested = self._ingest()
        golden = self._golden(ingested)
        mail = [ingested, golden]
        chosen = self._prompts(mail)
        baselines = [self._baseline(each, mail, chosen) for each in profile.baselines.models]
        starts: dict[int, Unit] = {}
        if profile.recipe.sft is not None:
            starts = {
                seed: self._train("sft", seed, mail, chosen, None)
                for seed in profile.training.seeds
            }
        trained = {
            seed: self._train("grpo", seed, mail, chosen, starts.get(seed), baselines[0])
            for seed in profile.training.seeds
        }
        runs = {seed: each.folder / "run" for seed, each in trained.items()}
        seed = profile.training.seeds[0] if self.cache.dry else chosen_seed(runs)
        base = profile.recipe.model.base
        start = starts[seed].folder / "run" if starts else str(base)
        ends = trained.values()
        self._evaluate("start", start, runs[seed], [*mail, *starts.values(), *ends])
        self._evaluate("trained", runs[seed], runs[seed], [*mail, *ends])
        made = list(self.cache.units)
        self.cache.step(
            "report",
            "report",
            {"profile": profile.to_row()},
            [REPORT],
            lambda folder: self._unless_dry(
                lambda: write_report(profile, folder, {each.name: each.folder for each in made})
            ),
            made,
        )

    def _ingest(self) -> Unit:
        ingest = self.profile.ingest
        limit = [] if ingest.limit is None else ["--limit", str(ingest.limit)]
        paths = map(expanded, self.profile.sources)
        of_world = self.profile.golden.questions == WORLD
        return self.cache.step(
            "ingest",
            "ingest",
            {"sources": self.profile.sources, "format": ingest.format, "limit": ingest.limit},
            [INBOX, QUESTIONS] if of_world else [INBOX],
            lambda folder: self.cache.art_e(
                "ingest", *self.profile.sources,
                "--format", ingest.format, *limit, "--db", folder / INBOX,
            ),
            reads=[each for each in paths if each.exists()],
        )  # fmt: skip

    def _golden(self, ingested: Unit) -> Unit:
        golden, art_e = self.profile.golden, self.cache.art_e
        of_world = golden.questions == WORLD

        def make(folder: Path) -> None:
            where = ["--db", str(ingested.folder / INBOX), "--out", str(folder / GOLDEN)]
            if golden.questions == GENERATED:
                how = ["--batches", str(golden.batches), "--min-mails", str(golden.min_mails)]
                how += [*_splits(golden), *_limit(golden.max_cost_usd)]
                art_e("golden", "generate", "--model", golden.writer, *how, *where)
            else:
                source = ingested.folder / QUESTIONS if of_world else golden.questions
                art_e("golden", "import", source, *where)
            art_e("golden", "filter", *where)
            reader = ["--model", golden.reader, "--judge", golden.judge]
            art_e("golden", "verify", *reader, *_limit(golden.max_cost_usd), *where)
            # A world's questions come with their splits.
            art_e("golden", "split", *([] if of_world else _splits(golden)), *where)
            art_e("golden", "stats", folder / GOLDEN)
            self._unless_dry(lambda: check_golden(folder / GOLDEN))

        path = expanded(golden.questions)
        return self.cache.step(
            "golden",
            "golden",
            golden.model_dump(mode="json"),
            [f"{GOLDEN}/questions.jsonl"],
            make,
            [ingested],
            [path] if path.exists() else [],
        )

    def _prompts(self, mail: Sequence[Unit]) -> ChosenPrompt:
        """Ask each prompt of each model on validation, and choose one."""
        profile = self.profile
        prompts = {each: _prompt_text(each, profile.recipe) for each in profile.prompts.compared}
        runs = {
            name: [
                self._ask("prompts", f"prompt-{_slug(name)}-{_slug(model)}", model, text, mail)
                for model in profile.asks_prompted
            ]
            for name, text in prompts.items()
        }
        unit = self.cache.step(
            "prompts",
            "prompts",
            {"compared": prompts, "models": profile.asks_prompted},
            [CHOSEN],
            lambda folder: self._unless_dry(
                lambda: choose_prompt(
                    folder,
                    prompts,
                    {name: [Run(one.folder / "run") for one in of] for name, of in runs.items()},
                )
            ),
            [each for of in runs.values() for each in of],
        )
        if self.cache.dry and unit.state != "done":
            return ChosenPrompt(unit, None)
        return ChosenPrompt(unit, json.loads((unit.folder / CHOSEN).read_text("utf-8"))["text"])

    def _baseline(self, model: str, mail: Sequence[Unit], chosen: ChosenPrompt) -> Unit:
        needs = [*mail, chosen.unit]
        return self._ask("baselines", f"baseline-{_slug(model)}", model, chosen.prompt, needs)

    def _ask(
        self,
        stage: Literal["prompts", "baselines"],
        name: str,
        model: str,
        prompt: str | None,
        needs: Sequence[Unit],
    ) -> Unit:
        """Ask a prompted model the questions of validation ("prompts") or test ("baselines")."""
        profile = self.profile
        limit = (profile.prompts if stage == "prompts" else profile.baselines).max_cost_usd
        split = ["--split", "validation"] if stage == "prompts" else []

        def make(folder: Path) -> None:
            run = folder / "run"
            recipe = self._recipe(folder / "recipe", needs, prompt)
            how = ["--recipe", str(recipe), *split, *_judges(profile), *_limit(limit)]
            self.cache.art_e("eval", "run", "-m", model, *how, "--out", run, run=run)
            self._unless_dry(lambda: check_run(run, f"{stage}.max_cost_usd"))

        row = profile.recipe.to_row()
        settings = {
            "judges": profile.judges,
            "recipe": {each: row[each] for each in ("data", "episode", "judging")},
            "model": model_name(model),
            **({"prompt": prompt} if stage == "prompts" else {}),
        }
        return self.cache.step(stage, name, settings, ["run"], make, needs)

    def _train(
        self,
        kind: Literal["sft", "grpo"],
        seed: int,
        mail: Sequence[Unit],
        chosen: ChosenPrompt,
        start: Unit | None,
        baseline: Unit | None = None,
    ) -> Unit:
        training, recipe = self.profile.training, self.profile.recipe
        changes = [f"data.{name}={json.dumps(value)}" for name, value in _data(mail).items()]
        # A model made from nothing knows no words but those of its mail: it keeps its prompt.
        if chosen.prompt is not None and recipe.model.base is not None:
            changes.append(f"episode.prompt={json.dumps(chosen.prompt)}")

        def make(folder: Path) -> None:
            more = [] if training.base_model is None else ["--base-model", training.base_model]
            more += [] if baseline is None else ["--baseline", str(baseline.folder / "run")]
            init = None if start is None else start.folder / "run"
            changed = (*training.changes, *changes)
            self.cache.command(
                train_command(kind, folder / "run", training.recipe, seed, changed, init, *more)
            )

        row = recipe.to_row()
        # The other stage's table does not change this one.
        del row["grpo" if kind == "sft" else "sft"]
        return self.cache.step(
            kind,
            f"{kind}-{seed}",
            {"recipe": row, "seed": seed},
            ["run/metrics.json", "run/trajectories.jsonl", "run/checkpoints"],
            make,
            # A baseline is drawn into the run's page and decides nothing.
            [*mail, chosen.unit, *([] if start is None else [start])],
        )

    def _evaluate(
        self,
        which: Literal["start", "trained"],
        checkpoint: Path | str,
        recipe: Path,
        needs: Sequence[Unit],
    ) -> Unit:
        """Serve a checkpoint and ask it the questions of the test."""
        profile, evaluation = self.profile, self.profile.evaluation
        how = ["--recipe", str(recipe), "--concurrency", str(evaluation.concurrency)]
        how += _judges(profile)
        if evaluation.usd_per_hour is not None:
            how += ["--gpu-usd-per-hour", str(evaluation.usd_per_hour)]

        def make(folder: Path) -> None:
            name, run = f"{profile.name}-{which}", folder / "run"
            with self.cache.serving(checkpoint, name, evaluation.server):
                model = f"hosted_vllm/{name}"
                self.cache.art_e("eval", "run", "-m", model, *how, "--out", run, run=run)

        settings = {"judges": profile.judges, **evaluation.model_dump(mode="json")}
        return self.cache.step("evaluation", which, settings, ["run"], make, needs)

    def _recipe(self, folder: Path, mail: Sequence[Unit], prompt: str | None) -> Path:
        """Write the recipe with the golden set's questions, for `--recipe`; its folder."""
        if not self.cache.dry:
            recipe = self.profile.recipe
            changed = recipe.model_copy(
                update={
                    "episode": recipe.episode.model_copy(update={"prompt": prompt}),
                    "data": recipe.data.model_copy(update=_data(mail)),
                }
            )
            folder.mkdir(exist_ok=True)
            Run(folder).write_json(RECIPE, {"recipe": changed.to_row()})
        return folder

    def _unless_dry(self, work: Callable[[], object]) -> None:
        if not self.cache.dry:
            work()


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
    models: dict[str, dict[str, Any]] = metrics_of(run)["models"]
    for model, figures in models.items():
        # Runs of earlier versions have no such count.
        if missing := figures.get("not_asked"):
            raise UserError(
                f"{missing} of {figures['n'] + missing} questions were not asked of {model} within"
                f" {limit} ({figures['stopped']['message']}):"
                f" delete {run}, and run the same command with a higher limit, by --set"
            )


def _data(mail: Sequence[Unit]) -> dict[str, str]:
    ingested, golden = mail[:2]
    return {"questions": str(golden.folder / GOLDEN), "db": str(ingested.folder / INBOX)}


def _prompt_text(name: str, recipe: Recipe) -> str | None:
    """The text of a prompt; "default" is the recipe's own. Raises `UserError` for no file."""
    path = prompt_path(name)
    return recipe.episode.prompt if path is None else read_prompt(path).text


def _splits(golden: Golden) -> list[str]:
    counts = {"train": golden.train, "validation": golden.validation, "test": golden.test}
    return [part for name, count in counts.items() for part in (f"--{name}", str(count))]


def _judges(profile: Profile) -> list[str]:
    return [part for each in profile.judges for part in ("--judge", each)]


def _limit(usd: float | None) -> list[str]:
    return [] if usd is None else ["--max-cost", f"{usd:g}"]


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", Path(name).name.lower()).strip("-")


def _without_limits(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_limits(each) for name, each in value.items() if name != _NO_SETTING}
    return [_without_limits(each) for each in value] if isinstance(value, list | tuple) else value
