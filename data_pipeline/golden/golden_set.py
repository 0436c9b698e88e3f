"""A golden set: its rows, what each step found in them, and its folder.

    questions.jsonl    the rows that are kept, in a fixed order
    questions.parquet  the same, for tables
    rejected.jsonl     every dropped row with step, check and reason
    batches.jsonl      the mails that the generator saw together
    manifest.json      the settings and counts of every step
    README.md          the card
    responses/         replies of models (`asking.py`)
    reviews.jsonl      verdicts of people (`review.py`)

`save` replaces the first six together: a kill leaves the old or the new ones. The same content
gives the same bytes.
"""

import dataclasses
import itertools
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from art_e import question as rows
from art_e.errors import UserError, fault_of
from art_e.inbox.file import InboxFile
from art_e.question import Question, Split
from art_e.storage import locked

SCHEMA = "art-e/golden/1"
MAX_QUESTION_CHARS = 500
MAX_ANSWER_CHARS = 2_000

Step = Literal["generate", "import", "filter", "verify", "split", "review"]
# In the order in which they run; a set begins with one of the first two.
STEPS: tuple[Step, ...] = ("generate", "import", "filter", "verify", "split", "review")
# These steps may drop rows that are not questions, or have no id.
_FIRST: tuple[Step, ...] = ("generate", "import")

# ---- What steps found: checks and changed fields, kept in the provenance of a row.


@checked_dataclass(frozen=True, slots=True)
class Check:
    """One check of a row. `passed` None means unsure, which drops nothing by itself.

    `reason` is one line; `by` is "rule", "search", "person" or the name of a model.
    """

    name: str
    step: Step
    passed: StrictBool | None
    reason: str
    by: str


def with_checks(question: Question, checks: Sequence[Check]) -> Question:
    """The question with these checks; they replace checks of the same name."""
    made = dict(question.provenance.get("checks", {}))
    for each in checks:
        check = dataclasses.asdict(each)
        made[check.pop("name")] = check
    return dataclasses.replace(question, provenance={**question.provenance, "checks": made})


def checks_of(question: Question) -> dict[str, Check]:
    """The checks of a question by name."""
    found: dict[str, Any] = question.provenance.get("checks", {})
    return {name: Check(name, **check) for name, check in found.items()}


def mended(question: Question, step: Step, check: str, /, **changes: Any) -> Question:
    """The question with these fields changed; the provenance keeps their old values."""
    row = question.to_row()
    was = {name: row[name] for name in changes}
    history = [*question.provenance.get("mended", []), {"step": step, "check": check, "was": was}]
    provenance = {**question.provenance, "mended": history}
    return dataclasses.replace(question, **changes, provenance=provenance)


def as_before(question: Question, step: Step) -> Question:
    """The question as it was before `step`, without later checks and changes."""
    first = STEPS.index(step)
    provenance = dict(question.provenance)
    history = list(provenance.pop("mended", []))
    row = question.to_row()
    while history and STEPS.index(history[-1]["step"]) >= first:
        row |= history.pop()["was"]
    checks = {
        name: check
        for name, check in provenance.pop("checks", {}).items()
        if STEPS.index(check["step"]) < first
    }
    provenance |= ({"checks": checks} if checks else {}) | ({"mended": history} if history else {})
    return Question.from_row({**row, "provenance": provenance})


# ---- Validation of the files.

_FIELDS = frozenset(each.name for each in dataclasses.fields(Question))


@checked_dataclass(frozen=True, slots=True)
class _Change:
    """What `mended` notes in the provenance."""

    step: Step
    check: str
    was: dict[str, Any]


class _StepTaken(BaseModel):
    # Steps add settings of their own.
    sums: dict[str, Any]


class _Manifest(BaseModel):
    model_config = ConfigDict(strict=True)

    form: Literal["art-e/golden/1"] = Field(alias="schema")
    steps: dict[Step, _StepTaken]
    db: dict[str, Any] | None = None
    seed: int | None = None
    inboxes: dict[str, Split] = {}


def check_bounds(question: str, answer: str | None, how_realistic: float | None) -> None:
    """Raise `ValueError` for an empty question, for long texts, and for a rating outside 0 to 1."""
    if not question.strip():
        raise ValueError("question: it is empty")
    limits = ("question", question, MAX_QUESTION_CHARS), ("answer", answer or "", MAX_ANSWER_CHARS)
    for name, text, limit in limits:
        if len(text) > limit:
            raise ValueError(f"{name}: it has {len(text):,} characters, more than {limit:,}")
    if how_realistic is not None and not 0 <= how_realistic <= 1:
        raise ValueError("how_realistic: it is not from 0 to 1")


def read_question(row: Any) -> Question:
    """The question of a line of questions.jsonl. Raises `ValueError` or `TypeError`."""
    question = rows.read_question(row)
    checks_of(question)
    changes = [_Change(**each) for each in question.provenance.get("mended", [])]
    # The old values must fit too, because the step may be undone.
    for values in (row, *(each.was for each in changes)):
        if unknown := [name for name in values if name not in _FIELDS]:
            raise ValueError(f"a question has no field {unknown[0]!r}")
        then = rows.read_question({**row, **values})
        check_bounds(then.question, then.answer, then.how_realistic)
    return question


