"""A file is what it was, or what it was to become."""

from pathlib import Path

import pytest

from art_e.storage import partial_of, write_whole


def test_an_earlier_file_gives_way(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    write_whole(path, "first\n")
    write_whole(path, "Zürich\u2028\n")
    assert path.read_bytes() == "Zürich\u2028\n".encode()
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_kill_left_half_written_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    partial_of(path).write_text("half", encoding="utf-8")
    write_whole(path, "whole")
    assert path.read_text("utf-8") == "whole"
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_leaves_the_earlier_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    write_whole(path, "first")
    with pytest.raises(UnicodeEncodeError):
        write_whole(path, "\ud800")
    assert path.read_text("utf-8") == "first"
    write_whole(path, "\ud800", errors="replace")
    assert path.read_text("utf-8") == "?"
