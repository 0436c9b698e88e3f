"""A golden set's folder: what is kept, what was dropped and why, and how it came about.

    questions.jsonl    the rows that are kept, in a fixed order
    questions.parquet  the same, for tables
    rejected.jsonl     every row that was dropped, with step, check and reason
    batches.jsonl      the mails that were put before the model together
    manifest.json      how each step was run, and its sums
    README.md          the card
    responses/         what models said, kept as it arrived (`asking.py`)
    reviews.jsonl      what people said of rows (`review.py`)

`save` replaces the first six together: a kill leaves the old or the new ones. The same
content gives the same bytes; no file has a time in it. Knows nothing of how rows are made.
"""

import dataclasses
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TextIO, TypeVar

import filelock
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from art_e import question as rows
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.question import Question, Split
from data_pipeline.golden.asking import handles

# ---- What was found of a row: checks, marks and mends, as its provenance holds them.

Step = Literal["generate", "import", "filter", "verify", "split", "review"]

# In the order in which they are taken; a set begins with either of the first two.
STEPS: tuple[Step, ...] = ("generate", "import", "filter", "verify", "split", "review")


@dataclass(frozen=True, slots=True)
class Check:
    """One check of a row. `passed` None: not sure, which drops nothing by itself.

    `reason` is one line; `by` is who said so: "rule", "search", a judge's or model's name,
    "person".
    """

    name: str
    step: Step
    passed: bool | None
    reason: str
    by: str

    @classmethod
    def from_row(cls, name: str, row: Mapping[str, Any]) -> Self:
        """The check of that name in a provenance."""
        return cls(name, row["step"], row["passed"], row["reason"], row["by"])


def with_checks(question: Question, checks: Sequence[Check]) -> Question:
    """The question with these checks; one of the same name is replaced."""
    if not checks:
        return question
    made = {
        each.name: {
            "step": each.step,
            "passed": each.passed,
            "reason": each.reason,
            "by": each.by,
        }
        for each in checks
    }
    return _with(question, checks={**question.provenance.get("checks", {}), **made})


def checks_of(question: Question) -> dict[str, Check]:
    """What was checked of the question, by name."""
    rows: dict[str, Any] = question.provenance.get("checks", {})
    return {name: Check.from_row(name, row) for name, row in rows.items()}


def marked(question: Question, mark: str) -> Question:
    """The question with that mark, once."""
    marks: list[str] = question.provenance.get("marks", [])
    return question if mark in marks else _with(question, marks=[*marks, mark])


def marks_of(question: Question) -> list[str]:
    """The question's marks."""
    return list(question.provenance.get("marks", []))


def mended(question: Question, step: Step, check: str, /, **changes: Any) -> Question:
    """The question with these fields changed, and what they were in its provenance.

    Its `marks`, a list, can be changed like a field.
    """
    before = {**question.to_row(), "marks": marks_of(question)}
    was = {name: before[name] for name in changes}
    history = [*question.provenance.get("mended", []), {"step": step, "check": check, "was": was}]
    provenance = {**question.provenance, "mended": history}
    if "marks" in changes:
        provenance = _with_marks(provenance, changes.pop("marks"))
    return dataclasses.replace(question, **changes, provenance=provenance)


def as_before(question: Question, step: Step) -> Question:
    """The question as it was before `step`: later checks and mends are taken back."""
    first = STEPS.index(step)
    provenance = dict(question.provenance)
    history = list(provenance.pop("mended", []))
    row = {**question.to_row(), "marks": marks_of(question)}
    while history and STEPS.index(history[-1]["step"]) >= first:
        row.update(history.pop()["was"])
    checks = {
        name: check
        for name, check in provenance.pop("checks", {}).items()
        if STEPS.index(check["step"]) < first
    }
    # Marks are the filter's; what later steps make of them they mend.
    marks = row.pop("marks")
    provenance = _with_marks(provenance, [] if first <= STEPS.index("filter") else marks)
    if checks:
        provenance["checks"] = checks
    if history:
        provenance["mended"] = history
    return Question.from_row({**row, "provenance": provenance})


