"""The chain of the talk, from mail to report, as a list of `art-e` commands.

Each runs in the folder of the reproduction and leaves a stamp when it is done. After a kill the
chain skips what has a stamp, and the command that was killed resumes by itself.
"""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self, get_args

from pydantic import Field, model_validator

from art_e.cli.output import note
from art_e.errors import UserError
from art_e.models.model import full_name
from art_e.runs import Run
from art_e.storage import expanded, write_whole
from training.progress import Validation
from training.recipe import NotNegative, Recipe, RecipeTable, load_recipe

Stage = Literal["ingest", "golden", "baselines", "sft", "grpo", "evaluation", "report"]
STAGES: tuple[Stage, ...] = get_args(Stage)
# In the folder of a reproduction; a file of STAMPS holds the command that is done.
STAMPS, INBOX, GOLDEN, TEST = "done", "inbox.duckdb", "golden", "test"
_LIMIT = re.compile(r" --max-cost \S+")


class Profile(RecipeTable):
    """What differs between reproductions. The first of `judges` decides.

    `sources` are those of `art-e ingest` (none: the companies that the recipe holds out), `golden`
    the commands of `art-e golden`, `changes` those of the recipe as `--set` makes them.
    `max_cost_usd` limits each baseline. `gpu` is the one that the plan calculates with.
    """

    name: str
    recipe: str
    changes: tuple[str, ...] = ()
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] = (0,)
    judges: Annotated[tuple[str, ...], Field(min_length=1)]
    sources: tuple[str, ...] = ()
    golden: Annotated[tuple[str, ...], Field(min_length=1)]
    baselines: Annotated[tuple[str, ...], Field(min_length=1)]
    max_cost_usd: NotNegative | None = None
    gpu: str | None = None
    usd_per_hour: NotNegative | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.training.data.worlds is None and not self.sources:
            raise ValueError("sources are missing: the recipe has no worlds to hold out")
        if self.training.grpo is None:
            raise ValueError("the recipe has no table [grpo]")
        return self

    @cached_property
    def training(self) -> Recipe:
        """The recipe with its changes."""
        return load_recipe(self.recipe, self.changes)

    @property
    def mail(self) -> list[str]:
        """The sources; paths are absolute, because the commands run elsewhere."""
        if (worlds := self.training.data.worlds) is None or self.sources:
            paths = {each: expanded(each) for each in self.sources}
            return [str(path.resolve()) if path.exists() else each for each, path in paths.items()]
        options = {"vocabulary": worlds.vocabulary, "names": worlds.names}
        shared = ["short"] if worlds.short else []
        shared += [f"{name}={value}" for name, value in options.items() if value is not None]
        return [
            ",".join([f"synthetic:{worlds.size}", f"seed={seed}", *shared, f"split={split}"])
            for split, span in (("validation", worlds.validation), ("test", worlds.test))
            for seed in range(*span)
        ]


class Step(NamedTuple):
    """A command of the chain; `resumes` if it fills the folder `name` and takes `--resume`."""

    stage: Stage
    name: str
    words: list[str]
    resumes: bool = False

    @property
    def line(self) -> str:
        """The command as a shell takes it."""
        return shlex.join(["art-e", *self.words])

    def is_done(self, out: Path) -> bool:
        """Whether its stamp is there. Raises `UserError` if another command left it."""
        stamp = out / STAMPS / self.name
        if not stamp.exists():
            return False
        # A limit decides whether a step gets done, not what it makes.
        done, line = (_LIMIT.sub("", each) for each in (stamp.read_text("utf-8"), self.line))
        if done != line:
            raise UserError(f"{self.name} was done by another command ({done}): give another --out")
        return True

    def do(self, out: Path) -> None:
        """Run the command, or resume it. Raises `UserError` if it fails or is cut short."""
        run = Run(out / self.name)
        resume = ["--resume"] if self.resumes and run.begun else []
        if not (self.resumes and run.complete):
            note(f"{self.name}: {shlex.join(['art-e', *self.words, *resume])}")
            command = [sys.executable, "-m", "art_e", *self.words, *resume]
            # Standard output is for the result of the chain alone.
            code = subprocess.run(command, cwd=out, stdout=2, check=False).returncode
            if code:
                raise UserError(f"{self.name} failed, see above; run this again to resume")
        if self.resumes and not run.complete:
            # A share of the questions would give another figure.
            raise UserError(f"{self.name} was cut short: run this again, with a higher limit")
        if self.stage == "golden":
            check_golden(out / GOLDEN)
        write_whole(out / STAMPS / self.name, self.line)


