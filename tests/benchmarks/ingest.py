"""Ingest end to end from an archive, against the reference design in the same run.

Both are whole processes that read the same archive (`art-e ingest` and
`tests.benchmarks.reference`), in turn, twice each.
"""

import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.benchmarks.measure import MB, run_process

# The reference takes minutes for more mails.
MOST_MAILS = 60_000


def benchmark(name: str, archive: Path, repeats: int = 2) -> dict[str, Any]:
    """Ours and the reference on one archive; the result as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        files = {side: Path(folder) / side for side in ("ours", "reference")}
        ingest = ["art_e", "ingest", str(archive), "--format", "enron", "--json", "--db"]
        modules = {"ours": ingest, "reference": ["tests.benchmarks.reference", str(archive)]}
        commands = {
            side: [sys.executable, "-m", *modules[side], str(file)] for side, file in files.items()
        }
        rounds = [
            {side: run_process(command) for side, command in commands.items()}
            for _ in range(repeats)
        ]
        sizes = {side: file.stat().st_size / MB for side, file in files.items()}
    reports = {side: json.loads(cost.stdout) for side, cost in rounds[0].items()}
    if reports["ours"]["read"] != reports["reference"]["read"]:
        raise AssertionError(f"the sides read different numbers of messages: {reports}")
    sides = {}
    for side, report in reports.items():
        seconds = statistics.median(each[side].wall_seconds for each in rounds)
        sides[side] = {
            "read": report["read"],
            "stored": report["stored"],
            "seconds": seconds,
            "per_second": report["read"] / seconds,
            "cpu_seconds": statistics.median(each[side].cpu_seconds for each in rounds),
            "peak_mb": max(each[side].peak_mb for each in rounds),
            "file_mb": sizes[side],
        }
    ratios = {
        key: sides["reference"][key] / sides["ours"][key] for key in ("seconds", "cpu_seconds")
    }
    return {"benchmark": "ingest", "world": name, **sides, "ratios": ratios}
