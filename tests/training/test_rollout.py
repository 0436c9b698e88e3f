"""Rollouts, our sampler and optimizers, and what goes to TRL's trainer and to vLLM."""

import copy
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR
from transformers import GenerationConfig, Qwen2Tokenizer
from trl.trainer.utils import add_fused_lm_head

from art_e.episode import EpisodeForm
from art_e.errors import UserError
from art_e.message import AssistantMessage
from tests.builders import LEASE, WAIT_S, answer, message, read, search, the_error
from tests.tiny_qwen import END, END_OF_TEXT, make_model, make_tokenizer
from tests.training.conftest import Begin, whole, written
from tests.training.scripted import IDK, Script
from training.engine import Sampler
from training.optimizer import MuonAdamW, optimizer_of, own_tokens_scored, packed, scored_as_one
from training.rollout import ChatTokens, Rollout, Turn, roll_out, side_by_side
from training.start import Start, start_of

ROOMY = EpisodeForm(turn_tokens=400, episode_tokens=20_000)
RIGHT = [message(search("lease")), message(read("m1"), read(LEASE)), message(answer("May", "m1"))]
WRONG = [AssistantMessage("Hm."), message(search("crew", max_results=3)), message(read("m9")), IDK]
SCRIPTS = {"right": RIGHT, "wrong": WRONG}


Rolled = tuple[Rollout, Script]
Roll = Callable[..., Rolled]


@pytest.fixture
def roll(begin: Begin, tokens: ChatTokens, tokenizer: Qwen2Tokenizer) -> Roll:
    def rolled(script: Sequence[AssistantMessage | str], form: EpisodeForm = ROOMY) -> Rolled:
        engine = Script(tokenizer, [[each] for each in script], logprob=-0.5)
        [rollout] = roll_out([begin()], tokens, engine, form)
        return rollout, engine

    return rolled


def texts(script: Sequence[AssistantMessage]) -> list[str]:
    return [written(each) + END for each in script]


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_by_turns(script: list[AssistantMessage], roll: Roll, tokenizer: Qwen2Tokenizer) -> None:
    (episode, transcript), engine = roll(script)
    at_once, ids = whole(tokenizer, episode.messages), transcript.ids
    assert ids == at_once[: len(ids)]
    # After the end mark a template may still write a line end.
    assert str(tokenizer.decode(at_once[len(ids) :])).strip() == ""
    pairs = list(zip(transcript.completion_ids, transcript.sampled, strict=True))
    assert tokenizer.decode([each for each, own in pairs if own]) == "".join(texts(script))
    others = tokenizer.decode([each for each, own in pairs if not own])
    assert not any(each in others for each in texts(script))
    assert others.count("<|im_start|>assistant") == len(script) - 1
    assert transcript.logprobs == [-0.5 if own else 0.0 for own in transcript.sampled]
    assert episode.rubric.prompt_tokens == sum(len(prompt) for [prompt] in engine.seen)
    assert episode.rubric.completion_tokens == sum(transcript.sampled)


def test_episodes_do_not_wait(begin: Begin, tokens: ChatTokens, tokenizer: Qwen2Tokenizer) -> None:
    """The first episode gets its first turn only when the second is over."""
    over = threading.Event()
    scripts = [texts(RIGHT), texts(WRONG)]

    def turn(place: int, ids: list[int]) -> Turn:
        if place == 0:
            assert over.wait(WAIT_S)
        written = tokenizer.encode(scripts[place].pop(0))
        if place == 1 and not scripts[1]:
            over.set()
        return Turn(list(written), None)

    engine = partial(side_by_side, turn, slots=2)
    first, second = roll_out([begin(), begin()], tokens, engine, ROOMY)
    assert first.episode.final_answer == "May"
    assert second.episode.rubric.abstained
    ids = whole(tokenizer, first.episode.messages)
    assert first.transcript.ids == ids[: len(first.transcript.ids)]


def test_a_failing_turn_ends_all_episodes(begin: Begin, tokens: ChatTokens) -> None:
    places = []

    def turn(place: int, ids: list[int]) -> Turn:
        places.append(place)
        if place == 1:
            raise UserError("the server is gone")
        return Turn([tokens.end_id], None)

    engine = partial(side_by_side, turn, slots=1)
    episodes = [begin() for _ in range(30)]
    assert "the server is gone" in the_error(roll_out, episodes, tokens, engine, ROOMY)
    # Two turns without a call end the first episode; the last ones get no turn.
    assert places[:3] == [0, 0, 1]
    assert 29 not in places


