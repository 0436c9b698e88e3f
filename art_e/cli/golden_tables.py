"""What the golden commands print for people: a set's figures and its leak report in tables.

Knows nothing of how the figures came about.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from art_e.cli.clean import one_line
from art_e.cli.output import console, plural, shown_usd, text
from art_e.text import cut_line

if TYPE_CHECKING:
    from rich.table import Table

_EXAMPLE_CHARS = 100
_LEAKS = {
    "shared_gold": "mails that are gold in both",
    "gold_in_inboxes": "gold mails of the first in inboxes of the second",
    "shared_questions": "questions of the same words in both",
}
# What the split step drops rows for; the rest is only told.
_FORBIDDEN = {
    "shared_gold": ("train/validation", "train/test", "validation/test"),
    "gold_in_inboxes": ("train/test", "validation/test"),
}


def print_leaks(leaks: dict[str, Any]) -> None:
    """Print what splits have in common, before rows were dropped and after."""
    table = _table("what splits have in common", ("", "splits", "before", "after"), left=2)
    for name, label in _LEAKS.items():
        before, after = leaks["before"][name], leaks["after"][name]
        for pair in sorted(before, key=_as_splits):
            mark = " *" if pair in _FORBIDDEN.get(name, ()) else ""
            _add(table, label + mark, pair, f"{before[pair]:,}", f"{after[pair]:,}")
    for pair in sorted(leaks["shared_mails"], key=_as_splits):
        count = f"{leaks['shared_mails'][pair]:,}"
        _add(table, "mails that inboxes of both hold", pair, count, count)
    if table.row_count:
        table.caption = "*: not allowed, rows that did it were dropped; the rest is only told"
        console().print(table)
    for each in leaks["same_people"]:
        whose = " and ".join(f"{inbox} ({split})" for inbox, split in each["inboxes"].items())
        _line(f"maybe one person, in two splits: {whose} are both named {each['name']!r}")
    if leaks["unknown_gold"]:
        _line(f"{plural(leaks['unknown_gold'], 'gold mail')} not in the inbox file: not checked")


def _as_splits(pair: str) -> list[int]:
    from art_e.question import SPLITS

    places = {str(each): place for place, each in enumerate(SPLITS)}
    return [places[part] for part in pair.split("/")]


def print_stats(figures: dict[str, Any]) -> None:
    """Print the figures of `data_pipeline.golden.stats`."""
    _line(f"{plural(figures['rows'], 'row')}, {figures['rejected']:,} rejected")
    if figures["rows"]:
        _print_rows(figures)
        _print_days(figures["days"])
        for line in _lines(figures):
            _line(line)
    _print_steps(figures)
    _print_checks(figures)
    if figures["leaks"] is not None:
        print_leaks(figures["leaks"])
    for each in figures["spent"]:
        _line(_spent(each))
    if figures["unbalanced"]:
        for fault in figures["unbalanced"]:
            _line(f"the sums do not balance: {fault}")
    else:
        _line("the sums of all steps balance")


def _print_rows(figures: dict[str, Any]) -> None:
    splits = list(figures["days"])
    table = _table("rows", ("by", "", *splits, "all", "share"), left=2)
    for by, group in (("kind", "kinds"), ("difficulty", "difficulties"), ("answer", "answerable")):
        for number, (label, counts) in enumerate(figures[group].items()):
            cells = _counts([counts[split] for split in splits], figures["rows"])
            _add(table, "" if number else by, label, *cells)
        table.add_section()
    whole = [sum(counts[split] for counts in figures["kinds"].values()) for split in splits]
    _add(table, "all", "", *_counts(whole, figures["rows"]))
    console().print(table)
    table = _table("inboxes", ("inbox", "split", "rows", "share", "kinds"), left=2)
    table.columns[-1].justify = "left"
    for each in figures["inboxes"]:
        kinds = ", ".join(f"{kind} {count}" for kind, count in each["kinds"].items())
        share = f"{each['rows'] / figures['rows']:.1%}"
        _add(table, each["inbox"], each["split"], f"{each['rows']:,}", share, kinds)
    console().print(table)


def _counts(counts: Sequence[int], of: int) -> list[str]:
    total = sum(counts)
    return [*(f"{count:,}" for count in counts), f"{total:,}", f"{total / of:.1%}"]


def _print_days(days: dict[str, Any]) -> None:
    table = _table("days", ("split", "asked on", "gold mails sent on (UTC)"), left=3)
    for split, each in days.items():
        _add(table, split, _days(each["query"]), _days(each["gold"]))
    console().print(table)
    if all(each["gold"] is None for each in days.values()):
        _line("when gold mails were sent is told by art-e golden split")


def _days(found: dict[str, Any] | None) -> str:
    if found is None or found["first"] is None:
        return "-"
    undated = f", {found['undated']:,} undated" if found.get("undated") else ""
    return f"{found['first']} to {found['last']}{undated}"


def _lines(figures: dict[str, Any]) -> Iterable[str]:
    for what, lengths in figures["lengths"].items():
        words, chars = lengths["words"], lengths["chars"]
        if words["median"] is not None:
            yield (
                f"{what}s: median {words['median']:g} words ({chars['median']:g} characters),"
                f" p95 {words['p95']:g} ({chars['p95']:g})"
            )
    numbers = ", ".join(f"{number}: {count:,}" for number, count in figures["gold_mails"].items())
    yield f"rows by number of gold mails: {numbers}"
    bins = [
        f"{each['from']:.1f}-{each['to']:.1f}: {each['rows']:,}"
        for each in figures["realism"]["bins"]
        if each["rows"]
    ]
    unscored = figures["realism"]["unscored"]
    yield "rows by realism: " + ", ".join(
        bins + ([f"not scored: {unscored:,}"] if unscored else [])
    )
    for mark, count in figures["marks"].items():
        yield f"marked {mark}: {plural(count, 'row')}"


def _print_steps(figures: dict[str, Any]) -> None:
    table = _table("steps", ("step", "in", "kept", "dropped", "mended", "unsure"))
    for each in figures["steps"]:
        sums = (sum(each[what].values()) for what in ("dropped", "mended", "unsure"))
        counts = (each["in"], each["kept"], *sums)
        _add(table, each["step"], *(f"{count:,}" for count in counts))
    console().print(table)
    if not figures["drops"]:
        return
    table = _table("dropped", ("step", "check", "rows", "for example"), left=2)
    table.columns[-1].justify = "left"
    for drop in figures["drops"]:
        cells = [drop["step"], drop["check"], f"{drop['rows']:,}"]
        for example in drop["examples"]:
            _add(table, *cells, _example(example))
            cells = [""] * len(cells)
    console().print(table)


def _example(example: dict[str, str]) -> str:
    name, asked, reason = (one_line(example[key]) for key in ("id", "question", "reason"))
    return f"{_cut(name)}: {_cut(asked)} ({_cut(reason)})" if asked else f"{_cut(reason)}"


def _cut(line: str) -> str:
    return cut_line(line, _EXAMPLE_CHARS)


def _print_checks(figures: dict[str, Any]) -> None:
    if not figures["checks"]:
        return
    columns = ("passed", "unsure", "failed", "without")
    table = _table("checks of the rows that are kept", ("step", "check", *columns), left=2)
    table.caption = "without: the check is not for these rows, or was not made"
    for each in figures["checks"]:
        cells = (f"{each[name]:,}" for name in columns)
        _add(table, each["step"], each["check"], *cells)
    console().print(table)
    for each in figures["unchecked"]:
        _line(f"{each['step']}, {each['check']} not checked: {each['rows']:,} ({each['reason']})")


def _spent(each: dict[str, Any]) -> str:
    replies = "" if each["replies"] is None else f"{each['replies']:,} replies, "
    cost = shown_usd(each["cost_usd"], 2)
    tokens = f"{each['prompt_tokens']:,} + {each['completion_tokens']:,} tokens"
    return f"{each['role']} ({each['model'] or 'model unknown'}): {replies}{tokens}, {cost}"


def _table(title: str, headings: Sequence[str], left: int = 1) -> "Table":
    """A table whose first `left` columns are words, the others figures."""
    from rich.table import Table

    table = Table(title=title)
    for number, heading in enumerate(headings):
        table.add_column(text(one_line(heading)), justify="left" if number < left else "right")
    return table


def _add(table: "Table", *cells: str) -> None:
    """Add a row: whatever a set holds, its cells are lines of plain text."""
    table.add_row(*(text(one_line(cell)) for cell in cells))


def _line(line: str) -> None:
    console().print(text(one_line(line)), soft_wrap=True)
