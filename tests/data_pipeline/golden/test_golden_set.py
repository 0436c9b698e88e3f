"""A golden set's folder: whole after any kill, the same bytes for the same rows, sums that balance.

The kills are real: a process kills itself with SIGKILL at each of the calls by which
`save` changes the disk, one after the other.
"""

import copy
import dataclasses
import filecmp
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
from art_e.question import Question, load_questions
from data_pipeline.golden.checks import STEPS, Check, Step, mended, with_checks
from data_pipeline.golden.golden_set import Batch, GoldenSet, Rejected, held, natural
from tests.data_pipeline.golden.rows import TEXTS, questions

FILES = (
    "README.md",
    "batches.jsonl",
    "manifest.json",
    "questions.jsonl",
    "questions.parquet",
    "rejected.jsonl",
)


def row(number: int, **fields: Any) -> Question:
    asked = Question(f"q-{number}", f"When {number}?", "ann@test.example", answer="May")
    return dataclasses.replace(asked, **fields)


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


def test_killed_at_any_moment_the_old_or_the_new_set_is_there(tmp_path: Path) -> None:
    old, new = golden_set(40), golden_set(50, dropped=20)
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
            loaded = GoldenSet.load(folder)
            [same] = [name for name, each in (("old", old), ("new", new)) if loaded == each]
            found.append(same)
            assert same_files(folder, tmp_path / same)
        # Whatever was left behind, the next save works.
        new.save(folder)
        assert same_files(folder, tmp_path / "new")
        assert sorted(each.name for each in folder.iterdir()) == list(FILES)
    assert set(found) == {"old", "new"}
    # Once the new one is there, no later kill brings the old one back.
    assert found == sorted(found, reverse=True)


def same_files(folder: Path, other: Path) -> bool:
    same, _, _ = filecmp.cmpfiles(folder, other, FILES, shallow=False)
    return same == list(FILES)


def test_the_same_rows_in_any_order_give_the_same_bytes(tmp_path: Path) -> None:
    first = golden_set(30, dropped=12)
    second = copy.deepcopy(first)
    second.questions.reverse()
    second.rejected.reverse()
    second.manifest = dict(reversed(second.manifest.items()))
    first.save(tmp_path / "first")
    second.save(tmp_path / "second")
    GoldenSet.load(tmp_path / "first").save(tmp_path / "third")
    assert same_files(tmp_path / "first", tmp_path / "second")
    assert same_files(tmp_path / "first", tmp_path / "third")