def _with_marks(provenance: Mapping[str, Any], marks: Sequence[str]) -> dict[str, Any]:
    others = {name: value for name, value in provenance.items() if name != "marks"}
    return {**others, "marks": list(marks)} if marks else others


def _with(question: Question, **parts: Any) -> Question:
    return dataclasses.replace(question, provenance={**question.provenance, **parts})


# ---- What the files of a golden set may hold, checked as they are read.

_FIELDS = frozenset(each.name for each in dataclasses.fields(Question))
Count = Annotated[int, Field(ge=0)]


class _Form(BaseModel):
    # More is let through: the settings of steps are their own.
    model_config = ConfigDict(strict=True, extra="ignore")


_Read = TypeVar("_Read", bound=_Form)


class Rejection(_Form):
    """Why a row was dropped."""

    step: Step
    check: str
    reason: str


class BatchRow(_Form):
    """A batch as its line has it."""

    id: str
    inbox: str
    split: Split
    message_ids: list[str]


class _Check(_Form):
    step: Step
    passed: bool | None
    reason: str
    by: str


class _Change(_Form):
    step: Step
    check: str
    was: dict[str, JsonValue]


class _History(_Form):
    """What steps wrote into a row's provenance."""

    checks: dict[str, _Check] = {}
    marks: list[str] = []
    mended: list[_Change] = []


class _Sums(_Form):
    came: Count = Field(alias="in")
    kept: Count
    dropped: dict[str, Count]
    mended: dict[str, Count]
    unsure: dict[str, Count]


class _StepTaken(_Form):
    sums: _Sums
    unchecked: dict[str, dict[str, Count]] = {}


class _Db(_Form):
    name: str
    mails: Count


class _Manifest(_Form):
    steps: dict[Step, _StepTaken]
    db: _Db | None = None
    seed: int | None = None
    inboxes: dict[str, Split] = {}


class _Rejected(_Form):
    rejected: Rejection


def read_question(row: Any) -> Question:
    """The question that a line of questions.jsonl holds, with checks, marks and mends of steps."""
    question = rows.read_question(row)
    unknown = [name for name in row if name not in _FIELDS]
    if unknown:
        raise ValueError(f"a question has no field {unknown[0]!r}")
    check_realism(question.how_realistic)
    history = _checked(_History, question.provenance)
    for each in history.mended:
        # What was before must fit too, as the step may be taken back.
        was = {**row, "provenance": {}, **each.was}
        _checked(_History, {"marks": was.pop("marks", [])})
        read_question(was)
    return question


def read_rejection(row: Any) -> Rejection:
    """Why the row of a line of rejected.jsonl was dropped."""
    return _checked(_Rejected, row).rejected


def read_batch(row: Any) -> BatchRow:
    """The batch of a line of batches.jsonl."""
    return _checked(BatchRow, row)


def read_manifest(manifest: Any, schema: str) -> dict[str, Any]:
    """The manifest, as it is."""
    if not isinstance(manifest, dict) or manifest.get("schema") != schema:
        raise ValueError(f"its manifest is not of {schema}")
    _checked(_Manifest, manifest)
    return manifest


def _checked(form: type[_Read], value: Any) -> _Read:
    try:
        return form.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "line"
        raise ValueError(f"{where}: {first['msg']}") from None


# ---- The files of a golden set replaced together, and read together.

PARTIAL, READY = ".partial", ".ready"
# What a save replaces.
SET_FILES = (
    "manifest.json",
    "questions.jsonl",
    "questions.parquet",
    "rejected.jsonl",
    "batches.jsonl",
    "README.md",
)


def settle(folder: Path) -> None:
    """Bring a save that was killed to its end, or take it back."""
    shutil.rmtree(folder / PARTIAL, ignore_errors=True)
    ready = folder / READY
    if not ready.is_dir():
        return
    for file in sorted(ready.iterdir()):
        file.replace(folder / file.name)
    ready.rmdir()


