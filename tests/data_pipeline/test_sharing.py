"""An export that is killed at any step leaves the earlier one, the new one, or the way back."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from art_e.errors import UserError
from data_pipeline.sharing import replacing

SCHEMA = "test/1"
# Exports `text`, and kills itself before the call of that number that changes folders.
EXPORT = f"""
import json, os, shutil, signal, sys
from pathlib import Path
from data_pipeline.sharing import replacing

to, text, last = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
calls = 0

def counted(real):
    def call(*arguments, **options):
        global calls
        if calls == last:
            os.kill(os.getpid(), signal.SIGKILL)
        calls += 1
        return real(*arguments, **options)
    return call

Path.rename, Path.mkdir = counted(Path.rename), counted(Path.mkdir)
shutil.rmtree = counted(shutil.rmtree)
with replacing(to, "m.json", "{SCHEMA}", {{"m.json", "text"}}.__contains__) as folder:
    (folder / "text").write_text(text)
    (folder / "m.json").write_text('{{"schema": "{SCHEMA}"}}')
"""


def export(to: Path, text: str, last: int = -1) -> int:
    command = [sys.executable, "-c", EXPORT, str(to), text, str(last)]
    return subprocess.run(command, check=False).returncode


def read(to: Path) -> str:
    assert json.loads((to / "m.json").read_text()) == {"schema": SCHEMA}
    return (to / "text").read_text()


@pytest.mark.parametrize("last", range(5))
def test_a_kill_loses_no_export(tmp_path: Path, last: int) -> None:
    to = tmp_path / "out"
    assert export(to, "old") == 0
    ended = export(to, "new", last)
    assert ended in (0, -signal.SIGKILL)
    # Between two renames the earlier export stands under another name.
    found = to if to.exists() else to.with_name(".out.earlier")
    assert read(found) in ("old", "new")
    assert export(to, "newest") == 0
    assert read(to) == "newest"
    assert [each.name for each in tmp_path.iterdir()] == ["out"]


def test_the_kills_reach_every_step(tmp_path: Path) -> None:
    assert export(tmp_path / "out", "old") == 0
    steps = [export(tmp_path / "out", "new", last) for last in range(4)]
    assert steps.count(-signal.SIGKILL) >= 3


@pytest.mark.parametrize("name", ["mine.txt", "text"])
def test_another_folder_is_left_alone(tmp_path: Path, name: str) -> None:
    to = tmp_path / "out"
    to.mkdir()
    (to / name).write_text("mine")
    with (
        pytest.raises(UserError, match="something else"),
        replacing(to, "m.json", SCHEMA, {"m.json", "text"}.__contains__),
    ):
        raise AssertionError("it must not begin")
    assert (to / name).read_text() == "mine"
