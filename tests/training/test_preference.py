"""DPO and KTO: their data, which tokens count, and short runs of both."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from trl.trainer.dpo_trainer import DataCollatorForPreference
from trl.trainer.kto_trainer import DataCollatorForUnpairedPreference

from art_e.errors import UserError
from art_e.runs import read_trajectories, start_run
from art_e.trajectory import Trajectory
from evals.judges.offline import OfflineJudge
from evals.scored import Scored
from tests.command_line import Run, the_error
from tests.training import tiny
from tests.training.conftest import Begin
from tests.training.scripted import DECLINE, LOST, RIGHT, WRONG, rollouts, score
from training.cli import run_training
from training.expert import best_conversations, marked_tokens
from training.recipe import Preference, Setting
from training.run import newest_checkpoint
from training.start import Start, load_start
from training.supervised import dpo_rows, kto_rows, labels_of, own_tokens, pairs_of, rated_episodes


def asking(number: int, scored: Sequence[Scored]) -> list[Scored]:
    return [
        Scored(dataclasses.replace(episode.question, id=f"q{number}"), episode.trajectory)
        for episode in scored
    ]


def test_pairs_share_a_question_and_differ_in_return(begin: Begin) -> None:
    played = rollouts(begin, RIGHT, WRONG, DECLINE, LOST)
    right, wrong, declined, lost = score(OfflineJudge(), played)
    assert pairs_of([wrong, right, lost, declined]) == [(right, lost), (declined, wrong)]
    # Equal episodes, or those of different questions, don't form a pair.
    assert pairs_of([right, right, *asking(2, [wrong, wrong])]) == []
    assert pairs_of([right, wrong, wrong]) == [(right, wrong)]
    # Labels leave out what is neither good nor bad.
    labels = [(each.trajectory, each.good) for each in labels_of([right, declined, wrong, lost])]
    bad = [(each.trajectory, False) for each in (wrong, lost)]
    assert labels == [(right.trajectory, True), *bad]


def test_ratings_are_labels(art_e: Run, home: Path, owned_db: Path) -> None:
    for rating in ("good", "bad"):
        result = art_e("ask", "--model", "offline", "--db", owned_db, f"Who has {rating} news?")
        assert result.exit_code in (0, 1), result.stderr
        assert art_e("rate", rating).exit_code == 0
    art_e("ask", "--model", "offline", "--db", owned_db, "Who wrote at all?")  # not rated
    labels = {each.trajectory.messages[1]["content"]: each.good for each in rated_episodes()}
    assert labels == {"Who has good news?": True, "Who has bad news?": False}


def test_only_own_tokens_count(begin: Begin, start: Start) -> None:
    better, worse = score(OfflineJudge(), rollouts(begin, RIGHT, WRONG))
    table = Preference(steps=1, batch=2)
    decode = start.tokenizer.decode

    def counted(batch: dict[str, Any], prefix: str = "") -> list[str]:
        ids, masks = batch[f"{prefix}input_ids"], batch[f"{prefix}completion_mask"]
        return [str(decode(row[mask.bool()])) for row, mask in zip(ids, masks, strict=True)]

    def written(scored: Scored) -> str:
        marked = marked_tokens(scored.trajectory.messages, start.tokens)
        return str(decode([each for each in marked.labels if each >= 0]))

    rows = dpo_rows([(better, worse)], start.tokens, table, 0)
    paired = own_tokens(DataCollatorForPreference(start.pad_id), rows)
    assert counted(paired) == [written(better)] * 2 + [written(worse)] * 2
    assert "tool_response" not in "".join(counted(paired))
    labelled = kto_rows(labels_of([better, worse]), start.tokens, table, 0)
    expected = [written(better if each["label"] else worse) for each in labelled]
    batch = own_tokens(DataCollatorForUnpairedPreference(start.pad_id), labelled)
    assert counted(batch) == expected
    assert counted(batch, "KL_") == expected[::-1]


@pytest.fixture
def rated(begin: Begin, tmp_path: Path) -> Path:
    """Make a run in which four questions were answered right and wrong, each twice."""
    run = start_run("eval", {}, tmp_path, tmp_path / "rated")
    scored = score(OfflineJudge(), rollouts(begin, RIGHT, WRONG, RIGHT, WRONG))
    with run.log() as log:
        for one in [one for number in range(4) for one in asking(number, scored)]:
            row = dataclasses.replace(one.trajectory, question_id=one.question.id)
            log.append(dataclasses.replace(row, question=one.question.to_row()).to_line())
    run.finish()
    return run.folder


def test_best_episode_of_each_question_is_imitated(
    rated: Path, begin: Begin, tmp_path: Path
) -> None:
    stored = list(read_trajectories(rated / "trajectories.jsonl"))
    rewards = [each.reward["total"] for each in stored[:4] if each.reward is not None]
    assert rewards[0] == rewards[2] > rewards[1]
    best = best_conversations([str(rated)], 0)
    assert len(best) == 4
    assert all(each == stored[0].messages for each in best)
    with pytest.raises(UserError, match=r"no run .*nowhere"):
        best_conversations([str(tmp_path / "nowhere")], 0)


@pytest.mark.parametrize("kind", ["dpo", pytest.param("kto", marks=pytest.mark.long)])
def test_a_short_run(kind: Any, rated: Path, warm: Path, home: Path, tmp_path: Path) -> None:
    changes = ("judging.questions=2", "judging.test_questions=2")
    recipe = tiny.recipe(*changes, "preference={steps=8, batch=4, rate=3e-4}")
    setting = Setting(kind, recipe, 0, str(warm), (str(rated),))
    with tiny.started(setting, tmp_path / "run") as training:
        metrics = run_training(training)
    steps = training.steps
    assert [each.step for each in steps] == list(range(1, 9))
    # Before the first step both are as likely to the model as to the reference.
    assert steps[0].loss == pytest.approx(math.log(2) if kind == "dpo" else 0.5, abs=0.01)
    assert metrics["test"]["greedy"]["n"] == 2
    assert [each["step"] for each in metrics["validation"]] == [0, 2, 4, 6, 8]
    last = newest_checkpoint(training.run.folder)
    assert last is not None
    right, wrong, *_ = read_trajectories(rated / "trajectories.jsonl")
    before, after = (
        loss(model, wrong) - loss(model, right) for model in map(load_start, (str(warm), str(last)))
    )
    assert after > before


def loss(start: Start, trajectory: Trajectory) -> float:
    marked = marked_tokens(trajectory.messages, start.tokens)
    ids, labels = (torch.tensor([each]) for each in marked)
    model: Any = start.model
    with torch.inference_mode():
        return float(model(input_ids=ids, labels=labels).loss) * int((labels >= 0).sum())


def test_run_without_preferences_does_not_start(art_e: Run, warm: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    for kind in ("dpo", "kto"):
        result = art_e("train", kind, "--recipe", "nano", "--init", warm, "--out", out)
        assert "with --from" in the_error(result)
    assert not out.exists()
