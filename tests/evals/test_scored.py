"""Episodes read back from a run's folder, and what their judges found."""

from pathlib import Path
from typing import Any

import pytest

from art_e.errors import UserError
from evals.scored import Scored, load_run
from tests.builders import trajectory
from tests.evals.runs import OUTCOMES, episode, question, write_run


def test_a_run_is_read_with_its_questions_finished_or_killed(tmp_path: Path) -> None:
    asked = [question(number) for number in range(len(OUTCOMES))]
    made = [episode(each, outcome) for each, outcome in zip(asked, OUTCOMES, strict=True)]
    run = write_run(tmp_path / "run", made, complete=False)
    assert load_run(run) == [Scored(each, one) for each, one in zip(asked, made, strict=True)]
    with run.trajectories.open("ab") as file:
        file.write(b'{"schema": "art-e/traj')
    assert len(load_run(run)) == len(made)


@pytest.mark.parametrize("kind", ["budget", "auth", "no-model", "no-credit"])
def test_episodes_that_were_cut_short_are_left_out(tmp_path: Path, kind: str) -> None:
    error = {"kind": kind, "message": "No."}
    cut_short = episode(question(0), "failed", error=error)
    run = write_run(tmp_path / "run", [cut_short, episode(question(1), "failed")])
    assert [each.question.id for each in load_run(run)] == ["q1"]


@pytest.mark.parametrize(
    ("trajectories", "reason"),
    [
        ([], "no episode"),
        ([trajectory()], "has no question"),
        ([trajectory(question={"id": "q"})], "no question: 'query_date'"),
    ],
)
def test_an_unreadable_run_is_one_line(
    tmp_path: Path, trajectories: list[Any], reason: str
) -> None:
    with pytest.raises(UserError, match=reason):
        load_run(write_run(tmp_path / "run", trajectories))