def test_we_end_cut_turns(roll: Roll, tokens: ChatTokens, tokenizer: Qwen2Tokenizer) -> None:
    cut = written(RIGHT[0])[:-20]
    (episode, transcript), _ = roll([cut, "", *map(written, RIGHT)])
    length = len(tokenizer.encode(cut))
    assert transcript.sampled[: length + 1] == [True] * length + [False]
    assert transcript.completion_ids[length] == tokens.end_id
    assert (episode.rubric.unparseable_calls, episode.final_answer) == (2, "May")


SEARCHING = [message(search(each, max_results=3)) for each in ("lease", "crew")] * 3


def test_episode_without_room_for_a_turn_is_out_of_turns(roll: Roll) -> None:
    (_, full), _ = roll(RIGHT)
    limits = EpisodeForm(turn_tokens=1, episode_tokens=len(full.prompt_ids))
    (episode, _), engine = roll(RIGHT, limits)
    assert episode.rubric.ran_out_of_turns
    assert not engine.seen


def test_observation_without_room_after_it_is_not_shown(
    roll: Roll, tokenizer: Qwen2Tokenizer
) -> None:
    script = [message(read(LEASE)), message(answer("May", LEASE))]
    turn = max(len(tokenizer.encode(each)) for each in texts(script))
    (_, full), _ = roll(script)
    count = full.sampled.index(False)  # tokens of the first turn
    # One token less than the mail and a turn take.
    room = len(full.prompt_ids) + count + full.sampled[count:].index(True) + turn - 1
    (episode, _), _ = roll(script, EpisodeForm(turn_tokens=turn, episode_tokens=room))
    assert "no room left" in episode.messages[-3]["content"]
    assert "error" in episode.events[0] and "read" not in episode.events[0]
    assert (episode.rubric.read_gold, episode.sources) == (False, ())
    assert episode.final_answer == "May"


@example(0, "searching")
@given(st.integers(0, 4_000), st.sampled_from([*sorted(SCRIPTS), "searching"]))
def test_episodes_keep_limits(roll: Roll, tokenizer: Qwen2Tokenizer, room: int, name: str) -> None:
    """Observations count too. If room ends before the turns do, the model is told at its last turn,
    and trained with that note."""
    script = SCRIPTS.get(name, SEARCHING)
    turn = 2 * max(len(tokenizer.encode(each)) for each in texts(script))
    (_, full), _ = roll([*script, IDK])
    spare = 2 * turn + 200  # two turns, and the note between them
    limits = EpisodeForm(turn_tokens=turn, episode_tokens=len(full.prompt_ids) + spare + room)
    (episode, transcript), engine = roll([*script, IDK], limits)
    assert len(transcript.ids) <= limits.episode_tokens
    assert transcript.sampled[-1]
    assert episode.done
    assert transcript.ids == whole(tokenizer, episode.messages)[: len(transcript.ids)]
    last = str(tokenizer.decode(engine.seen[-1][0]))
    assert not episode.rubric.ran_out_of_turns or "one turn left" in last
    # Six searches don't fit into what is left beside two turns.
    assert name != "searching" or room or episode.rubric.ran_out_of_turns


def test_template_that_rewrites_earlier_messages_is_refused(tokenizer: Qwen2Tokenizer) -> None:
    template = (
        "{{ messages | length }}{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{{ m.content }}<|im_end|>\n{% endfor %}"
    )
    rewriting = mock.patch.object(tokenizer, "chat_template", template)
    with rewriting, pytest.raises(UserError, match="turn by turn"):
        ChatTokens(tokenizer, tokenizer.get_vocab()[END])


TEXTS = ["When does the lease of the harbor office end?", "Who pays?", "The crane costs a lot."]


@pytest.fixture(scope="module")
def words() -> Qwen2Tokenizer:
    return make_tokenizer(TEXTS, vocabulary=300)


@pytest.fixture(scope="module")
def start(words: Qwen2Tokenizer) -> Start:
    """Return a start with new weights."""
    return start_of(make_model(words, hidden=16, layers=1), words)


@pytest.fixture(scope="module")
def prompts(words: Qwen2Tokenizer) -> list[list[int]]:
    return [list(words.encode(each)) for each in TEXTS]


Sample = Callable[..., list[Turn]]


@pytest.fixture(scope="module")
def sample(start: Start, prompts: list[list[int]]) -> Sample:
    def turns(times: int = 1, turn: int = 8, **options: Any) -> list[Turn]:
        settings: dict[str, Any] = {"temperature": 1.0, "seed": 0, **options}
        return Sampler(start, turn, **settings).turns(prompts * times)

    return turns


