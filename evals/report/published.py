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
    """One model's published figures; None where none was given. `accuracy` is of `n` questions.
    `name` is litellm's; None for a model that is nobody's to call: the trained one, and what it
    was before."""

    model: str
    accuracy: float
    name: str | None = None
    seconds: float | None = None
    cost_per_1000_usd: float | None = None
    n: int = 100


PUBLISHED = (
    TRAINED := Published("ART-E (Qwen2.5-14B, trained)", 0.96, seconds=1.1, cost_per_1000_usd=0.85),
    O3 := Published("o3", 0.90, "openai/o3", seconds=5.6, cost_per_1000_usd=55.19),
    Published("o4-mini", 0.88, "openai/o4-mini", seconds=3.4, cost_per_1000_usd=7.88),
    Published("Gemini 2.5 Pro", 0.76, "gemini/gemini-2.5-pro"),
    Published("GPT-4.1", 0.71, "openai/gpt-4.1"),
    UNTRAINED := Published("Qwen2.5-14B, untrained", 0.41),
)
# Of the talk besides: what of o3's errors the trained model mends, and what training took.
MENDED = 0.60
TRAINING_USD = 80


def accuracy(published: Published) -> Estimate:
    """The published share, with the interval that its n implies."""
    right = round(published.accuracy * published.n)
    return Sample(
        ["published"] * published.n, [str(number) for number in range(published.n)]
    ).share([number < right for number in range(published.n)])
