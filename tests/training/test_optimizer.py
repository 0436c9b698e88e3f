"""What each optimizer moves, how a schedule reaches all of it, and its state."""

import copy
import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from training.optimizer import LogitScaleAdamW, MuonAdamW, optimizer_of


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(11, 6), nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 3))


def train(model: nn.Module, optimizer: Optimizer, steps: int, first: int = 0) -> list[float]:
    losses = []
    for step in range(first, first + steps):
        torch.manual_seed(step)
        inputs, wanted = torch.randint(11, (16,)), torch.randint(3, (16,))
        loss: Any = nn.functional.cross_entropy(model(inputs), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_matrices_go_to_muon_and_embeddings_norms_and_biases_to_adamw() -> None:
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


def test_a_tied_embedding_stays_with_adamw() -> None:
    model = nn.ModuleDict({"embed": nn.Embedding(11, 6), "head": nn.Linear(6, 11, bias=False)})
    model["head"].weight = model["embed"].weight
    # Nothing is left for Muon, which takes no empty list.
    assert type(optimizer_of(model, ratio=2.0)) is AdamW


def check_same(model: nn.Module, state: dict[str, Tensor]) -> None:
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name]), name


def test_a_schedule_moves_both_halves() -> None:
    model = small()
    optimizer = optimizer_of(model, ratio=2.0)
    schedule = LambdaLR(optimizer, lambda step: 0.01 if step < 2 else 0.0)
    train(model, optimizer, 1)
    schedule.step()
    schedule.step()
    still = copy.deepcopy(model.state_dict())
    train(model, optimizer, 3)
    check_same(model, still)


def test_state_saved_and_loaded_goes_on_as_if_never_stopped() -> None:
    model = small()
    optimizer = optimizer_of(model, ratio=2.0)
    LambdaLR(optimizer, lambda step: 0.01)
    train(model, optimizer, 5)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    undisturbed = train(model, optimizer, 5, first=5)

    file.seek(0)
    saved = torch.load(file, weights_only=True)
    again = small()
    again.load_state_dict(saved["model"])
    resumed = optimizer_of(again, ratio=2.0)
    resumed.load_state_dict(saved["optimizer"])
    assert train(again, resumed, 5, first=5) == undisturbed


class Head(nn.Module):
    """A norm and a head behind it, whose logits point the right way and are far too small."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm = nn.RMSNorm(8)
        self.head = nn.Linear(8, 4, bias=False)
        with torch.no_grad():
            self.norm.weight.copy_(torch.linspace(0.1, 0.2, 8))

    def forward(self, shown: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(shown))
        return logits


def scaled(head: Head, optimizer: LogitScaleAdamW, steps: int) -> None:
    """Teach the head what it guessed at first, which it was not sure of."""
    torch.manual_seed(1)
    shown = torch.randn(64, 8)
    wanted = Head()(shown).argmax(-1)
    for _ in range(steps):
        nn.functional.cross_entropy(head(shown), wanted).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()


def test_logits_that_are_right_and_unsure_are_scaled_up_by_one_factor() -> None:
    head = Head()
    before = head.norm.weight.detach().clone()
    scaled(head, LogitScaleAdamW([], head.norm.weight, rate=1.0, scale_rate=0.1), 10)
    factors = head.norm.weight.detach() / before
    # Adam's steps are as long as the rate while the gradient keeps its sign.
    assert factors.log().tolist() == pytest.approx([1.0] * 8, rel=0.05)


def test_the_scale_goes_on_from_its_state_as_if_never_stopped() -> None:
    def optimizer_for(head: Head) -> LogitScaleAdamW:
        return LogitScaleAdamW([head.head.weight], head.norm.weight, rate=0.01, scale_rate=0.1)

    whole = Head()
    scaled(whole, optimizer_for(whole), 8)

    stopped = Head()
    first = optimizer_for(stopped)
    scaled(stopped, first, 5)
    again = Head()
    again.load_state_dict(stopped.state_dict())
    resumed = optimizer_for(again)
    resumed.load_state_dict(first.state_dict())
    scaled(again, resumed, 3)
    check_same(whole, again.state_dict())
