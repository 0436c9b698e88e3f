"""A child that ends with its parent, also where that is killed."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PARENT = """
import subprocess, sys, time
from art_e.parent import ends_with_parent
sleeps = "import time; print('up', flush=True); time.sleep(99)"
child = subprocess.Popen([sys.executable, "-c", sleeps],
                         stdout=subprocess.PIPE, preexec_fn=ends_with_parent())
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(99)
"""


def alive(pid: int) -> bool:
    """Whether it runs; one that has ended and that nobody asked about does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's end")
def test_a_child_of_a_killed_process_ends() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert alive(child)
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    ends = time.monotonic() + 30
    while alive(child):
        assert time.monotonic() < ends, "the child lives on"
        time.sleep(0.05)
