"""Today's models against strict emulators of their APIs, if a folder has them.

    ART_E_EMULATORS=FOLDER pytest -s tests/art_e/models/test_emulators.py

The folder's `servers.py` starts a server per family of providers. The tests print a line per model
and per failure."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from art_e.episode import Episode
from art_e.inbox.file import InboxFile
from art_e.models.base import ModelOptions
from art_e.models.hosted import LitellmPolicy
from art_e.models.providers import ending
from art_e.question import Question
from art_e.trajectory import Trajectory
from tests.builders import QUICK, play, table, table_rows
from tests.command_line import ANN

EMULATORS = os.environ.get("ART_E_EMULATORS", "")
pytestmark = pytest.mark.skipif(not EMULATORS, reason="ART_E_EMULATORS names no emulators")

# An environment variable, its emulator, and the end of its address.
VARIABLES = table_rows(__file__, "emulator_variables.tsv")
# Empty for models without a published price.
PRICES = table(__file__, "prices.toml")
ENDED = ("openai/o4-mini", "gemini/gemini-2.0-flash")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run the emulators, set the environment to their addresses, and yield their logs' folder."""
    folder = tmp_path_factory.mktemp("emulators")
    command = [sys.executable, Path(EMULATORS) / "servers.py", folder, folder / "faults.json"]
    with (
        pytest.MonkeyPatch.context() as patch,
        subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, text=True) as running,
    ):
        assert running.stdout is not None
        urls = json.loads(running.stdout.readline())
        for name, family, path in VARIABLES:
            patch.setenv(name, urls[family] + path)
        for family in ("OPENAI", "GEMINI", "ANTHROPIC", "OPENROUTER", "AZURE"):
            patch.setenv(f"{family}_API_KEY", "sk-test-0123456789abcdef")
        patch.setenv("AZURE_API_VERSION", "2025-04-01-preview")
        yield folder
        running.kill()


def ask(model: str, log: Path, db: Path, **options: Any) -> tuple[Trajectory, list[Any]]:
    """Return a question's episode, and the logged requests and responses of its calls."""
    family = model.partition("/")[0].replace("ollama_chat", "ollama").replace("hosted_", "")
    logged = log / f"{family}.jsonl"
    before = len(logged.read_text().splitlines()) if logged.exists() else 0
    with InboxFile(db) as file:
        policy = LitellmPolicy(model, ModelOptions(**options), QUICK)
        episode = Episode(file.open_inbox(ANN), Question("q", "When does the lease end?", ANN))
        trajectory = play(episode, policy)
    rows = [json.loads(each) for each in logged.read_text().splitlines()[before:]]
    calls = [each for each in rows if each["path"] != "/api/show" or each["status"] != 200]
    return trajectory, calls


def charged(response: Any, price: tuple[float, ...]) -> float:
    """Return the cost of a call in USD by the tokens that its provider reported."""
    usage = response.get("usageMetadata") or response.get("usage") or {}
    if "promptTokenCount" in usage:
        cached, written = usage.get("cachedContentTokenCount", 0), 0
        prompt = usage["promptTokenCount"] - cached
        completion = usage.get("candidatesTokenCount", 0) + usage.get("thoughtsTokenCount", 0)
    elif "cache_read_input_tokens" in usage:
        cached, written = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
        prompt, completion = usage["input_tokens"], usage["output_tokens"]
    else:
        details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
        cached, written = details.get("cached_tokens", 0), details.get("cache_write_tokens", 0)
        prompt = usage.get("prompt_tokens", usage.get("input_tokens", 0)) - cached - written
        completion = usage.get("completion_tokens", usage.get("output_tokens", 0))
    counts = (prompt, cached, written, completion)
    return float(sum(count * each for count, each in zip(counts, price, strict=True))) / 1e6


@pytest.mark.parametrize("model", PRICES)
def test_model_answers_or_has_ended(model: str, log: Path, owned_db: Path) -> None:
    trajectory, rows = ask(model, log, owned_db)
    codes, cost = [each["status"] for each in rows], trajectory.cost_usd
    first = "accepted" if codes[0] == 200 else "ended" if model in ENDED else "corrected"
    dollars = "unknown" if cost is None else f"${cost:.6f}"
    line = f"{model:33} {first:9} requests {len(codes)} calls {trajectory.rubric['tool_calls']}"
    print(line + f" cost {dollars} {(trajectory.error or {}).get('message', '')}"[:90])
    if model in ENDED:
        assert trajectory.error is not None and trajectory.error["kind"] == "no-model"
        assert " ended on " in str(ending(model)) and cost == 0
        return
    assert trajectory.error is None
    assert trajectory.rubric["answered"] or trajectory.rubric["abstained"]
    assert codes.count(200) == trajectory.rubric["turns"]
    assert codes.count(400) <= 3 * (model == "azure/of-our-own")
    answers = [each["response"] for each in rows if each["status"] == 200]
    price = PRICES[model]
    if model.startswith("openrouter"):
        assert cost == pytest.approx(sum(each["usage"]["cost"] for each in answers))
    elif not price:
        assert cost is None
    else:
        assert cost == pytest.approx(sum(charged(each, price) for each in answers))


@pytest.mark.parametrize("cells", table_rows(__file__, "emulator_faults.tsv"))
def test_failure_has_its_kind_and_cost(cells: list[str], log: Path, owned_db: Path) -> None:
    model, mode, kind, words = cells
    family = model.partition("/")[0].replace("ollama_chat", "ollama").replace("hosted_", "")
    (log / "faults.json").write_text(json.dumps({family: {"mode": mode, "times": 99}}))
    trajectory, rows = ask(model, log, owned_db)
    (log / "faults.json").write_text("{}")
    error: dict[str, Any] = trajectory.error or {"kind": "", "message": ""}
    print(f"{model:33} {mode:15} {len(rows)} requests, {error['kind']}: {error['message']}"[:150])
    assert error["kind"] == kind and words in error["message"]
    # Permanent failures are not retried.
    assert not kind or len(rows) == (3 if kind in ("rate-limit", "overload", "provider") else 1)
    price = PRICES.get(model)
    if price:
        billed = sum(charged(each["response"], price) for each in rows if each["status"] == 200)
        # litellm drops the reasoning of an answer that Google withheld.
        assert trajectory.cost_usd == pytest.approx(billed, abs=0.002 * (kind == "content"))
