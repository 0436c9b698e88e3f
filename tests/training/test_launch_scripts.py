"""The scripts of training/launch, run: with stand-ins for vLLM, torchrun, accelerate and Slurm.

A stand-in notes how it was called; what it was called with is parsed by the real command's parser.
"""

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from torch.distributed.run import get_args_parser
from trl.scripts import vllm_serve

from tests.training.machine import LAUNCH, RUNS, TRAINS, WAITS, Machine
from tests.training.test_launch import parsed
from training.recipe import load_recipe

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="GNU's cp, bash 4, Slurm")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    folder = tmp_path / "machine"
    folder.mkdir()
    return Machine(folder)


def of_torchrun(line: Sequence[str]) -> tuple[Any, dict[str, Any]]:
    """Torchrun's own options, and those of `art-e train grpo` behind them."""
    arguments = get_args_parser().parse_args(list(line))
    assert arguments.module and arguments.training_script == "art_e"
    return arguments, parsed(arguments.training_script_args)


def options(line: Sequence[str]) -> set[tuple[str, str]]:
    """Options with their values, in any order; a flag has none."""
    ends = [*line, "--"]
    return {
        (name, "" if value.startswith("--") else value)
        for name, value in itertools.pairwise(ends)
        if name.startswith("--")
    }


def test_vllms_server_is_started_as_trl_would(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.stand_in("vllm")
    machine.run(
        "vllm_server.sh", "talk-multi", "--seed", "1",
        HOST="0.0.0.0", PORT="8003", TENSOR_PARALLEL="2", CUDA_VISIBLE_DEVICES="0,1",
    )  # fmt: skip
    [(line, kept)] = machine.calls("vllm")
    assert kept["VLLM_SERVER_DEV_MODE"] == "1" and kept["CUDA_VISIBLE_DEVICES"] == "0,1"
    recipe = load_recipe("talk-multi")
    assert recipe.model.base is not None
    # As with the locked vLLM, which is not installed here.
    monkeypatch.setattr(vllm_serve, "is_vllm_available", lambda min_version=None: True)
    told = vllm_serve.ScriptArguments(
        model=recipe.model.base,
        port=8003,
        tensor_parallel_size=2,
        max_model_len=recipe.episode.episode_tokens,
    )
    wanted = vllm_serve.build_command(told, ["--seed", "1"])
    assert line[:2] == wanted[wanted.index("serve") :][:2]
    assert options(line) == options(wanted)


def test_torchrun_on_several_goes_on_with_a_run_that_is_there(machine: Machine) -> None:
    machine.stand_in("torchrun")
    (machine.folder / "run").mkdir()
    (machine.folder / "run" / "config.json").touch()
    machine.run("torchrun.sh", OUT="run", NODES="2", HEAD="a:29500", GPUS="4")
    [(line, _)] = machine.calls("torchrun")
    own, training = of_torchrun(line)
    assert (own.nnodes, own.nproc_per_node, own.rdzv_endpoint) == ("2", "4", "a:29500")
    assert own.rdzv_backend == "c10d" and not own.standalone
    assert training["resume"] is True
    assert "HEAD" in machine.run("torchrun.sh", fails=True, OUT="run", NODES="2").stderr


def files(folder: Path) -> set[str]:
    return {str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file()}


FIRST = {
    "config.json",
    "checkpoints/checkpoint-0/weights",
    "checkpoints/checkpoint-0/run.json",
    "checkpoints/checkpoint-1/weights",
}


def test_a_machine_that_is_taken_away_leaves_a_run_to_go_on_with(
    machine: Machine, tmp_path: Path
) -> None:
    """Killed in the second step; a fresh machine has what was kept, goes on, and ends."""
    kept = tmp_path / "bucket" / "talk"
    machine.stand_in("python", TRAINS)
    running = subprocess.Popen(
        machine.command("ephemeral.sh", "--max-cost", "40"),
        env={**machine.environment, "KEPT": str(kept), "TAKES": "60", "EVERY": "0.2"},
        start_new_session=True,
    )
    until = time.monotonic() + 60
    while not (kept / "checkpoints" / "checkpoint-0" / "run.json").exists():
        assert time.monotonic() < until and running.poll() is None
        time.sleep(0.05)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    assert files(kept) == FIRST
    [(line, _)] = machine.calls("python")
    assert line[:2] == ["-m", "art_e"]
    assert parsed(line[2:])["resume"] is False and parsed(line[2:])["max_cost"] == 40

    fresh = Machine(tmp_path)
    fresh.stand_in("python", TRAINS)
    fresh.run("ephemeral.sh", KEPT=str(kept), FINISHES="1")
    assert files(tmp_path / "run") == files(kept) > FIRST | {"COMPLETE"}
    [(line, _)] = fresh.calls("python")
    assert parsed(line[2:])["resume"] is True and parsed(line[2:])["out"] == tmp_path / "run"
    # What is complete is not begun again.
    assert "is complete" in fresh.run("ephemeral.sh", KEPT=str(kept)).stderr
    assert len(fresh.calls("python")) == 1


def test_what_makes_a_checkpoint_count_is_copied_last(machine: Machine, tmp_path: Path) -> None:
    machine.stand_in("python", TRAINS)
    machine.stand_in("cp", 'os.execv("/bin/cp", ["cp", *sys.argv[1:]])')
    machine.run("ephemeral.sh", KEPT=str(tmp_path / "kept"), FINISHES="1")
    given = [name for line, _ in machine.calls("cp") for name in line if name.startswith("./")]
    last = {"./checkpoints/checkpoint-0/run.json", "./COMPLETE"}
    assert set(given[-2:]) == last and not last & set(given[:-2])


def test_training_that_fails_fails_the_task_and_a_signal_ends_it(
    machine: Machine, tmp_path: Path
) -> None:
    machine.stand_in("python", TRAINS)
    kept = tmp_path / "kept"
    assert machine.run("ephemeral.sh", KEPT=str(kept), ENDS="2", fails=True).returncode == 2
    assert files(kept) == FIRST
    running = subprocess.Popen(
        machine.command("ephemeral.sh"),
        env={**machine.environment, "KEPT": str(kept), "TAKES": "60"},
    )
    until = time.monotonic() + 60
    while len(machine.calls("python")) < 2:
        assert time.monotonic() < until and running.poll() is None
        time.sleep(0.05)
    running.terminate()
    assert running.wait(timeout=30) == 143


def test_slurm_serves_on_one_node_and_trains_on_the_others(machine: Machine) -> None:
    (machine.folder / ".venv" / "bin").mkdir(parents=True)
    (machine.folder / ".venv" / "bin" / "activate").touch()
    (machine.folder / "training").mkdir()
    (machine.folder / "training" / "launch").symlink_to(LAUNCH)
    machine.stand_in("scontrol", 'print("gpu1\\ngpu2\\ngpu3")')
    machine.stand_in("srun", RUNS)
    machine.stand_in("vllm", "time.sleep(60)")
    machine.stand_in("torchrun", WAITS)
    slurm = {
        "SLURM_JOB_NODELIST": "gpu[1-3]",
        "SLURM_JOB_ID": "17",
        "SLURM_GPUS_PER_NODE": "h100:8",
    }
    assert machine.run("slurm.sbatch", ENDS="3", fails=True, **slurm).returncode == 3
    steps = [{each for each in line if each[:2] == "--"} for line, _ in machine.calls("srun")]
    wanted = [("1", "gpu1"), ("2", "gpu2,gpu3")]
    for count, names in wanted:
        assert any({f"--nodes={count}", f"--nodelist={names}"} <= each for each in steps)
    [(served, _)] = machine.calls("vllm")
    assert {("--host", "0.0.0.0"), ("--tensor-parallel-size", "8")} <= options(served)
    [(line, _)] = machine.calls("torchrun")  # srun would start it twice
    own, training = of_torchrun(line)
    assert (own.nnodes, own.nproc_per_node) == ("2", "8")
    assert (own.rdzv_endpoint, own.rdzv_id) == ("gpu2:29500", "17")
    assert training["changes"] == ["grpo.vllm.server=http://gpu1:8000"]
    assert load_recipe(training["recipe"], training["changes"]).grpo is not None
