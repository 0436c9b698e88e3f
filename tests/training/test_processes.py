"""Several processes that train one model: on a CPU, with gloo, as launchers start them.

The processes are real. vLLM's stand-in runs in the tests' process, and both ask it over HTTP."""

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.runs import read_trajectories
from tests import fake_vllm
from tests.builders import answer, message, search
from tests.processes import free_port
from tests.tiny_qwen import END, START
from tests.training import full, tiny
from tests.training.conftest import written
from tests.training.launched import art_e_with_vllm, preloaded
from training.processes import Processes
from training.run import read_steps
from training.start import load_start

ROOT = Path(__file__).parents[2]
TRAIN = ["train", "grpo", "--recipe", "talk-multi"]
SECONDS = 240


def start(arguments: Sequence[str], home: Path, log: Path) -> list[ForkServerProcess]:
    """Start `art-e` in two processes that know each other as torchrun's do; they print to `log`."""
    shared = {
        "ART_E_HOME": str(home), "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2",
    }  # fmt: skip
    ranks = [{**shared, "RANK": rank, "LOCAL_RANK": rank} for rank in "01"]
    context = preloaded()
    workers = [
        context.Process(target=art_e_with_vllm, args=(arguments, rank, log)) for rank in ranks
    ]
    for worker in workers:
        worker.start()
    return workers


@pytest.fixture
def server(base: Path) -> Iterator[fake_vllm.Server]:
    with fake_vllm.served(base) as serving:
        yield serving


def test_killed_process(home: Path, base: Path, server: fake_vllm.Server, tmp_path: Path) -> None:
    """Each process has a question; one is answered at once, the other's episodes go on to their
    last turn: there TRL's own calls of the server would wait forever."""
    tokenizer = load_start(str(base)).tokenizer
    words = {
        name: [*tokenizer.encode(written(message(call))), server.end_id]
        for name, call in (("ends", answer("I don't know")), ("goes on", search("harbor")))
    }
    out, log, killed = tmp_path / "run", tmp_path / "printed.log", threading.Event()
    seen: dict[str, int] = {}

    def say(prompt: Sequence[int]) -> list[int]:
        if len(read_steps(out)) == 3:
            killed.wait(SECONDS)
        question = str(tokenizer.decode(list(prompt))).partition(f"{START}user\n")[2]
        place = seen.setdefault(question.partition(END)[0], len(seen))
        return words["ends" if place % 2 else "goes on"]

    server.say = say
    changes = (
        f"model.base={base}", *full.CHANGES, f"grpo.vllm.server={server.address}", "grpo.steps=4",
        "episode.max_turns=4", "episode.turn_tokens=60", "episode.episode_tokens=3_000",
        "grpo.validate_every=2",
    )  # fmt: skip
    arguments = [*TRAIN, "--out", str(out), *tiny.flags(*changes)]
    first, second = start(arguments, home, log)
    try:
        until = time.monotonic() + SECONDS
        while len(read_steps(out)) < 3 and time.monotonic() < until:
            assert first.is_alive(), log.read_text("utf-8", "replace")
            time.sleep(0.1)
        second.kill()
        killed.set()
        first.join(60)
        assert first.exitcode not in (0, None)
    finally:
        killed.set()
        first.kill()
        second.kill()
    output = log.read_text("utf-8", "replace")
    assert "Error: another process of this run has ended" in output
    assert "--resume" in output
    assert [each.step for each in read_steps(out)] == [1, 2, 3]
    server.names.clear()
    resumed = start([*arguments, "--resume"], home, log)
    for process in resumed:
        process.join(SECONDS)
        process.kill()
    assert [each.exitcode for each in resumed] == [0, 0], log.read_text("utf-8", "replace")
    assert [each.step for each in read_steps(out)] == [1, 2, 3, 4]
    assert (out / "COMPLETE").is_file()
    stored = list(read_trajectories(out / "trajectories.jsonl"))
    trained = [each for each in stored if each.policy.get("group")]
    assert {each.rubric["turns"] for each in trained} == {1, 4}
    # Each process has a question of its own in each step.
    groups = Counter((each.policy["step"], each.question_id) for each in trained)
    assert sorted(step for step, _ in groups) == [1, 1, 2, 2, 3, 3, 4, 4]
    assert set(groups.values()) == {2}
    metrics = json.loads((out / "metrics.json").read_text("utf-8"))
    assert metrics["processes"] == 2
    assert [each["n"] for each in metrics["validation"]] == [2, 2, 2]
    # From step 2 on new weights went to the server once a step, once for the validation and once
    # for the test, from one process, however many turns the others took.
    assert len(server.names) == 4
    assert not any(size > 4 for size in server.batches)


@pytest.mark.long
def test_accelerate_starts_two_processes(
    home: Path, base: Path, server: fake_vllm.Server, tmp_path: Path
) -> None:
    out, address = tmp_path / "run", f"grpo.vllm.server={server.address}"
    changes = (f"model.base={base}", *full.CHANGES, address, "grpo.steps=1")
    # Port 0 is one that is free.
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file",
               "training/launch/cpu.yaml", "--main_process_port", "0", "-m",
               "tests.training.launched", *TRAIN, "--out", str(out),
               *tiny.flags(*changes)]  # fmt: skip
    environment = {**os.environ, "ART_E_HOME": str(home), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((out / "metrics.json").read_text("utf-8"))["processes"] == 2


@given(st.integers(0, 40), st.integers(1, 7))
def test_shares_join_in_order(total: int, count: int) -> None:
    values = list(range(total))
    shares = [Processes(index, count).share(values) for index in range(count)]
    assert list(itertools.chain(*shares)) == values
    assert {len(each) for each in shares} <= {total // count, total // count + 1}
