"""The pictures of the README, made by the project's own commands.

    python -m tests.pictures                                docs/terminal.svg
    python -m tests.pictures --report served/report.html    docs/report.png as well: its charts

The terminal is a real one (a pty): what `art-e ask --trace` sends to it is what is drawn. The
report is one that is there, opened in the system's Chromium, as in the tests; that of the README
is made as docs/training.md says under "Served, beside the floor". `docs/training.png`,
`docs/ablations.png` and `docs/hack.png` come from `python -m training.experiments`,
`docs/speed.png` from `python -m tests.benchmarks`.
"""

import argparse
import fcntl
import io
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from PIL import Image
from rich import terminal_theme
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from tests.browser import Visit, chromium_path, running_browser
from tests.builders import sent

DOCS = Path(__file__).parent.parent / "docs"

WIDTH = 126
# Bodies of one or two sentences: the whole episode fits a picture.
WORLD = "synthetic:2000,short"
QUESTION = "What is Niccolò's relocation allowance?"
ASKED = (
    "art-e", "ask", QUESTION,
    "--inbox", "lukasz.eze@deepwarden.example", "--as-of", "2019-06-27", "--db", "world.duckdb",
    "--trace",
)  # fmt: skip

# Of the window that the report is opened in, in pixels.
PAGE_WIDTH, PAGE_HEIGHT = 1200, 720
# A page of charts has few; the file is a third of what it would be.
COLOURS = 128


def main(arguments: list[str] | None = None) -> int:
    """Make the pictures; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.pictures", description=__doc__)
    parser.add_argument("--report", type=Path, metavar="FILE", help="take a screenshot of it")
    parser.add_argument("--section", default="charts", help="where it is scrolled to")
    parser.add_argument("--docs", type=Path, default=DOCS, metavar="DIR", help="where to write")
    chosen = parser.parse_args(arguments)
    if chosen.report is not None and not chosen.report.is_file():
        parser.error(f"{chosen.report} is no file; art-e eval report RUN makes one")
    if chosen.report is not None and chromium_path() is None:
        parser.error("a screenshot needs Chromium: apt-get install chromium, or CHROMIUM=PATH")
    with tempfile.TemporaryDirectory() as folder:
        make_world(Path(folder))
        drawn = terminal_picture(Path(folder))
    (chosen.docs / "terminal.svg").write_text(drawn, encoding="utf-8")
    if chosen.report is not None:
        (chosen.docs / "report.png").write_bytes(screenshot(chosen.report, chosen.section))
    return 0


def make_world(folder: Path) -> None:
    """The made-up company's mail that is asked about: `world.duckdb` in the folder."""
    _art_e(folder, "ingest", WORLD, "--db", "world.duckdb")


def terminal_picture(folder: Path) -> str:
    """What a terminal shows of the question asked, as SVG that fetches nothing."""
    screen = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    screen.print(typed(), overflow="fold", no_wrap=False)
    for line in Text.from_ansi(_shown(folder)).split("\n"):
        screen.print(as_a_terminal_breaks(line), no_wrap=True, crop=False)
    # Its font is named, not fetched from the web.
    style = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return screen.export_svg(
        title="art-e", theme=terminal_theme.MONOKAI, code_format=style, unique_id="art-e"
    )


def typed() -> Text:
    """The command as it is typed, on two lines."""
    first, second = f'{" ".join(ASKED[:2])} "{ASKED[2]}"', shlex.join(ASKED[3:])
    return Text.assemble(("$ ", "bold green"), first, " \\\n    ", second)


def as_a_terminal_breaks(line: Text) -> Text:
    """The line, broken where the screen ends, whatever stands there."""
    pieces = line.divide(range(WIDTH, max(len(line.plain), WIDTH), WIDTH))
    return Text("\n").join(pieces)


def _shown(folder: Path) -> str:
    """What the command sends to a terminal, its notes among it."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, WIDTH, 0, 0))
    running = subprocess.Popen(
        [sys.executable, "-m", "art_e", *ASKED[1:]],
        cwd=folder,
        env=_environment(folder),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    text = b"".join(sent(ours)).decode("utf-8")
    os.close(ours)
    if running.wait():
        raise RuntimeError(text)
    return text.replace("\r\n", "\n").strip()


def _art_e(folder: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "art_e", *arguments]
    subprocess.run(
        command, cwd=folder, env=_environment(folder), check=True, stdout=subprocess.DEVNULL
    )


def _environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    return {
        **kept,
        "ART_E_HOME": str(folder),
        "PYTHONPATH": str(DOCS.parent),
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "PYTHONUTF8": "1",
    }


def screenshot(report: Path, section: str) -> bytes:
    """What a window shows of a section of the report, as PNG of few colours."""
    with running_browser() as browser:
        visit = Visit(browser, width=PAGE_WIDTH, height=PAGE_HEIGHT)
        page = visit.open(report, section)
        taken = page.screenshot()
        visit.close()
    picture = io.BytesIO()
    small = Image.open(io.BytesIO(taken)).convert("RGB").quantize(COLOURS)
    small.save(picture, "PNG", optimize=True)
    return picture.getvalue()


if __name__ == "__main__":
    sys.exit(main())
