"""training/launch: what each file says of itself, its configuration, and its scripts, run.

Commands that note how they were called stand in for vLLM, torchrun, accelerate and Slurm; the real
command's parser parses what they were called with. SkyPilot is not installed: its fields are those
of its documentation, and it was not run.
"""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.utils import DistributedType
from torch.distributed.run import get_args_parser
from trl.scripts import vllm_serve

from tests.builders import WAIT_S, files_of
from tests.documented import parse_art_e
from training.recipe import load_recipe

LAUNCH = Path(__file__).parents[2] / "training" / "launch"
FILES = sorted(LAUNCH.iterdir())
ACCELERATE = ("ddp", "fsdp2", "zero3", "cpu")
WORDS = ("What:", "When:", "How:", "Change:", "Back:")


@pytest.mark.parametrize("file", FILES, ids=lambda each: each.name)
def test_five_lines_explain_each(file: Path) -> None:
    lines = file.read_text("utf-8").removeprefix("#!/usr/bin/env bash\n").splitlines()
    explained = list(itertools.takewhile(lambda line: line.startswith("# "), lines))
    assert [line.split()[1] for line in explained] == list(WORDS)
    assert f"training/launch/{file.name}" in explained[2] or file.name == "ephemeral.sh"


def test_accelerate_takes_each_configuration_and_spreads_as_it_says() -> None:
    configs = {each: load_config_from_file(str(LAUNCH / f"{each}.yaml")) for each in ACCELERATE}
    for name, config in configs.items():
        # accelerate launch refuses a file that leaves the number open.
        assert (config.num_processes, config.num_machines) == (2, 1)
        assert config.use_cpu is (name == "cpu")
        assert config.mixed_precision == ("no" if name == "cpu" else "bf16")
    assert {name: each.distributed_type for name, each in configs.items()} == {
        "ddp": DistributedType.MULTI_GPU,
        "fsdp2": DistributedType.FSDP,
        "zero3": DistributedType.DEEPSPEED,
        # With MULTI_CPU one process would run, or mpirun be asked for.
        "cpu": DistributedType.MULTI_GPU,
    }
    fsdp = configs["fsdp2"].fsdp_config
    assert fsdp["fsdp_version"] == 2
    assert fsdp["fsdp_transformer_layer_cls_to_wrap"] == "Qwen2DecoderLayer"
    assert configs["zero3"].deepspeed_config["zero_stage"] == 3


def test_sky_holds_no_secret_brings_the_data_and_installs_the_lock() -> None:
    task = yaml.safe_load((LAUNCH / "sky.yaml").read_text("utf-8"))
    assert set(task["secrets"].values()) == {None}
    assert all(isinstance(each, str) for each in task["envs"].values())
    assert not any("KEY" in name or "TOKEN" in name for name in task["envs"])
    judge = load_recipe(task["envs"]["RECIPE"]).judging.reward
    assert judge.startswith("gemini/") and "GEMINI_API_KEY" in task["secrets"]
    sources = [each for each in task["file_mounts"].values() if isinstance(each, str)]
    assert sources == ["${ART_E_DATA}/inbox.duckdb", "${ART_E_DATA}/golden"]
    assert "make gpu" in task["setup"]
    # SkyPilot waits for the bucket in lines that it appends: an exit here would skip them.
    assert not re.search(r"\b(exit|exec)\b|set -e", task["run"])


# ---- The scripts, run among stand-ins. A stand-in notes how it was called, and does no more than
# its body says.

NOTED = (
    "CUDA_VISIBLE_DEVICES", "VLLM_SERVER_DEV_MODE", "VLLM_ALLOW_RUNTIME_LORA_UPDATING",
    "TENSOR_PARALLEL", "KEPT", "GPUS", "ART_E_HOME", "RECIPE",
)  # fmt: skip
STAND_IN = """#!{python}
import json, os, sys, time
kept = {{each: os.environ.get(each) for each in {noted!r}}}
with open({calls!r}, "a") as file:
    file.write(json.dumps([{name!r}, sys.argv[1:], kept]) + "\\n")
{body}
"""
# A step of training, and another checkpoint that is not whole yet.
TRAINS = """
from pathlib import Path
out = Path(sys.argv[sys.argv.index("--out") + 1])
(out / "config.json").write_text("{}")
number = len(list(out.glob("checkpoints/*")))
whole, begun = (out / "checkpoints" / f"checkpoint-{n}" for n in (number, number + 1))
whole.mkdir(parents=True)
(whole / "weights").write_text("w" * 1000)
begun.mkdir()
(begun / "weights").write_text("w")
(whole / "run.json").write_text("{}")
if os.environ.get("FINISHES"):
    (out / "COMPLETE").touch()
time.sleep(float(os.environ.get("TAKES", "0")))
sys.exit(int(os.environ.get("ENDS", "0")))
"""
# Trains until the server has been started.
WAITS = """
until = time.monotonic() + 60
while '"vllm"' not in open({calls!r}).read() and time.monotonic() < until:
    time.sleep(0.05)
sys.exit(int(os.environ.get("ENDS", "0")))
"""
# Like srun: the command behind its own options.
RUNS = """
given = sys.argv[1:]
while given[0].startswith("--"):
    given = given[1:]
os.execvp(given[0], given)
"""


