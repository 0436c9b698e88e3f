"""Costs against hand-computed sums, and a limit that no order of calls exceeds."""

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
def prices_toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of `prices.toml`, which does not exist."""
    monkeypatch.setenv("ART_E_HOME", str(tmp_path))
    return tmp_path / "prices.toml"


def test_listed_models_have_a_price_within_the_bound() -> None:
    entries = load_litellm().model_cost.items()
    chat = [name for name, entry in entries if entry.get("mode") == "chat"]
    prices = {name: price_of(name) for name in chat if not name.startswith("ollama")}
    known = {name: price for name, price in prices.items() if price is not None}
    assert len(known) > 1_000
    for model, price in known.items():
        cost = price.cost(Usage(1_000, 300, 1_000, 700))
        assert 0 < cost <= price.max_cost(1_000, 1_000) * (1 + 1e-9), model


dollars = st.floats(0, 50, allow_nan=False, width=32)
# A step starts a call, or finishes a running one at a share of its bound.
starts = st.tuples(st.integers(0, 30), st.integers(0, 3))
ends = st.tuples(st.integers(0, 20), st.none() | st.floats(0, 1))


@given(dollars, st.lists(starts | ends, max_size=60))
def test_limit_holds(limit: float, steps: list[tuple[int, int | float | None]]) -> None:
    # Tenths have no exact float, so their sums drift.
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
def test_error_names_a_malformed_entry(prices_toml: Path, text: str, words: str) -> None:
    prices_toml.write_text(text)
    line = the_error(price_of, VLLM)
    assert words in line and str(prices_toml) in line


@pytest.mark.parametrize(("model", "served", "billed"), CASES["billed"])
def test_served_model_is_billed(prices_toml: Path, model: str, served: str, billed: str) -> None:
    assert served_price(model, served, price_of(model)) == price_of(billed)
    prices_toml.write_text(
        f'[models."{model}"]\nusd_per_million_prompt = 1\nusd_per_million_completion = 2\n'
    )
    price = price_of(model)
    assert price == Price(1e-6, 1e-6, 2e-6) == served_price(model, served, price)


def test_only_local_ollama_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    for model in ("offline", VLLM, "openrouter/o3", "nobody/o3"):
        assert price_of(model) is None
    free = price_of("ollama_chat/llama3")
    assert free is not None and free.cost(Usage(1_000, 0, 1_000)) == 0
    monkeypatch.setenv("OLLAMA_API_BASE", "http://gpu.lan:11434")
    assert price_of("ollama_chat/llama3") is None


def test_gpu_price_is_per_second(prices_toml: Path) -> None:
    prices_toml.write_text(CASES["of_a_gpu"])
    price = price_of(VLLM)
    assert price is not None
    assert price.cost(Usage(50, 0, 25)) == pytest.approx(2 / 360)
    assert price.cost(Usage(50, 10, 0)) == pytest.approx(2 / 720)