def test_seed_gives_the_same_turns_and_leaves_torchs_state(sample: Sample) -> None:
    first = sample()
    torch.manual_seed(7)
    undisturbed = torch.rand(3)
    torch.manual_seed(7)
    assert sample() == first
    assert torch.equal(torch.rand(3), undisturbed)
    assert sample(seed=1) != first


def test_greedy_sampling(start: Start, prompts: list[list[int]], sample: Sample) -> None:
    """Compare with prompts that are run alone: padding and batches must not matter."""
    for prompt, turn in zip(prompts, sample(temperature=0.0, batch=2), strict=True):
        ids = list(prompt)
        for token in turn.ids:
            with torch.no_grad():
                logits = start.model(input_ids=torch.tensor([ids])).logits[0, -1]
            assert token == int(logits.argmax())
            ids.append(token)


def test_turn_ends_with_its_mark_or_at_its_limit(words: Qwen2Tokenizer, sample: Sample) -> None:
    """New weights sample any token: some turns come to an end, others are cut off."""
    turns = [turn.ids for turn in sample(12, turn=120)]
    end = words.get_vocab()[END]
    ended = [turn for turn in turns if turn[-1] == end]
    assert ended
    # The padding after an end mark does not belong to the turn.
    assert all(turn.index(end) == len(turn) - 1 for turn in ended)
    assert {len(turn) for turn in turns if turn[-1] != end} == {120}


def test_start_ignores_published_sampling_options(words: Qwen2Tokenizer) -> None:
    """Qwen2.5-Instruct is published with a penalty, and with two ends of which one ends a turn."""
    published = make_model(words, hidden=16, layers=1)
    ends = [words.get_vocab()[each] for each in (END, END_OF_TEXT)]
    options = {"repetition_penalty": 1.05, "top_p": 0.8, "top_k": 20, "eos_token_id": ends}
    published.generation_config = GenerationConfig.from_dict(options)
    config = start_of(published, words).model.generation_config
    assert config is not None
    assert config.eos_token_id == ends[0]
    assert [config.repetition_penalty, config.top_p, config.top_k] == [None] * 3


Rows = list[tuple[list[int], list[int]]]
TOKENS = st.lists(st.integers(1, 9), min_size=1, max_size=12)


def buffered(rows: Rows, parts: int) -> list[dict[str, Any]]:
    """Pad and buffer a step's rows like TRL; the first has no advantage."""
    prompts = [torch.tensor(prompt).flip(0) for prompt, _ in rows]
    completions = [torch.tensor(completion) for _, completion in rows]
    left, right = (pad_sequence(each, batch_first=True) for each in (prompts, completions))
    whole = {
        "prompt_ids": left.flip(1), "prompt_mask": (left > 0).int().flip(1),
        "completion_ids": right, "completion_mask": (right > 0).int(),
        "advantages": torch.arange(len(rows), dtype=torch.float32),
    }  # fmt: skip
    cut = {name: each.chunk(parts) for name, each in whole.items()}
    return [{name: each[part] for name, each in cut.items()} for part in range(parts)]


@given(
    st.lists(st.tuples(TOKENS, TOKENS), min_size=4, max_size=4),
    st.sampled_from([(1, 1), (2, 1), (4, 1), (2, 2), (4, 2), (4, 4)]),
    st.booleans(),
)
def test_packing_only_removes_padding(rows: Rows, shape: tuple[int, int], even: bool) -> None:
    parts, minibatches = shape
    packs, lengths = dict[int, tuple[list[int], list[int]]](), []
    batches = packed(buffered(rows, parts), minibatches=minibatches, even=even)
    assert len(batches) == parts
    for batch in batches:
        # No column is padding in all rows.
        assert bool(batch["prompt_mask"].any(0).all())
        assert bool(batch["completion_mask"].any(0).all())
        for place, number in enumerate(batch["advantages"].int().tolist()):
            masks = [batch[f"{part}_mask"][place].bool() for part in ("prompt", "completion")]
            prompt = batch["prompt_ids"][place][masks[0]].tolist()
            packs[number] = (prompt, batch["completion_ids"][place][masks[1]].tolist())
            lengths.append(len(prompt) + len(packs[number][1]))
    # The row without an advantage keeps a token.
    first = (rows[0][0], rows[0][1][:1])
    assert [packs[each] for each in range(4)] == [first, *rows[1:]]
    size = 4 // minibatches
    for start in range(0, 4, size):
        # Sorted within a minibatch, or the longest decides for the shortest; or spread evenly.
        part = lengths[start : start + size]
        if even and shape == (2, 1):
            part = [part[0], part[2], part[1], part[3]]
        assert part == sorted(part)
        assert set(list(packs)[start : start + size]) == set(range(start, start + size))


