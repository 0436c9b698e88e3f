"""Run `art-e` as a process: to its end, at a terminal, or until a kill; a stand-in for vLLM."""

import contextlib
import functools
import itertools
import os
import re
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
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from tests.builders import WAIT_S
from tests.provider import Reply, Request, cut


def start(
    arguments: Sequence[object], environment: Mapping[str, str] | None = None, **options: Any
) -> "subprocess.Popen[str]":
    """Start `art-e` in a process group of its own, with pipes for its output."""
    defaults = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True}
    command = [sys.executable, "-m", "art_e", *map(str, arguments)]
    env = {**os.environ, **(environment or {})}
    return subprocess.Popen(command, text=True, **{"env": env, **defaults, **options})


# ---- Killed.


def wait_until(condition: Callable[[], object], process: "subprocess.Popen[str]") -> bool:
    """Wait until the condition holds; False if the process ends before, with exit code 0."""
    while not condition():
        if process.poll() is not None:
            assert process.returncode == 0, process.communicate()[1]
            return False
        time.sleep(0.01)
    return True


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
        """Run `art-e` with these arguments until it is killed; what it wrote to stderr."""
        self._process = start(arguments, environment, stdout=subprocess.DEVNULL)
        self._started.set()
        _, stderr = self._process.communicate()
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
    calls = itertools.count(1)

    @functools.wraps(function)
    def dying(*arguments: Any, **options: Any) -> Any:
        if next(calls) == moment.nth:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)

    setattr(place, moment.name, dying)


def alive(pid: int) -> bool:
    """Whether it runs; one that has ended and that nobody asked about does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


# ---- At a terminal.

COLOURS = "NO_COLOR FORCE_COLOR TTY_COMPATIBLE TTY_INTERACTIVE COLORTERM COLUMNS".split()


@contextmanager
def at_terminal(
    arguments: Sequence[object], environment: Mapping[str, str], columns: int = 200, **options: Any
) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """Start `art-e` at a terminal (a pty); the process, and our end of the terminal."""
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (50, columns))
    # Only the terminal decides about colours.
    kept = {name: value for name, value in os.environ.items() if name not in COLOURS}
    env = {**kept, "TERM": "xterm-256color", "PYTHONUTF8": "1", **environment}
    options = {"stdin": theirs, "stdout": theirs, "stderr": theirs, "env": env, **options}
    with start(arguments, **options) as process:
        os.close(theirs)
        try:
            yield process, ours
        finally:
            process.kill()
            os.close(ours)


def sent(terminal: int) -> Iterator[bytes]:
    """The output of processes to a terminal, until the last one closes it."""
    # Linux raises EIO at the end.
    with contextlib.suppress(OSError):
        while select.select([terminal], [], [], WAIT_S)[0] and (data := os.read(terminal, 65_536)):
            yield data


def press_keys(terminal: int, keys: Iterable[bytes], prompt: str, until: str) -> bytes:
    """Press one of `keys` at each prompt, until the output holds `until`; the output."""
    left = iter(keys)
    printed, answered = b"", 0
    for data in sent(terminal):
        printed += data
        if until.encode() in printed:
            break
        while printed.count(prompt.encode()) > answered:
            answered += 1
            # The command throws away what is typed before it reads single keys.
            while termios.tcgetattr(terminal)[3] & termios.ICANON:
                time.sleep(0.005)
            os.write(terminal, next(left))
    return printed


def on_terminal(
    arguments: Sequence[object], environment: Mapping[str, str], columns: int = 100, **options: Any
) -> str:
    """What `art-e` writes to a terminal of so many columns."""
    with at_terminal(arguments, environment, columns, **options) as (_, terminal):
        return b"".join(sent(terminal)).decode().replace("\r\n", "\n")


# ---- Serving.

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
