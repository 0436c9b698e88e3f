"""What `art-e doctor` says of one thing that it looked at. Knows nothing of what that is."""

from typing import Literal, NamedTuple

State = Literal["ok", "missing", "broken"]


class Check(NamedTuple):
    """One thing looked at. "missing" can be done without, "broken" can't."""

    name: str
    state: State
    detail: str
    fix: str | None = None
