"""`doctor`, `models` and `config`: check this machine, list models, set defaults.

`doctor` changes nothing, and calls models only with `--online`."""

import asyncio
import importlib
import importlib.util
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from typer import Argument, Exit, Option, Typer

from art_e.cli import output
from art_e.cli.options import DbOption, JsonOption, chosen_db, db_argument
from art_e.config import SETTINGS, change, config_file, settings
from art_e.errors import EVAL_EXTRA, UserError, install_command
from art_e.inbox.file import InboxFile
from art_e.message import ChatMessage
from art_e.models.base import OFFLINE, ModelOptions, PolicyError
from art_e.models.checkpoint import TRAIN_EXTRA
from art_e.models.model import Model, Suggestion, full_name, suggest_models
from art_e.models.providers import KNOWN, ending
from art_e.privacy import load_env
from art_e.storage import home
from art_e.tools import schemas

State = Literal["ok", "missing", "broken"]
STYLES: dict[State, str] = {"ok": "green", "missing": "yellow", "broken": "bold red"}
CORE = ("duckdb", "numpy", "pyarrow", "pydantic", "Stemmer", "pypdf", "python_calamine")
TRAINING = (*TRAIN_EXTRA, "trl", "accelerate")
OLLAMA_FIX = "install Ollama and: ollama pull qwen2.5:14b; or export OLLAMA_API_BASE=URL"
ONLINE_TIMEOUT_S = 20.0
DRIVER = Path("/proc/driver/nvidia/version")  # Linux has the driver's version here, containers too
INSTALL_GPU = "make gpu, or: pip install --require-hashes --no-deps -r requirements/gpu.txt"
RENT = "rent one with training/launch/sky.yaml; nano and all other commands run without"


class Finding(NamedTuple):
    """The state of one component: art-e works if it is "missing", but not if it is "broken"."""

    name: str
    state: State
    detail: str
    fix: str | None = None


app = Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def doctor(
    online: Annotated[
        bool, Option("--online", help="Send one short question to each model that is ready.")
    ] = False,
    db: DbOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check this machine; exit code 1 if something needed is broken."""
    checks = list(_checks(db, online))
    works = all(check.state != "broken" for check in checks)
    if as_json:
        output.print_json({"ok": works, "checks": [check._asdict() for check in checks]})
    else:
        for check in checks:
            state = (f"{check.state:<8}", STYLES[check.state])
            output.print_text(state, f"{check.name}: {check.detail}")
            if check.fix is not None:
                output.print_text(check.fix, lead="        -> ")
    if not works:
        raise Exit(1)


def _checks(db: Path | None, online: bool) -> Iterator[Finding]:
    yield Finding("Python", "ok", platform.python_version())
    failed = []
    for name in CORE:
        try:
            importlib.import_module(name)
        except ImportError as error:
            failed.append(f"{name} ({error})")
    if failed:
        fix = f"delete {sys.prefix} and install art-e again"
        yield Finding("packages", "broken", ", ".join(failed), fix)
    else:
        yield Finding("packages", "ok", f"{', '.join(CORE)}; DuckDB {metadata.version('duckdb')}")
    yield from _check_paths(db)
    yield _check_packages("benchmarks", EVAL_EXTRA, install_command("eval"))
    yield _check_packages("training", TRAINING, install_command("eval,train"))
    yield check_gpu()
    yield from (each._replace(name=f"model {each.name}") for each in check_models(online=online))


def _check_packages(name: str, packages: Sequence[str], fix: str) -> Finding:
    missing = [each for each in packages if importlib.util.find_spec(each) is None]
    if missing:
        return Finding(name, "missing", f"without {', '.join(missing)}", fix)
    return Finding(name, "ok", ", ".join(f"{each} {metadata.version(each)}" for each in packages))


def _check_paths(db: Path | None) -> Iterator[Finding]:
    folder = home()
    existing = next(each for each in (folder, *folder.absolute().parents) if each.is_dir())
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        fix = "set ART_E_HOME to a writable folder"
        yield Finding("ART_E_HOME", "broken", f"{folder} ({error.strerror})", fix)
    else:
        note = "" if existing == folder else " (created when needed)"
        yield Finding("ART_E_HOME", "ok", f"{folder}{note}")
    free = shutil.disk_usage(existing).free
    disk = Finding("disk", "ok", f"{free / 1e9:.1f} GB free")
    if free < 1e9:  # about what an ingest of 500,000 mails needs
        fix = "free 1 GB, or set ART_E_HOME to another disk"
        disk = disk._replace(state="missing", fix=fix)
    yield disk
    path = chosen_db(db)
    if not path.exists():
        fix = f"art-e ingest SOURCE{db_argument(db)} makes one; art-e demo needs none"
        yield Finding("inbox file", "missing", str(path), fix)
        return
    try:
        with InboxFile(path) as file:
            mails = output.plural(file.counts["stored"], "mail")
            addresses = output.plural(file.counts["inboxes"], "address")
            unread = file.counts["unread"]
        hint = output.not_searched(unread) if unread else None
        yield Finding("inbox file", "ok", f"{path}: {mails}, {addresses}", hint)
    except UserError as error:
        yield Finding("inbox file", "broken", str(error))


def check_gpu() -> Finding:
    """Check the GPU, its driver and torch. Never "broken"."""
    name = "GPU training"
    if not DRIVER.is_file():
        return Finding(name, "missing", "no CUDA device; only for training at full scale", RENT)
    version = re.search(r"Module.*?\s(\d+(?:\.\d+)+)", DRIVER.read_text("utf-8", "replace"))
    driver = f"NVIDIA driver {version[1] if version else '(unknown)'}"
    if importlib.util.find_spec("torch") is None:
        return Finding(name, "missing", f"{driver}, without torch", INSTALL_GPU)
    import torch

    if not torch.cuda.is_available():
        built = f"torch {torch.__version__}, built for CUDA {torch.version.cuda}"
        fix = f"{INSTALL_GPU}; CUDA 13 needs driver 580 or later"  # NVIDIA's release notes
        return Finding(name, "missing", f"{driver}, but no CUDA device: {built}", fix)
    cards = [torch.cuda.get_device_properties(each) for each in range(torch.cuda.device_count())]
    names = ", ".join(f"{each.name} ({each.total_memory / 2**30:.0f} GiB)" for each in cards)
    devices = output.plural(len(cards), "CUDA device")
    detail = f"{devices}: {names}, CUDA {torch.version.cuda}, {driver}"
    if importlib.util.find_spec("vllm") is None:
        return Finding(name, "missing", f"{detail}; without vllm", INSTALL_GPU)
    return Finding(name, "ok", f"{detail}; vllm {metadata.version('vllm')}")


def check_models(near: Sequence[Suggestion] = (), *, online: bool = False) -> list[Finding]:
    """Check which models can be called; `near` are those at hand. A missing key is not an error."""

    async def probe_all() -> list[Finding]:
        return await asyncio.gather(*map(_probe_model, checks))

    load_env()
    near = suggest_models() if online else near
    rows = [each for each in KNOWN.values() if each.variables]
    checks = [_check_environment(each.model, each.variables, near) for each in rows]
    if online:
        checks = asyncio.run(probe_all())
    local = _check_packages("local:PATH", TRAIN_EXTRA, install_command("eval,train"))
    return [Finding(OFFLINE, "ok", "shows passages and asks no model"), *checks, local]


async def _probe_model(finding: Finding) -> Finding:
    """Send one short question to a model that is ready, with the tools that `ask` sends."""
    if finding.state != "ok":
        return finding
    options = ModelOptions(
        tries=1, timeout_s=ONLINE_TIMEOUT_S, max_output_tokens=256, on_answer=lambda _: None
    )
    messages: list[ChatMessage] = [
        {"role": "system", "content": "Search before you answer."},
        {"role": "user", "content": "Search for the word lease."},
    ]
    try:
        step = await Model(finding.name).policy(options).act(messages, schemas())
    except (PolicyError, UserError) as error:
        if isinstance(error, PolicyError) and error.kind == "length":
            # A reasoning model that spends its few tokens on thinking works.
            return Finding(finding.name, "ok", "answered")
        fix = "fix that, and run art-e doctor --online again"
        return Finding(finding.name, "missing", str(error), fix)
    answer = "answered with a call" if step.message.tool_calls else "answered, but called no tool"
    return Finding(finding.name, "ok", "; ".join(filter(None, [answer, ending(finding.name)])))


def _check_environment(model: str, variables: Sequence[str], near: Sequence[Suggestion]) -> Finding:
    """Check by environment variables and local servers whether a hosted model can be called."""
    ended = ending(model) or ""
    if present := next(filter(os.environ.get, variables), None):
        state: State = "missing" if " ended " in ended else "ok"
        return Finding(model, state, "; ".join(filter(None, [f"{present} is set", ended])))
    if model.startswith("ollama"):
        if any(each.model == model for each in near):
            return Finding(model, "ok", "Ollama listens here, and has it")
        if any(each.model.startswith("ollama") for each in near) or shutil.which("ollama"):
            pull = OLLAMA_FIX.partition(": ")[2]
            return Finding(model, "missing", "Ollama does not have it", pull)
        return Finding(model, "missing", "no ollama on this machine", OLLAMA_FIX)
    value = "http://HOST:8000/v1" if model.startswith("hosted_vllm") else "..."
    return Finding(model, "missing", f"no {variables[0]}", f"export {variables[0]}={value}")


@app.command()
def models(as_json: JsonOption = False) -> None:
    """List the models that can be used, what the others need, and those found on this machine."""
    near = suggest_models()
    checks = check_models(near)
    if as_json:
        rows = [each._asdict() for each in checks]
        output.print_json({"nearby": [each._asdict() for each in near], "models": rows})
        return
    if near:
        at_hand = [(each.model, each.why, each.export) for each in near]
        output.print_table(("at hand", "why", "first"), at_hand, left=(0, 1, 2))
    table = [(each.name, each.state, each.fix or each.detail) for each in checks]
    output.print_table(("model", "state", "what it needs"), table, left=(0, 1, 2))
    output.print_line("the default of art-e ask: art-e config model MODEL")


@app.command()
def config(
    name: Annotated[str | None, Argument(metavar="NAME", help=f"{', '.join(SETTINGS)}.")] = None,
    value: Annotated[str | None, Argument(metavar="VALUE", help="The new default.")] = None,
    unset: Annotated[bool, Option("--unset", help="Remove the setting.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what commands use by default, or change it."""
    if name is not None and name not in SETTINGS:
        raise UserError(f"there is no setting {name!r}; there are {', '.join(SETTINGS)}")
    if unset and (name is None or value is not None):
        raise UserError("--unset takes the name of a setting, no value: art-e config NAME --unset")
    if name is not None and (unset or value is not None):
        change(name, None if unset or value is None else _validated(name, value))
    values = settings()
    if as_json:
        output.print_json(dict(values))
        return
    for key in SETTINGS if name is None else [name]:
        output.print_lines(f"{key}: {values.get(key, '(not set)')} ({SETTINGS[key]})")
    output.note(str(config_file()))


def _validated(name: str, value: str) -> str:
    """Return the value as it is stored. Raises `UserError` for one that can't be used."""
    if name in ("model", "judge"):
        model = full_name(value)
        if name == "model" or model not in ("offline", "f1"):
            _ = Model(model).host
        return model
    if name == "db":
        path = Path(value).expanduser().resolve()
        InboxFile(path).close()
        return str(path)
    if "@" not in value:
        raise UserError(f"{value!r} is not an address; write it as name@example.com")
    return value.strip().lower()
