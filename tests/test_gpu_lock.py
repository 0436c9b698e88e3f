"""requirements/gpu.txt: a GPU machine installs what the tests run with, and it fits together.

Only the packages' own metadata can tell whether it is complete; `make lock-gpu` resolves that.
"""

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PIN = re.compile(r"^([A-Za-z0-9._-]+)={2,3}([^ ;\\]+)", re.MULTILINE)
# What rollouts, losses, adapters and checkpoints are tested with.
TESTED = "trl transformers peft accelerate tokenizers datasets bitsandbytes".split()


def locked(name: str) -> dict[str, Version]:
    """The versions in a file of `requirements`."""
    text = (ROOT / "requirements" / name).read_text("utf-8")
    return {canonicalize_name(each[1]): Version(each[2]) for each in PIN.finditer(text)}


GPU = locked("gpu.txt")


def test_every_package_has_hashes_and_no_address() -> None:
    text = (ROOT / "requirements" / "gpu.txt").read_text("utf-8")
    assert "://" not in text
    entries = re.split(r"^(?=[^ #\n])", text, flags=re.MULTILINE)[1:]
    assert entries.pop(0).strip() == "--only-binary :all:"
    assert len(entries) == len(GPU) > 150
    assert [each for each in entries if not PIN.match(each) or "--hash=sha256:" not in each] == []


def test_training_uses_the_tested_versions() -> None:
    dev = {**locked("dev.txt"), **locked("torch.txt")}
    # vLLM pins the torch of the extra `train`, the public build with CUDA.
    for name in (*TESTED, "torch"):
        assert GPU[name] == dev[name]
    assert GPU["torch"].local is None


def test_each_requirement_is_met() -> None:
    """Of the project, its extras and the public wheel of torch."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    cuda = (ROOT / "requirements" / "cuda.in").read_text("utf-8").splitlines()
    for line in [*project["dependencies"], *extras["train"], *extras["gpu"], *cuda]:
        if not line.startswith("#"):
            required = Requirement(line)
            assert required.specifier.contains(GPU[canonicalize_name(required.name)]), line


def test_trl_supports_this_vllm() -> None:
    pytest.importorskip("trl")
    assert Version(metadata.version("trl")) == GPU["trl"]
    required = map(Requirement, metadata.requires("trl") or [])
    [vllm] = [each for each in required if each.name == "vllm"]
    assert vllm.specifier.contains(GPU["vllm"])


def test_no_litellm_that_stole_credentials() -> None:
    for name in ("gpu.txt", "dev.txt", "core.txt"):
        assert locked(name)["litellm"] >= Version("1.83.7")
