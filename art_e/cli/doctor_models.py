"""Which of the models that people want can be asked from here, and what the others lack.

Without `online` nothing is sent anywhere: what is looked at is the environment
and what is installed. With it each ready model is asked one short question, in
which there is no mail.
"""

import asyncio
import importlib.util
import os
import shutil
from collections.abc import Iterator
from typing import NamedTuple

from art_e.cli.doctor_check import Check

ONLINE_TOKENS = 16
ONLINE_TIMEOUT_S = 20.0
# A reasoning model that spent its few tokens on thinking has worked.
_ENOUGH = "output limit was reached"


class _Wanted(NamedTuple):
    """A model, and the variables of which one must be set."""

    model: str
    variables: tuple[str, ...]


HOSTED = (
    _Wanted("openai/o3", ("OPENAI_API_KEY",)),
    _Wanted("openai/o4-mini", ("OPENAI_API_KEY",)),
    _Wanted("openai/gpt-4.1", ("OPENAI_API_KEY",)),
    _Wanted("gemini/gemini-2.5-pro", ("GEMINI_API_KEY", "GOOGLE_API_KEY")),
    _Wanted("anthropic/claude-sonnet-5-5", ("ANTHROPIC_API_KEY",)),
)
OLLAMA = "ollama_chat/qwen2.5:14b"
VLLM = "hosted_vllm/Qwen2.5-14B-Instruct"
LOCAL = ("torch", "transformers")


def model_checks(*, online: bool) -> Iterator[Check]:
    """One check a model. "missing" says what to export or install; "broken" never occurs."""
    from art_e.policies.secrets import load_env

    load_env()
    checks = dict(_looked_at())
    ready = [model for model, check in checks.items() if check.state == "ok"]
    if online:
        checks.update(_asked(ready))
    yield from checks.values()
    yield _local()


def _looked_at() -> Iterator[tuple[str, Check]]:
    """What the environment tells of each model behind a server."""
    for model, variables in HOSTED:
        found = next((name for name in variables if os.environ.get(name)), None)
        if found is None:
            yield model, _missing(model, f"no {variables[0]}", f"export {variables[0]}=...")
        else:
            yield model, _ready(model, f"{found} is set")
    if os.environ.get("OLLAMA_API_BASE"):
        yield OLLAMA, _ready(OLLAMA, "OLLAMA_API_BASE is set")
    elif shutil.which("ollama"):
        yield OLLAMA, _ready(OLLAMA, "ollama is installed")
    else:
        fix = "install Ollama and: ollama pull qwen2.5:14b; or export OLLAMA_API_BASE=URL"
        yield OLLAMA, _missing(OLLAMA, "no ollama on this machine", fix)
    if os.environ.get("HOSTED_VLLM_API_BASE"):
        yield VLLM, _ready(VLLM, "HOSTED_VLLM_API_BASE is set")
    else:
        fix = "export HOSTED_VLLM_API_BASE=http://HOST:8000/v1"
        yield VLLM, _missing(VLLM, "no HOSTED_VLLM_API_BASE", fix)


def _local() -> Check:
    absent = [name for name in LOCAL if importlib.util.find_spec(name) is None]
    if absent:
        fix = "pip install 'art-e[train]'"
        return _missing("local:PATH", f"without {', '.join(absent)}", fix)
    return _ready("local:PATH", f"{' and '.join(LOCAL)} are installed")


def _ready(model: str, detail: str) -> Check:
    return Check(f"model {model}", "ok", detail)


def _missing(model: str, detail: str, fix: str | None) -> Check:
    return Check(f"model {model}", "missing", detail, fix)


def _asked(models: list[str]) -> dict[str, Check]:
    """What each of the models said, or why it did not."""

    async def ask_all() -> list[str | None]:
        return await asyncio.gather(*map(_why_it_fails, models))

    reasons = asyncio.run(ask_all()) if models else []
    return {
        model: _ready(model, "answered")
        if reason is None
        else _missing(model, reason, "mend that, and run art-e doctor --online again")
        for model, reason in zip(models, reasons, strict=True)
    }


async def _why_it_fails(model: str) -> str | None:
    """One call of a few tokens; None where it worked, else the reason in a line."""
    from art_e.policies.failures import failure_of
    from art_e.policies.litellm_module import load_litellm

    try:
        await load_litellm().acompletion(
            model=model,
            messages=[{"role": "user", "content": "Say OK."}],
            max_tokens=ONLINE_TOKENS,
            timeout=ONLINE_TIMEOUT_S,
            num_retries=0,
            max_retries=0,
        )
    except Exception as error:  # noqa: BLE001 - whatever a provider's client raises is the finding
        reason = str(failure_of(error, model)).removeprefix(f"{model}: ")
        return None if _ENOUGH in reason else reason
    return None
