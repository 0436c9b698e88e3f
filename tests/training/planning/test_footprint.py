"""Memory, against what the real libraries keep for a pass, and against known figures."""

import pytest

from tests.training.planning.live_memory import taken
from training.planning.cards import card_of, cards
from training.planning.footprint import (
    Phase,
    Trained,
    generating_phase,
    serving_phase,
    training_phase,
)
from training.planning.geometry import PUBLISHED, Shape
from training.recipe import Lora, ModelTable, Vllm

BASE = "Qwen/Qwen2.5-14B-Instruct"
H100 = card_of("h100-80gb")
TALK = Trained(PUBLISHED["14B"], ModelTable(base=BASE, lora=Lora(), checkpointing=True))
# The linear layers' own vocabulary is of no account here: TRL scores logits in tiles.
SMALL = Shape(3, 1_024, 3_072, 8, 2, 512, tied=True)
WIDE = Shape(2, 1_280, 5_440, 10, 10, 512, tied=False)


def lines_of(phase: Phase) -> dict[str, float]:
    return {line.what: line.size / 1e9 for line in phase.lines}


def check(shape: Shape, table: ModelTable, episodes: int, tokens: int, off: float) -> None:
    """That the activations are planned within `off` of what the libraries keep."""
    lora = 0 if table.lora is None else table.lora.rank
    real = taken(shape, episodes, tokens, lora=lora, checkpointing=table.checkpointing)
    planned = Trained(shape, table).activations(episodes, tokens)
    # Of these the stand-in has no part: it has no head, and NF4 can't be decoded there.
    size = sum(line.size for line in planned if line.what not in ("logits", "a matrix decoded"))
    if table.lora is None:
        # Its gradients come one by one as what was kept goes, and are planned apart.
        assert real.most - real.gradients <= 1.1 * size
        assert size <= (1 + off) * real.most
    else:
        assert size == pytest.approx(real.most - real.gradients, rel=off)


@pytest.mark.parametrize("checkpointing", [True, False])
@pytest.mark.parametrize("bits", [16, 4])
# Beside as many heads of keys as of queries, which no published shape has, less is kept.
@pytest.mark.parametrize(("shape", "off"), [(SMALL, 0.12), (WIDE, 0.25)])
def test_what_autograd_keeps_beside_an_adapter(
    shape: Shape, off: float, bits: int, checkpointing: bool
) -> None:
    told = {"base": BASE, "bits": bits, "lora": {}, "checkpointing": checkpointing}
    check(shape, ModelTable.model_validate(told), 2, 2_048, off)


@pytest.mark.parametrize("checkpointing", [True, False])
@pytest.mark.parametrize("shape", [SMALL, WIDE])
def test_what_autograd_keeps_of_a_whole_model(shape: Shape, checkpointing: bool) -> None:
    check(shape, ModelTable(base=BASE, checkpointing=checkpointing), 4, 1_024, 0.15)


@pytest.mark.parametrize(("bits", "tokens"), [(16, 8_000), (4, 6_000)])
def test_what_autograd_keeps_of_the_model_of_the_talk(bits: int, tokens: int) -> None:
    told = {"base": BASE, "bits": bits, "lora": {}, "checkpointing": True}
    check(PUBLISHED["14B"], ModelTable.model_validate(told), 1, tokens, 0.1)


def test_the_memory_of_the_talk() -> None:
    vllm = Vllm(mode="colocate", memory=0.55)
    phase, room = generating_phase(TALK, H100, vllm, 48, 8_000)
    made = lines_of(phase)
    # Its weights twice, and vLLM has its share and no more.
    assert made["weights"] == made["vLLM: weights"] == pytest.approx(29.54, abs=0.01)
    share = sum(size for what, size in made.items() if what.startswith("vLLM"))
    assert share == pytest.approx(0.55 * H100.memory / 1e9, abs=0.01)
    assert room.tokens == int(made["vLLM: keys and values"] * 1e9 // 196_608)
    assert room.episodes == room.tokens // 8_000
    assert phase.left == H100.memory - phase.size
    learns = training_phase(TALK, H100, 1, 1, 8_000, vllm)
    learnt = lines_of(learns)
    adapter = learnt["adapter"] + learnt["gradients"] + learnt["AdamW"]
    assert adapter == pytest.approx(1.10, abs=0.01)
    assert 5 < learnt["inputs of the layers"] + learnt["a layer computed anew"] < 8
    assert learns.left > 0


def test_what_vllm_keeps_while_weights_are_trained() -> None:
    asleep, awake = (
        lines_of(training_phase(TALK, H100, 1, 1, 8_000, Vllm(mode="colocate", sleep=sleep)))
        for sleep in (True, False)
    )
    assert awake["vLLM awake"] == pytest.approx(0.5 * H100.memory / 1e9)
    assert asleep["vLLM asleep"] < 2


def test_a_share_without_room_has_none() -> None:
    phase, room = generating_phase(TALK, H100, Vllm(mode="colocate", memory=0.3), 48, 8_000)
    assert (room.tokens, room.episodes, room.wanted) == (0, 0, 48)
    assert lines_of(phase)["vLLM: keys and values"] == 0
    # What it needs at least is told all the same.
    assert lines_of(phase)["vLLM: weights"] == pytest.approx(29.54, abs=0.01)


def test_transformers_fits_as_many_episodes_as_it_says() -> None:
    trained = Trained(
        PUBLISHED["14B"], ModelTable(base=BASE, bits=4, lora=Lora(), checkpointing=True)
    )
    card = card_of("rtx4090-24gb")
    _, room = generating_phase(trained, card, None, 8, 6_000)
    fits, _ = generating_phase(trained, card, None, room.episodes, 6_000)
    not_any_more, _ = generating_phase(trained, card, None, room.episodes + 1, 6_000)
    assert fits.left >= 0 > not_any_more.left
    assert lines_of(fits)["weights"] == pytest.approx(9.93, abs=0.01)


def test_a_server_has_a_card_for_itself() -> None:
    phase, room = serving_phase(PUBLISHED["14B"], H100, 32, 8_000)
    assert phase.size == pytest.approx(0.9 * H100.memory, rel=1e-6)
    assert room.tokens > 200_000


def test_all_weights_take_sixteen_bytes_each_to_learn() -> None:
    trained = Trained(SMALL, ModelTable(base=BASE))
    learnt = lines_of(training_phase(trained, H100, 1, 1, 100, None))
    states = learnt["weights"] + learnt["gradients"] + learnt["AdamW"]
    assert states * 1e9 == pytest.approx(16 * SMALL.parameters)
    shared = lines_of(training_phase(trained, H100, 2, 1, 100, None))
    assert shared["gradients to share"] == learnt["gradients"]


def test_cards_have_about_the_memory_of_their_names() -> None:
    for name, card in cards().items():
        decimal = float(name.rpartition("-")[2].removesuffix("gb"))
        assert 0.95 * decimal < card.memory / 1e9 < 1.08 * decimal, name
        assert card.usd_per_hour > 0
