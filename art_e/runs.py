"""A run's folder: `config.json`, `trajectories.jsonl`, `metrics.json`, and `COMPLETE` last.

A folder without `COMPLETE` belongs to a run that is under way or was killed."""

import datetime as dt
import itertools
import json
import os
import platform
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from art_e.errors import UserError, explained
from art_e.storage import AppendLog, locked, partial_of, whole_lines, write_whole
from art_e.trajectory import Trajectory

_COMPLETE = "COMPLETE"
_CONFIG = "config.json"


@dataclass(frozen=True, slots=True)
class Run:
    """One run's folder."""

    folder: Path

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def trajectories(self) -> Path:
        return self.folder / "trajectories.jsonl"

    @property
    def started(self) -> bool:
        return (self.folder / _CONFIG).is_file()

    @property
    def complete(self) -> bool:
        return (self.folder / _COMPLETE).exists()

    @property
    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = json.loads((self.folder / _CONFIG).read_text("utf-8"))
        return config

    @property
    def metrics(self) -> dict[str, Any]:
        metrics: dict[str, Any] = json.loads((self.folder / "metrics.json").read_text("utf-8"))
        return metrics

    def log(self) -> AppendLog:
        return AppendLog(self.trajectories)

    def write_json(self, name: str, value: Any) -> None:
        write_whole(self.folder / name, json.dumps(value, indent=2, ensure_ascii=False) + "\n")

    def finish(self) -> None:
        (self.folder / _COMPLETE).touch()


def start_run(name: str, config: dict[str, Any], parent: Path, out: Path | None = None) -> Run:
    """Make a run's folder: `out` (with a link in `parent`), or `parent/<time>-<name>`. Raises
    `UserError` if `out` exists and has more in it than a half-written configuration."""
    if out is not None:
        torn = partial_of(out / _CONFIG)
        if out.exists() and (
            not out.is_dir() or any(each != torn or not each.is_file() for each in out.iterdir())
        ):
            raise UserError(f"{out} already exists; name a new folder with --out")
        with explained(f"can't make {out}", "name another --out"):
            out.mkdir(parents=True, exist_ok=True)
    run = Run(out or _new_place(parent, name, Path.mkdir))
    if out is not None and out.resolve().parent != parent.resolve():
        with suppress(OSError):  # in a read-only home the run is not listed
            _new_place(parent, name, lambda link: link.symlink_to(out.resolve()))
    versions = {each: metadata.version(each) for each in ("art-e", "duckdb", "numpy", "pyarrow")}
    made_by = {
        "name": name,
        "versions": {"python": platform.python_version(), **versions},
        "commit": _commit(),
        "cpus": os.cpu_count(),
        "started_at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
    }
    run.write_json(_CONFIG, {**config, **made_by})
    return run


def list_runs(parent: Path) -> list[Run]:
    """Return the runs of a folder, newest first."""
    folders = {each.parent.resolve(): each.parent for each in parent.glob(f"*/{_CONFIG}")}
    newest = sorted(folders.items(), key=lambda each: each[1].name, reverse=True)
    return [Run(place if folder.is_symlink() else folder) for place, folder in newest]


def runs_of(command: str, parent: Path) -> Iterator[Run]:
    """Yield the runs that a command made, newest first, except damaged ones."""
    for run in list_runs(parent):
        try:
            config = run.config
        except (OSError, ValueError):
            continue
        if isinstance(config, dict) and config.get("name") == command:
            yield run


def find_run(name: str, parent: Path) -> Run:
    """Return the run of that name or path; "last" is the newest. Raises `UserError` without one."""
    if name == "last" and (runs := list_runs(parent)):
        return runs[0]
    elsewhere = (run for run in list_runs(parent) if run.id == name)
    for run in itertools.chain((Run(parent / name), Run(Path(name))), elsewhere):
        if run.started:
            return run
    raise UserError(f"no run {name!r} in {parent}; art-e runs list shows them")


def read_trajectories(path: Path) -> Iterator[Trajectory]:
    """Yield the trajectories of a file, in order, without a torn last line; none if it is missing.
    Raises `ValueError` for another invalid line."""
    for line in whole_lines(path):
        yield Trajectory.from_line(line.decode("utf-8"))


@contextmanager
def locked_run(run: Run) -> Iterator[None]:
    """Hold the run's lock. Raises `UserError` if another process works on the run."""
    busy = f"{run.folder} is running in another process; wait for its end, or give another --out"
    with locked(run.folder / ".lock", busy):
        run.trajectories.touch()
        yield


def _new_place(parent: Path, name: str, make: Callable[[Path], None]) -> Path:
    parent.mkdir(parents=True, exist_ok=True)
    stamp = dt.datetime.now(dt.UTC).strftime("%Y%m%d-%H%M%S")
    for number in itertools.count(1):
        folder = parent / (f"{stamp}-{name}" if number == 1 else f"{stamp}-{name}-{number}")
        with suppress(FileExistsError):
            make(folder)
            break
    return folder


def _commit() -> str | None:
    checkout = Path(__file__).parent.parent
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    with suppress(OSError, subprocess.CalledProcessError):
        if (checkout / ".git").exists():
            return subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL).strip()
    return None
