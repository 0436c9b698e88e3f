"""From the name of a model to its policy."""

from art_e.errors import UserError
from art_e.policies.base import Policy


def choose_policy(model: str) -> Policy:
    """The policy that `--model` names. Raises `UserError` for an unknown one."""
    if model == "offline":
        from art_e.policies.offline import OfflinePolicy

        return OfflinePolicy()
    raise UserError(f"unknown model {model!r}; this version has: offline")
