"""`art-e` as real processes that begin quickly: copies of one that has imported everything.

For tests that kill many of them; importing litellm takes seconds.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

_PARENT = """
import json, os, sys
import data_pipeline.golden.generate, data_pipeline.golden.verify, evals.llm_judge
from art_e.cli.main import run
from art_e.policies.litellm_module import load_litellm

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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