def test_joined_episodes_score_as_single_ones(words: Qwen2Tokenizer) -> None:
    """Their log-probabilities, entropies and gradients, with activations recomputed as well."""
    model: Any = make_model(words, hidden=32, layers=2)
    rows = [([3, 4, 5], [6, 7, 8, 9, 3]), ([5], [4]), ([9, 8, 7, 6], [5, 5, 4])]
    [batch] = buffered(rows, 1)
    ids, mask = (
        torch.cat([batch[f"prompt_{name}"], batch[f"completion_{name}"]], 1)
        for name in ("ids", "mask")
    )
    counted = batch["completion_mask"] * torch.tensor([1, 0, 1, 1, 1])
    weights = torch.rand(counted.shape, generator=torch.Generator().manual_seed(0))

    def gradients() -> list[torch.Tensor]:
        grads = [each.grad.clone() for each in model.parameters()]
        model.zero_grad()
        return grads

    plain = torch.zeros(2, *counted.shape)
    total: Any = torch.zeros(())
    for row, (prompt, completion) in enumerate(rows):
        logits = model(input_ids=torch.tensor([prompt + completion])).logits[0, :-1]
        every = torch.log_softmax(logits, -1)[len(prompt) - 1 :]
        one = every.gather(1, torch.tensor(completion)[:, None])[:, 0]
        there = counted[row, : len(completion)]
        plain[0, row, : len(one)] = one.detach() * there
        plain[1, row, : len(one)] = -(every.exp() * every).sum(-1).detach() * there
        total = total + (one * there * weights[row, : len(one)]).sum()
    total.backward()
    expected = gradients()
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    model.activation_checkpointing_enable()
    model.train()
    with own_tokens_scored():
        scores: Any
        scores, entropies = scored_as_one(model, ids, mask, counted)
        (scores * weights).sum().backward()
    torch.testing.assert_close(torch.stack([scores, entropies]), plain)
    for first, second in zip(gradients(), expected, strict=True):
        torch.testing.assert_close(first, second)


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(11, 6), nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 3))


def train(model: nn.Module, optimizer: Optimizer, steps: int) -> None:
    for _ in range(steps):
        inputs, labels = torch.randint(11, (16,)), torch.randint(3, (16,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def test_muon_gets_matrices_and_adamw_the_rest() -> None:
    model = small()
    optimizer = optimizer_of(model, ratio=2.0)
    assert isinstance(optimizer, MuonAdamW)
    adamw, muon = optimizer.param_groups
    names = {id(each): name for name, each in model.named_parameters()}
    assert {names[id(each)] for each in muon["params"]} == {"1.weight", "3.weight"}
    assert {names[id(each)] for each in adamw["params"]} == {
        "0.weight", "1.bias", "2.weight", "2.bias", "3.bias",
    }  # fmt: skip
    assert (muon["lr"], adamw["lr"]) == (2.0, 1.0)
    tied = nn.ModuleDict({"embed": nn.Embedding(11, 6), "head": nn.Linear(6, 11, bias=False)})
    tied["head"].weight = tied["embed"].weight
    # Nothing is left for Muon, which rejects an empty list.
    assert type(optimizer_of(tied, ratio=2.0)) is AdamW


def test_muon_orthogonalizes_in_float32() -> None:
    """Many CPUs only emulate bfloat16, and would take 20 times as long for the same training."""
    layer = nn.Linear(3, 25)  # 0.2 sqrt(25) = 1, so from zero the weights become the update
    nn.init.zeros_(layer.weight)
    train(nn.Sequential(nn.Embedding(11, 3), layer), optimizer_of(layer, ratio=1.0), 1)
    update = layer.weight.detach()
    assert torch.linalg.svdvals(update).sub(1).abs().max() < 0.5
    assert not torch.equal(update, update.bfloat16().float())


def test_schedule_scales_both_optimizers() -> None:
    model = small()
    optimizer = optimizer_of(model, ratio=2.0)
    schedule = LambdaLR(optimizer, lambda step: 0.01 if step < 2 else 0.0)
    train(model, optimizer, 1)
    schedule.step()
    schedule.step()
    still = copy.deepcopy(model.state_dict())
    train(model, optimizer, 3)
    for name, value in model.state_dict().items():
        assert torch.equal(value, still[name]), name
