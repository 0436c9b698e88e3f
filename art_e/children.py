"""Starts child processes so that no file of the working directory runs as their code.

Python puts the working directory first on the import path of `python -m`, `python -c` and spawned
workers, so a `pickle.py` in a folder of mail would run."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen, run

# Variables for a child that reads mail: program and library paths, language; no keys or proxies.
_PLAIN = frozenset(Path(__file__).with_name("plain_names.txt").read_text("utf-8").split())


def exclude_working_directory() -> None:
    """Take the working directory off the import path, here and in children, unless it has ART-E."""
    os.environ["PYTHONSAFEPATH"] = "1"
    here = Path.cwd()
    if here != Path(__file__).parent.parent:
        sys.path[:] = [each for each in sys.path if each and Path(each) != here]


def plain_environment() -> dict[str, str]:
    """Return the environment for a child that reads mail and calls no model."""
    plain = {name: value for name, value in os.environ.items() if name in _PLAIN}
    if paths := plain.get("PYTHONPATH"):
        absolute = (str(Path(each).absolute()) for each in paths.split(os.pathsep) if each)
        plain["PYTHONPATH"] = os.pathsep.join(absolute)
    return plain


def start_reader(module: str) -> Popen[bytes]:
    """Start `module` as a child that talks over pipes, without its stderr and without keys."""
    command, plain = [sys.executable, "-P", "-m", module], plain_environment()
    return Popen(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, cwd="/", env=plain)


def run_art_e(words: Sequence[str], folder: Path) -> int:
    """Run `art-e WORDS` in `folder`, with its output on stderr, and return its exit code. It acts
    for the user, like this process, so it gets the whole environment."""
    command = [sys.executable, "-P", "-m", "art_e", *words]
    return run(command, cwd=folder, stdout=2, check=False).returncode
