"""Killed or interrupted benchmarks resume: nothing is lost, or paid or counted twice."""

import json
import shutil
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from art_e.cli.main import app
from art_e.errors import UserError
from art_e.models.base import Usage
from art_e.runs import Run, locked_run, read_trajectories, start_run
from art_e.storage import append_line, whole_lines
from art_e.tools import WHOLE_VIEW
from data_pipeline.synthetic.world import WorldConfig, questions
from evals.benchmark import BenchmarkConfig, find_unfinished
from evals.scored import Key
from tests.builders import answer, read, search, the_error, tries
from tests.command_line import json_of
from tests.evals.runs import write_questions
from tests.processes import Killing
from tests.provider import Provider, Reply, Request, says

ASKED = [each for each in questions(WorldConfig(size=1000)) if each.answerable][:3]
MODELS = ("openai/o3", "openai/gpt-4.1")
EVERYTHING = [Key(model, each.id, 0) for model in MODELS for each in ASKED]
USAGE = Usage(10_000, 2_000, 1_000, 400)
COST = 0.016 + 0.001 + 0.008  # per call, at both models' prices
TURNS = 3  # search, read, answer


class Answering:
    """The provider's rule: three turns per question; the last question gets a wrong answer."""

    def __init__(self) -> None:
        self.finished: Counter[Key] = Counter()
        self.calls: list[Key] = []

    def __call__(self, request: Request) -> Reply:
        text = request.messages[1]["content"]
        [question] = [each for each in ASKED if each.question == text]
        turn = sum(each["role"] == "assistant" for each in request.messages)
        key = Key(f"openai/{request.body['model']}", question.id, 0)
        self.calls.append(key)
        if turn == TURNS - 1:
            self.finished[key] += 1
        text = "Purple elephants." if question == ASKED[-1] else question.answer
        final = answer(text, *question.message_ids)
        calls = (search("the"), read(question.message_ids[0]), final)
        return says(None, calls[turn], usage=USAGE)


class Benchmark:
    """Runs `art-e eval run` of both models on the questions, into the folder `out`."""

    def __init__(self, provider: Provider, db: Path, folder: Path) -> None:
        self.out = folder / "run"
        self._environment = provider.environment(folder / "home")
        golden = write_questions(folder / "questions.jsonl", ASKED)
        models = ["-m", MODELS[0], "-m", MODELS[1]]
        files = ["--questions", str(golden), "--db", str(db)]
        self._arguments = ["eval", "run", *models, *files, "--judge", "offline", "--json"]

    def killed(self, killing: Killing, *more: str) -> str:
        """Run the command as a process until it is killed; return its stderr."""
        arguments = [*self._arguments, "--out", str(self.out), *more]
        return killing.run(arguments, self._environment)

    def invoke(self, *more: str, out: bool = True) -> Result:
        where = ["--out", str(self.out)] if out else []
        return CliRunner(env=self._environment).invoke(app, [*self._arguments, *where, *more])

    def done(self, *more: str, out: bool = True) -> dict[str, Any]:
        return dict(json_of(self.invoke(*more, out=out)))

    def episodes(self) -> list[Key]:
        path = self.out / "trajectories.jsonl"
        trajectories = read_trajectories(path) if path.exists() else ()
        return [Key(each.model, each.question_id, each.repeat) for each in trajectories]


def lasting(metrics: dict[str, Any]) -> dict[str, Any]:
    """Return the metrics without times, concurrency and the run's folder."""
    left_out = ("latency_p50_s", "latency_p95_s", "latency_parts_s", "concurrency")
    models = {
        model: {name: value for name, value in figures.items() if name not in left_out}
        for model, figures in metrics["models"].items()
    }
    return {**metrics, "run": None, "models": models}


