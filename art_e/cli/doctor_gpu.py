"""Whether this machine can train at full scale: its GPU, and what is installed beside the lock.

What has to be installed is what the extras `train` and `gpu` of our own metadata pin; in
requirements/gpu.txt stands the same with all that it needs. vLLM is never imported, which would
take seconds and start CUDA, and torch only where there is an NVIDIA driver. Knows nothing of
training.
"""

import importlib.util
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from art_e.cli.doctor_check import Check
from art_e.cli.output import plural

if TYPE_CHECKING:
    from packaging.requirements import Requirement

NAME = "GPU training"
# Linux has the driver's version here, containers too; elsewhere its command says it.
DRIVER = Path("/proc/driver/nvidia/version")
DRIVER_TIMEOUT_S = 10.0
INSTALL = "make gpu, or: pip install --require-hashes --no-deps -r requirements/gpu.txt"
RENT = "rent one with training/launch/sky.yaml; nano and everything else need none"
# NVIDIA's release notes: the first driver that runs what is built with CUDA 13.
LEAST_DRIVER = "580"


def gpu_check() -> Check:
    """The card, and what of the lock is not installed as locked. Never "broken": it can be done
    without."""
    driver = driver_version()
    if driver is None:
        return Check(NAME, "missing", "no CUDA device; only for training at full scale", RENT)
    if importlib.util.find_spec("torch") is None:
        return Check(NAME, "missing", f"NVIDIA driver {driver}, without torch", INSTALL)
    cards = _cards()
    if cards is None:
        import torch

        built = torch.version.cuda
        told = f"torch {torch.__version__}, {f'CUDA {built}' if built else 'built without CUDA'}"
        fix = f"{INSTALL}; CUDA 13 takes a driver from {LEAST_DRIVER} on"
        return Check(NAME, "missing", f"NVIDIA driver {driver}, but no CUDA device: {told}", fix)
    card = f"{cards}, driver {driver}"
    wrong = differences()
    if wrong:
        return Check(NAME, "missing", f"{card}; {', '.join(wrong)}", INSTALL)
    as_locked = ", ".join(f"{name} {version}" for name, version in pins().items())
    return Check(NAME, "ok", f"{card}; as locked: {as_locked}")


def driver_version() -> str | None:
    """The NVIDIA driver's version, "of unknown version" where only its command is there, or
    None without one."""
    if DRIVER.is_file():
        found = re.search(r"Module.*?\s(\d+(?:\.\d+)+)", DRIVER.read_text("utf-8", "replace"))
        if found is not None:
            return found[1]
    command = shutil.which("nvidia-smi")
    if command is None:
        return None
    asked = [command, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(
            asked, capture_output=True, text=True, timeout=DRIVER_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(done.stdout.split()), "of unknown version")


def pins() -> dict[str, str]:
    """The packages that full-scale training takes, each with the one version that is locked."""
    wanted = [each for each in _requires("art-e") if {"train", "gpu"} & _extras(each)]
    versions = {each.name: next(iter(each.specifier)).version for each in wanted}
    return dict(sorted(versions.items()))


def differences() -> list[str]:
    """What is not installed as locked, and a vLLM that TRL does not take, in words."""
    wrong = []
    for name, locked in pins().items():
        found = _installed(name)
        if found is None:
            wrong.append(f"without {name} {locked}")
        elif found != locked:
            wrong.append(f"{name} {found} where {locked} is locked")
    taken, vllm = vllm_of_trl(), _installed("vllm")
    if taken is not None and vllm is not None and not taken.specifier.contains(vllm):
        wrong.append(f"TRL takes vLLM {taken.specifier}")
    return wrong


def vllm_of_trl() -> "Requirement | None":
    """The versions of vLLM that the installed TRL says it takes, None where it says none."""
    try:
        return next((each for each in _requires("trl") if each.name == "vllm"), None)
    except metadata.PackageNotFoundError:
        return None


def _cards() -> str | None:
    """The CUDA devices as torch reports them."""
    import torch

    if not torch.cuda.is_available():
        return None
    cards = [torch.cuda.get_device_properties(each) for each in range(torch.cuda.device_count())]
    names = ", ".join(f"{each.name} ({each.total_memory / 2**30:.0f} GiB)" for each in cards)
    return f"{plural(len(cards), 'CUDA device')}: {names}, CUDA {torch.version.cuda}"


def _installed(name: str) -> str | None:
    """The version that is installed, without what a build adds to it (+cu130)."""
    try:
        return metadata.version(name).partition("+")[0]
    except metadata.PackageNotFoundError:
        return None


def _requires(package: str) -> "list[Requirement]":
    # Not needed before: it comes with every package that trains.
    from packaging.requirements import Requirement

    return [Requirement(each) for each in metadata.requires(package) or []]


def _extras(requirement: "Requirement") -> set[str]:
    """The extras that ask for it."""
    return set(re.findall(r'extra == "([^"]+)"', str(requirement.marker or "")))