# ---- The set.

_READ = ("manifest.json", "questions.jsonl", "rejected.jsonl", "batches.jsonl")
SET_FILES = (*_READ, "questions.parquet", "README.md")

PARQUET_SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("id", "question", "answer")]
    + [("message_ids", pa.list_(pa.string()))]
    + [(name, pa.string()) for name in ("inbox_address", "query_date")]
    + [("how_realistic", pa.float64())]
    + [(name, pa.string()) for name in ("kind", "difficulty")]
    # Provenance is JSON text: rows differ in it, and a struct would pad them with nulls.
    + [("answerable", pa.bool_()), ("split", pa.string()), ("provenance", pa.string())]
)


@checked_dataclass(frozen=True, slots=True)
class Batch:
    """Mails of one inbox that the generator sees together, in date order."""

    id: str
    inbox: str
    split: Split
    message_ids: tuple[str, ...]

    def handles(self) -> dict[str, str]:
        """Message ids by the handles that the generator sees: m1, m2, ..."""
        return {f"m{number}": each for number, each in enumerate(self.message_ids, start=1)}


@checked_dataclass(frozen=True, slots=True)
class Rejected:
    """A row that a step dropped. `row` is a question's row, or what could not become one."""

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
        """The row as a question; None if it never was one."""
        try:
            return Question.from_row(self.row)
        except ValueError:
            return None


