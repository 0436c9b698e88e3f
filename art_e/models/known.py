"""Models by their names: the published rows, today's to run, and when each ends.

litellm's list holds thousands of models with prices and most dates. This table adds the names that
people type, what follows a model that ends, and the dates that the list lacks, from the providers'
pages of deprecations (read 2026-11-27; OpenAI's is developers.openai.com/api/docs/deprecations).
"""

import datetime as dt
import importlib.util
import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple


class Known(NamedTuple):
    """A model: its short name, what to export for it, its last day, and what follows it."""

    model: str
    short: str = ""
    variables: tuple[str, ...] = ()
    ends: str = ""
    followed_by: str = ""


_OPENAI, _GEMINI = ("OPENAI_API_KEY",), ("GEMINI_API_KEY", "GOOGLE_API_KEY")
# Those with variables are the ones that `doctor` and `models` tell of, the ones to run now first.
KNOWN = (
    Known("openai/gpt-5.4-mini", "", _OPENAI),
    Known("gemini/gemini-3.8-flash", "", _GEMINI),
    Known("anthropic/claude-sonnet-5-5", "", ("ANTHROPIC_API_KEY",)),
    Known("openai/o3", "o3", _OPENAI, "2026-12-11", "openai/gpt-5.4"),
    Known("openai/o4-mini", "o4-mini", (), "2026-10-23", "openai/gpt-5.4-mini"),
    Known("openai/gpt-4.1", "gpt-4.1", _OPENAI, "2027-01-14", "openai/gpt-5.4-mini"),
    Known("openai/gpt-5", "", (), "2026-12-11", "openai/gpt-5.4"),
    Known("openai/gpt-5-mini", "", (), "2026-12-11", "openai/gpt-5.4-mini"),
    Known("openai/gpt-4.1-mini", "", (), "2027-01-14", "openai/gpt-5.4-mini"),
    Known("openai/gpt-4o", "", (), "2027-01-14", "openai/gpt-5.4"),
    Known("openai/gpt-4o-mini", "", (), "2027-01-14", "openai/gpt-5.4-mini"),
    Known(
        "gemini/gemini-2.5-pro", "gemini-2.5-pro", _GEMINI, "2026-12-01", "gemini/gemini-3.8-flash"
    ),
    Known("gemini/gemini-2.5-flash", "", (), "2026-12-01", "gemini/gemini-3.5-flash-lite"),
    Known("gemini/gemini-2.0-flash", "", (), "2026-06-01", "gemini/gemini-3.5-flash-lite"),
    Known("anthropic/claude-sonnet-4-5", "", (), "2026-11-30", "anthropic/claude-sonnet-5-5"),
    Known("ollama_chat/qwen2.5:14b", "", ("OLLAMA_API_BASE",)),
    # A vLLM server at HOSTED_VLLM_API_BASE.
    Known("hosted_vllm/Qwen2.5-14B-Instruct", "qwen2.5-14b", ("HOSTED_VLLM_API_BASE",)),
)  # fmt: skip
# The baselines that results are compared with.
SHORT_NAMES = {each.short: each.model for each in KNOWN if each.short}
# The ones to propose, the first whose key is set.
PROPOSED = KNOWN[:3]
_WARN_DAYS = 60


@cache
def listed_models() -> dict[str, dict[str, Any]]:
    """litellm's list of models with prices and capabilities, by name, read without litellm."""
    package = importlib.util.find_spec("litellm")
    if package is None or package.origin is None:
        raise AssertionError("litellm is not installed")
    path = Path(package.origin).with_name("model_prices_and_context_window_backup.json")
    return dict(json.loads(path.read_text("utf-8")))


def listed_model(model: str) -> dict[str, Any]:
    """The entry of a model in litellm's list, with or without its provider; empty: not listed."""
    listed = listed_models()
    return listed.get(model) or listed.get(model.partition("/")[2]) or {}


def ending(model: str, today: dt.date | None = None) -> str | None:
    """One line, with what follows it, if the model has ended or ends within 60 days; or None."""
    row = next((each for each in KNOWN if each.model == model), Known(model))
    last = row.ends or listed_model(model).get("deprecation_date")
    if not last:
        return None
    left = (dt.date.fromisoformat(last) - (today or dt.date.today())).days
    if left > _WARN_DAYS:
        return None
    instead = f"; run {row.followed_by} instead" if row.followed_by else "; name a newer model"
    return f"{model} {'ends' if left > 0 else 'ended'} on {last}{instead}"
