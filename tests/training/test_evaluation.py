"""The test questions, once, when training is over: what metrics.json and test.jsonl then hold."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from art_e.trajectory import read_trajectories
from evals.judges.f1 import F1Judge
from evals.judges.offline import OfflineJudge
from tests.training import tiny
from tests.training.conftest import Begin
from tests.training.test_scoring import IDK, LOST, RIGHT, WRONG, rollouts, score
from training.material import load_part
from training.roller import Judges
from training.run import Setting
from training.start import load_start
from training.validation import (
    EPISODES,
    FIGURES,
    Examiner,
    by_transformers,
    figures_of,
    figures_on_test,
)

MORE = ("hallucination_unanswerable", "effort_when_correct", "format_errors")


@pytest.fixture
def metrics(warm: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((warm / "metrics.json").read_text("utf-8"))
    return told


def test_figures_are_estimates_by_the_second_judge(begin: Begin) -> None:
    scored = score(OfflineJudge(), rollouts(begin, RIGHT, RIGHT, WRONG, IDK, LOST), F1Judge())
    found = figures_of(scored)
    assert found["n"] == 5
    assert found["accuracy"]["value"] == 0.4
    assert found["hallucination"]["value"] == 0.2
    assert found["format_errors"]["value"] == 0.6
    assert found["effort_when_correct"]["value"] == 2.0
    for name in ("accuracy", "hallucination", "abstention"):
        # One question five times has no interval over questions.
        assert set(found[name]) >= {"value", "low", "high"}
    # There was no unanswerable question to invent an answer to.
    assert found["hallucination_unanswerable"]["value"] is None


def test_both_ways_to_sample_are_there_and_strangers_apart(
    warm: Path, metrics: dict[str, Any]
) -> None:
    for way in ("sampled", "greedy"):
        for figures in (metrics["test"][way], metrics["test"][way]["strangers"]):
            assert {*FIGURES, *MORE, "n", "by_kind"} <= set(figures)
            assert figures["n"] == 6
    policies = [each.policy for each in read_trajectories(warm / EPISODES)]
    assert [each["temperature"] for each in policies] == [1.0] * 12 + [0.0] * 12
    assert [each["part"] for each in policies] == ([""] * 6 + ["strangers"] * 6) * 2


def test_it_is_the_best_checkpoint_that_is_tested(
    warm: Path, home: Path, metrics: dict[str, Any], tmp_path: Path
) -> None:
    start = load_start(str(warm / metrics["best_checkpoint"]))
    judges = Judges(OfflineJudge(), F1Judge())
    recipe = tiny.recipe()
    with tiny.begun(Setting("sft", recipe, 0), tmp_path / "again") as training:
        examiner = Examiner(training, judges, start.tokens, partial(load_part, recipe.data))
        again, episodes = figures_on_test(examiner, by_transformers(training, start))
    assert json.loads(json.dumps(again)) == metrics["test"]
    stored = [each.messages for each in read_trajectories(warm / EPISODES)]
    assert [each.trajectory.messages for each in episodes] == stored
