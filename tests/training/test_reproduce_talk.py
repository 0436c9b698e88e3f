"""Every stage of the profile `talk`, small: mail, questions by a model, baselines, GRPO with an
adapter, the checkpoint served, the report. Killed on the way.

The code is that of the real thing. Hosted models are a local server that speaks OpenAI's protocol,
a tiny Qwen2 takes the place of the one of 14 billion weights, and a command that notes how it was
called that of vLLM. The mail is Enron's if
ART_E_REAL_DATA names it, else a made-up company's.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from typer.testing import CliRunner

from art_e.cli.main import app
from art_e.message import ToolCall
from art_e.question import load_questions
from art_e.trajectory import read_trajectories
from tests.builders import tries
from tests.golden import Player, form_of
from tests.processes import pairs, write_vllm
from tests.provider import KEY, Provider, Reply, Request, says
from training.reproduction.chain import RECORD, steps
from training.reproduction.profile import load_profile

# The models by what they are like; all of them are the provider's.
GOOD, WRITER, READER, JUDGE = (
    "openai/o3",
    "openai/gpt-4.1-mini",
    "openai/gpt-4o",
    "openai/gpt-4o-mini",
)


class Players:
    """The provider's rule."""

    def __init__(self) -> None:
        self._golden = Player()

    def __call__(self, request: Request) -> Reply:
        if request.body.get("tools"):
            return says(None, self._next_call(request))
        if form_of(request) == "Support":
            return says(json.dumps({"reason": "It stands there.", "verdict": "supported"}))
        return self._golden(request)

    def _next_call(self, request: Request) -> ToolCall:
        _, _, *observations = request.messages
        if not observations:
            return ToolCall("call", "search_emails", json.dumps({"keywords": ["notes"]}))
        final = {"answer": "I don't know", "sources": []}
        return ToolCall("call", "return_final_answer", json.dumps(final))


ARCHIVE = Path(os.environ.get("ART_E_REAL_DATA", "none")) / "enron-maildir.tar.xz"
# What is smaller than in the profile, and who stands in for whom.
CHANGES: dict[str, dict[str, Any]] = {
    "ingest": {"sources": [str(ARCHIVE) if ARCHIVE.is_file() else "synthetic:1000,seed=3"]},
    "golden": {
        "writer": WRITER, "reader": READER, "judge": JUDGE,
        "batches": 2, "train": 1, "validation": 1, "test": 1, "min_mails": 20,
    },
    "baselines": {"models": ["o3"]},
}  # fmt: skip
RECIPE = (
    "episode.turn_tokens=12", "episode.episode_tokens=4_000",
    "judging.reward=offline", "judging.questions=2", "judging.test_questions=4",
    "grpo.steps=2", "grpo.minibatches=1", "grpo.warmup=0", "grpo.questions=2", "grpo.rollouts=2",
    "grpo.validate_every=1", "grpo.vllm.mode=off",
)  # fmt: skip


KILLS = tries(0, 12)


class Reproduction:
    """`art-e reproduce --profile talk` with the changes of this module."""

    def __init__(self, folder: Path, base: Path, provider: Provider) -> None:
        self.out = folder / "out"
        self.provider = provider
        tables = {
            **CHANGES,
            "training": {"changes": [f"model.base={base}", *RECIPE], "gpu": "h100-80gb"},
        }
        # The golden set has a judge that is a model, too.
        self.changes = ['judges=["f1", "offline"]'] + [
            f"{table}.{name}={json.dumps(value)}"
            for table, fields in tables.items()
            for name, value in fields.items()
        ]
        options = [part for each in self.changes for part in ("--set", each)]
        self._words = ["reproduce", "--profile", "talk", "--out", str(self.out), *options]
        write_vllm(folder / "bin")
        # With what the server was started last.
        self.noted = folder / "noted.json"
        self._environment = {
            "ART_E_HOME": str(folder / "home"),
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "NOTED": str(self.noted),
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": provider.base_url,
            "OMP_NUM_THREADS": "1",
        }

    def run(self) -> str:
        """What it noted; it has to succeed."""
        done = CliRunner(env=self._environment).invoke(app, self._words)
        assert done.exit_code == 0, done.output
        return done.stderr

    def kill_at(self, pattern: str) -> None:
        """Kill it as soon as a file of that pattern is there."""
        assert self._killed(lambda: any(self.out.glob(pattern)))

    def kill_after(self, files: int) -> bool:
        """Kill it as soon as it has so many files more; False if it ends first."""
        enough = self._files() + files
        return self._killed(lambda: self._files() >= enough)

    def _files(self) -> int:
        # Folders may go away meanwhile.
        return sum(len(files) for _, _, files in os.walk(self.out))

    def _killed(self, now: Callable[[], bool]) -> bool:
        """Start it as a process, and kill that `now`; False if it ends first."""
        process = subprocess.Popen(
            [sys.executable, "-m", "art_e", *self._words],
            env={**os.environ, **self._environment},
            stderr=subprocess.PIPE,
            text=True,
        )
        while not now():
            if process.poll() is not None:
                stderr = process.communicate()[1]
                assert process.returncode == 0, stderr[-4_000:]
                return False
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        return True

    def step(self, name: str) -> Path:
        """The one folder of a step."""
        [folder] = (each for each in self.out.glob(f"{name}-*") if (each / RECORD).is_file())
        return folder


