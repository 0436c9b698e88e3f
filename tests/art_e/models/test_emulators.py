"""Today's models through strict stand-ins for their APIs, where a folder of such is at hand.

    ART_E_EMULATORS=FOLDER pytest -s tests/art_e/models/test_emulators.py

The folder's `servers.py` starts one server for each family of providers. Prints a line a model.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from art_e.agent import run_episode
from art_e.episode import Episode
from art_e.inbox.file import InboxFile
from art_e.models.base import ModelOptions
from art_e.models.hosted import LitellmPolicy
from art_e.models.providers import ending
from art_e.question import Question
from tests.builders import QUICK
from tests.command_line import ANN

EMULATORS = os.environ.get("ART_E_EMULATORS", "")
pytestmark = pytest.mark.skipif(not EMULATORS, reason="ART_E_EMULATORS names no stand-ins")

VARIABLES = {
    "OPENAI_BASE_URL": ("openai", "/v1"),
    "GEMINI_API_BASE": ("gemini", "/v1beta"),
    "ANTHROPIC_API_BASE": ("anthropic", ""),
    "OPENROUTER_API_BASE": ("openrouter", "/api/v1"),
    "OLLAMA_API_BASE": ("ollama", ""),
    "HOSTED_VLLM_API_BASE": ("vllm", "/v1"),
    "AZURE_API_BASE": ("azure", ""),
}
MODELS = (
    *(f"openai/{each}" for each in ("o3 o4-mini gpt-4.1 gpt-4o gpt-5 gpt-5.1 gpt-5.2 gpt-5.4"
      " gpt-5.4-mini gpt-5.5 gpt-5.6 gpt-5.6-sol gpt-6-astra gpt-6-sol gpt-6.1-sol").split()),
    *(f"anthropic/claude-{each}" for each in ("sonnet-4-5 opus-4-5 haiku-4-5 opus-4-6 sonnet-4-6"
      " opus-4-7 sonnet-5 opus-5 haiku-5-5 sonnet-5-5 opus-5-5").split()),
    *(f"gemini/gemini-{each}" for each in ("2.0-flash 2.5-pro 2.5-flash 3.5-flash 3.8-flash"
      " 3.5-flash-lite").split()),
    "ollama_chat/qwen2.5:14b", "ollama_chat/qwen3:8b",
    "openrouter/qwen/qwen3-14b", "openrouter/openai/o3",
    "hosted_vllm/Qwen2.5-14B-Instruct", "azure/of-our-own", "azure/o3",
)  # fmt: skip
ENDED = ("openai/o4-mini", "gemini/gemini-2.0-flash")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The stand-ins, running, with the environment that points to them; their folder of logs."""
    folder = tmp_path_factory.mktemp("emulators")
    command = [sys.executable, str(Path(EMULATORS) / "servers.py"), str(folder)]
    with (
        pytest.MonkeyPatch.context() as patch,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running,
    ):
        assert running.stdout is not None
        urls = json.loads(running.stdout.readline())
        for name, (family, path) in VARIABLES.items():
            patch.setenv(name, urls[family] + path)
        for family in ("OPENAI", "GEMINI", "ANTHROPIC", "OPENROUTER", "AZURE"):
            patch.setenv(f"{family}_API_KEY", "sk-test-0123456789abcdef")
        patch.setenv("AZURE_API_VERSION", "2025-04-01-preview")
        yield folder
        running.kill()


@pytest.mark.parametrize("model", MODELS)
def test_a_model_answers_or_says_that_it_has_ended(model: str, log: Path, owned_db: Path) -> None:
    logged = log / f"{_family(model)}.jsonl"
    before = len(logged.read_text().splitlines()) if logged.exists() else 0
    question = Question("q", "When does the warehouse lease end?", ANN)
    with InboxFile(owned_db) as file:
        policy = LitellmPolicy(model, ModelOptions(), QUICK)
        episode = Episode(file.open_inbox(ANN), question)
        trajectory = asyncio.run(run_episode(episode, policy, "r"))
    codes = [json.loads(each)["status"] for each in logged.read_text().splitlines()[before:]]
    calls, cost = trajectory.rubric["tool_calls"], trajectory.cost_usd
    shown = "unknown" if cost is None else f"${cost:.4f}"
    print(f"{model:34} {codes} calls {calls} cost {shown} {trajectory.error or ''}"[:150])
    if model in ENDED:
        assert trajectory.error is not None and trajectory.error["kind"] == "no-model"
        assert " ended on " in str(ending(model))
        return
    assert trajectory.error is None and trajectory.rubric["answered"]
    assert codes.count(200) >= trajectory.rubric["turns"] and codes.count(400) <= 3
    assert not (set(codes) - {200, 400})


def _family(model: str) -> str:
    provider = model.partition("/")[0]
    return {"ollama_chat": "ollama", "hosted_vllm": "vllm"}.get(provider, provider)
