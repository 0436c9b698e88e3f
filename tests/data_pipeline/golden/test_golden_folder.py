"""A golden set's folder: whole after any kill and for every reader, and nothing else is taken.

The kills are real: a process kills itself with SIGKILL at each of the calls by which
`save` changes the disk, one after the other.
"""

import copy
import filecmp
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from art_e.errors import UserError
from art_e.question import Question, load_questions
from data_pipeline.golden.golden_set import Batch, GoldenSet, Rejected, held
from tests.data_pipeline.golden.rows import TEXTS, questions
from tests.data_pipeline.golden.sets import failed, golden_set

FILES = (
    "README.md",
    "batches.jsonl",
    "manifest.json",
    "questions.jsonl",
    "questions.parquet",
    "rejected.jsonl",
)


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
            before = names(folder)
            loaded = GoldenSet.load(folder)
            # To read needs no lock and changes nothing.
            assert names(folder) == before
            [same] = [name for name, each in (("old", old), ("new", new)) if loaded == each]
            found.append(same)
            with held(folder):
                pass
            assert same_files(folder, tmp_path / same)
        # Whatever was left behind, the next save works.
        new.save(folder)
        assert same_files(folder, tmp_path / "new")
        assert [each for each in names(folder) if each != ".lock"] == list(FILES)
    assert set(found) == {"old", "new"}
    # Once the new one is there, no later kill brings the old one back.
    assert found == sorted(found, reverse=True)


def names(folder: Path) -> list[str]:
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*"))


def same_files(folder: Path, other: Path) -> bool:
    same, _, _ = filecmp.cmpfiles(folder, other, FILES, shallow=False)
    return same == list(FILES)


def unique_rows(of: str) -> st.SearchStrategy[list[Question]]:
    """Rows of different ids, which all begin with `of`."""
    named = questions(TEXTS.map(lambda name: of + name))
    return st.lists(named, max_size=4, unique_by=lambda each: each.id)


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


def test_a_reader_sees_whole_sets_while_another_process_writes(tmp_path: Path) -> None:
    sets = [golden_set(20), golden_set(40, dropped=30)]
    sets[0].save(tmp_path)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            for each in sets[::-1]:
                copy.deepcopy(each).save(tmp_path)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = [GoldenSet.load(tmp_path) for _ in range(150)]
    finally:
        stop.set()
        writer.join()
    assert all(each in sets for each in seen)
    assert all(each in seen for each in sets)