class Machine:
    """A folder of commands that stand in for others, and what they were called with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._bin = folder / "bin"
        self._bin.mkdir()
        self._calls = folder / "calls.jsonl"
        python = Path(sys.executable).parent
        self.environment = {
            "PATH": f"{self._bin}:{python}:{os.environ['PATH']}",
            "PYTHONPATH": str(LAUNCH.parents[1]),
            "HOME": str(folder),
        }

    def stand_in(self, name: str, body: str = "") -> None:
        script = self._bin / name
        calls = str(self._calls)
        text = STAND_IN.format(
            python=sys.executable, noted=NOTED, calls=calls, name=name,
            body=body.replace("{calls!r}", repr(calls)),
        )  # fmt: skip
        script.write_text(text, encoding="utf-8")
        script.chmod(0o755)

    def start(
        self, until: Callable[[], bool], name: str, *arguments: str, **variables: str
    ) -> subprocess.Popen[str]:
        """Start a script, and wait until something is so."""
        running = subprocess.Popen(
            ["bash", str(LAUNCH / name), *arguments],
            env={**self.environment, **variables},
            start_new_session=True,
            text=True,
        )
        ends = time.monotonic() + 60
        while not until():
            assert time.monotonic() < ends and running.poll() is None
            time.sleep(0.05)
        return running

    def run(
        self, name: str, *arguments: str, fails: bool = False, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            ["bash", str(LAUNCH / name), *arguments],
            env={**self.environment, **variables},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode != 0) is fails, done.stderr
        return done

    def calls(self, name: str) -> list[tuple[list[str], dict[str, str]]]:
        """The arguments and variables of each call of a stand-in."""
        if not self._calls.exists():
            return []
        rows = map(json.loads, self._calls.read_text("utf-8").splitlines())
        return [(given, kept) for called, given, kept in rows if called == name]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    if sys.platform != "linux":
        pytest.skip("GNU's cp, bash 4, Slurm")
    folder = tmp_path / "machine"
    folder.mkdir()
    return Machine(folder)


def of_torchrun(line: Sequence[str]) -> tuple[Any, dict[str, Any]]:
    """Torchrun's own options, and those of `art-e train grpo` behind them."""
    arguments = get_args_parser().parse_args(list(line))
    assert arguments.module and arguments.training_script == "art_e"
    return arguments, parse_art_e(arguments.training_script_args)


def options(line: Sequence[str]) -> set[tuple[str, str]]:
    """Options with their values, in any order; a flag has none."""
    ends = [*line, "--"]
    return {
        (name, "" if value.startswith("--") else value)
        for name, value in itertools.pairwise(ends)
        if name.startswith("--")
    }


@pytest.mark.parametrize("adapter", [True, False])
def test_vllms_server_is_started_as_trl_would(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, adapter: bool
) -> None:
    """But for an adapter, which TRL folds into the weights that it sends."""
    machine.stand_in("vllm")
    name = "talk-multi"
    if not adapter:
        text = (resources.files("training") / "recipes" / "talk-multi.toml").read_text("utf-8")
        name = "whole.toml"
        (machine.folder / name).write_text(re.sub(r"\[model\.lora\][^\[]*", "", text), "utf-8")
    machine.run(
        "vllm_server.sh", name, "--seed", "1",
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
    expected = options(wanted)
    if adapter:
        expected -= {each for each in expected if each[0] == "--weight-transfer-config"}
        expected |= {("--enable-lora", ""), ("--max-lora-rank", "16")}
        assert kept["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "1"
    assert options(line) == expected


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
    mark = kept / "checkpoints" / "checkpoint-0" / "run.json"
    kept_soon = {"KEPT": str(kept), "TAKES": "60", "EVERY": "0.2"}
    running = machine.start(mark.exists, "ephemeral.sh", "--max-cost", "40", **kept_soon)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    assert files_of(kept).keys() == FIRST
    [(line, _)] = machine.calls("python")
    assert line[:2] == ["-m", "art_e"]
    assert parse_art_e(line[2:])["resume"] is False and parse_art_e(line[2:])["max_cost"] == 40

    fresh = Machine(tmp_path)
    fresh.stand_in("python", TRAINS)
    fresh.run("ephemeral.sh", KEPT=str(kept), FINISHES="1")
    assert files_of(tmp_path / "run").keys() == files_of(kept).keys() > FIRST | {"COMPLETE"}
    [(line, _)] = fresh.calls("python")
    assert (
        parse_art_e(line[2:])["resume"] is True and parse_art_e(line[2:])["out"] == tmp_path / "run"
    )
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
    assert files_of(kept).keys() == FIRST
    running = machine.start(
        lambda: len(machine.calls("python")) == 2, "ephemeral.sh", KEPT=str(kept), TAKES="60"
    )
    running.terminate()
    assert running.wait(timeout=WAIT_S) == 143


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
    steps = [set(line) for line, _ in machine.calls("srun")]
    for wanted in ({"--nodes=1", "--nodelist=gpu1"}, {"--nodes=2", "--nodelist=gpu2,gpu3"}):
        assert any(wanted <= each for each in steps)
    [(served, _)] = machine.calls("vllm")
    assert {("--host", "0.0.0.0"), ("--tensor-parallel-size", "8")} <= options(served)
    [(line, _)] = machine.calls("torchrun")  # srun would start it twice
    own, training = of_torchrun(line)
    assert (own.nnodes, own.nproc_per_node) == ("2", "8")
    assert (own.rdzv_endpoint, own.rdzv_id) == ("gpu2:29500", "17")
    assert training["changes"] == ["grpo.vllm.server=http://gpu1:8000"]
    assert load_recipe(training["recipe"], training["changes"]).grpo is not None
