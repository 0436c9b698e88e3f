"""What is in a golden set, and what became of the rows that are not: figures as plain data.

Everything comes from the set's folder: rows, rejected rows and manifest. Knows nothing of
inbox files, and nothing of how the figures are shown.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from art_e.models.base import Usage
from art_e.models.responses import Responses
from art_e.question import DIFFICULTIES, KINDS, SPLITS, Question
from art_e.text import digest
from data_pipeline.golden.asking import spent_on
from data_pipeline.golden.golden_set import STEPS, GoldenSet, checks_of, marks_of

# Rows of no split, kind or difficulty, as sets that were imported may have.
UNLABELLED = "unlabelled"

EXAMPLES = 3
_REALISM_BINS = 10


def stats(golden: GoldenSet, folder: Path | None = None) -> dict[str, Any]:
    """The figures of the set, which is in `folder`, ready for JSON.

    rows, rejected    how many rows are kept, and how many were dropped
    kinds, difficulties, answerable
                      label -> split -> rows; rows that lack the label are `UNLABELLED`
    inboxes           [{inbox, split, rows, kinds}], the one with most rows first
    realism           {bins: [{from, to, rows}], unscored}; a bin holds its lower bound,
                      the last one both
    lengths           of questions and answers: words and chars, each {median, p95}
    gold_mails        number of gold mails -> rows
    marks             mark -> rows
    days              split -> {query: {first, last, by_month}, gold: the manifest's}
    steps             [{step, in, kept, dropped, mended, unsure}], in order
    drops             [{step, check, rows, examples: [{id, question, reason}]}]
    checks            [{check, step, passed, unsure, failed, without}] of the kept rows;
                      `without` is how many do not carry it: it is not for them, or was not made
    unchecked         [{step, check, reason, rows}]: what verify could not check
    spent             [{role, model, replies, prompt_tokens, completion_tokens, cost_usd}] of
                      the replies kept in `folder`; where none are, of what generate noted.
                      model None: the manifest names none that it can be
    leaks             as the split step left it, None before it
    unbalanced        a sentence for each place where rows were lost or doubled; none: all balance
    """
    rows = golden.questions
    return {
        "rows": len(rows),
        "rejected": len(golden.rejected),
        "kinds": _by_split(rows, lambda each: each.kind, KINDS),
        "difficulties": _by_split(rows, lambda each: each.difficulty, DIFFICULTIES),
        "answerable": _by_split(rows, _answerable, ("answerable", "unanswerable")),
        "inboxes": _inboxes(rows),
        "realism": _realism(rows),
        "lengths": {
            "question": _lengths([each.question for each in rows]),
            "answer": _lengths(answers(rows)),
        },
        "gold_mails": {
            str(number): count
            for number, count in sorted(Counter(len(each.message_ids) for each in rows).items())
        },
        "marks": dict(sorted(Counter(mark for each in rows for mark in marks_of(each)).items())),
        "days": _days(golden),
        "steps": [{"step": step, **record["sums"]} for step, record in _recorded(golden)],
        "drops": _drops(golden),
        "checks": _checks(rows),
        "unchecked": _unchecked(golden),
        "spent": _spent(golden, folder),
        "leaks": golden.manifest["steps"].get("split", {}).get("leaks"),
        "unbalanced": _unbalanced(golden),
    }


def answers(questions: Iterable[Question]) -> list[str]:
    """The gold answers of those that have one."""
    return [each.answer for each in questions if each.answer]


def used_splits(questions: Iterable[Question]) -> list[str]:
    """The splits that have rows, in their order, and `UNLABELLED` where rows have none."""
    used = {each.split or UNLABELLED for each in questions}
    return [name for name in (*SPLITS, UNLABELLED) if name in used]


def _by_split(
    questions: Sequence[Question], label: Callable[[Question], str | None], order: Sequence[str]
) -> dict[str, dict[str, int]]:
    counts = Counter((label(each) or UNLABELLED, each.split or UNLABELLED) for each in questions)
    splits = used_splits(questions)
    return {
        name: {split: counts[name, split] for split in splits}
        for name in (*order, UNLABELLED)
        if any(counts[name, split] for split in splits)
    }


def _answerable(question: Question) -> str | None:
    if question.answerable is None:
        return None
    return "answerable" if question.answerable else "unanswerable"


def _inboxes(questions: Sequence[Question]) -> list[dict[str, Any]]:
    by_inbox: defaultdict[tuple[str, str], list[Question]] = defaultdict(list)
    for each in questions:
        by_inbox[each.inbox_address, each.split or UNLABELLED].append(each)
    rows = [
        {
            "inbox": inbox,
            "split": split,
            "rows": len(found),
            "kinds": {
                kind: count
                for kind in (*KINDS, UNLABELLED)
                if (count := sum((each.kind or UNLABELLED) == kind for each in found))
            },
        }
        for (inbox, split), found in by_inbox.items()
    ]
    return sorted(rows, key=lambda row: (-row["rows"], row["inbox"], row["split"]))


def _realism(questions: Sequence[Question]) -> dict[str, Any]:
    scores = [each.how_realistic for each in questions if each.how_realistic is not None]
    # Rounded first: 0.7 times 10 is not 7 to a computer.
    places = Counter(
        min(int(round(score * _REALISM_BINS, 6)), _REALISM_BINS - 1) for score in scores
    )
    return {
        "bins": [
            {
                "from": place / _REALISM_BINS,
                "to": (place + 1) / _REALISM_BINS,
                "rows": places[place],
            }
            for place in range(_REALISM_BINS)
        ],
        "unscored": len(questions) - len(scores),
    }


def _lengths(texts: Sequence[str]) -> dict[str, dict[str, float | None]]:
    return {
        "words": _percentiles([len(each.split()) for each in texts]),
        "chars": _percentiles([len(each) for each in texts]),
    }


def _percentiles(values: Sequence[int]) -> dict[str, float | None]:
    if not values:
        return {"median": None, "p95": None}
    median, p95 = np.percentile(values, [50, 95])
    return {"median": round(float(median), 1), "p95": round(float(p95), 1)}


def _days(golden: GoldenSet) -> dict[str, dict[str, Any]]:
    gold = golden.manifest["steps"].get("split", {}).get("gold_days", {})
    asked: defaultdict[str, list[str]] = defaultdict(list)
    for each in golden.questions:
        if each.query_date is not None:
            asked[each.split or UNLABELLED].append(each.query_date.isoformat())
    return {
        split: {"query": _range(sorted(asked[split])), "gold": gold.get(split)}
        for split in used_splits(golden.questions)
    }


def _range(days: Sequence[str]) -> dict[str, Any] | None:
    if not days:
        return None
    return {"first": days[0], "last": days[-1], "by_month": dict(Counter(d[:7] for d in days))}


def _recorded(golden: GoldenSet) -> Iterator[tuple[str, dict[str, Any]]]:
    """The steps that were run, in order, and what the manifest has of each."""
    steps = golden.manifest["steps"]
    return ((step, steps[step]) for step in STEPS if step in steps)


def _drops(golden: GoldenSet) -> list[dict[str, Any]]:
    counts = Counter((each.step, each.check) for each in golden.rejected)
    examples: defaultdict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    for each in golden.rejected:
        shown = examples[each.step, each.check]
        if len(shown) < EXAMPLES:
            # What was no question may have anything under these names.
            told = {name: str(each.row.get(name, "")) for name in ("id", "question")}
            shown.append({**told, "reason": each.reason})
    return [
        {"step": step, "check": check, "rows": count, "examples": examples[step, check]}
        for (step, check), count in sorted(
            counts.items(), key=lambda item: (STEPS.index(item[0][0]), -item[1], item[0][1])
        )
    ]


def _checks(questions: Sequence[Question]) -> list[dict[str, Any]]:
    found: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    words = {True: "passed", False: "failed", None: "unsure"}
    for each in questions:
        for check in checks_of(each).values():
            found[check.step, check.name][words[check.passed]] += 1
    return [
        {
            "check": name,
            "step": step,
            **{word: counts[word] for word in words.values()},
            "without": len(questions) - counts.total(),
        }
        for (step, name), counts in sorted(
            found.items(), key=lambda item: (*map(STEPS.index, item[0][:1]), item[0][1])
        )
    ]


def _unchecked(golden: GoldenSet) -> list[dict[str, Any]]:
    return [
        {"step": step, "check": check, "reason": reason, "rows": count}
        for step, record in _recorded(golden)
        for check, reasons in sorted(record.get("unchecked", {}).items())
        for reason, count in sorted(reasons.items())
    ]


def _spent(golden: GoldenSet, folder: Path | None) -> list[dict[str, Any]]:
    kept = [] if folder is None else sorted((folder / "responses").glob("*-*"))
    if not kept:
        return [
            _cost(step, record.get("model"), None, Usage(**record["usage"]), record["cost_usd"])
            for step, record in _recorded(golden)
            if "usage" in record
        ]
    named = {
        digest(model): model
        for _, record in _recorded(golden)
        for value in record.values()
        if isinstance(value, str)
        # A judge is named by its model and, after an "@", its prompts.
        for model in (value, value.rpartition("@")[0])
    }
    told = []
    for each in kept:
        role, _, name = each.name.rpartition("-")
        model = named.get(name)
        if model is not None:
            found = spent_on(each.parent.parent, role, model)
            told.append(_cost(role, model, found.calls, found.usage, found.cost_usd))
        else:
            usages = Responses(each).usages()
            known = sum((usage for usage in usages if usage is not None), Usage())
            told.append(_cost(role, None, len(usages), known, None))
    return told


def _cost(
    role: str, model: str | None, replies: int | None, usage: Usage, cost_usd: float | None
) -> dict[str, Any]:
    return {
        "role": role,
        "model": model,
        "replies": replies,
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        # Summed in no set order: beyond that the digits may differ.
        "cost_usd": None if cost_usd is None else round(cost_usd, 6),
    }


def _unbalanced(golden: GoldenSet) -> list[str]:
    """Where rows were lost or doubled, step by step and at the end."""
    faults = []
    dropped = Counter((each.step, each.check) for each in golden.rejected)
    before: tuple[str, int] | None = None
    for step, record in _recorded(golden):
        sums = record["sums"]
        came, kept, out = sums["in"], sums["kept"], sum(sums["dropped"].values())
        if before is not None and came != before[1]:
            faults.append(f"{before[0]} kept {before[1]:,} rows and {came:,} came into {step}")
        if came != kept + out:
            faults.append(f"{step}: {came:,} rows came, {kept:,} kept and {out:,} dropped")
        listed = {check: count for (of, check), count in dropped.items() if of == step}
        if listed != sums["dropped"]:
            faults.append(
                f"{step}: {out:,} rows dropped and {sum(listed.values()):,} in rejected.jsonl,"
                " or not by the same checks"
            )
        before = step, kept
    if before is not None and before[1] != len(golden.questions):
        faults.append(f"{before[0]} kept {before[1]:,} rows, the set has {len(golden.questions):,}")
    return faults
