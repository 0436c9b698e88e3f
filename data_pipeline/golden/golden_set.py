"""A golden set: its rows, the checks of each step, and its folder.

    generated.jsonl, imported.jsonl, filtered.jsonl, verified.jsonl, split.jsonl, reviewed.jsonl
                       the rows that a step kept, in a fixed order
    questions.jsonl    the rows of the last step, for `--questions`
    rejected.jsonl     every dropped row with step, check and reason
    manifest.json      the settings and counts of every step
    responses/         replies of models, even unreadable ones, as they arrive: a killed step asks
                       only for what is missing
    reviews.jsonl      verdicts of people (`review.py`)

A step reads the rows of the step before it and replaces its own file. The manifest, written last,
names the steps that count. The same content gives the same bytes."""

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import StrictBool, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from art_e.errors import UserError, fault_of
from art_e.inbox.file import InboxFile
from art_e.question import Question
from art_e.storage import locked, write_whole
from art_e.text import digest

SCHEMA = "art-e/golden/2"
MAX_QUESTION_CHARS = 500
MAX_ANSWER_CHARS = 2_000

Step = Literal["generate", "import", "filter", "verify", "split", "review"]
# In the order in which they run; a set begins with one of the first two.
STEP_FILES: dict[Step, str] = {
    "generate": "generated.jsonl", "import": "imported.jsonl", "filter": "filtered.jsonl",
    "verify": "verified.jsonl", "split": "split.jsonl", "review": "reviewed.jsonl",
}  # fmt: skip
STEPS = tuple(STEP_FILES)
MANIFEST, QUESTIONS = "manifest.json", "questions.jsonl"
REJECTED = "rejected.jsonl"
SET_FILES = (MANIFEST, QUESTIONS, REJECTED, *STEP_FILES.values())


@checked_dataclass(frozen=True, slots=True)
class Check:
    """One check of a row; `passed` None means unsure, which doesn't drop the row by itself.
    `reason` is one line; `by` is "rule", "search", "person" or the name of a model."""

    name: str
    step: Step
    passed: StrictBool | None
    reason: str
    by: str


def by_rule(name: str, step: Step, fault: str | None) -> Check:
    """Return the check of a rule, which failed if there is a fault."""
    return Check(name, step, not fault, fault or "no fault found", "rule")


Outcome = tuple[Question, Check | None]  # a row after a step, and the check that drops it


def with_checks(question: Question, checks: Sequence[Check]) -> Question:
    """Return the question with these checks in its provenance, replacing any of the same name."""
    by_name = dict(question.provenance.get("checks", {}))
    for fields_of_check in map(asdict, checks):
        by_name[fields_of_check.pop("name")] = fields_of_check
    return replace(question, provenance={**question.provenance, "checks": by_name})


def checks_of(question: Question) -> dict[str, Check]:
    """Return the checks of a question by name."""
    checks: dict[str, Any] = question.provenance.get("checks", {})
    return {name: Check(name, **check) for name, check in checks.items()}


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


@checked_dataclass(frozen=True, slots=True)
class Rejected:
    """A row that a step dropped. `row` is a question's row, or the data that is not a question."""

    row: dict[str, Any]
    step: Step
    check: str
    reason: str