@dataclass(slots=True)
class GoldenSet:
    """A golden set in memory. Its manifest:

    schema      SCHEMA
    db          the inbox file's name (no path) and its number of mails
    seed        of `generate`, or of `split` for imported rows
    inboxes     address -> split
    steps       `sums` and settings of each step that was run
    """

    questions: list[Question] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    manifest: dict[str, Any] = field(default_factory=lambda: {"schema": SCHEMA, "steps": {}})

    def later(self, step: Step) -> list[Step]:
        """The steps after `step` that were run; `undo(step)` undoes them too."""
        return [each for each in STEPS[STEPS.index(step) + 1 :] if each in self.manifest["steps"]]

    def undo(self, step: Step) -> None:
        """Undo `step` and all later ones: dropped rows return, changed rows are as before."""
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
        """Sort rows as they are written: by id, with numbers in numerical order."""
        self.questions.sort(key=lambda each: natural(each.id))
        self.rejected.sort(key=lambda each: (STEPS.index(each.step), natural(_name(each.row))))

    def finish(
        self, step: Step, made: Iterable[tuple[Question, Check | None]], settings: Mapping[str, Any]
    ) -> None:
        """End a step with its rows, each with the check that drops it or None."""
        made = list(made)
        came = len(self.questions) + sum(each.step == step for each in self.rejected)
        self.questions = [question for question, fault in made if fault is None]
        self.rejected += [Rejected.of(question, fault) for question, fault in made if fault]
        self.sort()
        self.record(step, came, settings)

    def record(self, step: Step, came: int, settings: Mapping[str, Any]) -> None:
        """Write the settings and counts of a step into the manifest; `came` rows came in.

        Raises `AssertionError` if the counts do not balance: a row was lost or duplicated.
        """
        dropped = Counter(each.check for each in self.rejected if each.step == step)
        kept = len(self.questions)
        if came != kept + dropped.total():
            raise AssertionError(f"{step}: {came} came, {kept} kept and {dropped.total()} dropped")
        history = [each.provenance.get("mended", []) for each in self.questions]
        changes = itertools.chain.from_iterable(history)
        mended = Counter(each["check"] for each in changes if each["step"] == step)
        checks = [check for each in self.questions for check in checks_of(each).values()]
        unsure = Counter(each.name for each in checks if each.step == step and each.passed is None)
        counts = {"dropped": dropped, "mended": mended, "unsure": unsure}
        sums = {name: dict(sorted(counter.items())) for name, counter in counts.items()}
        self.manifest["steps"][step] = {**settings, "sums": {"in": came, "kept": kept, **sums}}

    @classmethod
    def begun(cls, folder: Path) -> Self:
        """The set in `folder`, or a new one. Raises `UserError` if it would replace other files."""
        names = [each for each in SET_FILES if (folder / each).exists()]
        # READY is there if a save was killed.
        if "manifest.json" in names or (folder / READY).exists():
            return cls.load(folder)
        if names:
            raise UserError(f"{folder} holds another {names[0]}; name a new folder with --out")
        return cls()

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The set in `folder`, which needs no lock. Raises `UserError` if it is missing or torn."""
        try:
            # If two readings are equal, no save of another process came in between.
            while (texts := _read(folder)) != _read(folder):
                pass
            manifest, questions, rejected, batches = texts
            golden = cls(
                [read_question(json.loads(line)) for line in _lines(questions)],
                [_rejected(json.loads(line)) for line in _lines(rejected)],
                [Batch(**json.loads(line)) for line in _lines(batches)],
                json.loads(manifest),
            )
            _Manifest.model_validate(golden.manifest)
            golden._check_ids()
        except (FileNotFoundError, NotADirectoryError):
            raise UserError(
                f"{folder} holds no golden set; make one with: art-e golden generate --out"
                f" {folder}, or art-e golden import FILE --out {folder}"
            ) from None
        except OSError as error:
            raise UserError(f"can't read {folder}: {error.strerror}; name another set") from None
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            fault = fault_of(error, "row") if isinstance(error, ValidationError) else str(error)
            reason = " ".join(fault.split())
            what = f"{folder} is not a complete golden set ({reason}); make it again"
            raise UserError(what) from None
        return golden

    def _check_ids(self) -> None:
        """Raise `ValueError` if two rows share an id: their steps could not be undone."""
        dropped = [each for each in self.rejected if each.step not in _FIRST]
        ids = Counter([each.id for each in self.questions] + [_name(each.row) for each in dropped])
        if twice := [name for name, count in ids.items() if count > 1]:
            raise ValueError(f"two rows have the id {twice[0]!r}")

    def save(self, folder: Path, card: str = "") -> None:
        """Write the set to `folder`: all of its files are replaced, or none.

        `card` is the text of README.md (`export.card`).
        """
        settle(folder)
        self.sort()
        partial = folder / PARTIAL
        partial.mkdir(parents=True)
        write_questions(partial, "questions", self.questions)
        names = "step", "check", "reason"
        # A row may be nested too deep for `asdict`, which copies it.
        rejected = (
            {**each.row, "rejected": {name: getattr(each, name) for name in names}}
            for each in self.rejected
        )
        _write_rows(partial / "rejected.jsonl", rejected)
        _write_rows(partial / "batches.jsonl", [dataclasses.asdict(each) for each in self.batches])
        write_manifest(partial, self.manifest)
        (partial / "README.md").write_text(card, "utf-8")
        # From this rename on the new set counts.
        partial.rename(folder / READY)
        settle(folder)


def natural(text: str) -> tuple[str, str]:
    """A sort key that puts q-2 before q-10."""
    return re.sub("[0-9]+", lambda number: number[0].zfill(20), text), text


def _name(row: Mapping[str, Any]) -> str:
    return str(row.get("id", ""))


def _lines(text: str) -> list[str]:
    return [line for line in text.split("\n") if line]


def _rejected(row: dict[str, Any]) -> Rejected:
    rejected = Rejected(**row.pop("rejected"), row=row)
    if rejected.step not in _FIRST:
        read_question(row)
    return rejected


# ---- The folder.

PARTIAL, READY = ".partial", ".ready"


def settle(folder: Path) -> None:
    """Finish a save that was killed after its rename, or remove what it left before."""
    shutil.rmtree(folder / PARTIAL, ignore_errors=True)
    ready = folder / READY
    if not ready.is_dir():
        return
    for file in sorted(ready.iterdir()):
        file.replace(folder / file.name)
    ready.rmdir()


def _read(folder: Path) -> list[str]:
    """The texts of the set's files, those of a save that was killed included."""
    texts = []
    for name in _READ:
        try:
            texts.append((folder / READY / name).read_text("utf-8"))
        except FileNotFoundError:
            texts.append((folder / name).read_text("utf-8"))
    return texts


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Make the folder and keep other processes from changing the set.

    Raises `UserError` if another process holds it, or the folder can't be written to. A folder
    that stays empty is removed again.
    """
    busy = f"another process works on {folder}; wait for its end, or name another folder"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / ".lock", busy):
            settle(folder)
            try:
                yield
            finally:
                if [each.name for each in folder.iterdir()] == [".lock"]:
                    shutil.rmtree(folder)
    except OSError as error:
        raise UserError(f"can't write to {folder}: {error.strerror}; name another folder") from None


def check_db(golden: GoldenSet, file: InboxFile) -> None:
    """Raise `UserError` if the set was made from other mail; the file may have been renamed."""
    made = golden.manifest.get("db")
    now = made_from(file)
    # A set of an earlier version has no digest.
    if made is not None and {**now, **made, "name": now["name"]} != now:
        raise UserError(
            f"the set was made from {made['name']} with {made['mails']:,} mails, not from"
            f" {file.path}, whose {now['mails']:,} mails are others; name that file with --db"
        )


def made_from(file: InboxFile) -> dict[str, Any]:
    """What a manifest says of the inbox file."""
    return {"name": file.path.name, "mails": file.counts["stored"], "digest": file.digest}


def write_questions(folder: Path, name: str, questions: Sequence[Question]) -> None:
    """Write the questions to `name`.jsonl and `name`.parquet in the folder."""
    made = [each.to_row() for each in questions]
    _write_rows(folder / f"{name}.jsonl", made)
    for row in made:
        row["provenance"] = json.dumps(row["provenance"], ensure_ascii=False, sort_keys=True)
    pq.write_table(pa.Table.from_pylist(made, schema=PARQUET_SCHEMA), folder / f"{name}.parquet")


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write a set's manifest into the folder."""
    text = json.dumps(manifest, indent=2, ensure_ascii=False, sort_keys=True)
    (folder / "manifest.json").write_text(f"{text}\n", "utf-8")


def _write_rows(path: Path, made: Iterable[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in made)
