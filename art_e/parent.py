"""A child process that does not outlive its parent, however that ended.

Knows nothing of what the child is.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def ends_with_parent() -> Callable[[], None] | None:
    """What `subprocess.Popen` takes as `preexec_fn`, so that the child gets SIGTERM when this
    process is gone, also by SIGKILL. None where the system has no such thing: there a child
    goes on by itself."""
    if sys.platform != "linux":
        return None
    parent, prctl = os.getpid(), ctypes.CDLL(None, use_errno=True).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it was gone before it could be asked for
            os._exit(1)

    return ask
