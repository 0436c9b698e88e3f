"""What doctor says of GPUs: cards, drivers and packages are made up; the pins are our own."""

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from art_e.cli import doctor as doctor_gpu
from art_e.cli.doctor import differences, driver_version, gpu_check, pins, vllm_of_trl
from tests.command_line import Run, json_of

OPEN_MODULE = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (archive)\n"
    "GCC version:  gcc version 13.3.0\n"
)
CLOSED_MODULE = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15\n"


def put(folder: Path, name: str, version: str, *requires: str) -> None:
    """The metadata of an installed package, and no package."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {each}" for each in requires]
    (info / "METADATA").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder before all others, with what is locked; torch as its build for CUDA 13."""
    folder = tmp_path / "packages"
    for name, version in pins().items():
        if name == "trl":
            put(folder, name, version, 'vllm<=0.31.0,>=0.22.0; extra == "vllm"')
        else:
            put(folder, name, f"{version}+cu130" if name == "torch" else version)
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.fixture
def h100(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cards of 80 GB, as torch tells of them."""
    torch = pytest.importorskip("torch")
    file = tmp_path / "version"
    file.write_text(OPEN_MODULE, encoding="utf-8")
    monkeypatch.setattr(doctor_gpu, "DRIVER", file)
    card = SimpleNamespace(name="NVIDIA H100 80GB HBM3", total_memory=85_029_158_912)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
    monkeypatch.setattr(torch.version, "cuda", "13.0")


def replace(folder: Path, name: str, version: str) -> None:
    """Another version of a package."""
    [old] = folder.glob(f"{name}-*.dist-info")
    shutil.rmtree(old)
    put(folder, name, version)


def test_without_a_gpu_it_is_said_and_torch_not_asked(
    art_e: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_gpu, "driver_version", lambda: None)
    monkeypatch.setitem(sys.modules, "torch", None)  # an import would fail
    result = art_e("doctor", "--json")
    [check] = [each for each in json_of(result)["checks"] if each["name"] == "GPU training"]
    assert check["state"] == "missing"
    assert check["detail"] == "no CUDA device; only for training at full scale"
    assert "training/launch/sky.yaml" in check["fix"]


@pytest.mark.usefixtures("installed", "h100")
def test_all_as_locked() -> None:
    check = gpu_check()
    assert check.state == "ok", check
    assert check.detail.startswith(
        "2 CUDA devices: NVIDIA H100 80GB HBM3 (79 GiB), NVIDIA H100 80GB HBM3 (79 GiB),"
        " CUDA 13.0, driver 580.95.05; as locked: accelerate "
    )
    assert check.detail.endswith(f"vllm {pins()['vllm']}")
    assert "vllm" not in sys.modules


@pytest.mark.usefixtures("h100")
def test_what_is_not_as_locked_is_named(installed: Path) -> None:
    replace(installed, "transformers", "5.17.0")
    replace(installed, "vllm", "0.33.0")
    check = gpu_check()
    assert check.state == "missing"
    locked = pins()
    assert f"transformers 5.17.0 where {locked['transformers']} is locked" in check.detail
    assert f"vllm 0.33.0 where {locked['vllm']} is locked" in check.detail
    assert "TRL takes vLLM <=0.31.0,>=0.22.0" in check.detail
    assert check.fix is not None and "requirements/gpu.txt" in check.fix
    assert len(differences()) == 3


def test_a_driver_that_torch_sees_no_device_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    file = tmp_path / "version"
    file.write_text(CLOSED_MODULE, encoding="utf-8")
    monkeypatch.setattr(doctor_gpu, "DRIVER", file)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    check = gpu_check()
    assert check.state == "missing"
    assert "NVIDIA driver 535.104.05, but no CUDA device" in check.detail
    assert "built without CUDA" in check.detail
    assert check.fix is not None and "580" in check.fix


def test_the_driver_where_only_its_command_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_gpu, "DRIVER", tmp_path / "absent")
    command = tmp_path / "nvidia-smi"
    command.write_text("#!/bin/sh\necho 580.65.06\necho 580.65.06\n", encoding="utf-8")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert driver_version() == "580.65.06"
    command.write_text("#!/bin/sh\nexit 9\n", encoding="utf-8")
    assert driver_version() is None
    command.unlink()
    assert driver_version() is None
