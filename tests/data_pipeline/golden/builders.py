"""Rows, sets, inboxes and a scripted writer for the tests of the golden set."""

import dataclasses
import datetime as dt
import json
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st

from art_e.inbox.file import InboxFile
from art_e.models.base import Usage
from art_e.question import DIFFICULTIES, KINDS, SPLITS, Question, Split
from data_pipeline.golden.golden_set import Batch, Check, GoldenSet, Rejected, Step
from data_pipeline.golden.importing import import_questions
from data_pipeline.ingest.batch import Rules
from tests.builders import date_header, make_inbox, raw
from tests.provider import Reply, Request, says

# What UTF-8 can hold: a lone surrogate is cleaned before anything is stored.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
DAYS = st.none() | st.dates(dt.date(1979, 1, 1), dt.date(2030, 1, 1))


def some(*values: str | None) -> st.SearchStrategy[str | None]:
    return st.sampled_from([*values, None])


@st.composite
def questions(draw: st.DrawFn, ids: st.SearchStrategy[str] = TEXTS) -> Question:
    """A question as a generator or a file gave it: with neither checks nor mends."""
    return Question.from_row(
        {
            "id": draw(ids),
            "question": draw(TEXTS),
            "inbox_address": draw(TEXTS),
            "query_date": None if (day := draw(DAYS)) is None else day.isoformat(),
            "answer": draw(st.none() | TEXTS),
            "message_ids": draw(st.lists(TEXTS, max_size=3)),
            "how_realistic": draw(st.none() | st.floats(0, 1)),
            "kind": draw(some(*KINDS)),
            "difficulty": draw(some(*DIFFICULTIES)),
            "answerable": draw(st.sampled_from([True, False, None])),
            "split": draw(some(*SPLITS)),
            "provenance": draw(
                st.dictionaries(st.sampled_from(["model", "batch", "story"]), TEXTS)
            ),
        }
    )


def row(number: int, **fields: Any) -> Question:
    question = Question(f"q-{number}", f"When {number}?", "ann@test.example", answer="May")
    return dataclasses.replace(question, **fields)


def failed(step: Step = "filter", name: str = "realism") -> Check:
    return Check(name, step, False, "below 0.7", "rule")


def golden_set(count: int, dropped: int = 0) -> GoldenSet:
    """A set of `count` rows, `dropped` of them dropped by the filter."""
    golden = GoldenSet(questions=[row(number) for number in range(count)])
    golden.batches = [Batch("b-1", "ann@test.example", "train", ("<1@test>", "<2@test>"))]
    golden.record("import", came=count, settings={"source": "x"})
    gone = golden.questions[count - dropped :]
    golden.rejected = [Rejected.of(each, failed()) for each in gone]
    del golden.questions[count - dropped :]
    golden.record("filter", came=count, settings={})
    return golden


def citing(name: str, inbox: str, *gold: str, **fields: Any) -> Question:
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


class Leaks(NamedTuple):
    """Ids of the questions that leak."""

    shared: set[str]
    in_test_inbox: set[str]


def leaks(file: InboxFile, questions: Sequence[Question], inboxes: Mapping[str, str]) -> Leaks:
    """The questions whose gold is gold in another split, or is in a test inbox and may not."""
    mails = file.execute("SELECT message_id, from_address, subject, body FROM emails").fetchall()
    copies = file.execute(
        "SELECT aliases.message_id, from_address, subject, body"
        " FROM aliases JOIN emails USING (email_id)"
    ).fetchall()
    content = {message_id: tuple(rest) for message_id, *rest in [*mails, *copies]}
    tested = [inbox for inbox, split in inboxes.items() if split == "test"]
    received = file.execute(
        "SELECT message_id FROM emails WHERE list_has_any(?::VARCHAR[], list_append("
        "list_transform(to_recipients, lambda each: each.address), from_address))",
        [tested],
    ).fetchall()
    in_test = {content[message_id] for (message_id,) in received}
    splits: dict[tuple[str, ...], set[str | None]] = {}
    for each in questions:
        for gold in each.message_ids:
            splits.setdefault(content[gold], set()).add(each.split)
    found = Leaks(set(), set())
    for each in questions:
        gold_mails = {content[gold] for gold in each.message_ids}
        if any(len(splits[mail]) > 1 for mail in gold_mails):
            found.shared.add(each.id)
        if each.split != "test" and gold_mails & in_test:
            found.in_test_inbox.add(each.id)
    return found