@contextmanager
def opened(folder: Path, names: Sequence[str]) -> Iterator[list[TextIO]]:
    """The files, all of one save, while another process may make the next; nothing is changed.

    What counts changes in one rename, and what is open stays as it was: if the first file
    still counts once all are open, they are of its save. Raises `OSError`.
    """
    while True:
        with ExitStack() as stack:
            files = [stack.enter_context(_current(folder, name)) for name in names]
            with _current(folder, names[0]) as again:
                whole = os.path.sameopenfile(files[0].fileno(), again.fileno())
            if whole:
                yield files
                return


def _current(folder: Path, name: str) -> TextIO:
    try:
        return (folder / READY / name).open(encoding="utf-8")
    except FileNotFoundError:
        return (folder / name).open(encoding="utf-8")


# ---- A golden set's folder: what is kept, what was dropped and why, and how it came about.

SCHEMA = "art-e/golden/1"
_MANIFEST, _QUESTIONS, _REJECTED, _BATCHES = (
    "manifest.json",
    "questions.jsonl",
    "rejected.jsonl",
    "batches.jsonl",
)
# What these steps dropped may be anything, with any id or none.
_FIRST: tuple[Step, ...] = ("generate", "import")
_READ = (_MANIFEST, _QUESTIONS, _REJECTED, _BATCHES)

