"""Memory that is kept: in a process of its own, for there is no way back from it."""

import platform
import subprocess
import sys

import pytest

from training.memory import keep_memory

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