# A row of the public data set, whose gold mail is there.
PUBLIC: dict[str, Any] = {
    "id": 17,
    "question": "When does the lease of the warehouse end?",
    "answer": "On May 3.",
    "message_ids": ["<1@test>"],
    "how_realistic": 0.9,
    "inbox_address": "bob@test.example",
    "query_date": "2020-01-10",
}


def small_inbox(folder: Path) -> Path:
    """Mail of Bob's: 1 (and its copy 1b), 2, a later 3 and one without a date; 4 is Carl's."""
    path = folder / "small.duckdb"
    lease = {"subject": "Lease", "body": "The lease of the warehouse ends on May 3.\n"}
    make_inbox(
        path,
        [
            raw("<1@test>", date=date_header(2), **lease),
            raw("<1b@test>", date=date_header(3), **lease),
            raw("<2@test>", date=date_header(4), body="Twelve pallets came."),
            raw("<3@test>", date=date_header(20), body="It ends in June."),
            raw("<4@test>", date=date_header(2), to="carl@test.example", body="For Carl."),
            raw("<5@test>", date=None, body="When was this?"),
        ],
        Rules(any_id=True),
    )
    return path


def write(path: Path, rows: Sequence[Any]) -> str:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def imported(file: InboxFile, tmp_path: Path, *rows: Any) -> GoldenSet:
    golden = GoldenSet()
    import_questions(file, golden, write(tmp_path / "q.jsonl", rows))
    return golden


def the_row(golden: GoldenSet) -> Question:
    [question] = golden.questions
    return question


USAGE = Usage(8_000, 0, 1_000, 0)
MODEL = "openai/gpt-4.1"
COST = 0.016 + 0.008  # of a reply, at its prices

# Replaces the reply to a batch, at its first, second, ... request.
Instead = Callable[[Mapping[str, Any], int], Reply | None]


def asked_of(request: Request) -> dict[str, Any]:
    """The data of a request."""
    data: dict[str, Any] = json.loads(request.messages[-1]["content"])
    return data


def items_for(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Two lookups, one update, one unanswerable, and one that cites a mail that is not there."""
    mails = data["mails"]
    mark = zlib.crc32(json.dumps(data).encode())

    def item(kind: str, cited: list[str], answer: str, number: int) -> dict[str, Any]:
        return {
            "kind": kind,
            "question": f"What did I hear of matter {mark}-{number}?",
            "answer": answer,
            "mails": cited,
            "how_realistic": 0.9,
            "difficulty": "easy",
        }

    return [
        item("lookup", [mails[0]["id"]], mails[0]["subject"] or "nothing", 1),
        item("lookup", [mails[-1]["id"].upper()], "Tuesday", 2),
        item("latest-update", [mails[2]["id"], mails[1]["id"]], "42", 3),
        item("unanswerable", [], "", 4),
        item("lookup", ["m37"], "made up", 5),
    ]


class Writer:
    """A rule for `Provider`. `instead` says what is served for a batch in place of its items."""

    def __init__(self, instead: Instead = lambda _data, _time: None) -> None:
        self.instead = instead
        self.requests: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()

    def __call__(self, request: Request) -> Reply:
        data = asked_of(request)
        batch = request.messages[-1]["content"]
        self.requests[batch] += 1
        reply = self.instead(data, self.requests[batch])
        if reply is None or not reply.fails:
            self.answered[batch] += 1
        return reply or says(json.dumps({"items": items_for(data)}), usage=USAGE)
