"""training/launch: its configurations, and its scripts, which are run.

Stand-ins for vLLM, torchrun and Slurm record their arguments, which the real commands' parsers then
parse. SkyPilot is not installed and was not run."""

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.utils import DistributedType
from torch.distributed.run import get_args_parser
from trl.scripts import vllm_serve

from art_e.models.checkpoint import vllm_rank
from tests.builders import files_of, table
from tests.documented import parse_art_e
from tests.processes import wait_until
from training.cli import PAUSE
from training.recipe import load_recipe

LAUNCH = Path(__file__).parents[2] / "training" / "launch"


def test_accelerate_takes_each_configuration() -> None:
    # MULTI_CPU would run one process, or need mpirun.
    spreads = {"ddp": "MULTI_GPU", "fsdp2": "FSDP", "zero3": "DEEPSPEED", "cpu": "MULTI_GPU"}
    for name, spread in spreads.items():
        config = load_config_from_file(str(LAUNCH / f"{name}.yaml"))
        # accelerate launch refuses a file that leaves the number open.
        assert (config.num_processes, config.num_machines) == (2, 1)
        assert config.distributed_type == DistributedType[spread]
        assert config.use_cpu is (name == "cpu")
        assert config.mixed_precision == ("no" if config.use_cpu else "bf16")


def test_sky_has_no_secret_and_recovers_from_a_pause() -> None:
    task = yaml.safe_load((LAUNCH / "sky.yaml").read_text("utf-8"))
    assert set(task["secrets"].values()) == {None}
    assert task["resources"]["job_recovery"] == {"recover_on_exit_codes": [PAUSE]}
    assert not any("KEY" in name or "TOKEN" in name for name in task["envs"])


# ---- The scripts, run with stand-ins, which record their arguments and run only their body.

STAND_INS = table(__file__, "stand_ins.toml")


