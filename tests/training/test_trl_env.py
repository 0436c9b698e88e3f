"""The episode as TRL's environment: its reward, and a step of TRL's own loop."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from transformers import AutoTokenizer
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.utils import shutdown_event_loop_in_daemon

from art_e.tools import schemas
from art_e_env.trl_env import InboxEpisode, question_rows
from data_pipeline.synthetic.world import WorldConfig, questions
from tests.evals.runs import write_questions
from training.processes import quiet
from training.reward import RewardWeights


@pytest.fixture
def rows(world_db: Path, tmp_path: Path) -> list[dict[str, Any]]:
    path = write_questions(tmp_path / "questions.jsonl", questions(WorldConfig(size=1000)))
    return question_rows(str(path), str(world_db), split="train")


def test_reward_is_what_the_episode_earns(world_db: Path, rows: list[dict[str, Any]]) -> None:
    weights = RewardWeights()
    episode = InboxEpisode(str(world_db))
    row = next(each for each in rows if json.loads(each["question"])["answer"])
    question = json.loads(row["question"])

    def earned(answer: str | None) -> float:
        episode.reset(**row)
        for mail in question["message_ids"]:
            assert question["question"] not in episode.read_email(mail)
        if answer is not None:
            reply = episode.return_final_answer(answer, question["message_ids"])
            assert json.loads(reply) == {"done": True}
            assert "the episode is over" in episode.search_emails(["more"])
        reward = asyncio.run(episode.get_reward())
        assert reward is not None
        return reward

    assert weights.correct < earned(question["answer"])
    low, high = weights.bounds("abstained")
    assert low <= earned("I don't know") <= high
    assert earned("It is the purple elephant.") < low
    # No answer is worth as much as running out of turns.
    low, high = weights.bounds("out")
    assert low <= earned(None) <= high


def test_trl_trains_a_step(
    world_db: Path, rows: list[dict[str, Any]], base: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    tokenizer = AutoTokenizer.from_pretrained(base)
    args = GRPOConfig(
        output_dir=str(tmp_path / "out"), max_steps=1, per_device_train_batch_size=2,
        num_generations=2, max_completion_length=24, use_cpu=True, bf16=False, report_to="none",
        logging_steps=1, save_strategy="no", activation_checkpointing=False,
    )  # fmt: skip
    answerable = [row for row in rows if json.loads(row["question"])["answerable"]]
    with quiet():
        trainer = GRPOTrainer(
            str(base), args=args, train_dataset=Dataset.from_list(answerable[:2]),
            processing_class=tokenizer, environment_factory=lambda: InboxEpisode(str(world_db)),
        )  # fmt: skip
        trainer.train()
    shutdown_event_loop_in_daemon(trainer.async_loop_thread, trainer.async_loop)
    # Its tools are ours, and each argument is described as it is to every other model.
    offered = {tool.__name__: tool.__doc__ for tool in trainer.tools}
    for schema in schemas():
        function = schema["function"]
        assert function["description"] in str(offered[function["name"]])
        for name, about in function["parameters"]["properties"].items():
            assert f"{name}: {about['description']}" in str(offered[function["name"]])
    # The base calls tools, and answers no question right.
    [logged] = [each for each in trainer.state.log_history if "rewards/InboxEpisode/mean" in each]
    assert logged["tools/call_frequency"] >= 1
    bounds = RewardWeights().bounds
    assert bounds("wrong")[0] <= logged["rewards/InboxEpisode/mean"] <= bounds("abstained")[1]
