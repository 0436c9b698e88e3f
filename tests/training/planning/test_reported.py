"""What a run has reported, from the folders of real runs."""

import json
import shutil
from pathlib import Path
from statistics import fmean

import pytest

from art_e.errors import UserError
from art_e.runs import Run, start_run
from art_e.trajectory import read_trajectories
from training.planning.reported import measured_in, reported_by
from training.progress import read_steps


def test_a_run_of_grpo_reports_its_steps(trained: Path) -> None:
    steps = read_steps(trained)
    reported = reported_by(Run(trained))
    assert (reported.kind, reported.steps) == ("grpo", len(steps))
    assert reported.tokens == steps[-1].tokens / len(steps)
    assert reported.seconds == steps[-1].seconds / len(steps)
    assert reported.cost_usd == 0
    # There is no GPU here.
    assert reported.peak_memory is None


def test_a_run_of_sft_reports_by_the_step(warm: Path) -> None:
    last = read_steps(warm)[-1]
    reported = reported_by(Run(warm))
    assert (reported.kind, reported.steps) == ("sft", last.step)
    assert reported.tokens == last.tokens / last.step
    # It has episodes of validations alone.
    assert measured_in(Run(warm)) is None


def test_the_most_memory_is_that_of_the_metrics(trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    metrics = json.loads((folder / "metrics.json").read_text())
    (folder / "metrics.json").write_text(json.dumps({**metrics, "peak_memory_bytes": 12_345}))
    assert reported_by(Run(folder)).peak_memory == 12_345
    (folder / "metrics.json").unlink()
    (folder / "steps.jsonl").unlink()
    begun = reported_by(Run(folder))
    assert (begun.steps, begun.tokens, begun.peak_memory) == (0, None, None)


def test_episodes_have_the_tokens_of_the_run(trained: Path) -> None:
    facts = [
        each.rubric
        for each in read_trajectories(trained / "trajectories.jsonl")
        if "group" in each.policy and each.rubric["turns"]
    ]
    told = measured_in(Run(trained))
    assert told is not None
    assert told.turns == pytest.approx(fmean(each["turns"] for each in facts))
    assert told.own == pytest.approx(fmean(each["completion_tokens"] for each in facts))
    # From turns and sums of prompts: the prompts of its mean episode are about the mean of theirs.
    prompts = fmean(each["prompt_tokens"] for each in facts)
    assert told.prompts == pytest.approx(prompts, rel=0.35)
    assert told.prompt + told.own <= told.length + 1e-6


def test_other_runs_are_refused(tmp_path: Path) -> None:
    run = start_run("ask", {"model": "offline"}, tmp_path)
    with pytest.raises(UserError, match="no training run"):
        reported_by(run)