def json_file(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with Provider(Players(), key=KEY) as provider:
        yield provider


@pytest.fixture(scope="module")
def killed(
    tmp_path_factory: pytest.TempPathFactory, base: Path, provider: Provider
) -> Reproduction:
    """Killed in a baseline, under `make fire` anywhere as well, and resumed to its end."""
    made = Reproduction(tmp_path_factory.mktemp("talk"), base, provider)
    rng = Random(0)
    assert sum(made.kill_after(rng.randint(1, 8)) for _ in range(KILLS)) == KILLS
    made.kill_at("baseline-o3-*/run/trajectories.jsonl")
    made.run()
    return made


@pytest.mark.fire
def test_it_ends_with_a_report_of_all_that_was_measured(killed: Reproduction) -> None:
    page = (killed.out / "report.html").read_text("utf-8")
    assert page.index('id="viewer"') < page.index('id="published"')
    for title in ("Published against ours", "Net reduction of o3&#39;s errors"):
        assert title in page
    figures = json_file(killed.out / "figures.json")["published_against_ours"]
    rows = {each["figure"]: each for each in figures}
    o3 = rows["Accuracy on answerable questions: o3"]
    assert o3["published"].startswith("90.0%")
    assert o3["of"] == GOOD
    trained = rows["Accuracy on answerable questions: ART-E (Qwen2.5-14B, trained)"]
    assert trained["of"] == "talk-trained"
    assert rows["Accuracy on answerable questions: o4-mini"]["of"] == "not asked"
    # Measured at the price of the profile's GPU.
    cost = rows["Cost per 1,000 questions: ART-E (Qwen2.5-14B, trained)"]["ours"]
    assert re.match(r"\$\d", cost)
    assert (killed.out / "plots" / "seeds-accuracy.png").is_file()


def test_each_step_takes_what_the_ones_before_made(killed: Reproduction) -> None:
    # Questions are the writer's, and the reader verified them.
    golden = killed.step("golden") / "golden"
    assert {each.split for each in load_questions(str(golden))} == {"train", "validation", "test"}
    steps = json_file(golden / "manifest.json")["steps"]
    assert list(steps) == sorted(["generate", "filter", "verify", "split"])
    assert steps["verify"]["model"] == READER
    assert (golden / "rejected.jsonl").read_text("utf-8").count("\n") > 0
    # The checkpoint and its start were served, and asked the test like the baselines.
    asked = set()
    for name in ("start", "trained", "baseline-o3"):
        run = killed.step(name) / "run"
        asked.add(json_file(run / "config.json")["questions_hash"])
        rows = list(read_trajectories(run / "trajectories.jsonl"))
        assert {(each.question or {})["split"] for each in rows} == {"test"}
        if name != "baseline-o3":
            assert {each.model for each in rows} == {f"hosted_vllm/talk-{name}"}
            assert {each.rubric["abstained"] for each in rows} == {True}
    assert len(asked) == 1
    served = pairs(json_file(killed.noted))
    trained = killed.step("grpo-0") / "run"
    best = trained / json_file(trained / "metrics.json")["best_checkpoint"]
    assert served["--lora-modules"] == f"talk-trained={best}"
    assert served["--max-model-len"] == "16384"


@pytest.mark.fire
def test_nothing_is_asked_twice_after_a_kill(killed: Reproduction) -> None:
    lines = killed.step("baseline-o3") / "run" / "trajectories.jsonl"
    done = Counter(each.question_id for each in read_trajectories(lines))
    kept = load_questions(str(killed.step("golden") / "golden"), "test")
    assert set(done) <= {each.id for each in kept}
    assert len(done) == min(4, len(kept))
    assert set(done.values()) == {1}
    written = [
        each.request.messages[1]["content"]
        for each in killed.provider.exchanges
        if "response_format" in each.request.body and form_of(each.request) == "GeneratedItems"
    ]
    assert len(set(written)) == 2 * 3
    # A request under way at a kill is asked again.
    assert len(written) <= 2 * 3 + KILLS
    assert json_file(killed.step("grpo-0") / "run" / "metrics.json")["validation"]


def test_a_rerun_does_nothing_and_a_change_does_what_it_touches(killed: Reproduction) -> None:
    asked = len(killed.provider.requests)
    assert killed.run().count("done before") == 7
    assert len(killed.provider.requests) == asked
    more = 'baselines.models=["o3", "openai/o4-mini"]'
    profile = load_profile("talk", [*killed.changes, "evaluation.usd_per_hour=2", more])
    left = [each.name for each in steps(profile, killed.out) if each.state != "done"]
    assert left == ["baseline-o4-mini", "start", "trained", "report"]