@pytest.fixture(scope="module")
def unkilled(world_db: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with Provider(Answering()) as provider:
        return lasting(Benchmark(provider, world_db, tmp_path_factory.mktemp("unkilled")).done())


# Before the first answer; by Ctrl-C; during a question of the second model; with several running.
@pytest.mark.fire
@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize(
    ("kill_at", "interrupts", "at_once"),
    [
        pytest.param(0, False, 1, marks=pytest.mark.long), (TURNS + 1, True, 1), (7, False, 3),
        pytest.param(TURNS * len(ASKED) + 1, False, 1, marks=pytest.mark.long),
        *((Random(seed).randrange(18), False, seed % 3 + 1) for seed in range(tries(0, 18))),
    ],
)  # fmt: skip
def test_resumed_run_has_the_same_results(
    world_db: Path, tmp_path: Path, unkilled: dict[str, Any],
    kill_at: int, interrupts: bool, at_once: int,
) -> None:  # fmt: skip
    rule = Answering()
    killing = Killing(rule, kill_at, interrupts=interrupts)
    options = ("--concurrency", str(at_once))
    with Provider(killing) as provider:
        benchmark = Benchmark(provider, world_db, tmp_path)
        stderr = benchmark.killed(killing, *options)
        assert not (benchmark.out / "COMPLETE").exists()
        survived = benchmark.episodes()
        calls_before = len(rule.calls)
        resumed = benchmark.done("--resume", *options)
    assert lasting(resumed) == unkilled
    if interrupts:
        assert f"give the same command with --resume --out {benchmark.out}" in stderr
        assert "Traceback" not in stderr
    # A question whose line was on disk is not asked again, and counts once.
    assert not set(survived) & set(rule.calls[calls_before:])
    assert Counter(benchmark.episodes()) == Counter(EVERYTHING)
    assert (benchmark.out / "COMPLETE").exists()
    # Episodes continue after their last stored turn: only calls running at the kill are repeated.
    assert len(rule.calls) <= TURNS * len(EVERYTHING) + at_once - 1
    assert set(rule.finished) == set(EVERYTHING)
    if at_once == 1:
        assert len(survived) == kill_at // TURNS
        assert Counter(rule.calls) == Counter(TURNS * EVERYTHING)


def killed_copy(whole: Run, name: str, episodes: int) -> Run:
    """Copy the run as if it had been killed after `episodes` episodes."""
    killed = whole.folder.with_name(name)
    shutil.copytree(whole.folder, killed)
    (killed / "COMPLETE").unlink()
    for file, count in (("trajectories.jsonl", episodes), ("turns.jsonl", TURNS * episodes)):
        lines = (killed / file).read_bytes().splitlines(keepends=True)[:count]
        (killed / file).write_bytes(b"".join(lines))
    return Run(killed)


def test_newest_killed_run_resumes_with_its_cost(world_db: Path, tmp_path: Path) -> None:
    rule = Answering()
    with Provider(rule) as provider:
        benchmark = Benchmark(provider, world_db, tmp_path)
        whole = Run(Path(benchmark.done(out=False)["run"]))
        killed = killed_copy(whole, "20990101-000000-eval", len(EVERYTHING) - 1)
        calls_before = len(rule.calls)
        assert benchmark.done("--resume", out=False)["run"] == str(killed.folder)
        assert len(rule.calls) == calls_before + TURNS
        # Now no run is unfinished, and a new one starts.
        new = benchmark.invoke("--resume", "--limit", "1", out=False)
        assert "nothing to resume" in new.stderr
        # A complete run may be named; there is nothing to ask.
        calls_before = len(rule.calls)
        benchmark.out = killed.folder
        again = benchmark.invoke("--resume")
        assert len(rule.calls) == calls_before
        assert "6 episodes there already" in again.stderr
        assert "estimate" not in again.stderr
        # The limit pays for three questions, but a call is not made if its longest answer could
        # exceed it. If the limit started again, the first model would be asked the third question.
        benchmark.out = killed_copy(whole, "paid", 2).folder
        resumed = benchmark.done("--resume", "--max-cost", str(len(ASKED) * TURNS * COST))
        # Replayed turns count with their original seconds.
        slow = killed_copy(whole, "slow", len(EVERYTHING) - 1)
        for line in list(whole_lines(whole.folder / "turns.jsonl"))[-TURNS:-1]:
            row = json.loads(line) | {"seconds": 5}
            append_line(slow.folder / "turns.jsonl", json.dumps(row))
        benchmark.out = slow.folder
        benchmark.done("--resume")
    *_, last = read_trajectories(slow.trajectories)
    assert 10 < last.seconds["model"] < last.seconds["total"] < 15
    first = resumed["models"][MODELS[0]]
    assert (first["n"], first["not_asked"], first["errors_by_kind"]) == (2, 0, {"budget": 1})
    assert first["cost_usd"] == pytest.approx(2 * TURNS * COST)


CONFIG = BenchmarkConfig(
    models=["m"], concurrency={"m": 1}, prompt={"name": "default"}, judges=["offline/9"],
    questions="world.questions.jsonl", questions_hash="0", split="test", limit=5,
    max_turns=10, view=WHOLE_VIEW, db="here.duckdb", inbox="0", command="art-e",
)  # fmt: skip


def test_only_an_unfinished_run_of_the_same_options_is_resumed(tmp_path: Path) -> None:
    run = start_run("eval", CONFIG.model_dump(mode="json"), tmp_path / "runs")
    start_run("train", {"limit": 5}, tmp_path / "runs")

    def killed(out: Path | None = None, **changes: Any) -> Run | None:
        return find_unfinished(CONFIG.model_copy(update=changes), tmp_path / "runs", out)

    for out in (run.folder, None):
        line = the_error(killed, out, limit=6, split=None)
        assert 'split "test", not null; limit 5, not 6' in line and "models" not in line
        # The inbox file may have moved, and the limit be higher.
        assert killed(out, max_cost_usd=7.0, command="art-e ...", db="elsewhere.duckdb") == run
    assert 'made with inbox "0", not "1"' in the_error(killed, inbox="1")
    busy = pytest.raises(UserError, match="running in another process")
    with locked_run(run), busy, locked_run(run):
        pass
    # Complete runs are skipped.
    run.finish()
    assert killed(limit=6) is None
    assert killed(tmp_path / "new") is None
