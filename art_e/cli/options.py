"""Options that several commands share, and their checks."""

import contextlib
import datetime as dt
import re
from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.models.base import ModelOptions, Policy
from art_e.models.model import Model
from art_e.models.providers import warm_up
from art_e.question import SPLITS, Split
from art_e.storage import default_db, home

DbOption = Annotated[
    Path | None,
    Option("--db", metavar="FILE", help="Inbox file [default: inbox.duckdb in ART_E_HOME]."),
]
InboxOption = Annotated[
    str | None,
    Option(
        "--inbox", metavar="ADDRESS", help="Whose inbox; may be left out if the file has one owner."
    ),
]
AsOfOption = Annotated[
    str | None,
    Option("--as-of", metavar="DATE", help="YYYY-MM-DD: mail sent after that day does not exist."),
]
AllOption = Annotated[
    bool, Option("--all", help="Search spam and trash too, as Gmail labels them.")
]
OutOption = Annotated[
    Path | None,
    Option("--out", metavar="DIR", help="Folder of the run [default: a new one in runs/]."),
]
JsonOption = Annotated[
    bool, Option("--json", help="Print data alone, as JSON; notes go to stderr.")
]


def chosen_db(db: Path | None) -> Path:
    """The file of `--db`, or the default one."""
    return default_db() if db is None else db


def db_argument(db: Path | None) -> str:
    """What to add to a command so that it uses the same file."""
    return "" if db is None else f" --db {db}"


def parse_day(day: str | None, option: str) -> dt.date | None:
    """The date that an option gives. Raises `UserError` for an invalid one."""
    if day is None:
        return None
    if re.fullmatch(r"\d{4}-\d\d-\d\d", day, re.ASCII):
        with contextlib.suppress(ValueError):  # such as 2001-02-30
            return dt.date.fromisoformat(day)
    raise UserError(f"{option} {day!r} is no date; write it as YYYY-MM-DD, such as 2001-03-31")


def chosen_address(file: InboxFile, inbox: str | None, db: Path | None) -> str:
    """The address of `--inbox`, or the file's only owner. Raises `UserError` without either."""
    if inbox is not None:
        return inbox
    owners = file.owners()
    if len(owners) == 1:
        return owners[0]
    has = f"{len(owners)} owners" if owners else "no single owner"
    raise UserError(
        f"whose inbox? the file has {has}: add --inbox ADDRESS"
        f" (art-e inboxes{db_argument(db)} lists them)"
    )


def chosen_split(name: str | None) -> Split | None:
    """The split of `--split`; None: all of them. Raises `UserError` for an invalid one."""
    chosen = next((each for each in SPLITS if each == name), None)
    if name is not None and chosen is None:
        raise UserError(f"no split {name!r}; there are {', '.join(SPLITS)}")
    return chosen


# The default of `--concurrency` for hosted models.
HOSTED_CONCURRENCY = 8

Effort = Literal["minimal", "low", "medium", "high"]
ToolCalls = Literal["auto", "native", "text"]

EffortOption = Annotated[
    Effort | None, Option("--reasoning-effort", help="How long a reasoning model thinks.")
]
TemperatureOption = Annotated[
    float | None, Option("--temperature", min=0, max=2, help="Default: 0 where the model takes it.")
]
MaxCostOption = Annotated[
    float | None,
    Option("--max-cost", metavar="USD", min=0, help="Stop before a model has cost more."),
]
ToolCallsOption = Annotated[
    ToolCalls, Option("--tool-calls", help="text: for models that can't call tools natively.")
]
CacheOption = Annotated[
    bool, Option("--cache", help="Keep responses, and use those kept; time is not measured then.")
]


def model_options(
    effort: Effort | None,
    temperature: float | None,
    max_cost: float | None,
    tool_calls: ToolCalls,
    cache: bool,
    concurrency: int,
    turn_tokens: int | None = None,
) -> ModelOptions:
    """How the command line has a model called; `turn_tokens` limits each message."""
    return ModelOptions(
        temperature=temperature,
        reasoning_effort=effort,
        max_output_tokens=turn_tokens,
        tool_calls=tool_calls,
        concurrency=concurrency,
        max_cost_usd=max_cost,
        cache=home() / "cache" / "responses" if cache else None,
    )


def default_concurrency(models: list[str]) -> int:
    """Several questions at a time if all models but `offline` are hosted elsewhere, else 1."""
    called = [model for model in map(Model, models) if model.kind != "offline"]
    elsewhere = bool(called) and all(model.leaves_machine for model in called)
    return HOSTED_CONCURRENCY if elsewhere else 1


def ready_policy(model: Model, options: ModelOptions) -> Policy:
    """The model's policy. Raises `UserError` if its key or its address is missing."""
    host = model.host
    policy = model.policy(options)
    if host is not None and options.cache is None:
        # Else loading would count as part of the first question's time.
        warm_up()
    return policy
