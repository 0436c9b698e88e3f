"""`doctor`: whether this machine has what ART-E needs, and what to do if not.

It changes nothing, and calls models only with `--online`.
"""

import asyncio
import importlib
import importlib.util
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import typer
from packaging.requirements import Requirement
from typer import Option

from art_e.cli.options import DbOption, JsonOption, chosen_db, db_argument
from art_e.cli.output import console, example, plural, print_json, text
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.models.hosted import failure_of
from art_e.models.providers import close_clients_with_loop, load_litellm
from art_e.privacy import load_env
from art_e.storage import home

State = Literal["ok", "missing", "broken"]


class Finding(NamedTuple):
    """The state of one thing: art-e works without a "missing" one, not with a "broken" one."""

    name: str
    state: State
    detail: str
    fix: str | None = None


# Models behind a server, and the variables of which one must be set.
HOSTED = {
    "openai/o3": ("OPENAI_API_KEY",),
    "openai/o4-mini": ("OPENAI_API_KEY",),
    "openai/gpt-4.1": ("OPENAI_API_KEY",),
    "gemini/gemini-2.5-pro": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "anthropic/claude-sonnet-5-5": ("ANTHROPIC_API_KEY",),
    "ollama_chat/qwen2.5:14b": ("OLLAMA_API_BASE",),
    "hosted_vllm/Qwen2.5-14B-Instruct": ("HOSTED_VLLM_API_BASE",),
}
OLLAMA_FIX = "install Ollama and: ollama pull qwen2.5:14b; or export OLLAMA_API_BASE=URL"
LOCAL = ("torch", "transformers")
ONLINE_TOKENS = 16
ONLINE_TIMEOUT_S = 20.0
# A reasoning model that spent its few tokens on thinking has worked.
_ENOUGH = "output limit was reached"


def model_checks(*, online: bool) -> Iterator[Finding]:
    """The models that can be called from here, and what the others need; none is "broken"."""
    load_env()
    found = {model: _by_environment(model, names) for model, names in HOSTED.items()}
    if online:
        found |= asyncio.run(_call_all([name for name, each in found.items() if each[0] == "ok"]))
    absent = [name for name in LOCAL if importlib.util.find_spec(name) is None]
    found["local:PATH"] = (
        ("missing", f"without {', '.join(absent)}", "pip install 'art-e[train]'")
        if absent
        else ("ok", f"{' and '.join(LOCAL)} are installed", None)
    )
    for model, (state, detail, fix) in found.items():
        yield Finding(f"model {model}", state, detail, fix)


_Found = tuple[State, str, str | None]


def _by_environment(model: str, variables: tuple[str, ...]) -> _Found:
    """What the environment tells about a model behind a server."""
    present = next((name for name in variables if os.environ.get(name)), None)
    if present is not None:
        return "ok", f"{present} is set", None
    if model.startswith("ollama"):
        if shutil.which("ollama"):
            return "ok", "ollama is installed", None
        return "missing", "no ollama on this machine", OLLAMA_FIX
    value = "http://HOST:8000/v1" if model.startswith("hosted_vllm") else "..."
    return "missing", f"no {variables[0]}", f"export {variables[0]}={value}"


async def _call_all(models: list[str]) -> dict[str, _Found]:
    """Whether each model answers, or why it does not."""
    if models:
        await close_clients_with_loop()
    reasons = await asyncio.gather(*map(_why_it_fails, models))
    fix = "mend that, and run art-e doctor --online again"
    return {
        model: ("ok", "answered", None) if reason is None else ("missing", reason, fix)
        for model, reason in zip(models, reasons, strict=True)
    }


async def _why_it_fails(model: str) -> str | None:
    """One call of a few tokens; None if it worked, else the reason in a line."""
    try:
        await load_litellm().acompletion(
            model=model,
            messages=[{"role": "user", "content": "Say OK."}],
            max_tokens=ONLINE_TOKENS,
            timeout=ONLINE_TIMEOUT_S,
            num_retries=0,
            max_retries=0,
        )
    except Exception as error:  # noqa: BLE001 - whatever a provider's client raises is the finding
        reason = str(failure_of(error, model)).removeprefix(f"{model}: ")
        return None if _ENOUGH in reason else reason
    return None


GPU = "GPU training"
# Linux has the driver's version here, containers too.
DRIVER = Path("/proc/driver/nvidia/version")
INSTALL = "make gpu, or: pip install --require-hashes --no-deps -r requirements/gpu.txt"
RENT = "rent one with training/launch/sky.yaml; nano and everything else need none"
# NVIDIA's release notes: the first driver that runs what is built with CUDA 13.
LEAST_DRIVER = "580"


