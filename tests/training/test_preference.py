"""DPO and KTO: what they learn from, which tokens count, and short runs of both."""

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
from training.cli import carry_out
from training.expert import best_conversations, marked_tokens
from training.recipe import Preference, Setting
from training.run import newest_checkpoint
from training.start import Start, load_start
from training.supervised import dpo_rows, kto_rows, labels_of, own_tokens, pairs_of, rated_episodes


def asking(number: int, scored: Sequence[Scored]) -> list[Scored]:
    return [
        Scored(dataclasses.replace(each.question, id=f"q{number}"), each.trajectory)
        for each in scored
    ]


def test_pairs_are_of_one_question_and_of_different_worth(begin: Begin) -> None:
    made = rollouts(begin, RIGHT, WRONG, DECLINE, LOST)
    right, wrong, declined, lost = score(OfflineJudge(), made)
    assert pairs_of([wrong, right, lost, declined]) == [(right, lost), (declined, wrong)]
    # Equal ones, and ones about other questions, are no pair.
    assert pairs_of([right, right, *asking(2, [wrong, wrong])]) == []
    assert pairs_of([right, wrong, wrong]) == [(right, wrong)]
    # A label leaves out what is neither good nor bad.
    labels = [(each.trajectory, each.good) for each in labels_of([right, declined, wrong, lost])]
    bad = [(each.trajectory, False) for each in (wrong, lost)]
    assert labels == [(right.trajectory, True), *bad]


def test_what_a_user_rated_is_a_label(art_e: Run, home: Path, owned_db: Path) -> None:
    for rating in ("good", "bad"):
        asked = art_e("ask", "--model", "offline", "--db", owned_db, f"Who has {rating} news?")
        assert asked.exit_code in (0, 1), asked.stderr
        assert art_e("rate", rating).exit_code == 0
    art_e("ask", "--model", "offline", "--db", owned_db, "Who wrote at all?")  # not rated
    found = {each.trajectory.messages[1]["content"]: each.good for each in rated_episodes()}
    assert found == {"Who has good news?": True, "Who has bad news?": False}


def test_only_own_tokens_count(begin: Begin, start: Start) -> None:
    better, worse = score(OfflineJudge(), rollouts(begin, RIGHT, WRONG))
    table = Preference(steps=1, batch=2)
    decode = start.tokenizer.decode

    def counted(batch: dict[str, Any], prefix: str = "") -> list[str]:
        ids, masks = batch[f"{prefix}input_ids"], batch[f"{prefix}completion_mask"]
        return [str(decode(row[mask.bool()])) for row, mask in zip(ids, masks, strict=True)]

    def own(scored: Scored) -> str:
        marked = marked_tokens(scored.trajectory.messages, start.tokens)
        return str(decode([each for each in marked.labels if each >= 0]))

    rows = dpo_rows([(better, worse)], start.tokens, table, 0)
    paired = own_tokens(DataCollatorForPreference(start.pad_id), rows)
    assert counted(paired) == [own(better)] * 2 + [own(worse)] * 2
    assert "tool_response" not in "".join(counted(paired))
    labelled = kto_rows(labels_of([better, worse]), start.tokens, table, 0)
    expected = [own(better if each["label"] else worse) for each in labelled]
    batch = own_tokens(DataCollatorForUnpairedPreference(start.pad_id), labelled)
    assert counted(batch) == expected
    assert counted(batch, "KL_") == expected[::-1]


@pytest.fixture
def told(begin: Begin, tmp_path: Path) -> Path:
    """A run in which four questions were answered right and wrong, each twice."""
    run = start_run("eval", {}, tmp_path, tmp_path / "told")
    scored = score(OfflineJudge(), rollouts(begin, RIGHT, WRONG, RIGHT, WRONG))
    with run.log() as log:
        for each in [one for number in range(4) for one in asking(number, scored)]:
            made = dataclasses.replace(each.trajectory, question_id=each.question.id)
            log.append(dataclasses.replace(made, question=each.question.to_row()).to_line())
    run.finish()
    return run.folder


def test_each_questions_best_episode_is_imitated(told: Path, begin: Begin, tmp_path: Path) -> None:
    stored = list(read_trajectories(told / "trajectories.jsonl"))
    rewards = [each.reward["total"] for each in stored[:4] if each.reward is not None]
    assert rewards[0] == rewards[2] > rewards[1]
    best = best_conversations([str(told)], 0)
    assert len(best) == 4
    assert all(each == stored[0].messages for each in best)
    with pytest.raises(UserError, match=r"no run .*nowhere"):
        best_conversations([str(tmp_path / "nowhere")], 0)


@pytest.mark.parametrize("kind", ["dpo", pytest.param("kto", marks=pytest.mark.long)])
def test_a_short_run(kind: Any, told: Path, warm: Path, home: Path, tmp_path: Path) -> None:
    changes = ("judging.questions=2", "judging.test_questions=2")
    recipe = tiny.recipe(*changes, "preference={steps=8, batch=4, rate=3e-4}")
    setting = Setting(kind, recipe, 0, str(warm), (str(told),))
    with tiny.begun(setting, tmp_path / "run") as training:
        metrics = carry_out(training)
    steps = training.steps
    assert [each.step for each in steps] == list(range(1, 9))
    # Before the first step it is the start, to which both are as likely.
    assert steps[0].loss == pytest.approx(math.log(2) if kind == "dpo" else 0.5, abs=0.01)
    assert metrics["test"]["greedy"]["n"] == 2
    assert [each["step"] for each in metrics["validation"]] == [0, 2, 4, 6, 8]
    last = newest_checkpoint(training.run.folder)
    assert last is not None
    right, wrong, *_ = read_trajectories(told / "trajectories.jsonl")
    before, after = (
        loss(each, wrong) - loss(each, right) for each in map(load_start, (str(warm), str(last)))
    )
    assert after > before


def loss(start: Start, trajectory: Trajectory) -> float:
    marked = marked_tokens(trajectory.messages, start.tokens)
    ids, labels = (torch.tensor([each]) for each in marked)
    model: Any = start.model
    with torch.inference_mode():
        return float(model(input_ids=ids, labels=labels).loss) * int((labels >= 0).sum())


def test_without_preferences_nothing_is_begun(art_e: Run, warm: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    for kind in ("dpo", "kto"):
        result = art_e("train", kind, "--recipe", "nano", "--init", warm, "--out", out)
        assert "with --from" in the_error(result)
    assert not out.exists()
