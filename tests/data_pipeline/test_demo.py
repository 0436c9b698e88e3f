from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from art_e.cli.main import app
from art_e.trajectory import read_trajectories
from data_pipeline.cli import SEED, SIZE, tour_question
from data_pipeline.synthetic.world import WorldConfig, questions
from tests.command_line import json_of


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Result, Result]]:
    """The home of two tours, one after the other, and what they printed."""
    home = tmp_path_factory.mktemp("home")
    runner = CliRunner(env={"ART_E_HOME": str(home)})
    yield home, runner.invoke(app, ["demo"]), runner.invoke(app, ["demo", "--json"])


def test_the_tour_shows_every_step(tour: tuple[Path, Result, Result]) -> None:
    _, shown, _ = tour
    assert shown.exit_code == 0
    asked = tour_question(questions(WorldConfig(size=SIZE, seed=SEED)))
    assert asked.answer is not None
    steps = (
        asked.question, " 1  search ", " 2  read ", "| ", "answer  ", f"expected: {asked.answer}",
        "art-e ingest", "art-e search", "art-e ask",
    )  # fmt: skip
    positions = [shown.stdout.index(step) for step in steps]
    assert positions == sorted(positions)


def test_json_is_that_of_ask_and_the_sample_inbox_is_made_once(
    tour: tuple[Path, Result, Result],
) -> None:
    home, first, second = tour
    answer = json_of(second)
    asked = tour_question(questions(WorldConfig(size=SIZE, seed=SEED)))
    assert list(answer)[-1] == "gold_answer"
    assert answer["gold_answer"] == asked.answer
    assert (answer["question"], answer["model"]) == (asked.question, "offline")
    assert answer["cost_usd"] == 0
    [trajectory] = read_trajectories(Path(answer["trajectory"]))
    assert Path(answer["trajectory"]).is_relative_to(home / "runs")
    assert trajectory.inbox_address == asked.inbox_address
    assert "making a sample inbox" in first.stderr
    assert "making" not in second.stderr
    assert len(list((home / "demo").glob("*.duckdb"))) == 1
