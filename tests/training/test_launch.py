"""training/launch: what each file says of itself, and that its configuration is one.

SkyPilot is not installed: its fields are those of its documentation, and it was not run.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml  # type: ignore[import-untyped]
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.utils import DistributedType
from typer.core import TyperGroup

from art_e.cli.main import app
from tests.training.machine import LAUNCH
from training.recipe import load_recipe

FILES = sorted(LAUNCH.iterdir())
ACCELERATE = ("ddp", "fsdp2", "zero3", "cpu")
WORDS = ("What:", "When:", "How:", "Change:", "Back:")


def parsed(arguments: list[str]) -> dict[str, Any]:
    """What our command line makes of those arguments of `art-e`; it fails on what it lacks."""
    command: Any = typer.main.get_command(app)
    no_context: Any = None
    name = "art-e"
    while isinstance(command, TyperGroup):
        name, *arguments = arguments
        command = command.get_command(no_context, name)
        assert command is not None, name
    parameters: dict[str, Any] = command.make_context(name, arguments).params
    return parameters


def explained(file: Path) -> list[str]:
    """The comment that a file begins with, without `#`."""
    lines = file.read_text("utf-8").splitlines()
    if lines[0].startswith("#!"):
        lines = lines[1:]
    ends = (n for n, line in enumerate(lines) if not line.startswith("# "))
    return [line.removeprefix("# ") for line in lines[: next(ends)]]


@pytest.mark.parametrize("file", FILES, ids=lambda each: each.name)
def test_five_lines_explain_each(file: Path) -> None:
    lines = explained(file)
    assert [line.split()[0] for line in lines] == list(WORDS)
    assert f"training/launch/{file.name}" in lines[2] or file.name == "ephemeral.sh"
    assert max(map(len, file.read_text("utf-8").splitlines())) <= 124


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