@settings(max_examples=40)
@given(rows=st.lists(questions(), max_size=4), junk=st.dictionaries(TEXTS, TEXTS, max_size=3))
def test_what_is_saved_is_loaded(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Question], junk: dict[str, Any]
) -> None:
    folder = tmp_path_factory.mktemp("set")
    golden = GoldenSet(questions=rows)
    junk.pop("rejected", None)
    golden.rejected = [
        Rejected(junk, "generate", "form", "no question"),
        *(Rejected.of(each, failed()) for each in rows),
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


STEP_RUNS = st.lists(
    st.tuples(st.sampled_from(STEPS[2:]), st.integers(0, 2**16)), min_size=1, max_size=6
)


def run(golden: GoldenSet, step: Step, choice: int) -> None:
    """A step that drops, mends and checks rows, as `choice` has it."""
    golden.undo(step)
    came = golden.questions
    golden.questions = []
    for place, each in enumerate(came):
        what = (choice >> 2 * place) % 4
        if what == 0:
            golden.rejected.append(Rejected.of(each, failed(step, f"{step}-check")))
        elif what == 1:
            golden.questions.append(mended(each, step, "mend", answer=f"{step} {choice}"))
        else:
            unsure = Check(f"{step}-unsure", step, None if what == 2 else True, "", "rule")
            golden.questions.append(with_checks(each, [unsure]))
    golden.record(step, came=len(came), settings={"choice": choice})


@settings(max_examples=60)
@given(STEP_RUNS)
def test_a_step_run_again_is_as_if_run_once(runs: list[tuple[Step, int]]) -> None:
    golden = GoldenSet(questions=[row(number) for number in range(8)])
    golden.record("import", came=8, settings={})
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


def test_undo_leaves_what_was_no_question_where_it_was() -> None:
    golden = golden_set(3, dropped=1)
    golden.rejected.append(Rejected({"text": "{"}, "generate", "form", "no JSON"))
    golden.undo("filter")
    assert [each.id for each in golden.questions] == ["q-0", "q-1", "q-2"]
    assert [each.check for each in golden.rejected] == ["form"]
    assert list(golden.manifest["steps"]) == ["import"]
    assert golden.rejected[0].question is None


def test_sums_that_do_not_balance_are_our_fault() -> None:
    golden = golden_set(5, dropped=2)
    assert golden.manifest["steps"]["filter"]["sums"] == {
        "in": 5, "kept": 3, "dropped": {"realism": 2}, "mended": {}, "unsure": {},
    }  # fmt: skip
    for came in (4, 6):
        with pytest.raises(AssertionError, match="3 kept and 2 dropped"):
            golden.record("filter", came=came, settings={})


def test_sums_count_mends_and_doubts_of_their_step_alone() -> None:
    golden = golden_set(3)
    doubt = [Check("answerable", "verify", None, "no verdict", "m")]
    golden.questions = [
        with_checks(mended(row(0), "verify", "unambiguous", answer="June"), doubt),
        with_checks(mended(row(1), "filter", "sources", answer="June"), doubt),
        row(2),
    ]
    golden.record("verify", came=3, settings={"model": "m"})
    assert golden.manifest["steps"]["verify"] == {
        "model": "m",
        "sums": {
            "in": 3, "kept": 3, "dropped": {}, "mended": {"unambiguous": 1},
            "unsure": {"answerable": 2},
        },
    }  # fmt: skip


@given(st.lists(TEXTS | st.from_regex(r"\Aq-?[0-9]{1,3}\Z"), unique=True))
def test_natural_order_is_one_whatever_the_input(names: list[str]) -> None:
    turned = names[::-1]
    assert sorted(turned, key=natural) == sorted(names, key=natural)


@given(st.sets(st.integers(0, 10**9)), st.sampled_from(["q-", "", "ß٣"]))
def test_numbers_in_names_are_in_the_order_of_numbers(numbers: set[int], prefix: str) -> None:
    named = [f"{prefix}{each}" for each in sorted(numbers)]
    turned = named[::-1]
    assert sorted(turned, key=natural) == named


def test_natural_order_of_a_hostile_name() -> None:
    # Python refuses to read so long a number.
    assert natural("9" * 5_000) < natural("1" + "0" * 5_000)
    assert sorted(["q-02", "q-2", "q", "q-10"], key=natural) == ["q", "q-02", "q-2", "q-10"]


def test_a_batch_calls_its_mails_by_handles() -> None:
    batch = Batch("b-1", "ann@test.example", "train", ("<x@test>", "<a@test>"))
    assert batch.handles() == {"m1": "<x@test>", "m2": "<a@test>"}


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("manifest.json", "{}", "no whole golden set"),
        ("manifest.json", "[]", "no whole golden set"),
        ("manifest.json", "{", "no whole golden set"),
        ("questions.jsonl", "{}\n", "no whole golden set"),
        ("questions.jsonl", '{"id"', "no whole golden set"),
        ("rejected.jsonl", "{}\n", "no whole golden set"),
        ("rejected.jsonl", "7\n", "no whole golden set"),
        ("batches.jsonl", '{"id": 1}\n', "no whole golden set"),
        ("batches.jsonl", None, "holds no golden set"),
    ],
)
def test_a_damaged_set_is_refused_in_one_line(
    tmp_path: Path, name: str, content: str | None, words: str
) -> None:
    golden_set(2).save(tmp_path)
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(content)
    with pytest.raises(UserError) as refused:
        GoldenSet.load(tmp_path)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


HOLDING = (
    "import sys; from pathlib import Path; from data_pipeline.golden.golden_set import held\n"
    "with held(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    command = [sys.executable, "-c", HOLDING, str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(UserError, match="another process works on"), held(folder):
            pass
        other.kill()
        other.wait()
        # Killed, it holds nothing.
        with held(folder):
            golden_set(1).save(folder)
    with held(folder):
        assert len(GoldenSet.load(folder).questions) == 1


def test_a_folder_made_for_nothing_goes_again(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no golden set"), held(tmp_path / "typo"):
        GoldenSet.load(tmp_path / "typo")
    assert not (tmp_path / "typo").exists()
    (tmp_path / "there").mkdir()
    with held(tmp_path / "there"):
        pass
    assert (tmp_path / "there").is_dir()


def test_a_folder_that_can_not_be_one_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UserError, match="name another folder"), held(path):
            pass
