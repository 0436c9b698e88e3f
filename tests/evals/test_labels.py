"""Labels of a run: kept whatever happens, drawn blindly, compared with the verdicts."""

from pathlib import Path

import pytest

from art_e.errors import UserError
from art_e.runs import Run
from evals.judges.labels import chosen_for_labels, labels_file, read_labels, write_label
from evals.scored import Scored, load_run
from tests.evals.runs import episodes, write_run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = episodes("strong", {"right": 8, "wrong": 4, "abstained": 4, "failed": 2}, second=True)
    made += episodes("weak", {"right": 2, "not read": 4, "unjudged": 1, "out of turns": 2})
    return write_run(tmp_path / "run", made)


def ids(scored: list[Scored]) -> list[str]:
    return [each.trajectory.episode_id for each in scored]


def test_labels_are_read_back_and_the_last_one_counts(run: Run) -> None:
    assert read_labels(run) == {}
    for name, correct in (("a", True), ("b", False), ("ü", True), ("a", False)):
        write_label(run, name, correct=correct)
    labels = read_labels(run)
    assert {name: label.correct for name, label in labels.items()} == {
        "a": False,
        "b": False,
        "ü": True,
    }
    assert labels["b"].labelled_at.endswith("+00:00")
    assert len(labels_file(run).read_bytes().splitlines()) == 4


@pytest.mark.parametrize(
    "line", ["{}", "[]", "no", '{"episode_id": "a", "correct": null, "labelled_at": "x"}']
)
def test_a_line_that_is_no_label_is_named(run: Run, line: str) -> None:
    write_label(run, "a", correct=True)
    with labels_file(run).open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(UserError, match=r"labels\.jsonl, line 2 is no label"):
        read_labels(run)


def test_a_sample_is_of_judged_answers_and_does_not_tell_which(run: Run) -> None:
    scored = load_run(run)
    drawn = chosen_for_labels(scored, None, 0)
    assert all(each.trajectory.final_answer for each in drawn)
    outcomes = {each.trajectory.rubric["answered"] for each in drawn}
    assert outcomes == {True}
    assert {each.trajectory.model for each in drawn} == {"strong", "weak"}
    # In neither the order of the file nor one that follows it.
    assert ids(drawn) != [each for each in ids(scored) if each in ids(drawn)]
    assert ids(drawn) == ids(chosen_for_labels(scored[::-1], None, 0))
    assert ids(chosen_for_labels(scored, 5, 0)) == ids(drawn)[:5]
    assert ids(chosen_for_labels(scored, None, 1)) != ids(drawn)
