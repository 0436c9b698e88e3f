"""A model made from nothing: its tokenizer survives a reload, and cuts a conversation the same
turn by turn and as a whole."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from art_e.message import ChatMessage
from art_e.models.checkpoint import load_tokenizer, reloads_the_same
from art_e.trajectory import read_trajectories
from tests.training import tiny
from tests.training.conftest import whole
from training.expert import expert_conversations, marked_tokens
from training.material import load_material, planted_in
from training.recipe import Noise
from training.start import Start, make_start

NOISY = Noise(**dict.fromkeys(Noise.model_fields, 0.4))


@pytest.fixture(scope="module")
def conversations(training_home: Path) -> list[list[ChatMessage]]:
    """What an expert who errs in every way says of a world."""
    with tiny.at(training_home):
        recipe = tiny.recipe()
        material = load_material(recipe.data, "train")
        known = planted_in(recipe.data)
        chosen = [known[each.id] for each in material.questions]
        return expert_conversations(material.inbox_file.path, chosen, recipe.episode, NOISY, 0)


@pytest.fixture(scope="module")
def made(conversations: list[list[ChatMessage]]) -> Start:
    """nano's own start: its vocabulary, its template, its phrases."""
    recipe = tiny.recipe("model.scratch.vocabulary=4_000")
    assert recipe.model.scratch is not None
    return make_start(recipe, recipe.model.scratch, conversations, 0)


def agrees(messages: Sequence[ChatMessage], start: Start) -> bool:
    """Whether what grew turn by turn is what the whole is cut into."""
    grown = marked_tokens(messages, start.tokens).input_ids
    at_once = whole(start.tokenizer, messages)
    # Behind the last end mark the template writes a line end.
    return at_once[: len(grown)] == grown and len(at_once) <= len(grown) + 1


def test_the_tokenizer_is_the_same_for_those_who_reload_it(made: Start, tmp_path: Path) -> None:
    made.model.save_pretrained(tmp_path)
    made.tokenizer.save_pretrained(tmp_path)
    assert reloads_the_same(tmp_path, made.tokenizer)
    again = load_tokenizer(tmp_path, "it")
    text = "When does Ann's lease end?<|im_end|>\n m1 2001-03-05"
    assert again.encode(text) == made.tokenizer.encode(text)
    assert again.chat_template == made.tokenizer.chat_template


def test_the_parts_of_a_number_are_tokens_by_their_place(made: Start) -> None:
    parts = [" 36", "-15-", "93", " 36", "-49", " $33", ",500", " $7", ",000", " 9", ",", " 2019"]
    parts += ["2019-01-", "12", "T11:", "46", 'Z","from":"']
    ids = made.tokenizer.encode("".join(parts), add_special_tokens=False)
    assert [made.tokenizer.decode([each]) for each in ids] == parts


def test_turn_by_turn_is_as_the_whole_for_the_expert(
    made: Start, conversations: list[list[ChatMessage]]
) -> None:
    assert len(conversations) > 50
    assert [each for each in conversations if not agrees(each, made)] == []


def test_turn_by_turn_is_as_the_whole_for_what_was_sampled(start: Start, trained: Path) -> None:
    """Of all that a model that knows next to nothing wrote in a run of GRPO."""
    stored = list(read_trajectories(trained / "trajectories.jsonl"))
    assert len(stored) > 30
    assert [each.messages for each in stored if not agrees(each.messages, start)] == []
