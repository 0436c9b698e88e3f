"""`art-e` as processes: quick copies, `art-e serve`, and a stand-in for the command of vLLM."""

import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

# Forks `art-e` from a process that has imported everything.
_PARENT = """
import json, os, sys
import data_pipeline.golden.generate, data_pipeline.golden.verify, evals.judges.llm
from art_e.cli.main import run
from art_e.models.providers import load_litellm

load_litellm()
for line in sys.stdin:
    arguments, environment = json.loads(line)
    child = os.fork()
    if child == 0:
        try:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(2, 1)
            os.environ.update(environment)
            sys.argv = ["art-e", *arguments]
            run()
        finally:
            os._exit(70)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Forked:
    """Starts one `art-e` at a time; what they print goes to stderr."""

    def __enter__(self) -> Self:
        self._parent = subprocess.Popen(
            [sys.executable, "-c", _PARENT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # Kept out of its environment, so that each gets its own.
            env={name: each for name, each in os.environ.items() if "OPENAI" not in name},
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._parent.kill()
        self._parent.communicate()

    def start(self, arguments: Sequence[str], environment: Mapping[str, str]) -> int:
        """Start `art-e` with these arguments; its process id."""
        assert self._parent.stdin is not None
        self._parent.stdin.write(json.dumps([list(arguments), dict(environment)]) + "\n")
        self._parent.stdin.flush()
        return self._number()

    def wait(self) -> int:
        """Wait for its end: its exit code, or the signal that killed it below 0."""
        return self._number()

    def _number(self) -> int:
        assert self._parent.stdout is not None
        return int(self._parent.stdout.readline())


# What the server prints when it is ready.
TOLD = re.compile(r"(http://\S+/v1) serves (.+): HOSTED_VLLM_API_BASE=(\S+) --model (\S+)\n")

# Accepts the options of `vllm serve` that we use, and no others. Its health check fails at first,
# as vLLM's does while it loads. It writes its arguments to the file $NOTED, and generates nothing.
_VLLM = """#!{python}
import argparse, http.server, json, os, pathlib, sys
options = argparse.ArgumentParser(allow_abbrev=False)
options.add_argument("command", choices=["serve"])
options.add_argument("model")
for name in ("host", "dtype", "tool-call-parser", "served-model-name", "lora-modules",
             "quantization"):
    options.add_argument("--" + name)
for name in ("port", "max-lora-rank", "max-model-len", "tensor-parallel-size"):
    options.add_argument("--" + name, type=int)
options.add_argument("--gpu-memory-utilization", type=float)
options.add_argument("--override-generation-config", type=json.loads)
for name in ("enable-auto-tool-choice", "enable-lora"):
    options.add_argument("--" + name, action="store_true")
chosen = options.parse_args()
pathlib.Path(os.environ["NOTED"]).write_text(json.dumps(sys.argv[1:]))
if os.environ.get("FAILING"):
    sys.exit(7)
class Handler(http.server.BaseHTTPRequestHandler):
    asked = 0
    def do_GET(self):
        Handler.asked += 1
        self.send_response(503 if Handler.asked < 3 else 200)
        self.end_headers()
    def log_message(self, *_): pass
print("a line of the server's log", flush=True)
http.server.HTTPServer(("127.0.0.1", chosen.port), Handler).serve_forever()
"""


def write_vllm(folder: Path) -> None:
    """Put the stand-in for vLLM's command into `folder`."""
    folder.mkdir()
    script = folder / "vllm"
    script.write_text(_VLLM.format(python=sys.executable))
    script.chmod(0o755)


def pairs(given: Sequence[str]) -> dict[str, str]:
    """Each argument of a command with the next one."""
    return dict(itertools.pairwise(given))


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@contextmanager
def serving(
    checkpoint: Path,
    *options: str,
    after: Sequence[str] = (),
    environment: dict[str, str] | None = None,
) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """The process and its base URL, once it answers; it ends with the block.

    `after` are options of the server itself.
    """
    command = [sys.executable, "-m", "art_e", "serve", str(checkpoint)]
    process = subprocess.Popen(
        [*command, *options, "--port", str(free_port()), *(["--", *after] if after else [])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # The cores are shared with other tests.
        env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        ready = TOLD.fullmatch(process.stdout.readline())
        assert ready, process.stderr.read()
        yield process, ready[1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()
