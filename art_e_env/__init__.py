"""The episode in other libraries: tasks for Inspect and verifiers, and an environment for TRL.

Each needs its library (extras `inspect`, `verifiers`, `train`), so imports are lazy. verifiers
looks up its classes in the module of the taskset id `art-e-env`, which is this one.
"""

from importlib import import_module
from typing import Any

__all__ = ["EpisodeHarness", "InboxEnv", "InboxTaskset"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("art_e_env.verifiers_env"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
