"""Costs against sums worked out by hand, and a limit that no interleaving of calls passes."""

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from art_e.models.base import PolicyError, Usage
from art_e.models.prices import Budget, Price, price_of, served_price
from art_e.models.providers import load_litellm
from tests.builders import table, the_error

CASES = table(__file__, "own_prices.toml")
VLLM = "hosted_vllm/Qwen2.5-14B-Instruct"


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of `prices.toml`, which is not there."""
    monkeypatch.setenv("ART_E_HOME", str(tmp_path))
    return tmp_path / "prices.toml"


def test_no_listed_model_is_free_and_the_bound_holds_for_all() -> None:
    listed = load_litellm().model_cost.items()
    prices = {
        each: price_of(each)
        for each, entry in listed
        if entry.get("mode") == "chat" and not each.startswith("ollama")
    }
    found = {name: price for name, price in prices.items() if price is not None}
    assert len(found) > 1_000
    for model, price in found.items():
        cost = price.cost(Usage(1_000, 300, 1_000, 700))
        assert 0 < cost <= price.max_cost(1_000, 1_000) * (1 + 1e-9), model


dollars = st.floats(0, 50, allow_nan=False, width=32)
# A step begins a call, or ends one that is under way at that share of its bound.
begun = st.tuples(st.integers(0, 30), st.integers(0, 3))
ended = st.tuples(st.integers(0, 20), st.none() | st.floats(0, 1))


@given(dollars, st.lists(begun | ended, max_size=60))
def test_the_limit_holds(limit: float, steps: list[tuple[int, int | float | None]]) -> None:
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


@pytest.mark.parametrize(("text", "words"), CASES["malformed"])
def test_a_malformed_file_says_where(own: Path, text: str, words: str) -> None:
    own.write_text(text)
    line = the_error(price_of, VLLM)
    assert words in line and str(own) in line


@pytest.mark.parametrize(("model", "served", "billed"), CASES["billed"])
def test_a_call_costs_what_its_model_does(own: Path, model: str, served: str, billed: str) -> None:
    assert served_price(model, served, price_of(model)) == price_of(billed)
    own.write_text(
        f'[models."{model}"]\nusd_per_million_prompt = 1\nusd_per_million_completion = 2\n'
    )
    mine = price_of(model)
    assert mine == Price(1e-6, 1e-6, 2e-6) == served_price(model, served, mine)


def test_only_ollama_on_this_machine_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for model in ("offline", VLLM, "openrouter/o3", "nobody/o3"):
        assert price_of(model) is None
    free = price_of("ollama_chat/llama3")
    assert free is not None and free.cost(Usage(1_000, 0, 1_000)) == 0
    monkeypatch.setenv("OLLAMA_API_BASE", "http://gpu.lan:11434")
    assert price_of("ollama_chat/llama3") is None


def test_a_gpus_price_is_that_of_its_time(own: Path) -> None:
    own.write_text(CASES["of_a_gpu"])
    price = price_of(VLLM)
    assert price is not None
    assert price.cost(Usage(50, 0, 25)) == pytest.approx(2 / 360)
    assert price.cost(Usage(50, 10, 0)) == pytest.approx(2 / 720)
