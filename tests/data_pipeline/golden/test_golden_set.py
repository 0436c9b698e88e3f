"""A golden set: steps that begin from the rows before them, and a folder that survives any kill."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from art_e.errors import UserError
from art_e.question import Question, load_questions
from data_pipeline.golden.golden_set import STEPS, Check, GoldenSet, Step, held, with_checks
from tests.golden import set_files, set_of


def some_rows(count: int) -> GoldenSet:
    return set_of(
        *(Question(f"q-{n}", f"When {n}?", "ann@test.example", answer="May") for n in range(count))
    )


def run(folder: Path, step: Step, choice: int) -> list[Step]:
    """A step that drops, changes and checks rows, as `choice` has it; what must be run again."""
    golden = GoldenSet.load(folder, step)
    made: list[tuple[Question, Check | None]] = []
    for place, each in enumerate(golden.questions):
        what = (choice >> 2 * place) % 4
        passed = (False, True, None, True)[what]
        check = Check(f"{step}-check", step, passed, "", "rule")
        row = replace(each, answer=f"{step} {choice}") if what == 1 else each
        made.append((with_checks(row, [check]), None if what else check))
    golden.finish(step, made, {"choice": choice})
    return golden.save(folder)


def rows_of(folder: Path) -> set[str]:
    """The ids of the rows that `--questions` gives of the folder."""
    has_rows = (folder / "questions.jsonl").stat().st_size
    return {each.id for each in load_questions(str(folder))} if has_rows else set()


STEP_RUNS = st.lists(
    st.tuples(st.sampled_from(STEPS[2:]), st.integers(0, 2**16)), min_size=1, max_size=6
)


@settings(max_examples=40)
@given(STEP_RUNS)
def test_a_step_run_again_is_as_if_run_once(
    tmp_path_factory: pytest.TempPathFactory, runs: list[tuple[Step, int]]
) -> None:
    folder, once = tmp_path_factory.mktemp("set"), tmp_path_factory.mktemp("once")
    some_rows(8).save(folder)
    some_rows(8).save(once)
    in_force: list[tuple[Step, int]] = []
    for step, choice in runs:
        # What came later than this step no longer counts.
        later = [each for each, _ in in_force if STEPS.index(each) > STEPS.index(step)]
        assert run(folder, step, choice) == later
        in_force = [each for each in in_force if STEPS.index(each[0]) < STEPS.index(step)]
        in_force.append((step, choice))
        golden = GoldenSet.load(folder)
        ids = [each.row["id"] for each in golden.rejected] + [each.id for each in golden.questions]
        assert sorted(ids) == [f"q-{number}" for number in range(8)]
        assert rows_of(folder) == {each.id for each in golden.questions}
        sums = golden.manifest["steps"][step]["sums"]
        assert sums["kept"] == len(golden.questions)
        changed = sum(each.answer == f"{step} {choice}" for each in golden.questions)
        assert sums["changed"] == ({"answer": changed} if changed else {})
    for step, choice in in_force:
        run(once, step, choice)
    assert set_files(folder) == set_files(once)
    assert GoldenSet.load(folder, "filter") == some_rows(8)


def test_a_row_that_a_step_loses_is_our_fault() -> None:
    golden = some_rows(3)
    with pytest.raises(AssertionError, match="3 came, 2 kept and 0 dropped"):
        golden.finish("filter", [(each, None) for each in golden.questions[1:]], {})


CHECK = {"step": "filter", "passed": "no", "reason": "", "by": "rule"}


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("filtered.jsonl", {"id": "q-2"}, "two rows have one id"),
        ("filtered.jsonl", {"kind": "riddle"}, "kind"),
        ("filtered.jsonl", {"provenance": {"checks": {"x": CHECK}}}, "passed"),
        ("rejected.jsonl", {"rejected": {"step": "zz", "check": "x", "reason": ""}}, "step"),
        ("manifest.json", {"steps": {"zz": {}}}, "zz"),
        ("manifest.json", {"schema": "art-e/golden/1"}, "art-e golden import"),
    ],
)
def test_values_that_no_step_writes_are_refused(
    tmp_path: Path, name: str, fields: dict[str, Any], words: str
) -> None:
    some_rows(8).save(tmp_path)
    run(tmp_path, "filter", 0b01010100)
    text = (tmp_path / name).read_text("utf-8")
    first, rest = (text, "") if name == "manifest.json" else text.split("\n", 1)
    changed = json.dumps({**json.loads(first), **fields})
    (tmp_path / name).write_text(f"{changed}\n{rest}", "utf-8")
    with pytest.raises(UserError) as refused:
        GoldenSet.load(tmp_path)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


# Runs the filter on copies of a split set, killed at the n-th change of the folder, n = 0, 1, ...
KILLS = """
import os, shutil, sys
from pathlib import Path
from data_pipeline.golden.golden_set import GoldenSet
from tests.data_pipeline.golden.test_golden_set import run

split, folders = map(Path, sys.argv[1:])
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
    shutil.copytree(split, folder)
    if os.fork() == 0:
        left = number
        run(folder, "filter", 4711)
        os._exit(0)
    _, status = os.wait()
    if status == 0:
        print(number)
        break
    assert os.WTERMSIG(status) == 9, status
"""


def test_killed_at_any_moment_the_step_runs_again_to_the_same_end(tmp_path: Path) -> None:
    before, whole, folders = (tmp_path / name for name in ("before", "whole", "killed"))
    for folder in (before, whole):
        some_rows(8).save(folder)
        run(folder, "filter", 99)
        run(folder, "split", 7)
    old = GoldenSet.load(before)
    run(whole, "filter", 4711)
    done = subprocess.run(
        [sys.executable, "-c", KILLS, str(before), str(folders)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    kills = int(done.stdout)
    assert kills > 10
    new, first = GoldenSet.load(whole), some_rows(8)
    seen = []
    for number in range(kills + 1):
        folder = folders / str(number)
        # The set as it was, as it is without the step, or after it.
        loaded = GoldenSet.load(folder)
        seen.append([old, first, new].index(loaded))
        assert rows_of(folder) in [{each.id for each in sets.questions} for sets in (old, new)]
        with held(folder):
            run(folder, "filter", 4711)
        assert set_files(folder) == set_files(whole)
    assert seen == sorted(seen)
    assert set(seen) == {0, 1, 2}
