"""ART-E: an agent that answers questions about an inbox by searching and reading it.

    agent.py     the loop: a policy writes a message, the episode runs it and answers
    episode.py   an episode with its rubric; trajectory.py records it
    tools.py     search, read and answer, as a model sees them
    models       what a --model is, and the policies: a hosted model, a local one, or none
    inbox        the file that is searched
    cli, mcp.py  the ways in

The same `Episode` answers users, is measured by `evals`, and is trained on by `training`.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# What verifiers looks up in the module that its taskset id `art-e` names.
__all__ = ["EpisodeHarness", "InboxEnv", "InboxTaskset"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("evals.verifiers_env"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
