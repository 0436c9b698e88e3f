"""What keeps mail with its owner: files that nobody else may read, and no proxy on the way to a
model on this machine."""

import os

# As clients write the loopback interface; what else a model's address says is added when it is
# known (`art_e.policies.host`).
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def files_for_owner_alone() -> None:
    """Have all files that this process makes readable by its user alone: 0600, folders 0700."""
    os.umask(0o077)


def loopback_directly(*hosts: str) -> None:
    """Have clients reach this machine, and `hosts` of it, by no proxy.

    `HTTP_PROXY` and `ALL_PROXY` would send a question, and the mail with it, to another machine
    although the model runs here.
    """
    listed = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    known = [each.strip() for each in listed.split(",") if each.strip()]
    # Clients differ in which of the two they read.
    value = ",".join(dict.fromkeys([*known, *_LOOPBACK, *hosts]))
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = value