def steps(profile: Profile, out: Path) -> Iterator[Step]:
    """The chain, command by command.

    Do each step before you ask for the next one: which seed is tested depends on what training
    made. In a plan the first seed stands for the best.
    """
    yield Step("ingest", "ingest", ["ingest", *profile.mail, "--db", INBOX, "--replace"])
    for line in profile.golden:
        words = ["golden", *shlex.split(line), "--db", INBOX, "--out", GOLDEN]
        yield Step("golden", f"golden-{words[1]}", words)
    changes = (*profile.changes, f"data.questions={GOLDEN}", f"data.db={INBOX}")
    recipe = ["--recipe", profile.recipe, *(word for each in changes for word in ("--set", each))]
    words = ["train", "questions", *recipe, "--split", "test", "--out", TEST]
    yield Step("golden", "questions", words)

    def asked(stage: Stage, name: str, model: str, *options: object) -> Step:
        judges = [word for each in profile.judges for word in ("--judge", each)]
        place = ["--questions", f"{TEST}/questions.jsonl", "--db", INBOX, "--recipe", TEST]
        limits = [str(each) for each in options if options[-1] is not None]
        words = ["eval", "run", "-m", model, *place, *judges, *limits, "--out", name]
        return Step(stage, name, words, resumes=True)

    for model in map(full_name, profile.baselines):
        name = re.sub(r"[^a-z0-9.]+", "-", Path(model).name.lower()).strip("-")
        yield asked("baselines", f"baseline-{name}", model, "--max-cost", profile.max_cost_usd)
    warm, seeds = profile.training.sft is not None, profile.seeds
    for kind in ("sft", "grpo") if warm else ("grpo",):
        for seed in seeds:
            init = ["--init", f"sft-{seed}"] if kind == "grpo" and warm else []
            name = f"{kind}-{seed}"
            words = ["train", kind, *recipe, *init, "--seed", str(seed), "--out", name]
            yield Step(kind, name, words, resumes=True)
    runs = {seed: out / f"grpo-{seed}" for seed in seeds}
    done = all(Run(run).complete for run in runs.values())
    best = chosen_seed(runs) if done else seeds[0]
    first = f"sft-{best}" if warm else str(profile.training.model.base)
    for name, model in (("start", first), ("trained", f"grpo-{best}")):
        price = ("--gpu-usd-per-hour", profile.usd_per_hour)
        yield asked("evaluation", f"{name}-{best}", f"local:{model}", *price)


def check_golden(golden: Path) -> None:
    """Raise `UserError` if the limit of cost left questions unwritten or unverified."""
    done = json.loads((golden / "manifest.json").read_text("utf-8"))["steps"]
    lost = done.get("generate", {}).get("batches", {}).get("lost", {}).get("budget", 0)
    unchecked: dict[str, dict[str, int]] = done.get("verify", {}).get("unchecked", {})
    lost += sum(each.get("budget", 0) for each in unchecked.values())
    if lost:
        raise UserError(
            f"the limit of cost left out {lost} calls: run this again with a higher one"
        )


def chosen_seed(runs: Mapping[int, Path]) -> int:
    """Return the seed whose best checkpoint handled most of its validation right, the first of
    equals; `runs` has the folder of each seed's GRPO run."""

    def merit(seed: int) -> tuple[float, float]:
        metrics = Run(runs[seed]).metrics
        step = int(str(metrics["best_checkpoint"]).rpartition("-")[2])
        validations = [Validation(**each) for each in metrics["validation"]]
        return next(each.merit for each in validations if each.step == step)

    return max(runs, key=merit)
