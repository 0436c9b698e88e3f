"""`art-e golden ...` as a user runs it: counts and JSON, hostile text, errors of one line."""

import json
from pathlib import Path
from typing import Any

import pytest

from art_e.question import load_questions
from art_e.text import visible
from data_pipeline.golden.golden_set import GoldenSet, held
from data_pipeline.synthetic.world import WorldConfig, questions
from tests.builders import files_of, make_inbox, raw
from tests.command_line import ANN, BOB, HOSTILE, LEASE_ID, Run, assert_safe, json_of, the_error
from tests.golden import WRITER
from tests.provider import KEY

ROW: dict[str, Any] = {
    "id": "1", "question": "When does the warehouse lease end?", "answer": "On March 31, 2002.",
    "message_ids": [LEASE_ID], "how_realistic": 0.9, "inbox_address": ANN,
    "query_date": "2001-03-31", "provenance": {"model": WRITER},
}  # fmt: skip


def write(path: Path, *rows: Any) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    return path


@pytest.fixture
def golden(art_e: Run, db: Path, tmp_path: Path) -> Path:
    """A set with a good row, an unrealistic one and one of Bob's with the same gold mail."""
    twin = {**ROW, "id": "3", "inbox_address": BOB, "question": "What did I write of the lease?"}
    dull = {**ROW, "id": "2", "question": "Who wrote?", "answer": "Bob", "how_realistic": 0.65}
    source, folder = write(tmp_path / "rows.jsonl", ROW, dull, twin), tmp_path / "set"
    json_of(art_e("golden", "import", source, "--db", db, "--out", folder, "--json"))
    return folder


def test_all_steps_keep_a_worlds_questions(art_e: Run, world_db: Path, tmp_path: Path) -> None:
    rows = [each.to_row() for each in questions(WorldConfig(size=1000))[::4]]
    folder, at = tmp_path / "set", ("--db", world_db, "--out", tmp_path / "set")
    source = write(tmp_path / "rows.jsonl", *rows)
    for step in (("import", source), ("filter", "--min-realism", 0), ("split",)):
        done = json_of(art_e("golden", *step, *at, "--json"))
        assert done["sums"]["kept"] == len(rows), done
        recorded = GoldenSet.load(folder).manifest["steps"][step[0]]
        assert done == {"set": str(folder), "step": step[0], **recorded}
    assert json_of(art_e("golden", "stats", folder, "--json"))["rows"] == len(rows)
    exported = json_of(art_e("golden", "export", folder, "--to", tmp_path / "out", "--json"))
    assert sum(exported["questions"].values()) == len(load_questions(str(tmp_path / "out")))


def test_steps_count_and_name_the_next(art_e: Run, db: Path, golden: Path, tmp_path: Path) -> None:
    at = ("--db", db, "--out", golden)
    again = art_e("golden", "import", tmp_path / "rows.jsonl", *at)
    assert "import: 3 rows, 3 kept" in again.stdout
    assert f"art-e golden filter --db {db} --out {golden}" in again.stderr
    filtered = art_e("golden", "filter", *at)
    assert "filter: 3 rows, 2 kept\n        1  dropped: realism" in filtered.stdout
    assert "art-e golden verify" in filtered.stderr
    split = art_e("golden", "split", *at, "--train", 1, "--validation", 0, "--test", 1)
    assert "2 inboxes: train 1, test 1, drawn by seed 0" in split.stderr
    assert "dropped: leak-test-inbox" in split.stdout
    # A rerun takes later steps back, and another bound starts from the rows before.
    anew = art_e("golden", "filter", *at, "--min-realism", 0.6)
    assert "filter was run again; so must be: split" in anew.stderr
    assert "3 kept" in anew.stdout
    shown = art_e("golden", "stats", golden)
    assert "3 rows, 0 rejected" in shown.stdout
    with held(golden):
        assert "another process works on" in the_error(art_e("golden", "filter", *at))
        # Reading needs no lock.
        assert art_e("golden", "stats", golden).stdout == shown.stdout


VERIFY = ("verify", "--out", "set", "--model")
GENERATE = (*"generate --out new --db world --min-mails 50 --validation 0 -m".split(),)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("filter", "--out", "none"), "no golden set"),
        (("review", "none"), "no golden set"),
        (("review", "set", "--split", "test"), "no question of split test"),
        (("split", "--out", "set", "--train", 0, "--validation", 0, "--test", 0), "above 0"),
        (("split", "--out", "set", "--db", "world"), "made from small.duckdb with 4 mails"),
        (("split", "--out", "set", "--db", "others.duckdb"), "whose 4 mails are others"),
        (("import", "none.jsonl", "--out", "new"), "no questions at none.jsonl"),
        (("import", "set/questions.jsonl", "--out", "set"), "another golden set"),
        (("import", "rows.jsonl", "--out", "mine"), "name a new folder"),
        ((*VERIFY, WRITER), "name another --model"),
        ((*VERIFY, "offline"), "art-e golden split"),
        ((*VERIFY, "local:checkpoint"), "hosted_vllm/NAME"),
        ((*GENERATE, "offline"), "art-e golden import"),
        ((*GENERATE, "nobody/nothing"), "unknown model"),
        ((*GENERATE, WRITER, "--inbox", "nobody@nowhere.example"), "nearest"),
        ((*GENERATE, WRITER, "--min-mails", "100000"), "lower --min-mails"),
        ((*GENERATE, "openai/of-our-own", "--max-cost", "1"), "--max-cost can't be kept"),
    ],
)
@pytest.mark.usefixtures("golden")
def test_a_user_error_is_one_line_and_changes_nothing(
    art_e: Run, db: Path, world_db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    command: tuple[object, ...], words: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    write(tmp_path / "other.jsonl", ROW)
    make_inbox(tmp_path / "others.duckdb", [raw(f"<{n}@t>", subject=str(n)) for n in range(4)])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "questions.jsonl").write_text("mine", "utf-8")
    (tmp_path / "world").symlink_to(world_db)
    locks = {f"{folder}/.lock": b"" for folder in ("mine", "new", "set")}
    before = files_of(tmp_path) | locks
    where = () if "--db" in command else ("--db", db)
    assert words in the_error(art_e("golden", *command, *where))
    assert files_of(tmp_path) | locks == before


def test_hostile_rows_are_only_text(art_e: Run, db: Path, tmp_path: Path) -> None:
    hostile = {**ROW, "id": HOSTILE, "question": f"{visible(HOSTILE)} When?", "kind": "lookup"}
    dull = {**hostile, "id": f"{HOSTILE}2", "how_realistic": 0.1}
    nowhere = {**hostile, "id": f"{HOSTILE}3", "inbox_address": HOSTILE}
    lost = {**ROW, "id": "4", "message_ids": [f"<{HOSTILE}>"], "query_date": None}
    source = write(tmp_path / "rows.jsonl", hostile, dull, nowhere, lost, {"id": HOSTILE})
    folder = tmp_path / "set"
    at = ("--db", db, "--out", folder)
    for command in (("import", source, *at), ("filter", *at), ("split", *at), ("stats", folder)):
        result = art_e("golden", *command)
        assert result.exit_code == 0, result.output
        assert_safe(result.stdout)
        assert_safe(result.stderr)
