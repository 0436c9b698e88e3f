"""Measure the time and memory of whole processes; facts about the machine."""

import os
import platform
import sqlite3
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np

MB = 1024 * 1024
_CPUINFO = Path("/proc/cpuinfo")


class ProcessCost(NamedTuple):
    """The cost of a whole process; `peak_mb` is the resident memory of its largest process."""

    wall_seconds: float
    cpu_seconds: float
    peak_mb: float
    stdout: str


def summary(milliseconds: Sequence[float]) -> dict[str, float]:
    """Return count, p50, p95 and mean."""
    p50, p95 = np.percentile(milliseconds, [50, 95])
    mean = statistics.fmean(milliseconds)
    return {"n": len(milliseconds), "p50": float(p50), "p95": float(p95), "mean": mean}


def run_process(command: list[str], environment: dict[str, str] | None = None) -> ProcessCost:
    """Run `command` to its end. Raises `RuntimeError` with its stderr if it fails."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=out, stderr=err, env={**os.environ, **(environment or {})}
        )
        # wait4 is the only call that reports the CPU time of a single child.
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode:
            printed = err.read().decode("utf-8", "replace")
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {printed}")
        cpu = usage.ru_utime + usage.ru_stime
        peak = usage.ru_maxrss / 1024
        return ProcessCost(wall, cpu, peak, out.read().decode("utf-8", "replace"))


def machine_facts() -> dict[str, Any]:
    """Return the facts about machine and versions on which the figures depend."""
    model = platform.processor()
    if _CPUINFO.exists():
        lines = _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
        names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
        model = next(names, model)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / MB / 1024
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gib": round(memory, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "duckdb": duckdb.__version__,
        "sqlite": sqlite3.sqlite_version,
        "numpy": np.__version__,
        "load_average": round(os.getloadavg()[0], 2),
    }