PARQUET_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("question", pa.string()),
        ("answer", pa.string()),
        ("message_ids", pa.list_(pa.string())),
        ("inbox_address", pa.string()),
        ("query_date", pa.string()),
        ("how_realistic", pa.float64()),
        ("kind", pa.string()),
        ("difficulty", pa.string()),
        ("answerable", pa.bool_()),
        ("split", pa.string()),
        # JSON: columns of many forms would be padded with nulls.
        ("provenance", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Batch:
    """Mails that are put before the generator together: `message_ids` in date order.

    The generator calls them by their handles (`shown.py`). `split` is their inbox's.
    """

    id: str
    inbox: str
    split: Split
    message_ids: tuple[str, ...]

    def handles(self) -> dict[str, str]:
        """Message ids by what the generator calls them."""
        return dict(zip(handles(self.message_ids), self.message_ids, strict=True))


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row that a step dropped. `row` is a question's row, or what was no question at all."""

    row: dict[str, Any]
    step: Step
    check: str
    reason: str

    @classmethod
    def of(cls, question: Question, check: Check) -> Self:
        """The question dropped by a check, which it then carries."""
        row = with_checks(question, [check]).to_row()
        return cls(row, check.step, check.name, check.reason)

    @property
    def question(self) -> Question | None:
        """The row as a question; None where it never was one."""
        try:
            return Question.from_row(self.row)
        except ValueError:
            return None


@dataclass(slots=True)
class GoldenSet:
    """A golden set in memory. Its manifest:

    schema      SCHEMA
    db          the inbox file's name (no path) and its number of mails
    seed        of `generate`, or of `split` where rows were imported
    inboxes     address -> split
    steps       of each step that was run, `sums` and its settings
    """

    questions: list[Question] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    manifest: dict[str, Any] = field(default_factory=lambda: {"schema": SCHEMA, "steps": {}})

    def later(self, step: Step) -> list[Step]:
        """The steps after `step` that were run, which `undo(step)` takes back with it."""
        return [each for each in STEPS[STEPS.index(step) + 1 :] if each in self.manifest["steps"]]

    def undo(self, step: Step) -> None:
        """Take back `step` and all later ones: what they dropped and changed is as it was."""
        first = STEPS.index(step)
        back = [each for each in self.rejected if STEPS.index(each.step) >= first]
        self.rejected = [each for each in self.rejected if STEPS.index(each.step) < first]
        returned = [question for each in back if (question := each.question) is not None]
        self.questions = [as_before(each, step) for each in [*self.questions, *returned]]
        self.sort()
        # Generated inboxes have their splits from the first step, others from the split step.
        if first <= STEPS.index("split") and "generate" not in self.manifest["steps"]:
            for key in ("inboxes", "seed"):
                self.manifest.pop(key, None)
        for each in STEPS[first:]:
            self.manifest["steps"].pop(each, None)

    def sort(self) -> None:
        """Put rows into the order in which they are written: by id, numbers as numbers."""
        self.questions.sort(key=lambda each: natural(each.id))
        self.rejected.sort(key=lambda each: (STEPS.index(each.step), natural(_name(each.row))))

    def record(self, step: Step, came: int, settings: Mapping[str, Any]) -> None:
        """Put a step's settings and sums into the manifest; `came` rows came into it.

        Raises `AssertionError` where the sums do not balance: a row was lost or doubled.
        """
        dropped = Counter(each.check for each in self.rejected if each.step == step)
        kept = len(self.questions)
        if came != kept + dropped.total():
            raise AssertionError(f"{step}: {came} came, {kept} kept and {dropped.total()} dropped")
        mended = Counter(
            change["check"]
            for each in self.questions
            for change in each.provenance.get("mended", [])
            if change["step"] == step
        )
        unsure = Counter(
            name
            for each in self.questions
            for name, check in each.provenance.get("checks", {}).items()
            if check["step"] == step and check["passed"] is None
        )
        self.manifest["steps"][step] = {
            **settings,
            "sums": {
                "in": came,
                "kept": kept,
                "dropped": dict(sorted(dropped.items())),
                "mended": dict(sorted(mended.items())),
                "unsure": dict(sorted(unsure.items())),
            },
        }

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The set in `folder`, which is left as it is: no lock is needed to read it.

        Raises `UserError` where there is none, or not a whole one.
        """
        try:
            with opened(folder, _READ) as (manifest, questions, rejected, batches):
                golden = cls(
                    [read_question(json.loads(line)) for line in questions],
                    [_rejected(json.loads(line)) for line in rejected],
                    [_batch(json.loads(line)) for line in batches],
                    read_manifest(json.load(manifest), SCHEMA),
                )
            golden._check_ids()
        except (FileNotFoundError, NotADirectoryError):
            raise UserError(
                f"{folder} holds no golden set; make one with: art-e golden generate --out"
                f" {folder}, or art-e golden import FILE --out {folder}"
            ) from None
        except OSError as error:
            raise UserError(f"can't read {folder}: {error.strerror}; name another set") from None
        except (ValueError, RecursionError) as error:
            reason = " ".join(str(error).split())
            raise UserError(f"{folder} is no whole golden set ({reason}); make it anew") from None
        return golden

    def _check_ids(self) -> None:
        """Raise `ValueError` where two rows have one id: their steps could not be taken back."""
        dropped = [each for each in self.rejected if each.step not in _FIRST]
        ids = Counter([each.id for each in self.questions] + [_name(each.row) for each in dropped])
        if twice := [name for name, count in ids.items() if count > 1]:
            raise ValueError(f"two rows have the id {twice[0]!r}")

    def save(self, folder: Path) -> None:
        """Write the set to `folder`, which is made; all of its files or none are replaced."""
        from data_pipeline.golden.export import card

        settle(folder)
        self.sort()
        partial, ready = folder / PARTIAL, folder / READY
        partial.mkdir(parents=True)
        write_questions(partial, "questions", self.questions)
        _write_rows(partial / _REJECTED, [_rejected_row(each) for each in self.rejected])
        _write_rows(partial / _BATCHES, [_batch_row(each) for each in self.batches])
        write_manifest(partial, self.manifest)
        (partial / "README.md").write_text(card(self), "utf-8")
        # From this rename on the new set is the one that counts.
        partial.rename(ready)
        settle(folder)


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Be the only process that changes the set, whose folder is made.

    A `save` that was killed is brought to its end. Raises `UserError` where another process
    changes the set, or the folder can't be written to. Folders that were made for nothing
    are taken away again.
    """
    new = [each for each in (folder, *folder.parents) if not each.exists()]
    lock = filelock.FileLock(folder / ".lock", timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
        settle(folder)
    except filelock.Timeout:
        raise UserError(
            f"another process works on {folder}; wait for its end, or name another folder"
        ) from None
    except OSError as error:
        raise UserError(f"can't write to {folder}: {error.strerror}; name another folder") from None
    try:
        yield
    finally:
        if new and [each.name for each in folder.iterdir()] == [".lock"]:
            shutil.rmtree(folder)
            # One in which something was put meanwhile stays, and so do those above it.
            with suppress(OSError):
                for each in new[1:]:
                    each.rmdir()
        lock.release()


def check_db(golden: GoldenSet, file: InboxFile) -> None:
    """Raise `UserError`, naming the right one, where the set was made from another inbox file.

    A file of as many mails is taken for the same: it may have been renamed.
    """
    made = golden.manifest.get("db")
    mails = file.counts["stored"]
    if made is not None and made["mails"] != mails:
        raise UserError(
            f"the set was made from {made['name']} with {made['mails']:,} mails, not from"
            f" {file.path} with {mails:,}; name that file with --db"
        )


def write_questions(folder: Path, name: str, questions: Sequence[Question]) -> None:
    """Write the questions to `name`.jsonl and `name`.parquet in the folder."""
    _write_rows(folder / f"{name}.jsonl", [each.to_row() for each in questions])
    pq.write_table(parquet_table(questions), folder / f"{name}.parquet")


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write a set's manifest into the folder."""
    text = json.dumps(manifest, indent=2, ensure_ascii=False, sort_keys=True)
    (folder / _MANIFEST).write_text(f"{text}\n", "utf-8")


def parquet_table(questions: Sequence[Question]) -> pa.Table:
    """The questions as a table; `provenance` is JSON."""
    rows = [each.to_row() for each in questions]
    for row in rows:
        row["provenance"] = json.dumps(row["provenance"], ensure_ascii=False, sort_keys=True)
    return pa.Table.from_pylist(rows, schema=PARQUET_SCHEMA)


def natural(text: str) -> list[tuple[int, str]]:
    """A sort key by which q-2 comes before q-10."""
    parts = []
    for digits, others in re.findall(r"([0-9]+)|([^0-9]+)", text):
        number = digits.lstrip("0")
        # By length first: as text 10 is before 2, and no number is too long for it.
        parts.append((len(number), number) if digits else (-1, others))
    # Texts that differ in zeros alone have an order too.
    return [*parts, (-2, text)]


def _write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _rejected_row(each: Rejected) -> dict[str, Any]:
    why = {"step": each.step, "check": each.check, "reason": each.reason}
    return {**each.row, "rejected": why}


def _rejected(row: Any) -> Rejected:
    why = read_rejection(row)
    rest = {name: value for name, value in row.items() if name != "rejected"}
    if why.step not in _FIRST:
        read_question(rest)
    return Rejected(rest, why.step, why.check, why.reason)


def _batch_row(each: Batch) -> dict[str, Any]:
    return {**dataclasses.asdict(each), "message_ids": list(each.message_ids)}


def _batch(row: Any) -> Batch:
    read = read_batch(row)
    return Batch(read.id, read.inbox, read.split, tuple(read.message_ids))


def _name(row: Mapping[str, Any]) -> str:
    return str(row.get("id", ""))


# ---- How long the texts of a row may be, and how realistic it may call itself, whoever wrote them.

MAX_QUESTION_CHARS = 500
MAX_ANSWER_CHARS = 2_000


def check_realism(how_realistic: float | None) -> None:
    """Raise `ValueError` for what is no share."""
    if how_realistic is not None and not 0 <= how_realistic <= 1:
        raise ValueError("how_realistic: it is not from 0 to 1")
