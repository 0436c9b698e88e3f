"""Tool calls as a model makes them, run, with what must be true of every observation."""

import json
from typing import Any

from art_e.message import ToolCall
from art_e.tools import ReadEmail, ReturnFinalAnswer, Tools, parse_call
from tests import episodes

# No call, however large, may give the model more than this to read.
MOST_CHARS = 20_000


def run(tools: Tools, made: ToolCall) -> dict[str, Any]:
    """The observation of a call; a mail that is not found is {}."""
    arguments = parse_call(made)
    json.dumps(arguments.model_dump(mode="json"), ensure_ascii=False).encode()
    if isinstance(arguments, ReturnFinalAnswer):
        return {"sources": [tools.resolve(each) for each in arguments.sources]}
    if isinstance(arguments, ReadEmail):
        observation = tools.read(arguments)
    else:
        observation = tools.search(arguments)
    if observation is None:
        return {}
    assert len(observation.text) < MOST_CHARS
    assert "\n" not in observation.text
    shown = json.loads(observation.text)
    assert isinstance(shown, dict)
    return shown


def search(tools: Tools, *keywords: str, **filters: Any) -> dict[str, Any]:
    return run(tools, episodes.search(*keywords, **filters))


def read(tools: Tools, message_id: str) -> dict[str, Any]:
    return run(tools, episodes.read(message_id))