@dataclass(slots=True)
class GoldenSet:
    """A golden set in memory. Its manifest:

    schema      SCHEMA
    db          the inbox file's name (no path), its number of mails and their digest
    steps       `sums` and settings of each step that was run"""

    questions: list[Question] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    manifest: dict[str, Any] = field(default_factory=lambda: {"schema": SCHEMA, "steps": {}})

    def finish(self, step: Step, outcomes: Iterable[Outcome], settings: Mapping[str, Any]) -> None:
        """End a step with the outcomes of its rows; every row must have one."""
        outcomes, before = list(outcomes), {each.id: each for each in self.questions}
        total = len(self.questions) + sum(each.step == step for each in self.rejected)
        self.questions = [question for question, fault in outcomes if fault is None]
        for question, fault in outcomes:
            if fault:
                row = with_checks(question, [fault]).to_row()
                self.rejected.append(Rejected(row, step, fault.name, fault.reason))
        self.questions.sort(key=lambda each: natural(each.id))
        self.rejected.sort(
            key=lambda each: (STEPS.index(each.step), natural(str(each.row.get("id", ""))))
        )
        dropped = Counter(each.check for each in self.rejected if each.step == step)
        left = len(self.questions)
        if total != left + dropped.total():
            raise AssertionError(f"{step}: of {total} rows, {left} kept, {dropped.total()} dropped")
        pairs = [(before.get(each.id, each), each) for each in self.questions]
        changed = Counter(n for a, b in pairs for n in _FIELDS if getattr(a, n) != getattr(b, n))
        checks = [check for each in self.questions for check in checks_of(each).values()]
        unsure = Counter(each.name for each in checks if each.step == step and each.passed is None)
        counts = {"dropped": dropped, "changed": changed, "unsure": unsure}
        sums = {name: dict(sorted(counter.items())) for name, counter in counts.items()}
        self.manifest["steps"][step] = {**settings, "sums": {"in": total, "kept": left, **sums}}

    @classmethod
    def new(cls, folder: Path, step: Step, source: str | None = None) -> Self:
        """Return an empty set. Raises `UserError` if `folder` has one of another step or source."""
        names = [each for each in SET_FILES if (folder / each).exists()]
        if names and MANIFEST not in names:
            raise UserError(f"{folder} holds another {names[0]}; name a new folder with --out")
        with _reading(folder):
            steps = _manifest(folder)["steps"] if names else {}
        if steps and (step not in steps or steps[step].get("source") != source):
            raise UserError(f"{folder} holds another golden set; name another --out")
        return cls()

    @classmethod
    def load(cls, folder: Path, step: Step | None = None) -> Self:
        """Return the set in `folder`, or the one that `step` starts from. This needs no lock."""
        with _reading(folder):
            before = STEPS if step is None else STEPS[: STEPS.index(step)]
            while True:
                manifest = _manifest(folder)
                recorded = manifest["steps"]
                steps = {each: recorded[each] for each in before if each in recorded}
                if not steps:
                    raise FileNotFoundError
                manifest["steps"], last = steps, STEP_FILES[list(steps)[-1]]
                questions = [Question.from_row(row) for row in _rows(folder / last)]
                _ = [checks_of(each) for each in questions]  # raises if one is malformed
                if len({each.id for each in questions}) < len(questions):
                    raise ValueError(f"{last}: two rows have one id")
                rows = _rows(folder / REJECTED)
                dropped = [Rejected(**row.pop("rejected"), row=row) for row in rows]
                rejected = [each for each in dropped if each.step in steps]
                # If another process saved in between, read again.
                if _manifest(folder)["steps"].items() >= steps.items():
                    return cls(questions, rejected, manifest)

    def save(self, folder: Path) -> list[Step]:
        """Write the last step's rows to `folder`; return the later steps, which must be rerun."""
        steps: dict[Step, Any] = self.manifest["steps"]
        place = max(map(STEPS.index, steps))
        last, earlier = STEPS[place], {name: steps[name] for name in STEPS[:place] if name in steps}
        folder.mkdir(parents=True, exist_ok=True)
        # A kill before the whole step is written leaves a set without this step.
        write_manifest(folder, {**self.manifest, "steps": earlier})
        dropped = map(asdict, self.rejected)
        write_rows(folder / REJECTED, ({**each.pop("row"), "rejected": each} for each in dropped))
        for name in (STEP_FILES[last], QUESTIONS):
            write_rows(folder / name, [each.to_row() for each in self.questions])
        later = [each for each in STEPS[place + 1 :] if (folder / STEP_FILES[each]).exists()]
        for name in later:
            (folder / STEP_FILES[name]).unlink()
        write_manifest(folder, self.manifest)
        return later


_FIELDS = [each.name for each in fields(Question) if each.name != "provenance"]


def natural(text: str) -> tuple[str, str]:
    """Return a sort key that puts q-2 before q-10."""
    return re.sub("[0-9]+", lambda number: number[0].zfill(20), text), text


# ---- The folder.


def _manifest(folder: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text("utf-8"))
    if manifest["schema"] != SCHEMA:
        why = f"{folder} was made by another version of art-e; import its rows into a new folder"
        raise UserError(f"{why}: art-e golden import {folder} --out NEW")
    if unknown := manifest["steps"].keys() - STEP_FILES:
        raise ValueError(f"{MANIFEST}: there is no step {unknown.pop()!r}")
    return manifest


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
    """Turn errors of reading the set's files into `UserError`."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        why = f"{folder} holds no golden set; make one with: art-e golden generate --out {folder}"
        raise UserError(f"{why}, or art-e golden import FILE --out {folder}") from None
    except OSError as error:
        raise UserError(f"can't read {folder}: {error.strerror}; name another set") from None
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        fault = fault_of(error, "row") if isinstance(error, ValidationError) else str(error)
        what = f"{folder} is not a complete golden set ({' '.join(fault.split())}); make it again"
        raise UserError(what) from None


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def responses_folder(folder: Path, role: str, model: str) -> Path:
    """Return the folder of `model`'s replies in a role ("generate", "read", "judge")."""
    return folder / "responses" / f"{role}-{digest(model)}"


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Replace the file with one JSON object a line."""
    write_whole(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write a set's manifest into the folder."""
    text = json.dumps(manifest, indent=2, ensure_ascii=False, sort_keys=True)
    write_whole(folder / MANIFEST, f"{text}\n")


@contextmanager
def locked_set(folder: Path) -> Iterator[None]:
    """Create the folder and lock the set; remove a folder that stays empty. Raises `UserError` if
    another process has the lock, or the folder can't be written."""
    busy = f"another process works on {folder}; wait for its end, or name another folder"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / ".lock", busy):
            try:
                yield
            finally:
                if [each.name for each in folder.iterdir()] == [".lock"]:
                    shutil.rmtree(folder)
    except OSError as error:
        raise UserError(f"can't write to {folder}: {error.strerror}; name another folder") from None


def check_db(golden: GoldenSet, file: InboxFile) -> None:
    """Record the inbox file in a new set. Raise `UserError` if the set is of other mail."""
    now = {"name": file.path.name, "mails": file.counts["stored"], "digest": file.digest}
    before = golden.manifest.setdefault("db", now)
    if {**before, "name": now["name"]} != now:
        why = f"the set was made from {before['name']} with {before['mails']:,} mails"
        other = f"not from {file.path}, which has {now['mails']:,} other mails"
        raise UserError(f"{why}, {other}; name that file with --db")
