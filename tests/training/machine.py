"""A folder of commands that stand in for others, and the scripts of training/launch run among them.

A stand-in notes how it was called, and does no more than its body says.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

LAUNCH = Path(__file__).parents[2] / "training" / "launch"
NOTED = ("CUDA_VISIBLE_DEVICES", "VLLM_SERVER_DEV_MODE", "TENSOR_PARALLEL", "KEPT", "GPUS",
         "ART_E_HOME", "RECIPE")  # fmt: skip
STAND_IN = """#!{python}
import json, os, sys, time
kept = {{each: os.environ.get(each) for each in {noted!r}}}
with open({calls!r}, "a") as file:
    file.write(json.dumps([{name!r}, sys.argv[1:], kept]) + "\\n")
{body}
"""
# A step of training, and another checkpoint that is not whole yet.
TRAINS = """
from pathlib import Path
out = Path(sys.argv[sys.argv.index("--out") + 1])
(out / "config.json").write_text("{}")
number = len(list(out.glob("checkpoints/*")))
whole, begun = (out / "checkpoints" / f"checkpoint-{n}" for n in (number, number + 1))
whole.mkdir(parents=True)
(whole / "weights").write_text("w" * 1000)
begun.mkdir()
(begun / "weights").write_text("w")
(whole / "run.json").write_text("{}")
if os.environ.get("FINISHES"):
    (out / "COMPLETE").touch()
time.sleep(float(os.environ.get("TAKES", "0")))
sys.exit(int(os.environ.get("ENDS", "0")))
"""
# Trains until the server has been started.
WAITS = """
until = time.monotonic() + 60
while '"vllm"' not in open({calls!r}).read() and time.monotonic() < until:
    time.sleep(0.05)
sys.exit(int(os.environ.get("ENDS", "0")))
"""
# Like srun: the command behind its own options.
RUNS = """
given = sys.argv[1:]
while given[0].startswith("--"):
    given = given[1:]
os.execvp(given[0], given)
"""


class Machine:
    """A folder of commands that stand in for others, and what they were called with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._bin = folder / "bin"
        self._bin.mkdir()
        self._calls = folder / "calls.jsonl"
        python = Path(sys.executable).parent
        self.environment = {
            "PATH": f"{self._bin}:{python}:{os.environ['PATH']}",
            "PYTHONPATH": str(LAUNCH.parents[1]),
            "HOME": str(folder),
        }

    def stand_in(self, name: str, body: str = "") -> None:
        script = self._bin / name
        calls = str(self._calls)
        text = STAND_IN.format(
            python=sys.executable, noted=NOTED, calls=calls, name=name,
            body=body.replace("{calls!r}", repr(calls)),
        )  # fmt: skip
        script.write_text(text, encoding="utf-8")
        script.chmod(0o755)

    def command(self, name: str, *arguments: str) -> list[str]:
        return ["bash", str(LAUNCH / name), *arguments]

    def run(
        self, name: str, *arguments: str, fails: bool = False, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(name, *arguments),
            env={**self.environment, **variables},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode != 0) is fails, done.stderr
        return done

    def calls(self, name: str) -> list[tuple[list[str], dict[str, str]]]:
        """The arguments and variables of each call of a stand-in."""
        if not self._calls.exists():
            return []
        rows = map(json.loads, self._calls.read_text("utf-8").splitlines())
        return [(given, kept) for called, given, kept in rows if called == name]
