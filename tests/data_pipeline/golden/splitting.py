"""Sets that the tests of the split step part."""

import json
from collections.abc import Sequence
from typing import Any

from art_e.question import Question, Split
from data_pipeline.golden.golden_set import GoldenSet


def asked(name: str, inbox: str, *gold: str, **fields: Any) -> Question:
    return Question(name, f"What is {name}?", inbox, message_ids=gold, answer="42", **fields)


def made(questions: Sequence[Question], *, generated: dict[str, Split] | None = None) -> GoldenSet:
    """A set as `generate` left it, or as `import` did."""
    golden = GoldenSet(list(questions))
    if generated is not None:
        golden.manifest |= {"inboxes": generated, "seed": 5}
    golden.record("import" if generated is None else "generate", len(questions), {})
    return golden


def written(golden: GoldenSet) -> str:
    """All that `save` writes of it."""
    golden.sort()
    rows = [each.to_row() for each in golden.questions]
    dropped = [[each.row, each.step, each.check, each.reason] for each in golden.rejected]
    return json.dumps([rows, dropped, golden.manifest], sort_keys=True)
