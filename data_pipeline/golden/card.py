"""The card of a golden set."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from data_pipeline.golden.golden_set import GoldenSet


def card(golden: "GoldenSet") -> str:
    """The README.md of the set."""
    return f"# Golden set\n\n{len(golden.questions)} questions.\n"
