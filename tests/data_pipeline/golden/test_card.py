"""The card of a set: nothing in a row becomes markup."""

import dataclasses
import datetime as dt
import re
from typing import Any

from markdown_it import MarkdownIt

from art_e.question import Question
from data_pipeline.golden.export import card
from data_pipeline.golden.golden_set import Batch, Check, GoldenSet, Rejected, mended, with_checks

HOSTILE = (
    "x | y\n\n# owned <script>alert(1)</script> [a](http://evil) `b` ![i](//e) **c** {{ 7*7 }}"
)


def question(number: int, **fields: Any) -> Question:
    base = Question(
        f"q-{number}", "When?", "ann@test.example", dt.date(2020, 1, 5), "May", ("<1@t>",), 0.9,
        "lookup", "easy", True, "train" if number % 2 else "test",
        {"model": "maker/one", "prompt": "abc123", "batch": "i1-b1"},
    )  # fmt: skip
    return dataclasses.replace(base, **fields)


def checked(question: Question, *checks: tuple[str, Any, bool | None, str]) -> Question:
    made = [Check(name, step, passed, "said so", by) for name, step, passed, by in checks]
    return with_checks(question, made)


def whole() -> GoldenSet:
    """A set that has been through every step."""
    rows = [
        checked(
            question(1), ("ids", "filter", True, "rule"), ("answerable", "verify", True, "reader/x")
        ),
        checked(
            question(2), ("ids", "filter", True, "rule"), ("answerable", "verify", None, "search")
        ),
        checked(question(3), ("ids", "filter", True, "rule")),
        mended(
            question(4, kind="unanswerable", answerable=False), "verify", "unambiguous", answer=""
        ),
    ]
    golden = GoldenSet(
        rows,
        [Rejected.of(question(5), Check("leak", "filter", False, "it is in it", "rule"))],
        [Batch("i1-b1", "ann@test.example", "train", ("<1@t>", "<2@t>"))],
    )
    golden.manifest |= {"db": {"name": "mail.duckdb", "mails": 1234}, "seed": 20_010_515}
    steps = golden.manifest["steps"]
    for step, came, dropped in (
        ("generate", 5, {}), ("filter", 5, {"leak": 1}), ("verify", 4, {}), ("split", 4, {}),
        ("review", 4, {}),
    ):  # fmt: skip
        sums = {"in": came, "kept": 4, "dropped": dropped, "mended": {}, "unsure": {}}
        steps[step] = {"sums": sums}
    steps["generate"] |= {"model": "maker/one", "max_cost_usd": None, "inboxes": {"train": 2}}
    steps["split"]["leaks"] = {
        "before": {"shared_gold": {"train/test": 7}},
        "after": {"shared_gold": {"train/test": 0}},
        "unknown_gold": 0,
    }
    precision = {"value": 0.95, "low": 0.875, "high": 0.99, "n": 40, "method": "wilson"}
    steps["review"] |= {
        "precision": precision, "reviewed": 40, "kept": 38, "dropped": 2,
    }  # fmt: skip
    return golden


def test_hostile_words_are_only_words() -> None:
    """Every value that rows, models and files give a card holds the same trap."""
    golden = whole()
    trap = {"model": HOSTILE, "prompt": HOSTILE}
    row = question(1, provenance=trap)
    golden.questions[0] = checked(row, (HOSTILE, "filter", True, HOSTILE))
    golden.manifest |= {"db": {"name": HOSTILE, "mails": 1}, "seed": HOSTILE}
    steps = golden.manifest["steps"]
    steps["generate"] |= {"model": HOSTILE}
    steps["filter"]["sums"]["dropped"] = {HOSTILE: 1}
    steps["import"] = {**steps["filter"], "source": HOSTILE}
    text = card(golden)
    assert text.count("alert(1)") >= 10
    body = text.split("---\n", 2)[2]
    rendered = MarkdownIt("commonmark").enable("table").render(body)
    plain = MarkdownIt("commonmark").enable("table").render(card(whole()).split("---\n", 2)[2])
    assert set(re.findall(r"</?(\w+)", rendered)) == set(re.findall(r"</?(\w+)", plain))
    assert rendered.count("<h2>") == plain.count("<h2>")
    assert "{{ 7*7 }}" in rendered.replace("\\", "")
