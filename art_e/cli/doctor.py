"""`doctor`: whether this machine has what ART-E needs, and what to do where it lacks something.

Looks and writes nothing that stays; asks models only with `--online`.
"""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from art_e.cli.doctor_check import Check, State
from art_e.cli.options import DbOption, JsonOption, chosen_db, db_argument, example
from art_e.cli.output import console, plural, print_json, text
from art_e.errors import UserError

STYLES: dict[State, str] = {"ok": "green", "missing": "yellow", "broken": "bold red"}

LEAST_PYTHON = (3, 11)
LEAST_FREE = 1_000_000_000  # bytes; ingest of 500,000 mails needs about as much
CORE = ("duckdb", "numpy", "pyarrow", "pydantic", "Stemmer")
TRAINING = ("torch", "transformers", "trl", "peft", "accelerate")

app = typer.Typer()


@app.command(epilog=example("art-e doctor", "art-e doctor --online"))
def doctor(
    online: Annotated[
        bool, typer.Option("--online", help="Ask each model that is ready one short question.")
    ] = False,
    db: DbOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check this machine; exit code 1 if something needed is broken."""
    checks = list(_checks(db, online))
    works = all(check.state != "broken" for check in checks)
    if as_json:
        print_json({"ok": works, "checks": [check._asdict() for check in checks]})
    else:
        screen = console()
        for check in checks:
            line = text((f"{check.state:<8}", STYLES[check.state]), f"{check.name}: {check.detail}")
            screen.print(line, soft_wrap=True)
            if check.fix is not None:
                screen.print(text(f"        -> {check.fix}"), soft_wrap=True)
    if not works:
        raise typer.Exit(1)


def _checks(db: Path | None, online: bool) -> Iterator[Check]:
    from art_e.cli.doctor_gpu import gpu_check
    from art_e.cli.doctor_models import model_checks
    from art_e.home import home

    yield _python()
    yield _packages()
    yield _duckdb()
    yield _home(home())
    yield _disk(home())
    yield _inbox(db)
    yield _training()
    yield gpu_check()
    yield from model_checks(online=online)


def _python() -> Check:
    import platform

    version = platform.python_version()
    if sys.version_info >= LEAST_PYTHON:
        return Check("Python", "ok", version)
    return Check("Python", "broken", version, "install Python 3.11 or newer")


def _packages() -> Check:
    failed = []
    for name in CORE:
        try:
            importlib.import_module(name)
        except ImportError as error:
            failed.append(f"{name} ({error})")
    if failed:
        return Check("packages", "broken", ", ".join(failed), "pip install --force-reinstall art-e")
    return Check("packages", "ok", ", ".join(CORE))


def _duckdb() -> Check:
    try:
        from importlib import metadata

        import duckdb

        row = duckdb.connect().execute("SELECT strip_accents('É'), 6 * 7").fetchone()
    except Exception as error:  # noqa: BLE001 - whatever is wrong with it is the finding
        return Check("DuckDB", "broken", str(error), "pip install --force-reinstall duckdb")
    if row != ("E", 42):
        return Check("DuckDB", "broken", f"computes {row}", "pip install --force-reinstall duckdb")
    return Check("DuckDB", "ok", metadata.version("duckdb"))


def _home(home: Path) -> Check:
    import tempfile

    place = _existing(home)
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        fix = "set ART_E_HOME to a folder that can be written to"
        return Check("ART_E_HOME", "broken", f"{home} ({error.strerror})", fix)
    return Check("ART_E_HOME", "ok", f"{home}{'' if place == home else ' (made when needed)'}")


def _disk(home: Path) -> Check:
    import shutil

    free = shutil.disk_usage(_existing(home)).free
    detail = f"{free / 1e9:.1f} GB free"
    if free < LEAST_FREE:
        return Check("disk", "missing", detail, "free 1 GB, or set ART_E_HOME to another disk")
    return Check("disk", "ok", detail)


def _inbox(db: Path | None) -> Check:
    from art_e.inbox.file import InboxFile

    path = chosen_db(db)
    if not path.exists():
        fix = f"art-e ingest SOURCE{db_argument(db)} makes one; art-e demo needs none"
        return Check("inbox file", "missing", str(path), fix)
    try:
        with InboxFile(path) as file:
            counts = file.counts
    except UserError as error:
        return Check("inbox file", "broken", str(error))
    stored = plural(counts["stored"], "mail")
    return Check("inbox file", "ok", f"{path}: {stored}, {plural(counts['inboxes'], 'address')}")


def _training() -> Check:
    from importlib import metadata

    absent = [name for name in TRAINING if importlib.util.find_spec(name) is None]
    if absent:
        fix = "only for training: pip install 'art-e[train]'"
        return Check("training", "missing", f"without {', '.join(absent)}", fix)
    versions = (f"{name} {metadata.version(name)}" for name in TRAINING)
    return Check("training", "ok", ", ".join(versions))


def _existing(place: Path) -> Path:
    """The folder itself, or the nearest above it that is there."""
    return next(each for each in (place, *place.absolute().parents) if each.is_dir())
