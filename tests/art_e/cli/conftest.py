"""`art-e ask` with a scripted model."""

from pathlib import Path
from typing import Any

import pytest

from art_e.models.base import PolicyError, Usage
from tests.builders import ScriptedPolicy, answer, message, read, search
from tests.command_line import LEASE_ID, Run

QUESTION = "When does the warehouse lease end?"
SEARCH = message(search("warehouse", "lease"))
READ = message(read("m1"))
ANSWER = message(answer("March 31, 2002", LEASE_ID))


@pytest.fixture
def ask(art_e: Run, owned_db: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Ask a model that follows the script, and then fails as a provider does."""

    def run(
        *args: object, script: Any = (SEARCH, READ, ANSWER), cost: float | None = 0.002,
        question: str = QUESTION, model: str = "scripted",
    ) -> Any:  # fmt: skip
        steps = [*script, PolicyError("provider", "the provider is down")]
        costs = [cost] * len(steps)
        policy = ScriptedPolicy(steps, model=model, usage=Usage(10, 0, 2), costs=costs)
        monkeypatch.setattr("art_e.models.model.Model.policy", lambda *_: policy)
        return art_e("ask", question, "--db", owned_db, *args)

    return run
