"""Memory that is kept, in a process of its own, for there is no way back; and that of a GPU."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.training import tiny
from training.processes import gpu_memory_used, keep_memory
from training.run import Setting

FAULTS = """
import resource, sys
import torch
from training.memory import keep_memory

kept = keep_memory() if sys.argv[1] == "kept" else None
# Where the blocks lie settles after some.
for _ in range(10):
    torch.ones(1 << 24)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    torch.ones(1 << 24)
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> tuple[str, int]:
    command = [sys.executable, "-c", FAULTS, how]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return told[0], int(told[1])


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="keep_memory speaks to glibc alone")
def test_what_is_freed_is_used_again() -> None:
    """Ten blocks of 64 MiB: mapped anew they are 16,384 pages each, if those are of 4 KiB."""
    kept, few = faults("kept")
    assert kept == "True"
    # Else torch or glibc has come to do so by itself, and the module can go.
    assert few < faults("usual")[1] / 10


def test_elsewhere_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert keep_memory() is False


def test_what_a_gpu_had_in_use_is_the_most_since_the_last_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of all who use it: 60 of 80 GB now, and 15 more that torch has given back."""
    assert gpu_memory_used() is None or torch.cuda.is_available()
    told = {
        "is_available": True,
        "mem_get_info": (20, 80),
        "max_memory_reserved": 45,
        "memory_reserved": 30,
        "reset_peak_memory_stats": None,
    }
    for name, value in told.items():
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    assert gpu_memory_used() == 75
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda: 90)
    assert gpu_memory_used() == 80


def test_a_run_keeps_the_most(tmp_path: Path) -> None:
    with tiny.begun(Setting("sft", tiny.recipe(), 0), tmp_path / "run") as training:
        training.note_memory(None)
        assert training.metrics["peak_memory_bytes"] is None
        for used in (5, 9, 7):
            training.note_memory(used)
        assert training.metrics["peak_memory_bytes"] == 9
