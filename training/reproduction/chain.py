"""The chain of the talk as a list of `art-e` commands, run one after the other.

Each runs in the reproduction's folder and leaves a stamp when it is done. After a kill the chain
skips what has a stamp, and the command that was killed resumes by itself.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, get_args

from pydantic import Field

from art_e.children import run_art_e
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
    """What differs between reproductions. The first of `judges` decides. `sources` are those of
    `art-e ingest`, `golden` the commands of `art-e golden`, `changes` what `--set` does to the
    recipe. `max_cost_usd` limits each baseline; the plan is for `gpu`."""

    name: str
    recipe: str
    changes: tuple[str, ...] = ()
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] = (0,)
    judges: Annotated[tuple[str, ...], Field(min_length=1)]
    sources: Annotated[tuple[str, ...], Field(min_length=1)]
    golden: Annotated[tuple[str, ...], Field(min_length=1)]
    baselines: Annotated[tuple[str, ...], Field(min_length=1)]
    max_cost_usd: NotNegative | None = None
    gpu: str | None = None
    usd_per_hour: NotNegative | None = None

    @cached_property
    def training(self) -> Recipe:
        """The recipe with its changes."""
        return load_recipe(self.recipe, self.changes)


class Step(NamedTuple):
    """A command of the chain; if it `makes_run`, that has its name, and may be resumed."""

    stage: Stage
    name: str
    words: list[str]
    makes_run: bool = False

    @property
    def line(self) -> str:
        """The command as a shell takes it."""
        return shlex.join(["art-e", *self.words])

    def is_done(self, out: Path) -> bool:
        """Whether its stamp is there. Raises `UserError` if another command left it."""
        stamp = out / STAMPS / self.name
        done = stamp.read_text("utf-8") if stamp.exists() else None
        # A limit decides whether a step gets done, not what it makes.
        if done is not None and _LIMIT.sub("", done) != _LIMIT.sub("", self.line):
            raise UserError(f"{self.name} was done by another command ({done}): give another --out")
        return done is not None

    def do(self, out: Path) -> None:
        """Run the command, or resume it. Raises `UserError` if it fails or is cut short."""
        run = Run(out / self.name)
        if not run.complete:
            words = [*self.words, *(["--resume"] if run.begun else [])]
            note(f"{self.name}: {shlex.join(['art-e', *words])}")
            if run_art_e(words, out):
                raise UserError(f"{self.name} failed, see above; run this again to resume")
        # A share of the questions would give another figure.
        if (self.makes_run and not run.complete) or (self.stage == "golden" and _cut(out / GOLDEN)):
            raise UserError(f"{self.name} was cut short: run this again, with a higher --max-cost")
        write_whole(out / STAMPS / self.name, self.line)


def _cut(golden: Path) -> bool:
    """Whether a limit of cost left questions unwritten or unverified."""
    done = json.loads((golden / "manifest.json").read_text("utf-8"))["steps"]
    lost = done.get("generate", {}).get("batches", {}).get("lost", {})
    unchecked = done.get("verify", {}).get("unchecked", {}).values()
    return any("budget" in reasons for reasons in (lost, *unchecked))


def steps(profile: Profile, out: Path) -> Iterator[Step]:
    """The chain, command by command. Do each step before you ask for the next one: which seed is
    tested depends on what training made. In a plan the first seed stands for the best."""
    # Absolute, because the commands run elsewhere.
    paths = [(each, expanded(each)) for each in profile.sources]
    mail = [str(path.resolve()) if path.exists() else each for each, path in paths]
    yield Step("ingest", "ingest", ["ingest", *mail, "--db", INBOX, "--replace"])
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
        return Step(stage, name, words, makes_run=True)

    for model in map(full_name, profile.baselines):
        name = re.sub(r"[^a-z0-9.]+", "-", Path(model).name.lower()).strip("-")
        yield asked("baselines", f"baseline-{name}", model, "--max-cost", profile.max_cost_usd)
    warm, seeds = profile.training.sft is not None, profile.seeds
    for kind in ("sft", "grpo") if warm else ("grpo",):
        for seed in seeds:
            init = ["--init", f"sft-{seed}"] if kind == "grpo" and warm else []
            name = f"{kind}-{seed}"
            words = ["train", kind, *recipe, *init, "--seed", str(seed), "--out", name]
            yield Step(kind, name, words, makes_run=True)
    runs = {seed: out / f"grpo-{seed}" for seed in seeds}
    best = chosen_seed(runs) if all(Run(run).complete for run in runs.values()) else seeds[0]
    first = f"sft-{best}" if warm else str(profile.training.model.base)
    for name, model in (("start", first), ("trained", f"grpo-{best}")):
        price = ("--gpu-usd-per-hour", profile.usd_per_hour)
        yield asked("evaluation", f"{name}-{best}", f"local:{model}", *price)


def chosen_seed(runs: Mapping[int, Path]) -> int:
    """Return the seed whose best validation of training handled most right, the first of equals;
    `runs` has the folder of each seed's GRPO run."""

    def merit(seed: int) -> tuple[float, float]:
        rows = [Validation(**each) for each in Run(runs[seed]).metrics["validation"]]
        return max(each.merit for each in rows if each.step)

    return max(runs, key=merit)
