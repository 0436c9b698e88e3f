"""A golden set: undone steps, counts that balance, and a folder that survives any kill."""

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from art_e.errors import UserError
from art_e.question import DIFFICULTIES, KINDS, SPLITS, Question, load_questions
from data_pipeline.golden.golden_set import (
    SET_FILES,
    STEPS,
    Batch,
    Check,
    GoldenSet,
    Rejected,
    Step,
    held,
    mended,
    with_checks,
)
from tests.builders import files_of


def row(number: int) -> Question:
    return Question(f"q-{number}", f"When {number}?", "ann@test.example", answer="May")


def failed(step: Step = "filter") -> Check:
    return Check(f"{step}-check", step, False, "below 0.7", "rule")


def imported(count: int) -> GoldenSet:
    golden = GoldenSet(questions=[row(number) for number in range(count)])
    golden.batches = [Batch("b-1", "ann@test.example", "train", ("<1@test>", "<2@test>"))]
    golden.record("import", came=count, settings={"source": "x"})
    return golden


def golden_set(count: int, dropped: int) -> GoldenSet:
    """A set of `count` rows, `dropped` of them dropped by the filter."""
    golden = imported(count)
    last = count - dropped
    rows = enumerate(golden.questions)
    golden.finish(
        "filter", [(each, failed() if place >= last else None) for place, each in rows], {}
    )
    return golden


STEP_RUNS = st.lists(
    st.tuples(st.sampled_from(STEPS[2:]), st.integers(0, 2**16)), min_size=1, max_size=6
)


def run(golden: GoldenSet, step: Step, choice: int) -> None:
    """A step that drops, mends and checks rows, as `choice` has it."""
    golden.undo(step)
    made: list[tuple[Question, Check | None]] = []
    for place, each in enumerate(golden.questions):
        what = (choice >> 2 * place) % 4
        if what == 0:
            made.append((each, failed(step)))
        elif what == 1:
            made.append((mended(each, step, "mend", answer=f"{step} {choice}"), None))
        else:
            unsure = Check(f"{step}-unsure", step, None if what == 2 else True, "", "rule")
            made.append((with_checks(each, [unsure]), None))
    golden.finish(step, made, {"choice": choice})


@settings(max_examples=60)
@given(STEP_RUNS)
def test_a_step_run_again_is_as_if_run_once(runs: list[tuple[Step, int]]) -> None:
    golden = imported(8)
    first = copy.deepcopy(golden)
    in_force: list[tuple[Step, int]] = []
    for step, choice in runs:
        run(golden, step, choice)
        # What came later than this step is taken back by it.
        kept = [each for each in in_force if STEPS.index(each[0]) < STEPS.index(step)]
        in_force = [*kept, (step, choice)]
        names = [each.row["id"] for each in golden.rejected]
        assert sorted(names + [each.id for each in golden.questions]) == sorted(
            each.id for each in first.questions
        )
    anew = copy.deepcopy(first)
    for step, choice in in_force:
        run(anew, step, choice)
    golden.sort()
    anew.sort()
    assert golden == anew
    golden.undo("filter")
    assert golden == first


def test_sums_that_do_not_balance_are_our_fault() -> None:
    for came in (4, 6):
        with pytest.raises(AssertionError, match="3 kept and 2 dropped"):
            golden_set(5, dropped=2).record("filter", came=came, settings={})


CHECK = {"step": "filter", "passed": "no", "reason": "", "by": "rule"}
MEND = {"step": "filter", "check": "sources", "was": {"x": 1}}


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("questions.jsonl", {"more": 1}, "no field 'more'"),
        ("questions.jsonl", {"id": "q-1"}, "two rows have the id 'q-1'"),
        ("questions.jsonl", {"provenance": {"checks": {"x": CHECK}}}, "passed"),
        ("questions.jsonl", {"provenance": {"mended": [MEND]}}, "'x'"),
        ("rejected.jsonl", {"rejected": {"step": "zz", "check": "x", "reason": ""}}, "step"),
        ("batches.jsonl", {"message_ids": "m1"}, "message_ids"),
        ("manifest.json", {"steps": {"zz": {}}}, "zz"),
        ("manifest.json", {"inboxes": {"ann@test.example": "other"}}, "inboxes"),
    ],
)
def test_values_that_no_step_writes_are_refused(
    tmp_path: Path, name: str, fields: dict[str, Any], words: str
) -> None:
    golden_set(4, dropped=1).save(tmp_path)
    text = (tmp_path / name).read_text("utf-8")
    first, rest = (text, "") if name == "manifest.json" else text.split("\n", 1)
    changed = json.dumps({**json.loads(first), **fields})
    (tmp_path / name).write_text(f"{changed}\n{rest}", "utf-8")
    with pytest.raises(UserError, match="not a complete golden set") as refused:
        GoldenSet.load(tmp_path)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


