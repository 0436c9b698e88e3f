"""A child process that does not outlive its parent, however the parent ended."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def ends_with_parent() -> Callable[[], None] | None:
    """A `preexec_fn` for `subprocess.Popen`: the child gets SIGTERM when this process ends.

    None on systems other than Linux, where the child may live on.
    """
    if sys.platform != "linux":
        return None
    parent, prctl = os.getpid(), ctypes.CDLL(None, use_errno=True).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # the parent ended before
            os._exit(1)

    return ask
