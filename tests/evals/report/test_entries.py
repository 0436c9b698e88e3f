"""What of the runs is set side by side, and by which name."""

from pathlib import Path

import pytest

from art_e.errors import UserError
from evals.report.entries import measure
from tests.evals.runs import episodes, training, write_run


def test_every_model_of_every_run_is_an_entry(tmp_path: Path) -> None:
    both = write_run(
        tmp_path / "both", [*episodes("a", {"right": 3}), *episodes("b", {"wrong": 2})]
    )
    one = write_run(tmp_path / "one", episodes("c", {"abstained": 4}))
    measured = measure([both, one])
    entries = [(entry.label, len(entry.scored)) for each in measured for entry in each.entries]
    assert entries == [("a", 3), ("b", 2), ("c", 4)]
    assert measured[0].entries[0].figures["accuracy"]["value"] == 1
    assert measured[0].judges == ["offline/2"]


def test_one_model_under_two_prompts_is_told_apart_by_them(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / name, episodes("m", {"right": 1}), prompt={"name": name, "hash": "0"})
        for name in ("short", "long")
    ]
    labels = [each.entries[0].label for each in measure(runs)]
    assert labels == ["m, prompt short", "m, prompt long"]


def test_one_model_run_twice_is_told_apart_by_its_runs(tmp_path: Path) -> None:
    first = write_run(tmp_path / "first", episodes("m", {"right": 1}))
    second = write_run(tmp_path / "second", episodes("m", {"right": 1}))
    elsewhere = write_run(tmp_path / "other" / "second", episodes("m", {"right": 1}))
    labels = [each.entries[0].label for each in measure([first, second, elsewhere])]
    assert labels == [
        "m in first", f"m in {tmp_path.name}/second", "m in other/second",
    ]  # fmt: skip


def test_a_model_in_training_stands_for_its_last_step(tmp_path: Path) -> None:
    run = write_run(tmp_path / "t", training([20, 0, 40], n=20))
    [[entry]] = [each.entries for each in measure([run])]
    assert entry.label == "trained, step 40"
    assert len(entry.scored) == 20
    assert {each.trajectory.policy["step"] for each in entry.scored} == {40}


def test_checkpoints_named_by_their_step_are_one_training(tmp_path: Path) -> None:
    episodes_of_both = [
        each
        for step in (10, 20)
        for each in episodes(f"local:checkpoint-{step}", {"right": 2}, step=step)
    ]
    run = write_run(tmp_path / "t", [*episodes("base", {"wrong": 2}), *episodes_of_both])
    labels = [entry.label for each in measure([run]) for entry in each.entries]
    assert labels == ["base", "local:checkpoint-20, step 20"]


def test_latency_is_not_told_where_a_cache_could_answer(tmp_path: Path) -> None:
    timed = write_run(tmp_path / "timed", episodes("m", {"right": 3}))
    cached = write_run(tmp_path / "cached", episodes("m", {"right": 3}), cache=True)
    p50s = [each.entries[0].figures["latency_p50_s"]["value"] for each in measure([timed, cached])]
    assert p50s[0] > 0
    assert p50s[1] is None


def test_a_run_without_an_episode_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no episode"):
        measure([write_run(tmp_path / "empty", [], complete=False)])