# Kills itself at the n-th call that changes the folder, for n = 0, 1, ... until none is left.
KILLS = """
import os, sys
from pathlib import Path
from data_pipeline.golden.golden_set import GoldenSet

old, new, folders = map(Path, sys.argv[1:])
before, after = GoldenSet.load(old), GoldenSet.load(new)
CHANGES = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree"}
left = None

def hook(event, arguments):
    global left
    if left is None or event not in CHANGES or str(folders) not in str(arguments[0]):
        return
    if left == 0:
        os.kill(os.getpid(), 9)
    left -= 1

sys.addaudithook(hook)
for number in range(1000):
    folder = folders / str(number)
    if number:
        before.save(folder)
    if os.fork() == 0:
        left = number
        after.save(folder)
        os._exit(0)
    _, status = os.wait()
    if status == 0:
        print(number)
        break
    assert os.WTERMSIG(status) == 9, status
"""


def saved(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in files_of(folder).items() if name != ".lock"}


def test_killed_at_any_moment_the_old_or_the_new_set_is_there(tmp_path: Path) -> None:
    old, new = imported(40), golden_set(50, dropped=20)
    old.save(tmp_path / "old")
    new.save(tmp_path / "new")
    folders = tmp_path / "killed"
    done = subprocess.run(
        [sys.executable, "-c", KILLS, *map(str, (tmp_path / "old", tmp_path / "new", folders))],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    kills = int(done.stdout)
    assert kills > 15
    found = []
    for number in range(kills + 1):
        folder = folders / str(number)
        if number == 0 and not (folder / ".ready").is_dir():
            # The first save of a set was killed before it came to anything.
            with pytest.raises(UserError, match="holds no golden set"):
                GoldenSet.load(folder)
        else:
            before = files_of(folder)
            loaded = GoldenSet.load(folder)
            # To read needs no lock and changes nothing.
            assert files_of(folder) == before
            [same] = [name for name, each in (("old", old), ("new", new)) if loaded == each]
            found.append(same)
            with held(folder):
                pass
            assert saved(folder) == saved(tmp_path / same)
        # Whatever was left behind, the next save works.
        new.save(folder)
        assert saved(folder) == saved(tmp_path / "new")
        assert {each.name for each in folder.iterdir()} - {".lock"} == {*SET_FILES}
    assert set(found) == {"old", "new"}
    # Once the new one is there, no later kill brings the old one back.
    assert found == sorted(found, reverse=True)


# What UTF-8 can hold: a lone surrogate is cleaned before anything is stored.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def unique_rows(of: str) -> st.SearchStrategy[list[Question]]:
    """Rows with neither checks nor mends, of different ids, which all begin with `of`."""
    row = st.builds(
        Question,
        id=TEXTS.map(lambda name: of + name),
        question=TEXTS.filter(str.strip),
        inbox_address=TEXTS,
        query_date=st.none() | st.dates(),
        answer=st.none() | TEXTS,
        message_ids=st.lists(TEXTS, max_size=3).map(tuple),
        how_realistic=st.none() | st.floats(0, 1),
        kind=st.sampled_from([*KINDS, None]),
        difficulty=st.sampled_from([*DIFFICULTIES, None]),
        answerable=st.sampled_from([True, False, None]),
        split=st.sampled_from([*SPLITS, None]),
        provenance=st.dictionaries(st.sampled_from(["model", "batch", "story"]), TEXTS),
    )
    return st.lists(row, max_size=4, unique_by=lambda each: each.id)


@settings(max_examples=40)
@given(rows=unique_rows("k"), gone=unique_rows("d"), junk=st.dictionaries(TEXTS, TEXTS, max_size=3))
def test_what_is_saved_is_loaded(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[Question],
    gone: list[Question],
    junk: dict[str, Any],
) -> None:
    folder = tmp_path_factory.mktemp("set")
    golden = GoldenSet(questions=rows)
    junk.pop("rejected", None)
    golden.rejected = [
        Rejected(junk, "generate", "form", "no question"),
        *(Rejected.of(each, failed()) for each in gone),
    ]
    golden.batches = [Batch("b", "a", "test", tuple(junk))]
    golden.save(folder)
    assert GoldenSet.load(folder) == golden
    # Every `--questions` option takes the folder, and tables hold the same.
    if rows:
        assert [each.id for each in load_questions(str(folder))] == [
            each.id for each in golden.questions
        ]
    table = pq.read_table(folder / "questions.parquet").to_pylist()
    for each in table:
        each["provenance"] = json.loads(each["provenance"])
    assert table == [each.to_row() for each in golden.questions]
