"""Ctrl-C that can't get lost on its way through a library.

DuckDB takes the KeyboardInterrupt that arrives while it works and raises a
RuntimeError for it, or goes on. So the signal is noted as well as raised, and
long work asks here whether to go on. Knows nothing of what is interrupted.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_asked = threading.Event()


@contextmanager
def listening() -> Iterator[None]:
    """Note Ctrl-C from here on, but in a process that ignores it (nohup, a background job)."""
    _asked.clear()
    on_main_thread = threading.current_thread() is threading.main_thread()
    if not on_main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def interrupted() -> bool:
    """Whether Ctrl-C was pressed."""
    return _asked.is_set()


def check() -> None:
    """Raise the `KeyboardInterrupt` that a library swallowed."""
    if _asked.is_set():
        raise KeyboardInterrupt


def _note(*_: object) -> None:
    _asked.set()
    raise KeyboardInterrupt
