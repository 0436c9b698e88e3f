"""A golden set: steps start from earlier rows, and the folder survives a kill at any write."""

import contextlib
import itertools
import json
import shutil
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from art_e.question import Question, load_questions
from art_e.storage import write_whole
from data_pipeline.golden import golden_set
from data_pipeline.golden.golden_set import STEPS, Check, GoldenSet, Step, with_checks
from tests.builders import table_rows, the_error
from tests.golden import set_files, set_of


def some_rows(count: int) -> GoldenSet:
    base = Question("", "When?", "ann@test.example", answer="May", answerable=True)
    return set_of(*(replace(base, id=f"q-{number}") for number in range(count)))


def run(folder: Path, step: Step, choice: int) -> list[Step]:
    """Drop, change and check rows as `choice` says; return the steps that must be rerun."""
    golden = GoldenSet.load(folder, step)
    outcomes: list[tuple[Question, Check | None]] = []
    for place, question in enumerate(golden.questions):
        what = (choice >> 2 * place) % 4
        check = Check(f"{step}-check", step, (False, True, None, True)[what], "", "rule")
        row = replace(question, answer=f"{step} {choice}") if what == 1 else question
        outcomes.append((with_checks(row, [check]), None if what else check))
    golden.finish(step, outcomes, {"choice": choice})
    return golden.save(folder)


def rows_of(folder: Path) -> set[str]:
    """Return the ids of the rows that `--questions` reads from the folder."""
    has_rows = (folder / "questions.jsonl").stat().st_size
    return {each.id for each in load_questions(str(folder))} if has_rows else set()


STEP_RUN = st.tuples(st.sampled_from(STEPS[2:]), st.integers(0, 2**16))


@settings(max_examples=40)
@given(st.lists(STEP_RUN, min_size=1, max_size=6))
def test_rerun_step(tmp_path_factory: pytest.TempPathFactory, runs: list[tuple[Step, int]]) -> None:
    folder, once = tmp_path_factory.mktemp("set"), tmp_path_factory.mktemp("once")
    some_rows(8).save(folder)
    some_rows(8).save(once)
    in_force: list[tuple[Step, int]] = []
    for step, choice in runs:
        # Later steps no longer count.
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


def test_losing_a_row_is_an_assertion_error() -> None:
    golden = some_rows(3)
    with pytest.raises(AssertionError, match="of 3 rows, 2 kept, 0 dropped"):
        golden.finish("filter", [(each, None) for each in golden.questions[1:]], {})


@pytest.mark.parametrize(("name", "fields", "words"), table_rows(__file__, "damage.tsv"))
def test_damaged_sets_are_refused(tmp_path: Path, name: str, fields: str, words: str) -> None:
    some_rows(8).save(tmp_path)
    run(tmp_path, "filter", 0b01010100)
    text = (tmp_path / name).read_text("utf-8")
    first, rest = (text, "") if name == "manifest.json" else text.split("\n", 1)
    changed = json.dumps({**json.loads(first), **json.loads(fields)})
    (tmp_path / name).write_text(f"{changed}\n{rest}", "utf-8")
    assert words in the_error(GoldenSet.load, tmp_path)


def test_a_step_killed_at_any_write_reruns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, whole = tmp_path / "before", tmp_path / "whole"
    for folder in (before, whole):
        some_rows(8).save(folder)
        run(folder, "filter", 99)
        run(folder, "split", 7)
    run(whole, "filter", 4711)
    old, new = GoldenSet.load(before), GoldenSet.load(whole)
    seen = []
    for number in itertools.count():
        folder = shutil.copytree(before, tmp_path / str(number))
        effects = [mock.DEFAULT] * number + [KeyboardInterrupt]
        write = mock.Mock(wraps=write_whole, side_effect=effects)
        monkeypatch.setattr(golden_set, "write_whole", write)
        with contextlib.suppress(KeyboardInterrupt):
            run(folder, "filter", 4711)
        monkeypatch.undo()
        # The set is as before, without the step, or complete.
        loaded = GoldenSet.load(folder)
        seen.append([old, some_rows(8), new].index(loaded))
        assert rows_of(folder) in [{each.id for each in sets.questions} for sets in (old, new)]
        if loaded == new:
            break
        run(folder, "filter", 4711)
        assert set_files(folder) == set_files(whole)
    assert seen == sorted(seen)
    assert set(seen) == {0, 1, 2} and len(seen) > 4
