"""`art-e golden ...` as a user runs it: counts, hostile text, errors; imports lose no rows."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from art_e.inbox.file import InboxFile
from art_e.question import load_questions, read_rows
from art_e.text import visible
from data_pipeline.golden.exchange import import_rows
from data_pipeline.golden.golden_set import GoldenSet, locked_set
from data_pipeline.ingest.batch import Rules
from data_pipeline.synthetic.world import WorldConfig, questions
from tests.builders import files_of, make_inbox, new_file, raw, table, table_rows, write_lines
from tests.command_line import BOB, HOSTILE, Run, assert_safe, done, json_of, the_error
from tests.provider import KEY

# A row of a set of ours, and a row of the public data set, whose gold mail is in MAILS.
ROW, PUBLIC, MAILS = table(__file__, "rows.toml").values()


@pytest.fixture
def golden(art_e: Run, db: Path, tmp_path: Path) -> Path:
    """Import a good row, an unrealistic one, and one of Bob's with the same gold mail."""
    twin = {**ROW, "id": "3", "inbox_address": BOB, "question": "What did I write of the lease?"}
    dull = {**ROW, "id": "2", "question": "Who wrote?", "answer": "Bob", "how_realistic": 0.65}
    source, folder = write_lines(tmp_path / "rows.jsonl", ROW, dull, twin), tmp_path / "set"
    json_of(art_e("golden", "import", source, "--db", db, "--out", folder, "--json"))
    return folder


def test_all_steps_keep_questions_of_a_world(art_e: Run, world_db: Path, tmp_path: Path) -> None:
    rows = [each.to_row() for each in questions(WorldConfig(size=1000))[::4]]
    folder, at = tmp_path / "set", ("--db", world_db, "--out", tmp_path / "set")
    source = write_lines(tmp_path / "rows.jsonl", *rows)
    for step in (("import", source), ("filter", "--min-realism", 0), ("split",)):
        printed = json_of(art_e("golden", *step, *at, "--json"))
        assert printed["sums"]["kept"] == len(rows), printed
        recorded = GoldenSet.load(folder).manifest["steps"][step[0]]
        assert printed == {"set": str(folder), "step": step[0], **recorded}
    assert json_of(art_e("golden", "stats", folder, "--json"))["rows"] == len(rows)
    exported = json_of(art_e("golden", "export", folder, "--to", tmp_path / "out", "--json"))
    assert sum(exported["questions"].values()) == len(load_questions(str(tmp_path / "out")))


def test_steps_print_counts_and_next(art_e: Run, db: Path, golden: Path, tmp_path: Path) -> None:
    at = ("--db", db, "--out", golden)
    again = art_e("golden", "import", tmp_path / "rows.jsonl", *at)
    assert "import: kept 3 of 3 rows" in again.stdout
    assert f"art-e golden split --db {db} --out {golden}" in again.stderr
    filtered = art_e("golden", "filter", *at)
    assert "filter: kept 2 of 3 rows\n        1  dropped: realism" in filtered.stdout
    assert "art-e golden verify" in filtered.stderr
    split = art_e("golden", "split", *at, "--train", 1, "--validation", 0, "--test", 1)
    assert "2 inboxes: train 1, test 1, drawn by seed 0" in split.stderr
    assert "dropped: leak-test-inbox" in split.stdout
    # A rerun undoes later steps, and starts from the rows of the step before.
    again = art_e("golden", "filter", *at, "--min-realism", 0.6)
    assert "filter has changed the set; run again: split" in again.stderr
    assert "kept 3 of 3" in again.stdout
    stats = art_e("golden", "stats", golden)
    assert "3 rows, 0 rejected" in stats.stdout
    with locked_set(golden):
        assert "another process works on" in the_error(art_e("golden", "filter", *at))
        # Reading needs no lock.
        assert art_e("golden", "stats", golden).stdout == stats.stdout


@pytest.mark.parametrize(("line", "words"), table_rows(__file__, "user_errors.tsv"))
@pytest.mark.usefixtures("golden")
def test_a_user_error_is_one_line_and_changes_nothing(
    art_e: Run, db: Path, world_db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    line: str, words: str,
) -> None:  # fmt: skip
    command = shlex.split(line)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    write_lines(tmp_path / "other.jsonl", ROW)
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
    source = write_lines(tmp_path / "rows.jsonl", hostile, dull, nowhere, lost, {"id": HOSTILE})
    folder = tmp_path / "set"
    at = ("--db", db, "--out", folder)
    for command in (("import", source, *at), ("filter", *at), ("split", *at), ("stats", folder)):
        result = done(art_e("golden", *command))
        assert_safe(result.stdout + result.stderr)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InboxFile]:
    """Mails 1 (with a copy 1b), 2, a later 3 and one without a date are Bob's; 4 is Carl's."""
    path = tmp_path_factory.mktemp("inbox") / "small.duckdb"
    undated = raw("<5@test>", date=None, body="When was this?")
    mails = [*(raw(**each) for each in MAILS), undated]
    with new_file(path, mails, rules=Rules(any_id=True)) as opened:
        yield opened


def imported(file: InboxFile, folder: Path, *rows: Any) -> GoldenSet:
    path = write_lines(folder / "q.jsonl", *rows)
    golden = GoldenSet()
    import_rows(file, golden, list(read_rows(str(path))), path.name)
    return golden


@pytest.mark.parametrize(("text", "check", "why"), table_rows(__file__, "bad_rows.tsv"))
def test_rejects_bad_row(file: InboxFile, tmp_path: Path, text: str, check: str, why: str) -> None:
    text = text.replace("LONG", "why? " * 101).replace("DEEP", "[" * 60 + "]" * 60)
    bad = {**PUBLIC, "id": 18, **json.loads(text)} if text.endswith("}") else text
    golden = imported(file, tmp_path, PUBLIC, bad, PUBLIC)
    ids = [(each.id, each.provenance["import"].get("id")) for each in golden.questions]
    assert ids == [("17", None), ("17-2", "17")]
    [rejected] = golden.rejected
    assert (rejected.step, rejected.check) == ("import", check)
    assert why in rejected.reason and "\n" not in rejected.reason
    sums = golden.manifest["steps"]["import"]["sums"]
    assert (sums["in"], sums["kept"], sums["dropped"]) == (3, 2, {check: 1})


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)
_fields = {name: st.just(value) | _json for name, value in {**PUBLIC, "split": "train"}.items()}
_rows = _json | st.fixed_dictionaries({}, optional={**_fields, "provenance": _json})


@settings(max_examples=40)
@given(st.lists(_rows, min_size=1, max_size=4))
def test_imports_lose_no_rows(file: InboxFile, tmp_path: Path, rows: list[Any]) -> None:
    golden = imported(file, tmp_path, *(json.dumps(row) for row in rows))
    sums = golden.manifest["steps"]["import"]["sums"]
    assert sums["in"] == len(rows) == len(golden.questions) + len(golden.rejected)
    assert len({each.id for each in golden.questions}) == len(golden.questions)
    golden.save(tmp_path / "set")
    loaded = GoldenSet.load(tmp_path / "set")
    assert [each.reason for each in loaded.rejected] == [each.reason for each in golden.rejected]
    assert loaded.questions == golden.questions
    # NaN and infinity are not JSON.
    for name in ("questions.jsonl", "rejected.jsonl"):
        for line in (tmp_path / "set" / name).read_bytes().splitlines():
            json.loads(line, parse_constant=pytest.fail)
