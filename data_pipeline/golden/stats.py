"""The figures of a golden set as plain data, for `art-e golden stats`, its card and notebooks."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from art_e.question import DIFFICULTIES, KINDS, SPLITS
from data_pipeline.golden.golden_set import STEPS, Check, GoldenSet, checks_of

# Rows without split, kind or difficulty, which imported sets may have.
UNLABELLED = "unlabelled"
SHARED = {
    "shared_gold": "mails that are gold in both",
    "gold_in_inboxes": "gold mails of the first in inboxes of the second",
}


def stats(golden: GoldenSet) -> dict[str, Any]:
    """The figures of the set, ready for JSON.

    `kinds` and `difficulties` are numbers of rows by label and split. `checks` are those of the
    kept rows; `without` counts the rows that lack one. `leaks` are those of the split step.
    """
    rows = _frame(golden)
    steps = golden.manifest["steps"]
    return {
        "rows": len(rows),
        "rejected": len(golden.rejected),
        "splits": [
            {"split": name, "rows": len(group), "inboxes": group["inbox"].nunique()}
            for name in _splits(rows)
            for group in [rows[rows["split"] == name]]
        ],
        "kinds": _by_split(rows, "kind", KINDS),
        "difficulties": _by_split(rows, "difficulty", DIFFICULTIES),
        "steps": [{"step": step, **steps[step]["sums"]} for step in STEPS if step in steps],
        "checks": _checks(golden),
        "leaks": steps.get("split", {}).get("leaks"),
    }


def _frame(golden: GoldenSet) -> pd.DataFrame:
    rows = [
        {
            "split": each.split or UNLABELLED,
            "kind": each.kind or UNLABELLED,
            "difficulty": each.difficulty or UNLABELLED,
            "inbox": each.inbox_address,
        }
        for each in golden.questions
    ]
    return pd.DataFrame(rows, columns=["split", "kind", "difficulty", "inbox"], dtype=object)


def _splits(rows: pd.DataFrame) -> list[str]:
    used = set(rows["split"])
    return [name for name in (*SPLITS, UNLABELLED) if name in used]


def _by_split(rows: pd.DataFrame, column: str, labels: Sequence[str]) -> dict[str, dict[str, int]]:
    table = pd.crosstab(rows[column], rows["split"])
    used = [each for each in (*labels, UNLABELLED) if each in table.index]
    found: dict[str, dict[str, int]] = table.reindex(index=used, columns=_splits(rows)).to_dict(
        "index"
    )
    return found


def _checks(golden: GoldenSet) -> list[dict[str, Any]]:
    made: dict[tuple[int, str], list[Check]] = {}
    for each in golden.questions:
        for check in checks_of(each).values():
            made.setdefault((STEPS.index(check.step), check.name), []).append(check)
    return [
        {
            "check": name,
            "step": STEPS[step],
            "by": ", ".join(sorted({check.by for check in checks})),
            "passed": sum(check.passed is not None for check in checks),
            "unsure": sum(check.passed is None for check in checks),
            "without": len(golden.questions) - len(checks),
        }
        for (step, name), checks in sorted(made.items())
    ]
