"""What each optimizer moves, and how a schedule reaches all of it.

That a resumed one goes on as if never stopped is in test_killed.py.
"""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from training.optimizer import LogitScaleAdamW, MuonAdamW, optimizer_of


def small() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(11, 6), nn.Linear(6, 5), nn.LayerNorm(5), nn.Linear(5, 3))


def train(model: nn.Module, optimizer: Optimizer, steps: int) -> None:
    for _ in range(steps):
        inputs, wanted = torch.randint(11, (16,)), torch.randint(3, (16,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), wanted).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


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


def test_a_schedule_moves_both_halves() -> None:
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


def test_logits_that_are_right_and_unsure_are_scaled_up_by_one_factor() -> None:
    head = Head()
    before = head.norm.weight.detach().clone()
    optimizer = LogitScaleAdamW([], head.norm.weight, rate=1.0, scale_rate=0.1)
    shown = torch.randn(64, 8)
    guessed = head(shown).argmax(-1)
    for _ in range(10):
        nn.functional.cross_entropy(head(shown), guessed).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    factors = head.norm.weight.detach() / before
    # Adam's steps are as long as the rate while the gradient keeps its sign.
    assert factors.log().tolist() == pytest.approx([1.0] * 8, rel=0.05)
