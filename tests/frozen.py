"""Writes down the present behaviour, to compare it after a refactoring.

    python -m tests.frozen before       # a minute on two cores
    python -m tests.frozen after
    diff -r before after

Commands run as processes with a new home on a synthetic world; their output and their files are
kept without times, dates of runs and versions. `--archive FILE` adds the tables of the Enron
archive's inbox, `--nano` the weights of nano after its warm start and after 50 steps of GRPO (12
minutes more).
"""

import argparse
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from tests.builders import contents

WORLD = "world.duckdb"
OWNER = "--inbox lukasz.eze@deepwarden.example --db world.duckdb"
QUESTIONS = "--questions world.questions.jsonl --db world.duckdb"
COMMANDS = f"""
ingest synthetic:2000,short --db {WORLD}
ingest synthetic:2000,short --db {WORLD} --json
inboxes --db {WORLD}
inboxes --db {WORLD} --json
search relocation allowance {OWNER}
search relocation allowance {OWNER} --json
search --from kovacs --after 2019-06-01 {OWNER} --limit 3
ask "What is Niccolò's relocation allowance?" {OWNER} --as-of 2019-06-27 --trace --out ask
ask "What is Niccolò's relocation allowance?" {OWNER} --as-of 2019-06-27 --json --out asked
ask "Which colour has the moon?" {OWNER} --out nothing
eval run -m offline {QUESTIONS} --split test --judge offline --judge f1 --out run
eval run -m offline {QUESTIONS} --limit 30 --repeat 2 --max-turns 4 --json --out short
eval compare run short
eval compare run short --json
eval judge --judge offline
eval judge --judge f1 --json
eval report run --out report
golden import world.questions.jsonl --db {WORLD} --out golden
golden filter --db {WORLD} --out golden
golden split --db {WORLD} --out golden
golden stats golden --json
golden export golden --to exported
runs show run
runs show asked --json
train plan --recipe talk
train plan --recipe talk-multi --gpus 4 --json
train plan --recipe nano
read nothing {OWNER}
search --db none.duckdb
eval run -m nobody/nothing {QUESTIONS}
ingest nowhere --db {WORLD}
doctor
""".strip().splitlines()  # fmt: skip

# What differs from run to run. Tables are as wide as the times in them.
_NOISE = (
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(\+00:00|Z| UTC)?", "TIME"),
    (r"\b\d{8}-\d{6}\b", "TIME"),
    (r"\b[\d,.]+ (ms|s|minutes|GB)\b", r"N \1"),
    (r"\([\d,]+ a second\)", "(N a second)"),
    (r"\b(?=[0-9a-f]*\d)(?:[0-9a-f]{40}|[0-9a-f]{32}|[0-9a-f]{12}|[0-9a-f]{8})\b", "HASH"),
    (r"Latency.*", "Latency"),
    (r"[─━]+", "-"),
    (r" +", " "),
    (r"\b\d+\.\d+\.\d+\b", "VERSION"),
)
_TIMED = re.compile(
    r"seconds|latency|started_at|messages_per_second|versions|commit|episode_id|cpus|call_seconds"
)


def main(arguments: list[str] | None = None) -> None:
    """Write the folder."""
    parser = argparse.ArgumentParser(prog="python -m tests.frozen", description=__doc__)
    parser.add_argument("out", type=Path, help="folder to write")
    parser.add_argument("--archive", type=Path, metavar="FILE", help="enron-maildir.tar.xz")
    parser.add_argument("--nano", action="store_true", help="train nano, too")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in outputs(Path(folder), options.archive, nano=options.nano).items():
            kept = text.replace(folder, "FOLDER")
            for pattern, instead in _NOISE:
                kept = re.sub(pattern, instead, kept)
            (options.out / name).write_text(kept, encoding="utf-8")


def outputs(folder: Path, archive: Path | None, *, nano: bool) -> dict[str, str]:
    """Run all commands in `folder`; their outputs and the files that they wrote."""
    kept = {
        f"command-{number:02d}.txt": f"$ art-e {line}\n{art_e(folder, line)}"
        for number, line in enumerate(COMMANDS)
    }
    for name in ("run", "short", "asked"):
        names = "metrics.json", "config.json", "trajectories.jsonl"
        for path in filter(Path.exists, (folder / name / each for each in names)):
            lines = path.read_text("utf-8")
            rows = lines.splitlines() if path.suffix == ".jsonl" else [lines]
            values = [untimed(json.loads(each)) for each in rows]
            kept[f"{name}-{path.name}"] = json.dumps(values, indent=1, sort_keys=True)
    for part in ("golden", "exported"):
        for path in sorted((folder / part).rglob("*.json*")):
            name = str(path.relative_to(folder)).replace("/", "-")
            kept[name] = path.read_text("utf-8")
    kept["world-tables.json"] = json.dumps(tables(folder / WORLD), indent=1)
    if archive is not None:
        art_e(folder, f"ingest {archive.resolve()} --db enron.duckdb")
        kept["archive-tables.json"] = json.dumps(tables(folder / "enron.duckdb"))
    if nano:
        art_e(folder, "train sft --recipe nano --out sft")
        art_e(folder, "train grpo --recipe nano --init sft --set grpo.steps=50 --out grpo")
        trained = {name: weights(folder / name) for name in ("sft", "grpo")}
        kept["nano.json"] = json.dumps(trained, indent=1)
    return kept


def art_e(folder: Path, line: str) -> str:
    """Both outputs of a command, and its exit code."""
    ended = subprocess.run(
        [sys.executable, "-m", "art_e", *shlex.split(line)],
        cwd=folder,
        env={**os.environ, "ART_E_HOME": str(folder / "home"), "COLUMNS": "100"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    printed = ended.stdout
    if "--json" in line and printed:
        printed = json.dumps(untimed(json.loads(printed)), indent=1) + "\n"
    return f"{printed}--- stderr\n{ended.stderr}--- exit code {ended.returncode}\n"


def untimed(value: Any) -> Any:
    """A JSON value without the fields that differ from run to run."""
    if isinstance(value, dict):
        return {key: untimed(each) for key, each in value.items() if not _TIMED.search(key)}
    return [untimed(each) for each in value] if isinstance(value, list) else value


def tables(db: Path) -> dict[str, str]:
    """A hash of each table's rows, in any order."""
    rows = {name: "\n".join(sorted(map(repr, each))) for name, each in contents(db).items()}
    del rows["meta"]
    return {name: hashlib.sha256(each.encode()).hexdigest() for name, each in rows.items()}


def weights(run: Path) -> str:
    """A hash of the weights of a run's last checkpoint."""
    last = max(run.glob("checkpoints/*-*"), key=lambda each: int(each.name.rpartition("-")[2]))
    tensors = sorted(load_file(last / "model.safetensors").items())
    data = b"".join(name.encode() + each.numpy().tobytes() for name, each in tensors)
    return hashlib.sha256(data).hexdigest()


if __name__ == "__main__":
    main()