def gpu_check() -> Finding:
    """The GPU, and the packages that differ from the locked ones. Never "broken"."""
    driver = driver_version()
    if driver is None:
        return Finding(GPU, "missing", "no CUDA device; only for training at full scale", RENT)
    if importlib.util.find_spec("torch") is None:
        return Finding(GPU, "missing", f"NVIDIA driver {driver}, without torch", INSTALL)
    import torch

    cuda = torch.version.cuda
    if not torch.cuda.is_available():
        built = f"torch {torch.__version__}, {f'CUDA {cuda}' if cuda else 'built without CUDA'}"
        detail = f"NVIDIA driver {driver}, but no CUDA device: {built}"
        fix = f"{INSTALL}; CUDA 13 takes a driver from {LEAST_DRIVER} on"
        return Finding(GPU, "missing", detail, fix)
    cards = [torch.cuda.get_device_properties(each) for each in range(torch.cuda.device_count())]
    names = ", ".join(f"{each.name} ({each.total_memory / 2**30:.0f} GiB)" for each in cards)
    card = f"{plural(len(cards), 'CUDA device')}: {names}, CUDA {cuda}, driver {driver}"
    locked = locked_versions()
    wrong = [
        f"{name} {found} where {version} is locked" if found else f"without {name} {version}"
        for name, version in locked.items()
        if (found := _installed(name)) != version
    ]
    if wrong:
        return Finding(GPU, "missing", f"{card}; {', '.join(wrong)}", INSTALL)
    as_locked = ", ".join(f"{name} {version}" for name, version in locked.items())
    return Finding(GPU, "ok", f"{card}; as locked: {as_locked}")


def driver_version() -> str | None:
    """The NVIDIA driver's version, "of unknown version" if its file is unreadable, or None."""
    if not DRIVER.is_file():
        return None
    found = re.search(r"Module.*?\s(\d+(?:\.\d+)+)", DRIVER.read_text("utf-8", "replace"))
    return "of unknown version" if found is None else found[1]


def locked_versions() -> dict[str, str]:
    """The packages that full-scale training needs, each with its one locked version."""
    required = [Requirement(each) for each in metadata.requires("art-e") or []]
    extras = re.compile(r'extra == "(?:train|gpu)"')
    wanted = [each for each in required if extras.search(str(each.marker or ""))]
    return {each.name: next(iter(each.specifier)).version for each in sorted(wanted, key=str)}


def _installed(name: str) -> str | None:
    """The installed version, without a build's suffix (+cu130)."""
    try:
        return metadata.version(name).partition("+")[0]
    except metadata.PackageNotFoundError:
        return None


STYLES: dict[State, str] = {"ok": "green", "missing": "yellow", "broken": "bold red"}

LEAST_FREE = 1_000_000_000  # bytes; ingest of 500,000 mails needs about as much
CORE = ("duckdb", "numpy", "pyarrow", "pydantic", "Stemmer")
TRAINING = ("torch", "transformers", "trl", "peft", "accelerate")

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(epilog=example("art-e doctor", "art-e doctor --online"))
def doctor(
    online: Annotated[
        bool, Option("--online", help="Ask each model that is ready one short question.")
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


def _checks(db: Path | None, online: bool) -> Iterator[Finding]:
    yield Finding("Python", "ok", platform.python_version())
    yield _packages()
    yield Finding("DuckDB", "ok", metadata.version("duckdb"))
    yield _home(home())
    yield _disk(home())
    yield _inbox(db)
    yield _training()
    yield gpu_check()
    yield from model_checks(online=online)


def _packages() -> Finding:
    failed = []
    for name in CORE:
        try:
            importlib.import_module(name)
        except ImportError as error:
            failed.append(f"{name} ({error})")
    if failed:
        return Finding(
            "packages", "broken", ", ".join(failed), "pip install --force-reinstall art-e"
        )
    return Finding("packages", "ok", ", ".join(CORE))


def _home(home: Path) -> Finding:
    place = _existing(home)
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        fix = "set ART_E_HOME to a folder that can be written to"
        return Finding("ART_E_HOME", "broken", f"{home} ({error.strerror})", fix)
    return Finding("ART_E_HOME", "ok", f"{home}{'' if place == home else ' (made when needed)'}")


def _disk(home: Path) -> Finding:
    free = shutil.disk_usage(_existing(home)).free
    detail = f"{free / 1e9:.1f} GB free"
    if free < LEAST_FREE:
        return Finding("disk", "missing", detail, "free 1 GB, or set ART_E_HOME to another disk")
    return Finding("disk", "ok", detail)


def _inbox(db: Path | None) -> Finding:
    path = chosen_db(db)
    if not path.exists():
        fix = f"art-e ingest SOURCE{db_argument(db)} makes one; art-e demo needs none"
        return Finding("inbox file", "missing", str(path), fix)
    try:
        with InboxFile(path) as file:
            counts = file.counts
    except UserError as error:
        return Finding("inbox file", "broken", str(error))
    stored = plural(counts["stored"], "mail")
    return Finding("inbox file", "ok", f"{path}: {stored}, {plural(counts['inboxes'], 'address')}")


def _training() -> Finding:
    absent = [name for name in TRAINING if importlib.util.find_spec(name) is None]
    if absent:
        fix = "only for training: pip install 'art-e[train]'"
        return Finding("training", "missing", f"without {', '.join(absent)}", fix)
    versions = (f"{name} {metadata.version(name)}" for name in TRAINING)
    return Finding("training", "ok", ", ".join(versions))


def _existing(place: Path) -> Path:
    """The folder itself, or the nearest above it that is there."""
    return next(each for each in (place, *place.absolute().parents) if each.is_dir())
