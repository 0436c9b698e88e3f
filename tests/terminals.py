"""A person at a terminal, for tests: what a process sends to a pty, and keys pressed there."""

import contextlib
import os
import select
import termios
import time
from collections.abc import Iterator

# Far longer than it takes.
WAIT_S = 60.0


def sent(terminal: int) -> Iterator[bytes]:
    """What processes write to the terminal, until the last of them has closed its end."""
    # Linux says EIO there.
    with contextlib.suppress(OSError):
        while select.select([terminal], [], [], WAIT_S)[0] and (data := os.read(terminal, 65_536)):
            yield data


def press(terminal: int, key: bytes) -> None:
    """Press a key as soon as the command reads single keys; earlier ones it throws away."""
    ends = time.monotonic() + WAIT_S
    while termios.tcgetattr(terminal)[3] & termios.ICANON and time.monotonic() < ends:
        time.sleep(0.005)
    os.write(terminal, key)


def type_line(terminal: int, line: bytes) -> None:
    """Type a line as soon as the command reads lines."""
    ends = time.monotonic() + WAIT_S
    while not termios.tcgetattr(terminal)[3] & termios.ICANON and time.monotonic() < ends:
        time.sleep(0.005)
    os.write(terminal, line + b"\n")
