"""The one place that imports litellm, and how it is set up for us.

Its import takes seconds, so nothing imports it before a model is named. Unless
told otherwise it fetches its price list over HTTP, reads `.env` by itself,
prints hints and logs requests. Knows nothing of messages and policies.
"""

import asyncio
import inspect
import logging
import os
import warnings
from collections.abc import AsyncGenerator
from functools import cache
from types import ModuleType

from art_e.privacy import loopback_directly

# Read while litellm is imported: prices and headers are those of the installed package,
# and `.env` is ours to read.
_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_LOCAL_BLOG_POSTS": "True",
    "LITELLM_MODE": "PRODUCTION",
}

_closers: dict[asyncio.AbstractEventLoop, AsyncGenerator[None, None]] = {}


@cache
def load_litellm() -> ModuleType:
    """The module litellm: offline but for the calls asked of it, and silent."""
    os.environ.update(_ENVIRONMENT)
    loopback_directly()
    import litellm

    # pydantic's word on types that litellm makes; users can do nothing about them.
    warnings.filterwarnings("ignore", message=".*`ReadOnly` qualifier", category=UserWarning)
    litellm.suppress_debug_info = True
    litellm.turn_off_message_logging = True
    litellm.disable_hf_tokenizer_download = True
    # Its own retries are not counted; ours are.
    litellm.num_retries = 0
    # What it logs may hold the mail text of a request; what matters comes as an exception.
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return litellm


@cache
def warm_up() -> None:
    """Load what litellm and its client load for a first call, which is no latency of a model.

    Asks nobody: litellm makes up the answer.
    """
    import openai.resources.chat  # noqa: F401 - its import takes half a second

    load_litellm().completion(
        model="openai/gpt-4.1",
        messages=[{"role": "user", "content": ""}],
        # For a request with tools it loads an MCP server.
        tools=[{"type": "function", "function": {"name": "none", "parameters": {}}}],
        # Not "", for which it would ask the provider.
        mock_response="none",
    )


async def close_clients_with_loop() -> None:
    """See to it that litellm's HTTP clients of the running loop are closed when it ends.

    It keeps a client for each loop and never closes one, so that many calls of
    `asyncio.run` would leave as many open connections. What a loop still has to do at its
    end is, for asyncio, to close its asynchronous generators: one of them does it here.
    """
    loop = asyncio.get_running_loop()
    if loop not in _closers:
        _closers[loop] = _close_at_end(loop)
        await anext(_closers[loop])


async def _close_at_end(loop: asyncio.AbstractEventLoop) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        _closers.pop(loop, None)
        clients = load_litellm().in_memory_llm_clients_cache
        # A later loop may get the same id, so a closed client must not stay.
        for key in [each for each in clients.cache_dict if each.endswith(f"-{id(loop)}")]:
            client = clients.cache_dict.pop(key)
            clients.ttl_dict.pop(key, None)
            closing = client.close()
            if inspect.isawaitable(closing):
                await closing
