"""GPUs by name: memory, speed, price (`cards.toml`). Knows nothing of models and recipes."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

from art_e.errors import UserError

DEFAULT = "h100-80gb"
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU: `memory` in bytes, `flops` of dense bfloat16 matrices a second, `bandwidth` in bytes
    a second, `usd_per_hour` to rent one."""

    name: str
    memory: int
    flops: float
    bandwidth: float
    usd_per_hour: float


@cache
def cards() -> dict[str, Card]:
    """All that are known, by name."""
    text = resources.files("training.planning").joinpath("cards.toml").read_text("utf-8")
    return {
        name: Card(
            name,
            round(row["gib"] * _GIB),
            row["tflops"] * 1e12,
            row["gb_per_second"] * 1e9,
            row["usd_per_hour"],
        )
        for name, row in tomllib.loads(text).items()
    }


def card_of(name: str) -> Card:
    """The card of that name. Raises `UserError`, with the list, for another."""
    try:
        return cards()[name]
    except KeyError:
        raise UserError(f"no GPU {name!r} is known; there are {', '.join(cards())}") from None
