"""`art-e` as processes: killed ones, on a terminal, `art-e serve`, and a stand-in for vLLM."""

import functools
import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from tests.builders import WAIT_S, sent
from tests.provider import Reply, Request, cut


class Killing:
    """A provider's rule that kills `art-e` when request number `kill_at` comes, from 0.

    Other requests get what `rule` replies. `run` starts the process that is killed, or with
    `interrupts` gets what Ctrl-C sends.
    """

    def __init__(
        self, rule: Callable[[Request], Reply], kill_at: int, *, interrupts: bool = False
    ) -> None:
        self._rule, self._kill_at = rule, kill_at
        self._signal = signal.SIGINT if interrupts else signal.SIGKILL
        self._requests = 0
        self._process: subprocess.Popen[str] | None = None
        self._started = threading.Event()

    def __call__(self, request: Request) -> Reply:
        self._requests += 1
        if self._requests - 1 != self._kill_at:
            return self._rule(request)
        assert self._started.wait(WAIT_S)
        assert self._process is not None
        self._process.send_signal(self._signal)
        return cut(-1)

    def run(self, arguments: Sequence[str], environment: Mapping[str, str]) -> str:
        """Run `art-e` with these arguments until it is killed; what it wrote to stderr."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "art_e", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        self._started.set()
        _, stderr = self._process.communicate(timeout=120)
        ended = 130 if self._signal == signal.SIGINT else -signal.SIGKILL
        assert self._process.returncode == ended, stderr
        return stderr


class Moment(NamedTuple):
    """The call number `nth`, from 1, of the function `name` of `place`, before its work."""

    place: str
    name: str
    nth: int


def die_at(moment: Moment) -> None:
    """Have this process kill itself then."""
    module, _, owner = moment.place.partition(":")
    place: Any = import_module(module)
    place = getattr(place, owner) if owner else place
    function: Callable[..., Any] = getattr(place, moment.name)
    calls = 0

    @functools.wraps(function)
    def dying(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == moment.nth:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)

    setattr(place, moment.name, dying)


def on_terminal(
    arguments: Sequence[object], environment: Mapping[str, str], columns: int = 100, **options: Any
) -> str:
    """What `art-e` writes to a terminal (a pty) of so many columns."""
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (50, columns))
    command = [sys.executable, "-m", "art_e", *map(str, arguments)]
    options |= {"stdin": theirs, "stdout": theirs, "stderr": theirs, "start_new_session": True}
    # Only the terminal decides about colours.
    kept = {name: value for name, value in os.environ.items() if name not in COLOURS}
    terminal = {"TERM": "xterm-256color", "PYTHONUTF8": "1"}
    with subprocess.Popen(command, env={**kept, **terminal, **environment}, **options):
        os.close(theirs)
        printed = b"".join(sent(ours))
        os.close(ours)
    return printed.decode().replace("\r\n", "\n")


COLOURS = "NO_COLOR FORCE_COLOR TTY_COMPATIBLE TTY_INTERACTIVE COLORTERM COLUMNS".split()

# What the server prints when it is ready.
TOLD = re.compile(r"(http://\S+/v1) serves (.+): HOSTED_VLLM_API_BASE=(\S+) --model (\S+)\n")

# Accepts the options of `vllm serve` that we use, and no others. Its health check fails at first,
# as vLLM's does while it loads. It writes its arguments to the file $NOTED, and answers every chat
# with "I don't know".
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
for name in ("override-generation-config", "default-chat-template-kwargs"):
    options.add_argument("--" + name, type=json.loads)
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
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        arguments = json.dumps(dict(answer="I don't know", sources=[]))
        call = dict(name="return_final_answer", arguments=arguments)
        calls = [dict(id="c", type="function", function=call)]
        message = dict(role="assistant", content=None, tool_calls=calls)
        choices = [dict(index=0, finish_reason="tool_calls", message=message)]
        usage = dict(prompt_tokens=9, completion_tokens=1, total_tokens=10)
        reply = dict(id="r", object="chat.completion", created=0, model="m", choices=choices,
                     usage=usage)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(reply).encode())
    def log_message(self, *_): pass
print("a line of the server's log", flush=True)
http.server.HTTPServer(("127.0.0.1", chosen.port), Handler).serve_forever()
"""


def write_vllm(folder: Path) -> None:
    """Put the stand-in for vLLM's command into `folder`."""
    folder.mkdir()
    (folder / "vllm").write_text(_VLLM.format(python=sys.executable))
    (folder / "vllm").chmod(0o755)


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
    assert process.stdout is not None and process.stderr is not None
    try:
        ready = TOLD.fullmatch(process.stdout.readline())
        assert ready, process.stderr.read()
        yield process, ready[1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


def alive(pid: int) -> bool:
    """Whether it runs; one that has ended and that nobody asked about does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
