"""The warm start: its batches, rates and files, and the new model."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from art_e.message import ChatMessage
from art_e.runs import read_trajectories
from tests.builders import answer, message, read, search, the_error
from tests.training import tiny
from tests.training.conftest import Begin, whole
from tests.training.scripted import rollouts
from training.cli import load_material, planted_in
from training.expert import NO_LOSS, conversations_of, expert_conversations, marked_tokens
from training.recipe import Noise, Sft, SftStage
from training.run import STATE, Validation, read_steps
from training.start import Start, make_start
from training.supervised import _batches, rate_at


def test_run_writes_the_files_of_the_contract(warm: Path) -> None:
    metrics = json.loads((warm / "metrics.json").read_text("utf-8"))
    assert {"validation", "best_checkpoint", "seconds", "tokens", "cost_usd"} <= set(metrics)
    assert [each["step"] for each in metrics["validation"]] == [0, 15, 20]
    for row in metrics["validation"]:
        assert Validation(**row).n == 3
    steps = read_steps(warm)
    assert [each.step for each in steps] == [10, 15, 20]
    assert (steps[-1].loss or math.inf) < (steps[0].loss or 0.0) - 0.1
    assert steps[-1].tokens == metrics["tokens"] > steps[0].tokens
    assert set(metrics["test"]) == {"sampled", "greedy"}
    for name in ("COMPLETE", "README.md", "config.json", "trajectories.jsonl", "test.jsonl"):
        assert (warm / name).is_file()
    best = warm / metrics["best_checkpoint"]
    assert (best / STATE).is_file()
    # Only the best one and the last are kept.
    names = {each.name for each in (warm / "checkpoints").glob("checkpoint-*")}
    assert names == {best.name, "checkpoint-20"}


def test_batches_are_of_their_stage(start: Start, warm: Path) -> None:
    table = tiny.recipe().sft
    assert table is not None
    conversations = [
        trajectory.messages
        for trajectory in read_trajectories(warm / "trajectories.jsonl")
        if any(message["role"] == "assistant" for message in trajectory.messages)
    ]
    examples, batches = _batches(table, [conversations] * 2, start.tokens, 7)
    first, second = table.stages
    sizes = [each.batch for each in (first, second) for _ in range(each.steps)]
    assert [len(each) for each in batches] == sizes
    for place in {place for batch in batches[: first.steps] for place in batch}:
        # One turn of the model, and nothing after it.
        counted = [each for each in examples[place].labels if each != NO_LOSS]
        assert counted.count(start.end_id) == 1
        assert examples[place].labels[-1] == start.end_id
    whole = {tuple(marked_tokens(each, start.tokens).input_ids) for each in conversations}
    for place in {place for batch in batches[first.steps :] for place in batch}:
        assert tuple(examples[place].input_ids) in whole
    assert _batches(table, [conversations] * 2, start.tokens, 7)[1] == batches
    assert _batches(table, [conversations] * 2, start.tokens, 8)[1] != batches


def test_early_noise_is_for_all_stages_but_the_last(home: Path) -> None:
    good = Noise(**dict.fromkeys(Noise.model_fields, 0.0))
    hasty = good.model_copy(update={"gives_up": 1.0})
    stages = tuple(SftStage(steps=2, batch=each) for each in (2, 3, 1))
    recipe = tiny.recipe()
    table = Sft(stages=stages, noise=hasty, early_noise=good)
    material = load_material(recipe.data, "train")
    early = recipe.model_copy(update={"sft": table})
    stages_of = conversations_of(early, material, planted_in(recipe.data), 0)
    assert [len(each) for each in stages_of] == [6, 6, 2]
    early_lengths, lengths = ({len(each) for stage in part for each in stage}
                              for part in (stages_of[:2], stages_of[2:]))  # fmt: skip
    assert lengths == {6} and max(early_lengths) > 6  # a search and the answer alone


def test_answer_stage_needs_a_mail_before_the_answer(start: Start, begin: Begin) -> None:
    searched, final = message(search("lease")), message(answer("May", "m1"))
    played = rollouts(begin, [searched, message(read("m1")), final], [searched, final])
    answered, gave_up = (each.episode for each in played)
    table = Sft(stages=(SftStage(part="answer", steps=3, batch=2),))
    stored = [gave_up.messages, answered.messages]
    examples, batches = _batches(table, [stored], start.tokens, 0)
    [(ids, labels)] = examples
    counted = [each for each in labels if each != NO_LOSS]
    assert counted == ids[-len(counted) :] == start.tokens.turn(answered.messages[-2])
    assert batches == [[0, 0]] * 3
    error = the_error(_batches, table, [[gave_up.messages]], start.tokens, 0)
    assert "no conversation reads a mail" in error


def test_rates() -> None:
    constant = SftStage(steps=10, rate=1.0, warmup=4)
    falling = SftStage(steps=10, rate=0.5, warmup=0, schedule="cosine")
    stages = (constant, falling)
    assert [rate_at(stages, step) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]
    cosine = [rate_at(stages, step) for step in range(10, 20)]
    assert cosine[0] == 0.5
    assert cosine == sorted(cosine, reverse=True)
    assert cosine[-1] > 0.025
    assert rate_at(stages, 20) == 0.0


# ---- A new model, whose tokenizer encodes a conversation the same by turns and at once.


@pytest.fixture(scope="module")
def conversations(training_home: Path) -> list[list[ChatMessage]]:
    """Play an expert with every kind of error on a world."""
    with tiny.at(training_home):
        recipe = tiny.recipe()
        material, known = load_material(recipe.data, "train"), planted_in(recipe.data)
        chosen = [known[each.id] for each in material.questions]
        noise = Noise(**dict.fromkeys(Noise.model_fields, 0.4))
        [played] = expert_conversations(
            material.file.path, {noise: chosen}, recipe.episode, 0
        ).values()
        return played


@pytest.fixture(scope="module")
def new_start(conversations: list[list[ChatMessage]]) -> Start:
    """Make nano's start, with its vocabulary, template and phrases."""
    recipe = tiny.recipe("model.scratch.vocabulary=4_000")
    assert recipe.model.scratch is not None
    return make_start(recipe, recipe.model.scratch, conversations, 0)


def agrees(messages: Sequence[ChatMessage], start: Start) -> bool:
    """Return True if encoding turn by turn equals encoding at once."""
    grown = marked_tokens(messages, start.tokens).input_ids
    at_once = whole(start.tokenizer, messages)
    # After the last end mark the template writes a line end.
    return at_once[: len(grown)] == grown and len(at_once) <= len(grown) + 1


def test_parts_of_numbers_have_tokens_by_their_place(new_start: Start) -> None:
    parts = [" 36", "-15-", "93", " 36", "-49", " $33", ",500", " $7", ",000", " 9", ",", " 2019"]
    parts += ["2019-01-", "12", "T11:", "46", 'Z","from":"']
    ids = new_start.tokenizer.encode("".join(parts), add_special_tokens=False)
    assert [new_start.tokenizer.decode([each]) for each in ids] == parts


def test_encoding_by_turns_equals_encoding_at_once(
    new_start: Start, conversations: list[list[ChatMessage]], start: Start, trained: Path
) -> None:
    """For the expert, and for all that an untrained model wrote in a GRPO run."""
    stored = [each.messages for each in read_trajectories(trained / "trajectories.jsonl")]
    assert len(conversations) > 50 and len(stored) > 30
    assert [each for each in conversations if not agrees(each, new_start)] == []
    assert [each for each in stored if not agrees(each, start)] == []
