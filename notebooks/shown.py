"""Helpers of the notebooks: commands with their output, charts, an episode as text.

    from shown import WORK, art_e, show

Commands run in `WORK`, which keeps the notebooks' files; no output shows a path of the machine.
Charts are those of the report, or drawn in its colours.
"""

import io
import json
import logging
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
import warnings
from itertools import zip_longest
from pathlib import Path
from typing import Any

from IPython.display import DisplayHandle, display
from IPython.display import Image as Shown
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from rich.console import Console

from art_e.cli.conversation import format_turn
from art_e.storage import home
from art_e.trajectory import Trajectory, exchanges
from evals.report.charts import GRID, INK, MUTED, WIDTH, Chart, write_picture, write_png

WORK = (home() / "notebooks").resolve()
WORK.mkdir(parents=True, exist_ok=True)

# Warnings of training libraries when a notebook imports them.
warnings.filterwarnings("ignore", message="IProgress not found")
logging.getLogger("bitsandbytes").setLevel(logging.ERROR)

# The made-up company that the first notebooks are about.
COMPANY = "synthetic:5000,seed=7"
# Width of printed lines.
COLUMNS = 100
# Colours of a picture: charts have few, and these take a third of the bytes.
_COLOURS = 64
# The deepest indent and the gaps of a line in two columns of text.
_DEEPEST, _GAPS = 5, re.compile(" {3,}")
# Points around a plot of `panel`: left, right, above it, below it.
_LEFT, _RIGHT, _HEAD, _FOOT = 48, 16, 48, 30


def art_e_json(command: str) -> Any:
    """Return the data of `art-e COMMAND --json`; print only the command."""
    data = json.loads(_run(f"{command} --json"))
    sys.stdout.write(f"$ art-e {command} --json\n")
    return data


def company() -> None:
    """Make the inbox file of notebook 1 in `WORK` if it is missing."""
    if not (WORK / "company.duckdb").exists():
        _run(f"ingest {COMPANY} --db company.duckdb")


def begin(*words: str, log: Path) -> subprocess.Popen[bytes]:
    """Start `art-e WORDS` in `WORK` without waiting for its end; its output goes to `log`."""
    with log.open("wb") as file:
        command = [sys.executable, "-m", "art_e", *words]
        return subprocess.Popen(
            command,
            cwd=WORK,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )


def show(*charts: Chart, columns: int = 2, on: DisplayHandle | None = None) -> None:
    """Show charts as one picture with so many columns; with `on`, replace that picture."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "charts.png"
        write_picture(file, charts, columns)
        _show(file, on)


def show_figure(figure: Figure) -> None:
    """Show one figure of matplotlib like a chart."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figure.png"
        write_png(figure, file)
        _show(file, None)


def panel(title: str, note: str, height: float = 180, foot: float = _FOOT) -> tuple[Figure, Axes]:
    """Return an empty plot like the report's charts, `height` points high, with `foot` points
    for what stands below it."""
    whole = height + _HEAD + foot
    figure = Figure(figsize=(WIDTH / 72, whole / 72), dpi=72)
    plot = (_LEFT / WIDTH, foot / whole, (WIDTH - _LEFT - _RIGHT) / WIDTH, height / whole)
    axes = figure.add_axes(plot)
    figure.text(_RIGHT / WIDTH, 1 - 20 / whole, title, color=INK, size=13, weight="bold")
    figure.text(_RIGHT / WIDTH, 1 - 35 / whole, note, color=MUTED, size=9)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    axes.tick_params(colors=MUTED, labelsize=10.5, length=0)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    return figure, axes


def told(trajectory: Trajectory, columns: int = COLUMNS) -> str:
    """Return an episode as `art-e ask --trace` prints it, in lines of so many letters."""
    printed = io.StringIO()
    console = Console(file=printed, width=columns, force_jupyter=False, force_terminal=False)
    for number, exchange in enumerate(exchanges(trajectory.messages), start=1):
        console.print(format_turn(number, exchange), soft_wrap=True)
    return printed.getvalue()


def beside(left: str, right: str, columns: int = COLUMNS) -> str:
    """Two texts next to each other, each on half of the page."""
    half = columns // 2 - 1
    sides = (
        [part for line in text.splitlines() for part in _wrapped(line, half)]
        for text in (left, right)
    )
    return "\n".join(
        f"{one:{half}} | {other}".rstrip() for one, other in zip_longest(*sides, fillvalue="")
    )


def _wrapped(line: str, width: int) -> list[str]:
    """Return a line of an episode in lines of that width, with less room on its left."""
    text = line.lstrip()
    indent = min(len(line) - len(text), _DEEPEST)
    squeezed = _GAPS.sub("  ", text)
    return textwrap.wrap(
        squeezed,
        width,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + 2),
        drop_whitespace=True,
    ) or [""]


def _run(command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "art_e", *shlex.split(command)],
        cwd=WORK,
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"art-e {command}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def _environment() -> dict[str, str]:
    # A kernel asks for colours, which would be codes in the text.
    mine = {name: value for name, value in os.environ.items() if "COLOR" not in name}
    return mine | {"ART_E_HOME": str(WORK.parent), "COLUMNS": str(COLUMNS)}


def _show(file: Path, on: DisplayHandle | None) -> None:
    with Image.open(file) as drawn:
        # Half its size in dots, so that it is as sharp as text.
        width, height = drawn.width // 2, drawn.height // 2
        small = io.BytesIO()
        drawn.convert("RGB").quantize(_COLOURS).save(small, format="PNG", optimize=True)
    picture: Any = Shown(data=small.getvalue(), format="png", width=width, height=height)
    if on is None:
        display(picture)
    else:
        on.update(picture)
