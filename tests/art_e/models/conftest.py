"""Policies that ask the scripted provider."""

from typing import Any

import pytest

from art_e.models.base import ModelOptions
from art_e.models.hosted import LitellmPolicy, Retries
from tests.builders import QUICK, Make
from tests.provider import Provider


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes a policy that asks a provider, by default for o3."""

    def policy(
        provider: Provider, model: str = "openai/o3", retries: Retries = QUICK, **options: Any
    ) -> LitellmPolicy:
        provider.stand_in_for_openai(monkeypatch)
        return LitellmPolicy(model, ModelOptions(**options), retries)

    return policy
