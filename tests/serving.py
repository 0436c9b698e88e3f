"""`art-e serve` as a process of its own, for as long as a test needs it."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# What the server prints once it answers.
TOLD = re.compile(r"(http://\S+/v1) serves (.+): HOSTED_VLLM_API_BASE=(\S+) --model (\S+)\n")


def free_port() -> int:
    """A port that nobody listened on a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@contextmanager
def serving(
    checkpoint: Path, *options: str, environment: dict[str, str] | None = None
) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """The process and its base URL, once it answers. It is ended with the block."""
    command = [sys.executable, "-m", "art_e", "serve", str(checkpoint)]
    process = subprocess.Popen(
        [*command, *options, "--port", str(free_port())],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # The cores are shared with other tests.
        env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        told = TOLD.fullmatch(process.stdout.readline())
        assert told, process.stderr.read()
        yield process, told[1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()
