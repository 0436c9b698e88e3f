"""requirements/gpu.txt: what a GPU machine installs is what the tests run with, and fits together.

That it is complete only the packages' own metadata can tell, which `make lock-gpu` resolves;
`pip check` where it is installed says the same.
"""

import re
import tomllib
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)={2,3}(?P<version>[^ ;\\]+)", re.MULTILINE)
# What rollouts, losses, adapters and checkpoints are tested with.
TESTED = ("trl", "transformers", "peft", "accelerate", "tokenizers", "datasets", "bitsandbytes")
STOLE_CREDENTIALS = {Version("1.82.7"), Version("1.82.8")}


class Locked(NamedTuple):
    """A package of a lock: its version, and how many files of it may be installed."""

    version: Version
    hashes: int


def locked(name: str) -> dict[str, Locked]:
    """The packages of that file of `requirements`."""
    text = (ROOT / "requirements" / name).read_text("utf-8")
    found = list(PIN.finditer(text))
    ends = [*(each.start() for each in found[1:]), len(text)]
    return {
        canonicalize_name(each["name"]): Locked(
            Version(each["version"]), text.count("--hash=sha256:", each.end(), end)
        )
        for each, end in zip(found, ends, strict=True)
    }


@pytest.fixture(scope="module")
def gpu() -> dict[str, Locked]:
    return locked("gpu.txt")


def test_every_package_has_hashes_and_nothing_names_where_it_came_from(
    gpu: dict[str, Locked],
) -> None:
    text = (ROOT / "requirements" / "gpu.txt").read_text("utf-8")
    lines = [each for each in text.splitlines() if each and not each.startswith((" ", "#"))]
    assert [each for each in lines if not PIN.match(each)] == ["--only-binary :all:"]
    assert len(lines) - 1 == len(gpu) > 150
    assert [name for name, each in gpu.items() if each.hashes == 0] == []
    assert "://" not in text


def test_what_trains_is_what_the_tests_run_with(gpu: dict[str, Locked]) -> None:
    dev = {**locked("dev.txt"), **locked("torch.txt")}
    assert {name: gpu[name].version for name in TESTED} == {
        name: dev[name].version for name in TESTED
    }
    # vLLM pins a torch: the one of the extra `train`.
    assert gpu["torch"].version == dev["torch"].version


def test_it_holds_what_the_project_asks_for(gpu: dict[str, Locked]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    asked = [*project["dependencies"], *extras["train"], *extras["gpu"]]
    for each in map(Requirement, asked):
        version = gpu[canonicalize_name(each.name)].version
        assert each.specifier.contains(version), f"{each}, locked {version}"


def test_trl_takes_this_vllm(gpu: dict[str, Locked]) -> None:
    pytest.importorskip("trl")
    assert Version(metadata.version("trl")) == gpu["trl"].version
    [taken] = [
        each for each in map(Requirement, metadata.requires("trl") or []) if each.name == "vllm"
    ]
    assert taken.specifier.contains(gpu["vllm"].version)


def test_no_litellm_that_stole(gpu: dict[str, Locked]) -> None:
    for lock in (gpu, locked("dev.txt"), locked("core.txt")):
        assert lock["litellm"].version >= Version("1.83.7")
        assert lock["litellm"].version not in STOLE_CREDENTIALS


def test_torch_is_the_build_with_cuda(gpu: dict[str, Locked]) -> None:
    """With the libraries that its public wheel asks for."""
    assert gpu["torch"].version.local is None
    asked = [
        Requirement(line)
        for line in (ROOT / "requirements" / "cuda.in").read_text("utf-8").splitlines()
        if not line.startswith("#")
    ]
    for each in asked:
        assert each.specifier.contains(gpu[canonicalize_name(each.name)].version), each
