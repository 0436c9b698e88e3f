"""litellm as it is loaded for us, in processes of their own: quiet, offline, and whole."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from art_e.models.providers import load_litellm
from tests.builders import Make, act
from tests.provider import Provider, says

ROOT = Path(__file__).parents[3]

OFFLINE = """
import os, socket, sys

def refuse(*_):
    raise SystemExit("the network was used")

socket.socket.connect = socket.getaddrinfo = refuse
sys.path.insert(0, sys.argv[1])
from art_e.models.providers import load_litellm, warm_up

litellm = load_litellm()
warm_up()
messages = [{"role": "user", "content": "When does the lease end?"}]
for model in ("o3", "ollama_chat/qwen2.5:14b", "hosted_vllm/meta-llama/Llama-3-8B"):
    assert litellm.token_counter(model=model, messages=messages) > 5
assert litellm.model_cost["o3"]["input_cost_per_token"] > 0
assert "FROM_DOTENV" not in os.environ
"""

WHOLE = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from art_e.models.base import ModelOptions
from art_e.models.hosted import LitellmPolicy
from art_e.models.providers import warm_up
from art_e.tools import schemas

policy = LitellmPolicy("openai/o3", ModelOptions())
warm_up()
before = set(sys.modules)
asyncio.run(policy.act([{"role": "user", "content": "When?"}], schemas()))
print(*sorted(set(sys.modules) - before))
"""


def test_loading_it_asks_nobody_says_nothing_and_reads_no_env_file(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("FROM_DOTENV=1\n")
    done = subprocess.run(
        [sys.executable, "-c", OFFLINE, ROOT], cwd=tmp_path, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_the_first_call_loads_next_to_nothing_that_would_count_as_latency(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Provider([says("x")]) as provider:
        provider.stand_in_for_openai(monkeypatch)
        done = subprocess.run(
            [sys.executable, "-c", WHOLE, ROOT], capture_output=True, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (0, "")
    # Without warming up they are 700, and take most of a second.
    assert len(done.stdout.split()) < 10


def test_connections_end_with_their_event_loop(make: Make) -> None:
    """Each command runs a loop of its own; litellm would keep the connections of all of them."""
    kept = load_litellm().in_memory_llm_clients_cache.cache_dict
    before = set(kept)
    with Provider(lambda _: says("x")) as provider:
        policy = make(provider)
        for _ in range(12):
            assert act(policy).message.content == "x"
        deadline = time.monotonic() + 5
        while provider.connections and time.monotonic() < deadline:
            time.sleep(0.01)
        assert provider.connections == 0
        assert len(provider.requests) == 12
    assert set(kept) == before
