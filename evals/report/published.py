"""Figures that ART-E's authors published, to set beside ours and never to mix with them.

They were measured on 100 Enron questions of their own, with their prompts, prices and
judge. Wherever a row of them is shown it is marked "published".
"""

from dataclasses import dataclass

from evals.intervals import Estimate, Sample

SOURCE = (
    "Published with ART-E's reference implementation: 100 test questions on Enron mail, judged by"
    " its authors' judge, at the prices of their day. Not measured here and not on these"
    " questions. The intervals are ours, from the published share and n (Wilson)."
    " o3's cost was later given as $11.04."
)


@dataclass(frozen=True, slots=True)
class Published:
    """One model's published figures; None where none was given. `accuracy` is of `n` questions."""

    model: str
    accuracy: float
    seconds: float | None = None
    cost_per_1000_usd: float | None = None
    n: int = 100


PUBLISHED = (
    Published("ART-E (Qwen2.5-14B, trained)", 0.96, seconds=1.1, cost_per_1000_usd=0.85),
    Published("o3", 0.90, seconds=5.6, cost_per_1000_usd=55.19),
    Published("o4-mini", 0.88, seconds=3.4, cost_per_1000_usd=7.88),
    Published("Gemini 2.5 Pro", 0.76),
    Published("GPT-4.1", 0.71),
    Published("Qwen2.5-14B, untrained", 0.41),
)


def accuracy(published: Published) -> Estimate:
    """The published share, with the interval that its n implies."""
    right = round(published.accuracy * published.n)
    return Sample(
        ["published"] * published.n, [str(number) for number in range(published.n)]
    ).share([number < right for number in range(published.n)])
