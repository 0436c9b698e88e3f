"""Doing a unit: `art-e` commands as processes, and a checkpoint's server beside them.

`Work` carries commands out; `Sketch` notes them, and nothing is run. Knows nothing of which
commands a unit has.
"""

import os
import re
import shlex
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from art_e.errors import UserError
from art_e.parent import ends_with_parent
from training.commands import ART_E, Command, carry_out

_HOST = "127.0.0.1"
# The line that `art-e serve` prints once its server answers.
_ANSWERS = re.compile(r"HOSTED_VLLM_API_BASE=(\S+) --model (\S+)")


class Work(Protocol):
    """What a unit is done by. `folder` is its own; `planned` says that nothing is run, so that
    what units before it made may not be there."""

    folder: Path
    planned: bool

    def of(self, name: str) -> Path:
        """The folder of a unit that this one needs."""

    def art_e(self, *words: str | Path, run: Path | None = None) -> None:
        """Run a command of `art-e`, which makes `run`. Raises `UserError` where it fails."""

    def serving(
        self, checkpoint: str | Path, name: str, options: Sequence[str]
    ) -> AbstractContextManager[None]:
        """While the block runs, the checkpoint answers as hosted_vllm/NAME."""


class Doing:
    """Carries commands out in the folder of a unit, which exists; `tell` is given each before."""

    planned = False

    def __init__(
        self, folder: Path, needed: Mapping[str, Path], tell: Callable[[str], None]
    ) -> None:
        self.folder = folder
        self._needed, self._tell = needed, tell
        self._environment: dict[str, str] = {}

    def of(self, name: str) -> Path:
        """The folder of a unit that this one needs."""
        return self._needed[name]

    def art_e(self, *words: str | Path, run: Path | None = None) -> None:
        """Run a command. Raises `UserError` where it fails."""
        command = Command(tuple(map(str, words)), run)
        self._tell(f"done before: {command}" if command.done else f"$ {command}")
        carry_out([command], self._environment)

    @contextmanager
    def serving(self, checkpoint: str | Path, name: str, options: Sequence[str]) -> Iterator[None]:
        """Start the server, wait until it answers, and end it with the block.

        Raises `UserError` where it does not start.
        """
        words = _serve(checkpoint, name, options, _free_port())
        self._tell(f"$ {shlex.join(['art-e', *words])}")
        process = subprocess.Popen(
            [*ART_E, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            env=dict(os.environ),
            preexec_fn=ends_with_parent(),  # noqa: PLW1509 - no thread is beside this one
        )
        assert process.stdout is not None
        try:
            told = next(
                (found for line in process.stdout if (found := _ANSWERS.search(line))), None
            )
            if told is None:
                raise UserError(
                    f"art-e serve {checkpoint} did not start; what it said stands above"
                )
            self._environment["HOSTED_VLLM_API_BASE"] = told[1]
            yield
        finally:
            self._environment.pop("HOSTED_VLLM_API_BASE", None)
            process.terminate()
            process.wait()
            process.stdout.close()


class Sketch:
    """Notes the commands of a unit in `commands`; nothing is run."""

    planned = True

    def __init__(self, folder: Path, needed: Mapping[str, Path]) -> None:
        self.folder = folder
        self.commands: list[str] = []
        self._needed = needed

    def of(self, name: str) -> Path:
        """Where the unit that this one needs is, or will be."""
        return self._needed[name]

    def art_e(self, *words: str | Path, run: Path | None = None) -> None:
        """Note the command."""
        del run
        self.commands.append(shlex.join(["art-e", *map(str, words)]))

    @contextmanager
    def serving(self, checkpoint: str | Path, name: str, options: Sequence[str]) -> Iterator[None]:
        """Note the server."""
        self.commands.append(shlex.join(["art-e", *_serve(checkpoint, name, options, None)]))
        yield


def _serve(
    checkpoint: str | Path, name: str, options: Sequence[str], port: int | None
) -> list[str]:
    where = [] if port is None else ["--port", str(port)]
    after = ["--", *options] if options else []
    return ["serve", str(checkpoint), "--name", name, *where, *after]


def _free_port() -> int:
    with socket.create_server((_HOST, 0)) as listening:
        return int(listening.getsockname()[1])
