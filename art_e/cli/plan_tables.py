"""What `art-e train plan` prints for people: memory line by line, tokens, hours, money.

Knows nothing of how the figures came about.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from art_e.cli.clean import one_line
from art_e.cli.output import console, plural, text

if TYPE_CHECKING:
    from rich.table import Table

_HOUR, _MINUTE = 3600, 60


def print_plan(row: dict[str, Any]) -> None:
    """Print a plan, as `training.planning.row` gives it."""
    _line(_title(row))
    for stage in row["stages"]:
        for phase in stage["memory"]:
            _print_phase(stage["stage"], phase, row["memory_bytes"])
        _line(_room(stage, row))
        _print_tokens(stage)
        _print_time(stage)
    episode = row["episode"]
    _line(
        f"an episode: {episode['turns']:.1f} turns, {episode['tokens']:,.0f} tokens,"
        f" {episode['own_tokens']:,.0f} of them the model's own ({episode['source']})"
    )
    for fee in row["judges"]:
        _line(_fee(fee))
    _line(_money(row))
    if row["hours_with_another_search"] is not None:
        longer = duration(row["hours_with_another_search"] * _HOUR)
        _line(f"with another search an episode: {longer}")
    for said in row["assumed"]:
        _line(said if said.startswith("not counted") else f"assumed: {said}")
    for warning in row["warnings"]:
        _line(f"note: {warning}")
    if row["fits"]:
        _line("it fits")
        return
    for fault in row["faults"]:
        _line(f"it does not fit: {fault}")
    for number, each in enumerate(row["remedies"], 1):
        _line(
            f"  {number}. {each['options']}: fits, {duration(each['hours'] * _HOUR)},"
            f" ${each['gpu_usd']:,.2f}"
        )
    if not row["remedies"]:
        _line("no change of one setting or two makes it fit: take a larger card or a smaller model")


def print_comparison(row: dict[str, Any]) -> None:
    """Print what was planned beside what a run reported."""
    table = _table(f"beside {one_line(row['run'])}", ("", "planned", "by its episodes", "reported"))
    own = row["by_its_own"] or [{"planned": None}] * len(row["compared"])
    for first, second in zip(row["compared"], own, strict=True):
        figures = (first["planned"], second["planned"], first["reported"])
        table.add_row(text(first["what"]), *(text(_figure(each)) for each in figures))
    table.caption = "by its episodes: planned with the tokens and turns that the run's episodes had"
    console().print(table)
    if not row["compared"]:
        _line("the recipe has no table for what was run")


def _title(row: dict[str, Any]) -> str:
    from training.planning.footprint import count_of

    gpus = row["gpus"]
    count = f"{gpus['train']} x {row['gpu']}"
    if gpus["serve"]:
        count = f"{gpus['train']} + {gpus['serve']} x {row['gpu']} (training + vLLM's server)"
    adapter = row["lora_parameters"]
    learns = f"an adapter of {count_of(adapter)}" if adapter else "all of them"
    return (
        f"{one_line(row['recipe'])} on {count}: {one_line(row['model'])},"
        f" {count_of(row['parameters'])} weights, {learns} trained,"
        f" {row['kv_bytes_per_token']:,} bytes of keys and values a token"
    )


def _print_phase(stage: str, phase: dict[str, Any], memory: int) -> None:
    table = _table(f"{stage}: {phase['phase']}, each GPU", ("", "GB", "how it is counted"))
    table.columns[-1].justify = "left"
    for line in phase["lines"]:
        table.add_row(text(line["what"]), _gb(line["size"]), text(line["how"]))
    table.add_section()
    table.add_row("in all", _gb(phase["bytes"]), text(f"of {_gb(memory)} GB (10^9 bytes)"))
    left = phase["left"]
    what = "left" if left >= 0 else "too much"
    table.add_row(what, _gb(abs(left)), f"{abs(left) / memory:.0%} of the card")
    console().print(table)


def _room(stage: dict[str, Any], row: dict[str, Any]) -> str:
    room = stage["room"]
    mean = row["episode"]["tokens"]
    return (
        f"{stage['stage']}: keys and values of {room['kv_tokens']:,} tokens have room:"
        f" {plural(room['whole_episodes'], 'episode')} of full length, about"
        f" {room['kv_tokens'] / mean:,.0f} of {mean:,.0f} tokens;"
        f" {room['under_way']:,} are under way at a time"
    )


def _print_tokens(stage: dict[str, Any]) -> None:
    table = _table(f"{stage['stage']}: tokens", ("", "a step", f"in {stage['steps']:,} steps"))
    for name, tokens in stage["tokens_per_step"].items():
        if tokens:
            total = f"{tokens * stage['steps'] / 1e6:,.1f} million"
            table.add_row(name.replace("_", " "), f"{tokens:,.0f}", total)
    console().print(table)


def _print_time(stage: dict[str, Any]) -> None:
    table = _table(f"{stage['stage']}: time", ("", "s a step", "in all"))
    for name, seconds in stage["seconds_per_step"].items():
        if seconds:
            table.add_row(name, f"{seconds:,.2f}", duration(seconds * stage["steps"]))
    asked = f"{plural(stage['examinations'] - 1, 'validation')}, and the test"
    table.add_row(asked, "", duration(stage["examining_seconds"]))
    table.add_section()
    a_step = sum(stage["seconds_per_step"].values())
    table.add_row("in all", f"{a_step:,.2f}", duration(stage["hours"] * _HOUR))
    console().print(table)


def _fee(fee: dict[str, Any]) -> str:
    usd = "price unknown" if fee["usd"] is None else f"${fee['usd']:.2f}"
    return (
        f"judge {one_line(fee['judge'])}: {usd} for {fee['calls']:,} calls about"
        f" {fee['episodes']:,} episodes, {fee['prompt_tokens'] / 1e6:.1f} +"
        f" {fee['completion_tokens'] / 1e6:.1f} million tokens"
    )


def _money(row: dict[str, Any]) -> str:
    gpus = row["gpus"]["train"] + row["gpus"]["serve"]
    judges = "unknown" if row["judge_usd"] is None else f"${row['judge_usd']:,.2f}"
    most = row["max_cost_usd"]
    limit = "" if most is None else f", ${most:,.2f} at most"
    return (
        f"{duration(row['hours'] * _HOUR)} on {plural(gpus, 'GPU')} at ${row['usd_per_hour']:.2f}"
        f" an hour: ${row['gpu_usd']:,.2f}; judges {judges}{limit}"
    )


def duration(seconds: float) -> str:
    """Hours, minutes or seconds, whichever says it."""
    if seconds >= _HOUR:
        return f"{seconds / _HOUR:,.1f} h"
    return f"{seconds / _MINUTE:,.1f} min" if seconds >= _MINUTE else f"{seconds:,.1f} s"


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"


def _gb(size: int) -> str:
    return f"{size / 1e9:,.2f}"


def _table(title: str, headings: Sequence[str]) -> "Table":
    from rich.table import Table

    table = Table(title=text(title), title_justify="left")
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left")
    return table


def _line(line: str) -> None:
    console().print(text(one_line(line)), soft_wrap=True)
