"""Runs `art-e` as a process: to its end, at a terminal, or until it is killed."""

import contextlib
import functools
import itertools
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.builders import WAIT_S
from tests.provider import Reply, Request, cut


def start(
    arguments: Sequence[object], environment: Mapping[str, str] | None = None, **options: Any
) -> "subprocess.Popen[str]":
    """Start `art-e` in its own process group, with pipes for its output."""
    defaults = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True}
    command = [sys.executable, "-m", "art_e", *map(str, arguments)]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), **(environment or {})}
    return subprocess.Popen(command, text=True, **{"env": env, **defaults, **options})


def wait_until(condition: Callable[[], object], process: "subprocess.Popen[str]") -> bool:
    """Wait until the condition holds; return False if the process ends first, with exit code 0."""
    while not condition():
        if process.poll() is not None:
            assert process.returncode == 0, process.communicate()[1]
            return False
        time.sleep(0.01)
    return True


class Killing:
    """A provider's rule that kills `art-e` at request `kill_at` (from 0), or with `interrupts`
    sends Ctrl-C. Other requests get the replies of `rule`. `run` starts the process."""

    def __init__(
        self, rule: Callable[[Request], Reply], kill_at: int, *, interrupts: bool = False
    ) -> None:
        self._rule, self._kill_at = rule, kill_at
        self._signal = signal.SIGINT if interrupts else signal.SIGKILL
        self._requests = itertools.count()
        self._process: subprocess.Popen[str] | None = None
        self._started = threading.Event()

    def __call__(self, request: Request) -> Reply:
        if next(self._requests) != self._kill_at:
            return self._rule(request)
        assert self._started.wait(WAIT_S)
        assert self._process is not None
        self._process.send_signal(self._signal)
        return cut(-1)

    def run(self, arguments: Sequence[object], environment: Mapping[str, str]) -> str:
        """Run `art-e` with these arguments until it is killed, and return its stderr."""
        self._process = start(arguments, environment, stdout=subprocess.DEVNULL)
        self._started.set()
        _, stderr = self._process.communicate()
        ended = 130 if self._signal == signal.SIGINT else -signal.SIGKILL
        assert self._process.returncode == ended, stderr
        return stderr


class Moment(NamedTuple):
    """Just before call `nth` (from 1) of the function `name` of `place`."""

    place: str
    name: str
    nth: int


def die_at(moment: Moment) -> None:
    """Have this process kill itself at a moment."""
    place: Any = pkgutil.resolve_name(moment.place)
    function: Callable[..., Any] = getattr(place, moment.name)
    calls = itertools.count(1)

    @functools.wraps(function)
    def dying(*arguments: Any, **options: Any) -> Any:
        if next(calls) == moment.nth:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)

    setattr(place, moment.name, dying)


def peak_of(process: int | str) -> int:
    """Return the peak memory of a process (or "self") in kilobytes; `getrusage` would return its
    parent's if that was higher."""
    status = Path(f"/proc/{process}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))


# ---- At a terminal.

COLOURS = "NO_COLOR FORCE_COLOR TTY_COMPATIBLE TTY_INTERACTIVE COLORTERM COLUMNS".split()


@contextmanager
def at_terminal(
    arguments: Sequence[object], environment: Mapping[str, str], columns: int = 200, **options: Any
) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """Start `art-e` at a terminal (a pty); yield the process, and our end of the terminal."""
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (50, columns))
    # Only the terminal decides about colours.
    inherited = {name: value for name, value in os.environ.items() if name not in COLOURS}
    env = {**inherited, "TERM": "xterm-256color", "PYTHONUTF8": "1", **environment}
    options = {"stdin": theirs, "stdout": theirs, "stderr": theirs, "env": env, **options}
    with start(arguments, **options) as process:
        os.close(theirs)
        try:
            yield process, ours
        finally:
            process.kill()
            os.close(ours)


def sent(terminal: int) -> Iterator[bytes]:
    """Yield the output of processes to a terminal, until the last one closes it."""
    # Linux raises EIO at the end.
    with contextlib.suppress(OSError):
        while select.select([terminal], [], [], WAIT_S)[0] and (data := os.read(terminal, 65_536)):
            yield data


def press_keys(terminal: int, keys: Iterable[bytes], prompt: str, until: str) -> bytes:
    """Press one of `keys` at each prompt until the output holds `until`; return the output."""
    left = iter(keys)
    printed, answered = b"", 0
    for data in sent(terminal):
        printed += data
        if until.encode() in printed:
            break
        while printed.count(prompt.encode()) > answered:
            answered += 1
            # The command discards keys that are typed before it reads single keys.
            while termios.tcgetattr(terminal)[3] & termios.ICANON:
                time.sleep(0.005)
            os.write(terminal, next(left))
    return printed


def on_terminal(
    arguments: Sequence[object], environment: Mapping[str, str], columns: int = 100, **options: Any
) -> str:
    """Return the output of `art-e` at a terminal of `columns` columns."""
    with at_terminal(arguments, environment, columns, **options) as (_, terminal):
        return b"".join(sent(terminal)).decode().replace("\r\n", "\n")


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])
