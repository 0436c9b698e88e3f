"""Run folders: how they are named, what they record and don't, how they are found."""

import json
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from art_e.errors import UserError
from art_e.runs import Run, find_run, list_runs, start_run
from art_e.trajectory import read_trajectories
from tests.builders import trajectory

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


def test_out_names_the_folder(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for out in (empty, tmp_path / "deep" / "er"):
        run = start_run("eval", CONFIG, tmp_path / "unused", out)
        assert run.folder == out
        assert run.config["name"] == "eval"
    assert not (tmp_path / "unused").exists()


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


@pytest.mark.parametrize("other", [".metrics.json.partial", "notes.txt", ".config.json.partial/"])
def test_a_half_written_configuration_excuses_nothing_else(tmp_path: Path, other: str) -> None:
    if other.endswith("/"):
        (tmp_path / other).mkdir()
    else:
        (tmp_path / ".config.json.partial").write_text("{")
        (tmp_path / other).write_text("kept")
    with pytest.raises(UserError, match="--out"):
        start_run("eval", CONFIG, tmp_path, tmp_path)
    assert (tmp_path / other).exists()
    assert not (tmp_path / "config.json").exists()


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


def test_the_configuration_has_nothing_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-1234")
    monkeypatch.setenv("SOME_OTHER_VARIABLE", "hidden-value-5678")
    run = start_run("ask", CONFIG, tmp_path)
    written = "".join(each.read_text("utf-8") for each in run.folder.iterdir())
    for hidden in ("sk-secret-1234", "OPENAI_API_KEY", "hidden-value-5678", "SOME_OTHER_VARIABLE"):
        assert hidden not in written


def test_runs_are_listed_newest_first(tmp_path: Path) -> None:
    for name in ("20200102-000000-ask", "20200101-000000-eval", "20200101-000000-ask"):
        start_run("ask", CONFIG, tmp_path, tmp_path / name)
    (tmp_path / "no-run").mkdir()
    (tmp_path / "a-file").write_text("x")
    assert [run.id for run in list_runs(tmp_path)] == [
        "20200102-000000-ask",
        "20200101-000000-eval",
        "20200101-000000-ask",
    ]
    assert list_runs(tmp_path / "missing") == []


def test_a_run_is_found_by_name_or_path(tmp_path: Path) -> None:
    run = start_run("ask", CONFIG, tmp_path / "runs")
    assert find_run(run.id, tmp_path / "runs") == run
    assert find_run(str(run.folder), tmp_path / "elsewhere").folder == run.folder
    for missing in ("20200101-000000-ask", "", "."):
        with pytest.raises(UserError, match="art-e runs list"):
            find_run(missing, tmp_path / "runs")


def test_a_run_keeps_trajectories_and_figures(tmp_path: Path) -> None:
    run = start_run("eval", CONFIG, tmp_path)
    with run.log() as log:
        log.append(trajectory().to_line())
        # On disk before the log is closed.
        assert list(read_trajectories(run.trajectories)) == [trajectory()]
    run.write_json("metrics.json", {"old": 1})
    run.write_json("metrics.json", {"accuracy": "ü\u2028"})
    assert json.loads((run.folder / "metrics.json").read_text("utf-8")) == {"accuracy": "ü\u2028"}
    assert sorted(each.name for each in run.folder.iterdir()) == [
        "config.json",
        "metrics.json",
        "trajectories.jsonl",
    ]


def test_a_value_that_is_no_json_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.write_json("metrics.json", {"n": 1})
    with pytest.raises(TypeError):
        run.write_json("metrics.json", {"n": {1, 2}})
    assert json.loads((tmp_path / "metrics.json").read_text("utf-8")) == {"n": 1}
