"""The figures of a golden set as plain data: what is in it, and what each step dropped.

They come from the set's folder alone.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from art_e.models.base import Usage
from art_e.question import DIFFICULTIES, KINDS, SPLITS
from data_pipeline.golden.asking import responses_folder, spent_on
from data_pipeline.golden.golden_set import STEPS, GoldenSet, checks_of

# Rows without split, kind or difficulty, which imported sets may have.
UNLABELLED = "unlabelled"
EXAMPLES = 3
_PASSED = {True: "passed", False: "failed", None: "unsure"}


def stats(golden: GoldenSet, folder: Path | None = None) -> dict[str, Any]:
    """The figures of the set in `folder`, ready for JSON.

    kinds, difficulties and answerable have rows by label and split. Leaks are those of the split
    step. `without` counts kept rows that lack a check. Spent are the replies in `folder`, or else
    what generate noted.
    """
    rows = frame(golden)
    return {
        "rows": len(rows),
        "rejected": len(golden.rejected),
        "kinds": by_split(rows, "kind", KINDS),
        "difficulties": by_split(rows, "difficulty", DIFFICULTIES),
        "answerable": by_split(rows, "answerable", ("answerable", "unanswerable")),
        "inboxes": _inboxes(rows),
        "steps": [{"step": step, **record["sums"]} for step, record in _recorded(golden)],
        "drops": _drops(golden),
        "checks": _checks(golden),
        "unchecked": [
            {"step": step, "check": check, "reason": reason, "rows": count}
            for step, record in _recorded(golden)
            for check, reasons in sorted(record.get("unchecked", {}).items())
            for reason, count in sorted(reasons.items())
        ],
        "spent": _spent(golden, folder),
        "leaks": golden.manifest["steps"].get("split", {}).get("leaks"),
    }


def frame(golden: GoldenSet) -> pd.DataFrame:
    """A table of the kept rows; missing labels are `UNLABELLED`."""
    answerable = {True: "answerable", False: "unanswerable", None: UNLABELLED}
    rows = [
        {
            "split": each.split or UNLABELLED,
            "kind": each.kind or UNLABELLED,
            "difficulty": each.difficulty or UNLABELLED,
            "answerable": answerable[each.answerable],
            "inbox": each.inbox_address,
        }
        for each in golden.questions
    ]
    columns = "split kind difficulty answerable inbox".split()
    return pd.DataFrame(rows, columns=columns, dtype=object)


def used_splits(rows: pd.DataFrame) -> list[str]:
    """The splits that have rows, in their order."""
    used = set(rows["split"])
    return [name for name in (*SPLITS, UNLABELLED) if name in used]


def by_split(rows: pd.DataFrame, column: str, labels: Sequence[str]) -> dict[str, dict[str, int]]:
    """Numbers of rows by label and split."""
    table = pd.crosstab(rows[column], rows["split"])
    used = [each for each in (*labels, UNLABELLED) if each in table.index]
    found: dict[str, dict[str, int]] = table.reindex(index=used, columns=used_splits(rows)).to_dict(
        "index"
    )
    return found


def _inboxes(rows: pd.DataFrame) -> list[dict[str, Any]]:
    found = [
        {
            "inbox": inbox,
            "split": split,
            "rows": len(group),
            "kinds": {
                kind: count
                for kind in (*KINDS, UNLABELLED)
                if (count := int((group["kind"] == kind).sum()))
            },
        }
        for (inbox, split), group in rows.groupby(["inbox", "split"])
    ]
    return sorted(found, key=lambda each: (-each["rows"], each["inbox"], each["split"]))


def _recorded(golden: GoldenSet) -> Iterator[tuple[str, dict[str, Any]]]:
    steps = golden.manifest["steps"]
    return ((step, steps[step]) for step in STEPS if step in steps)


def _drops(golden: GoldenSet) -> list[dict[str, Any]]:
    counts = Counter((each.step, each.check) for each in golden.rejected)
    by_step = sorted(
        counts.items(), key=lambda item: (STEPS.index(item[0][0]), -item[1], item[0][1])
    )
    return [
        {
            "step": step,
            "check": check,
            "rows": count,
            "examples": [
                # A row that is not a question may lack these, or have anything there.
                {
                    **{name: str(each.row.get(name, "")) for name in ("id", "question")},
                    "reason": each.reason,
                }
                for each in golden.rejected
                if (each.step, each.check) == (step, check)
            ][:EXAMPLES],
        }
        for (step, check), count in by_step
    ]


def _checks(golden: GoldenSet) -> list[dict[str, Any]]:
    made = Counter(
        (STEPS.index(check.step), check.name, _PASSED[check.passed])
        for each in golden.questions
        for check in checks_of(each).values()
    )
    found = []
    for step, check in sorted({key[:2] for key in made}):
        counts = {word: made[step, check, word] for word in _PASSED.values()}
        without = len(golden.questions) - sum(counts.values())
        found.append({"check": check, "step": STEPS[step], **counts, "without": without})
    return found


def _spent(golden: GoldenSet, folder: Path | None) -> list[dict[str, Any]]:
    steps = golden.manifest["steps"]
    made, verified = steps.get("generate", {}), steps.get("verify", {})
    # The name of a judge ends in "@" and the version of its prompts.
    judge = str(verified.get("judge")).rpartition("@")[0]
    asked = {"generate": made.get("model"), "read": verified.get("model"), "judge": judge}
    costs = []
    for role, model in asked.items():
        if folder is not None and model and responses_folder(folder, role, model).is_dir():
            costs.append(_cost(role, model, *spent_on(folder, role, model)))
    if not costs and "usage" in made:
        costs = [_cost("generate", made["model"], None, Usage(**made["usage"]), made["cost_usd"])]
    return costs


def _cost(
    role: str, model: str, replies: int | None, usage: Usage, cost_usd: float | None
) -> dict[str, Any]:
    return {
        "role": role,
        "model": model,
        "replies": replies,
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        # Replies are summed in any order, so later digits may differ.
        "cost_usd": None if cost_usd is None else round(cost_usd, 6),
    }