class Machine:
    """A folder of stand-in commands, and the calls that they recorded."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._bin, self._calls = folder, folder / "bin", folder / "calls.jsonl"
        self._bin.mkdir(parents=True)
        path = f"{self._bin}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._env = {"PATH": path, "PYTHONPATH": str(LAUNCH.parents[1]), "HOME": str(folder)}
        self._env["CALLS"] = str(self._calls)

    def stand_in(self, name: str, body: str = "") -> None:
        text = STAND_INS["head"].format(python=sys.executable, name=name, body=body)
        (self._bin / name).write_text(text, encoding="utf-8")
        (self._bin / name).chmod(0o755)

    def start(self, name: str, *arguments: str, **variables: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            ["bash", str(LAUNCH / name), *arguments], env={**self._env, **variables},
            cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True, text=True,
        )  # fmt: skip

    def run(self, name: str, *arguments: str, code: int = 0, **variables: str) -> str:
        running = self.start(name, *arguments, **variables)
        _, stderr = running.communicate()
        assert running.returncode == code, stderr
        return stderr

    def calls(self, name: str) -> list[tuple[list[str], dict[str, str]]]:
        lines = self._calls.read_text("utf-8").splitlines() if self._calls.exists() else []
        return [(args, env) for called, args, env in map(json.loads, lines) if called == name]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    if sys.platform != "linux":
        pytest.skip("GNU's cp, bash 4, Slurm")
    return Machine(tmp_path / "machine")


def options(line: Sequence[str]) -> set[tuple[str, str]]:
    """Options with their values, in any order; a flag has none."""
    pairs = itertools.pairwise([*line, "--"])
    return {(a, "" if b.startswith("--") else b) for a, b in pairs if a.startswith("--")}


def test_vllm_server_starts_as_trl_would(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Except for the adapter, which TRL would merge into the weights."""
    machine.stand_in("vllm")
    command = ("vllm_server.sh", "talk-multi", "--seed", "1")
    machine.run(*command, PORT="8003", TENSOR_PARALLEL="2", HOST="0.0.0.0")
    [(line, variables)] = machine.calls("vllm")
    assert variables["VLLM_SERVER_DEV_MODE"] == variables["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "1"
    recipe = load_recipe("talk-multi")
    base, limit = str(recipe.model.base), recipe.episode.episode_tokens
    # As with the locked vLLM, which is not installed here.
    monkeypatch.setattr(vllm_serve, "is_vllm_available", lambda min_version=None: True)
    serving = vllm_serve.ScriptArguments(
        model=base, port=8003, tensor_parallel_size=2, max_model_len=limit
    )
    by_trl = vllm_serve.build_command(serving, ["--seed", "1"])
    assert line[:2] == by_trl[by_trl.index("serve") :][:2]
    expected = {each for each in options(by_trl) if each[0] != "--weight-transfer-config"}
    rank = str(recipe.model.lora and vllm_rank(recipe.model.lora))
    ours = {("--enable-lora", ""), ("--max-lora-rank", rank), ("--enable-prefix-caching", "")}
    assert options(line) == expected | ours


def test_replicas_have_their_gpus_and_ports_and_end_together(machine: Machine) -> None:
    machine.stand_in("vllm", STAND_INS["ends"])
    machine.run("vllm_server.sh", code=5, REPLICAS="2", CUDA_VISIBLE_DEVICES="4,5,6,7",
                TENSOR_PARALLEL="2")  # fmt: skip
    served = [(dict(options(line)), env) for line, env in machine.calls("vllm")]
    assert sorted((args["--port"], env["CUDA_VISIBLE_DEVICES"]) for args, env in served) == [
        ("8000", "4,5"), ("8001", "6,7"),
    ]  # fmt: skip


FIRST = {"config.json", *(f"checkpoints/checkpoint-{name}"
         for name in ("0/weights", "0/run.json", "1/weights"))}  # fmt: skip


def test_run_of_a_preempted_machine_resumes(machine: Machine, tmp_path: Path) -> None:
    """Killed in the second step, the run resumes on a fresh machine from the bucket."""
    bucket = tmp_path / "bucket" / "talk"
    machine.stand_in("python", STAND_INS["trains"])
    mark = bucket / "checkpoints" / "checkpoint-0" / "run.json"
    soon = {"KEPT": str(bucket), "TAKES": "600", "EVERY": "0.2"}
    running = machine.start("ephemeral.sh", "--max-cost", "40", **soon)
    assert wait_until(mark.exists, running)
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate()
    assert files_of(bucket).keys() == FIRST
    [(line, _)] = machine.calls("python")
    assert line[:2] == ["-m", "art_e"]
    assert parse_art_e(line[2:])["resume"] is False and parse_art_e(line[2:])["max_cost"] == 40

    fresh = Machine(tmp_path / "fresh")
    fresh.stand_in("python", STAND_INS["trains"])
    # The file that completes a checkpoint is copied last.
    fresh.stand_in("cp", 'os.execv("/bin/cp", ["cp", *sys.argv[1:]])')
    fresh.run("ephemeral.sh", KEPT=str(bucket), FINISHES="1")
    copied = [name for line, _ in fresh.calls("cp") for name in line if name.startswith("./")]
    last = {name for name in copied if name.endswith(("run.json", "COMPLETE"))}
    assert set(copied[-len(last) :]) == last and len(last) == 3
    out = fresh.folder / "run"
    left = FIRST - {"checkpoints/checkpoint-1/weights"} | {"COMPLETE"}
    assert files_of(out).keys() == files_of(bucket).keys() > left
    [(line, _)] = fresh.calls("python")
    assert parse_art_e(line[2:])["resume"] is True and parse_art_e(line[2:])["out"] == out
    # A complete run is not repeated.
    assert "is complete" in fresh.run("ephemeral.sh", KEPT=str(bucket))
    assert len(fresh.calls("python")) == 1


def test_paused_script_exits_with_75(machine: Machine, tmp_path: Path) -> None:
    machine.stand_in("python", STAND_INS["trains"])
    bucket = str(tmp_path / "bucket")
    machine.run("ephemeral.sh", code=75, KEPT=bucket, PAUSES="1")
    # Restarted, it resumes; then the training's exit code counts.
    machine.run("ephemeral.sh", code=2, KEPT=bucket, ENDS="2")
    assert [parse_art_e(line[2:])["resume"] for line, _ in machine.calls("python")] == [False, True]


def test_slurm_serves_on_one_node_and_trains_on_others(machine: Machine) -> None:
    (machine.folder / ".venv" / "bin").mkdir(parents=True)
    (machine.folder / ".venv" / "bin" / "activate").touch()
    (machine.folder / "training").mkdir()
    (machine.folder / "training" / "launch").symlink_to(LAUNCH)
    machine.stand_in("scontrol", 'print("gpu1\\ngpu2\\ngpu3")')
    machine.stand_in("srun", STAND_INS["runs"])
    machine.stand_in("vllm", "time.sleep(600)")
    machine.stand_in("torchrun", STAND_INS["waits"])
    slurm = {"SLURM_JOB_NODELIST": "gpu[1-3]", "SLURM_JOB_ID": "17"}
    machine.run("slurm.sbatch", code=3, **slurm, SLURM_GPUS_PER_NODE="h100:8")
    steps = [set(line) for line, _ in machine.calls("srun")]
    for part in ({"--nodes=1", "--nodelist=gpu1"}, {"--nodes=2", "--nodelist=gpu2,gpu3"}):
        assert any(part <= each for each in steps)
    served = [dict(options(line)) for line, _ in machine.calls("vllm")]
    ports = [str(8_000 + each) for each in range(8)]
    assert sorted(each["--port"] for each in served) == ports
    assert {each["--host"] for each in served} == {"0.0.0.0"}
    [(line, _)] = machine.calls("torchrun")  # srun would start it twice
    launch = get_args_parser().parse_args(line)
    assert launch.module and launch.training_script == "art_e"
    training = parse_art_e(launch.training_script_args)
    assert (launch.nnodes, launch.nproc_per_node) == ("2", "8")
    assert (launch.rdzv_endpoint, launch.rdzv_id) == ("gpu2:29500", "17")
    assert training["changes"] == [
        f"grpo.vllm.server={','.join(f'http://gpu1:{each}' for each in ports)}"
    ]
    assert load_recipe(training["recipe"], training["changes"]).grpo is not None
    # A pause goes back into the queue, anything else does not.
    requeue = ["requeue", "17"]
    assert requeue not in [line for line, _ in machine.calls("scontrol")]
    (machine.folder / "talk-multi").mkdir()
    machine.run("slurm.sbatch", code=75, **slurm, PAUSES="1")
    assert machine.calls("scontrol")[-1][0] == requeue
