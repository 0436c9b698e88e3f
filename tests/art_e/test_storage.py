"""Files are whole, logs lose at most the line being written, locks exclude, text is safe."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.errors import UserError
from art_e.message import observation_json, without_markup
from art_e.storage import AppendLog, append_line, locked, partial_of, whole_lines, write_whole
from art_e.text import cut_line


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    partial_of(path).write_text("half", encoding="utf-8")  # what a kill left
    write_whole(path, "first\n")
    write_whole(path, "Zürich\u2028\n")
    assert path.read_bytes() == "Zürich\u2028\n".encode()
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "\ud800")
    assert path.read_text("utf-8") == "Zürich\u2028\n"
    write_whole(path, "\ud800", errors="replace")
    assert path.read_text("utf-8") == "?"


def write(path: Path, *lines: str) -> None:
    with AppendLog(path) as log:
        for line in lines:
            log.append(line)


def test_a_torn_last_line_is_left_out_and_costs_no_other_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    assert list(whole_lines(path)) == []
    write(path, "first", "Zürich \U0001f980")
    whole = path.read_bytes()
    for end in range(whole.index(b"\n") + 1, len(whole)):
        path.write_bytes(whole[:end])
        assert list(whole_lines(path)) == [b"first"]
    write(path, "torn" * 1_000_000)
    path.write_bytes(path.read_bytes()[:-2])
    append_line(path, "second \ud800")
    write(path, "third")
    assert list(whole_lines(path)) == [b"first", b"second \\ud800", b"third"]
    path.write_bytes(b"torn")
    append_line(path, "third")
    assert list(whole_lines(path)) == [b"third"]


def test_no_file_is_written_through_a_link(tmp_path: Path) -> None:
    """A folder that came from elsewhere may hold links to any file of the user's."""
    victim, page, log = (tmp_path / name for name in ("victim", "page", "log"))
    victim.write_text("no line end")
    for link in (page, partial_of(page), log):
        link.symlink_to(victim)
    write_whole(page, "new")
    with pytest.raises(OSError, match="symbolic links"):
        AppendLog(log)
    assert (victim.read_text(), page.read_text()) == ("no line end", "new")


def test_an_appended_line_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    # A loss of power can't be tested; that the whole line is synced can.
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.fstat(file).st_size))
    path = tmp_path / "log"
    with AppendLog(path) as log:
        for _ in range(3):
            log.append("line")
            assert synced[-1] == path.stat().st_size
    assert len(synced) == 3


def test_a_lock_excludes_other_processes_until_its_holder_dies(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = (
        "import sys; from pathlib import Path; from art_e.storage import locked\n"
        "with locked(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    command, pipe = [sys.executable, "-c", holder, str(path)], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        with pytest.raises(UserError, match=r"^busy$"), locked(path, "busy"):
            pass
        other.kill()
        other.wait()
    with locked(path, "busy"):
        pass


@given(st.text(st.characters()), st.integers(0, 50))
def test_cut_lines_can_be_written(text: str, limit: int) -> None:
    line = cut_line(text, limit)
    assert len(line) <= limit + len("...") and len(line.splitlines()) <= 1
    line.encode()


STEERING = ("<|", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>")
FRAGMENTS = st.lists(
    st.sampled_from([*STEERING, "im_start|>", "<", "|", "\\", '"', "\\u003c", "x"]), max_size=12
)


@given(FRAGMENTS.map("".join))
def test_control_tokens_are_broken_and_text_reads_the_same(text: str) -> None:
    written = observation_json({"body": text})
    assert not any(each in written for each in STEERING)
    assert json.loads(written) == {"body": text}
    plain = without_markup(text)
    assert not any(each in plain for each in STEERING)
    assert plain.replace(" ", "") == text
