"""What to change where a plan does not fit: found by planning again with the change.

The smallest change first: what costs nothing but a setting, then time, then shorter episodes, then
another card. Of each kind the mildest that fits is told; where none does by itself, they are put
together. Knows nothing of how memory is counted.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from art_e.errors import UserError
from training.planning.cards import Card, cards
from training.planning.footprint import SERVER_SHARE
from training.planning.plan import Plan
from training.recipe import Recipe

# How the recipe with those changes is planned on a card (None: the same). Raises `UserError`
# where the recipe refuses them.
Again = Callable[[tuple[str, ...], Card | None], Plan]

_LEAST_EPISODE = 2_000
_STEP_TOKENS = 1_000


@dataclass(frozen=True, slots=True)
class Remedy:
    """Changes as `--set` takes them, or another card, with which it fits: as `plan` says."""

    changes: tuple[str, ...]
    card: Card | None
    plan: Plan

    @property
    def options(self) -> str:
        """As the command takes them."""
        said = [f"--set {change}" for change in self.changes]
        return " ".join([*said, *([] if self.card is None else [f"--gpu {self.card.name}"])])


def remedies(planned: Plan, again: Again) -> list[Remedy]:
    """Ways to make it fit, the smallest change first; none where it fits as it is, or no way is
    known."""
    if not planned.faults:
        return []
    found = []
    kinds = [list(kind) for kind in _kinds(planned.recipe)]
    for kind in kinds:
        fitting = _first(kind, again)
        if fitting is not None:
            found.append(fitting)
    if not found:
        fitting = _first(_together(kinds), again)
        found += [] if fitting is None else [fitting]
    larger = sorted(
        (each for each in cards().values() if each.memory > planned.card.memory),
        key=lambda each: each.usd_per_hour,
    )
    for card in larger:
        on_it = _planned(again, (), card)
        if on_it is not None and not on_it.faults:
            found.append(Remedy((), card, on_it))
            break
    return found


def _kinds(recipe: Recipe) -> Iterator[Iterable[tuple[str, ...]]]:
    """Kinds of changes, the smallest first; of each the mildest first."""
    table, model, form = recipe.grpo, recipe.model, recipe.episode
    vllm = table.vllm if table is not None else None
    if vllm is not None and vllm.mode == "colocate" and not vllm.sleep:
        yield [("grpo.vllm.sleep=true",)]
    if not model.checkpointing:
        yield [("model.checkpointing=true",)]
    if vllm is not None and vllm.mode == "colocate":
        shares = [each / 100 for each in range(10, round(100 * SERVER_SHARE) + 1, 5)]
        shares.sort(key=lambda share: abs(share - vllm.memory))
        yield [(f"grpo.vllm.memory={share:g}",) for share in shares if share != vllm.memory]
    if table is not None and vllm is None:
        most = table.generate_batch or table.questions * table.rollouts
        yield [(f"grpo.generate_batch={size}",) for size in _smaller(most)]
    if table is not None and table.micro_batch > 1:
        yield [(f"grpo.micro_batch={size}",) for size in _smaller(table.micro_batch)]
    # A turn has to fit behind the prompt.
    least = max(_LEAST_EPISODE, 2 * form.turn_tokens)
    tokens = range(form.episode_tokens - _STEP_TOKENS, least - 1, -_STEP_TOKENS)
    yield [(f"episode.episode_tokens={each}",) for each in tokens]
    if model.bits == 16 and model.lora is not None and model.base is not None:
        whole = ("model.bits=4", *(["grpo.vllm.mode=off"] if vllm is not None else []))
        sizes = (
            [()] if table is None else [(f"grpo.generate_batch={size}",) for size in (8, 4, 2, 1)]
        )
        yield [(*whole, *size) for size in sizes]


def _smaller(most: int) -> list[int]:
    """Smaller sizes of batches, the largest first: halves down to 8, then all."""
    halves = []
    while most > 8:
        most //= 2
        halves.append(most)
    return [*halves, *range(most - 1, 0, -1)]


def _together(kinds: list[list[tuple[str, ...]]]) -> Iterator[tuple[str, ...]]:
    """Changes of several kinds at a time: the first kinds whole, further ones step by step."""
    so_far: tuple[str, ...] = ()
    for kind in kinds:
        for change in kind:
            yield (*so_far, *change)
        if kind:
            so_far = (*so_far, *kind[-1])


def _first(candidates: Iterable[tuple[str, ...]], again: Again) -> Remedy | None:
    for changes in candidates:
        changed = _planned(again, changes, None)
        if changed is not None and not changed.faults:
            return Remedy(changes, None, changed)
    return None


def _planned(again: Again, changes: tuple[str, ...], card: Card | None) -> Plan | None:
    """None where the recipe refuses the changes."""
    try:
        return again(changes, card)
    except UserError:
        return None
