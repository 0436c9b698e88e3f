"""Run folders: how they are named, what they record and don't, how they are found."""

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from art_e.errors import UserError
from art_e.runs import find_run, list_runs, start_run

CONFIG = {"model": "offline", "max_turns": 10, "questions": "Zürich.jsonl"}


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_runs_of_the_same_second_get_folders_of_their_own(tmp_path: Path) -> None:
    # So many at once that two must fall into one second.
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda _: start_run("ask", CONFIG, tmp_path), range(24)))
    assert len({run.folder for run in runs}) == 24
    assert {run.id for run in list_runs(tmp_path)} == {run.id for run in runs}
    assert all(run.config["model"] == "offline" for run in runs)
    assert any(re.search(r"-ask-\d+$", run.id) for run in runs)


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    start_run("eval", CONFIG, tmp_path, tmp_path / "run")
    (tmp_path / "file").write_text("x")
    for out in ("run", "file", "file/inside"):
        with pytest.raises(UserError, match="--out") as caught:
            start_run("eval", {"model": "other"}, tmp_path, tmp_path / out)
        assert "\n" not in str(caught.value)
    assert find_run("run", tmp_path).config["model"] == "offline"
    assert (tmp_path / "file").read_text() == "x"


def test_a_folder_that_a_kill_left_before_the_run_began_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", _killed)
        with pytest.raises(KeyboardInterrupt):
            start_run("eval", {**CONFIG, "note": "x" * 10_000}, tmp_path, out)
    assert [each.name for each in out.iterdir()] == [".config.json.partial"]
    assert start_run("eval", CONFIG, tmp_path, out).config["model"] == "offline"
    assert [each.name for each in out.iterdir()] == ["config.json"]


def test_the_configuration_has_what_a_rerun_needs(tmp_path: Path) -> None:
    config = start_run("ask", CONFIG, tmp_path).config
    assert config["name"] == "ask"
    assert CONFIG.items() <= config.items()
    assert {"python", "art-e", "duckdb", "numpy"} <= set(config["versions"])
    assert all(re.match(r"\d", version) for version in config["versions"].values())
    checkout = Path(__file__).parents[2]
    if (checkout / ".git").exists():
        head = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=checkout, capture_output=True, text=True, check=True
        )
        assert config["commit"] == head.stdout.strip()


def test_a_run_is_found_by_name_or_path(tmp_path: Path) -> None:
    run = start_run("ask", CONFIG, tmp_path / "runs")
    assert find_run(run.id, tmp_path / "runs") == run
    assert find_run(str(run.folder), tmp_path / "elsewhere").folder == run.folder
    for missing in ("20200101-000000-ask", "", "."):
        with pytest.raises(UserError, match="art-e runs list"):
            find_run(missing, tmp_path / "runs")
