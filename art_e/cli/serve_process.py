"""A server as a process of its own: started, sent our signals, ended with us.

Knows nothing of which server it is and of models.
"""

import signal
import subprocess
from pathlib import Path
from types import FrameType
from typing import NamedTuple, Self

from art_e.parent import ends_with_parent

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Server(NamedTuple):
    """How a server is started."""

    command: list[str]
    folder: Path
    environment: dict[str, str]


class Child:
    """A process that is sent the signals that would end this one, while the block runs."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._process: subprocess.Popen[bytes] | None = None
        self._asked: list[int] = []

    def __enter__(self) -> Self:
        # One that was ignored from the start (nohup) goes on being ignored.
        heard = [each for each in ENDING if signal.getsignal(each) is not signal.SIG_IGN]
        self._before = {each: signal.signal(each, self._pass_on) for each in heard}
        self._process = subprocess.Popen(
            self._server.command,
            cwd=self._server.folder,
            env=self._server.environment,
            stdin=subprocess.DEVNULL,
            stdout=2,  # its log is no data of ours
            # Of its own, or a Ctrl-C would reach it twice.
            start_new_session=True,
            preexec_fn=ends_with_parent(),  # noqa: PLW1509 - no thread is beside this one
        )
        for number in self._asked:
            self._process.send_signal(number)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process is not None and self._process.poll() is None

    def exit_code(self) -> int:
        """Wait for its end; 128 and the signal's number where one ended it, as shells say."""
        assert self._process is not None
        code = self._process.wait()
        return code if code >= 0 else 128 - code

    def _pass_on(self, number: int, _: FrameType | None) -> None:
        if self._process is None:
            self._asked.append(number)
        else:
            self._process.send_signal(number)
