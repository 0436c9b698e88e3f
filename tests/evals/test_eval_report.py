from pathlib import Path

from tests.command_line import HOSTILE, Run, assert_safe, json_of, the_error
from tests.evals.runs import episodes, write_run


def test_a_run_by_its_name_is_reported_in_its_folder(art_e: Run, home: Path) -> None:
    run = write_run(home / "runs" / "mine", episodes("m", {"right": 3, "wrong": 2}))
    result = art_e("eval", "report", "mine")
    assert result.exit_code == 0, result.output
    page = run.folder / "report.html"
    assert result.stdout.splitlines() == [f"report: {page}", f"5 plots: {run.folder / 'plots'}"]
    assert page.read_text("utf-8").startswith("<!doctype html>")


def test_several_runs_are_one_report(art_e: Run, tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_run(tmp_path / name, episodes(f"model-{name}", {"right": 2}))
    shown = json_of(
        art_e("eval", "report", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "out", "--json")
    )
    assert shown["report"] == str(tmp_path / "out" / "report.html")
    assert len(shown["plots"]) == 5
    assert all(Path(each).is_file() for each in shown["plots"])
    text = Path(shown["report"]).read_text("utf-8")
    assert "model-a against model-b" in text
    assert not (tmp_path / "a" / "report.html").exists()


def test_a_run_that_is_named_twice_counts_once(art_e: Run, home: Path) -> None:
    run = write_run(home / "runs" / "mine", episodes("m", {"right": 2}))
    json_of(art_e("eval", "report", "mine", run.folder, "--json"))
    text = (run.folder / "report.html").read_text("utf-8")
    assert text.count('<div class="run">') == 1
    assert "Paired comparisons" not in text


def test_what_a_model_is_called_can_not_steer_the_terminal(art_e: Run, tmp_path: Path) -> None:
    run = write_run(tmp_path / f"run {HOSTILE}".replace("/", ""), episodes("m", {"right": 2}))
    result = art_e("eval", "report", run.folder)
    assert result.exit_code == 0, result.output
    assert_safe(result.stdout)


def test_a_run_that_is_not_there_is_a_user_error(art_e: Run) -> None:
    assert "art-e runs list" in the_error(art_e("eval", "report", "nothing"))


def test_a_killed_run_without_an_episode_is_a_user_error(art_e: Run, tmp_path: Path) -> None:
    run = write_run(tmp_path / "killed", [], complete=False)
    assert "has no episode" in the_error(art_e("eval", "report", run.folder))
