"""The episode inside other libraries: tasks of Inspect and verifiers, and an environment of TRL.

Each needs its library (extras `inspect`, `verifiers`, `train`), so nothing is imported before it
is asked for. verifiers looks its classes up in the module that the taskset id `art-e-env` names:
this one.
"""

from importlib import import_module
from typing import Any

__all__ = ["EpisodeHarness", "InboxEnv", "InboxTaskset"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("art_e_env.verifiers_env"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
