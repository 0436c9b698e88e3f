"""A limit that no interleaving of calls passes."""

import asyncio
import random
import threading
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.errors import UserError
from art_e.models.base import PolicyError
from art_e.models.prices import Budget, Price

# A dollar a prompt token and ten a completion token: sums that one sees.
PRICE = Price(1.0, 0.5, 10.0)


def test_a_call_that_could_pass_the_limit_is_refused() -> None:
    budget = Budget(100.0, PRICE, "m")
    assert budget.reserve(50, 5) == 100.0
    with pytest.raises(PolicyError, match=r"\$100\.0000 under way.*--max-cost") as refused:
        budget.reserve(1, 0)
    assert refused.value.kind == "budget"
    budget.settle(100.0, 60.0)
    assert budget.spent == 60.0
    # What was not used is free again, to the last cent and no further.
    with pytest.raises(PolicyError, match=r"\$60\.0000 spent"):
        budget.reserve(41, 0)
    assert budget.reserve(40, 0) == 40.0


def test_a_cost_not_known_counts_as_the_bound() -> None:
    budget = Budget(100.0, PRICE, "m")
    budget.settle(budget.reserve(70, 0), None)
    assert budget.spent == 70.0
    with pytest.raises(PolicyError):
        budget.reserve(31, 0)


def test_a_failed_call_that_cost_nothing_gives_all_back() -> None:
    budget = Budget(10.0, PRICE, "m")
    for _ in range(100):
        budget.settle(budget.reserve(10, 0), 0.0)
    assert budget.spent == 0.0


def test_a_limit_of_nothing_lets_no_call_pass() -> None:
    with pytest.raises(PolicyError):
        Budget(0.0, PRICE, "m").reserve(1, 0)


@pytest.mark.parametrize("price", [PRICE, None])
def test_without_a_limit_it_only_counts(price: Price | None) -> None:
    budget = Budget(None, price, "m")
    for _ in range(3):
        budget.settle(budget.reserve(1_000_000, 1_000_000), 2.5)
    assert budget.spent == 7.5


def test_a_limit_without_a_price_says_how_to_add_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ART_E_HOME", str(tmp_path))
    with pytest.raises(UserError) as error:
        Budget(1.0, None, "ollama_chat/qwen2.5:14b")
    for words in ('[models."ollama_chat/qwen2.5:14b"]', str(tmp_path / "prices.toml"), "usd_per"):
        assert words in str(error.value)


@pytest.mark.parametrize("limit", [-0.01, float("nan"), float("inf")])
def test_a_limit_that_is_no_sum_is_refused(limit: float) -> None:
    with pytest.raises(UserError, match="--max-cost"):
        Budget(limit, PRICE, "m")


dollars = st.floats(0, 50, allow_nan=False, width=32)
# A step begins a call, or ends one that is under way at that share of its bound.
begun = st.tuples(st.integers(0, 30), st.integers(0, 3))
ended = st.tuples(st.integers(0, 20), st.none() | st.floats(0, 1))


@given(dollars, st.lists(begun | ended, max_size=60))
def test_no_interleaving_passes_the_limit(
    limit: float, steps: list[tuple[int, int | float | None]]
) -> None:
    # A tenth of a cent has no exact float, so sums of it drift.
    budget = Budget(limit, Price(0.1, 0.1, 1.1), "m")
    under_way: list[float] = []
    actual = Fraction(0)
    for first, second in steps:
        if isinstance(second, int):
            try:
                under_way.append(budget.reserve(first, second))
            except PolicyError:
                assert actual + sum(map(Fraction, under_way)) <= Fraction(limit)
        elif under_way:
            reserved = under_way.pop(first % len(under_way))
            cost = None if second is None else reserved * second
            budget.settle(reserved, cost)
            actual += Fraction(reserved if cost is None else cost)
        assert budget.spent <= limit
        assert budget.spent == float(actual)
    for reserved in under_way:
        budget.settle(reserved, reserved)
    assert budget.spent <= limit


def test_threads_and_tasks_pass_it_together_neither() -> None:
    budget = Budget(100.0, PRICE, "m")
    paid: list[float] = []

    async def call(dice: random.Random) -> None:
        try:
            reserved = budget.reserve(dice.randrange(1, 5), 0)
        except PolicyError:
            return
        await asyncio.sleep(0)
        cost = reserved * dice.random()
        budget.settle(reserved, cost)
        paid.append(cost)

    async def calls(seed: int) -> None:
        dice = random.Random(seed)
        # What was reserved and not spent is there for the next round.
        for _ in range(5):
            await asyncio.gather(*(call(dice) for _ in range(100)))

    threads = [threading.Thread(target=asyncio.run, args=(calls(each),)) for each in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert budget.spent == pytest.approx(sum(paid))
    assert 90 < budget.spent <= 100
