"""Models asked on behalf of a golden set: so many at once, nothing paid twice, within a limit."""

import asyncio
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from art_e.models.base import PolicyError, Usage
from data_pipeline.golden.asking import Asker, spent_on
from evals.judges.llm import UnparseableError
from tests.builders import QUICK
from tests.provider import Provider, says

MODEL = "openai/gpt-4.1"
# $2 a million tokens of prompt, $8 of completion.
USAGE = Usage(10_000, 0, 1_000, 0)
COST = 0.02 + 0.008
# A call may cost this at most: its longest answer, and a prompt of a few tokens.
MOST = 4_096 * 8e-6 + 0.002


class Colour(BaseModel):
    """What colour it is."""

    name: Literal["red", "green"]


RED = says('{"name": "red"}', usage=USAGE)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ART_E_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def ask(
    provider: Provider, folder: Path, *things: str, role: str = "read", **options: Any
) -> list[str]:
    """What a new process would hear about each thing: a colour, or the name of the error."""

    async def one(asked: Asker, thing: str) -> str:
        try:
            return (await asked.ask("What colour?", {"thing": thing}, Colour)).name
        except (PolicyError, UnparseableError) as error:
            return error.kind if isinstance(error, PolicyError) else "unparseable"

    async def all_of_them(asked: Asker) -> list[str]:
        return await asyncio.gather(*(one(asked, thing) for thing in things))

    with pytest.MonkeyPatch.context() as patch:
        provider.stand_in_for_openai(patch)
        made = Asker(MODEL, folder, role, **{"concurrency": 2, "retries": QUICK, **options})
        return asyncio.run(all_of_them(made))


def test_what_is_kept_is_not_asked_again(tmp_path: Path) -> None:
    with Provider(lambda _: RED) as provider:
        assert ask(provider, tmp_path, "apple", "pear") == ["red", "red"]
        assert ask(provider, tmp_path, "pear", "plum", "apple") == ["red"] * 3
        assert len(provider.requests) == 3
        # Another role's replies are its own.
        ask(provider, tmp_path, "apple", role="generate")
        assert len(provider.requests) == 4
    assert spent_on(tmp_path, "read", MODEL).calls == 3
    assert spent_on(tmp_path, "read", MODEL).cost_usd == pytest.approx(3 * COST)
    assert spent_on(tmp_path, "settle", MODEL) == (0, Usage(), 0)


def test_the_limit_holds_over_restarts(tmp_path: Path) -> None:
    limit = 5 * COST + MOST
    with Provider(lambda _: RED) as provider:
        things = [str(number) for number in range(9)]
        heard = [
            ask(provider, tmp_path, thing, concurrency=1, max_cost_usd=limit)[0] for thing in things
        ]
        # Each was asked by a process of its own; the kept replies count.
        assert heard == ["red"] * 6 + ["budget"] * 3
        assert len(provider.requests) == 6
        # What is kept costs nothing, whatever the limit.
        assert ask(provider, tmp_path, *things[:6], max_cost_usd=0) == ["red"] * 6
        assert ask(provider, tmp_path, things[7], max_cost_usd=limit + COST) == ["red"]
    assert spent_on(tmp_path, "read", MODEL).cost_usd == pytest.approx(7 * COST)
