"""Make the pictures of the README with the project's own commands.

    python -m bench.pictures                  # docs/terminal.svg
    python -m bench.pictures --report FILE    # also docs/report.png, the report's first screen;
                                              # prints how long a browser takes to show it

The terminal is a real one (a pty) that runs `art-e ask --trace`. "Benchmark and train" in README
makes the report; docs/sample-report.html is a copy. `docs/training.png` is the `seeds.png` of a
reproduction; `docs/speed.png` comes from `python -m bench`.
"""

import argparse
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from PIL import Image
from rich import terminal_theme
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from tests.browser import Visit, running_browser
from tests.processes import on_terminal

DOCS = Path(__file__).parent.parent / "docs"
WIDTH = 126
# Bodies have one or two sentences, so that the whole episode fits a picture.
WORLD = "synthetic:2000,short"
QUESTION = "By whom was Izzy Dunleavy's request approved?"
OPTIONS = (
    "--inbox lukasz.eze@deepwarden.example --as-of 2019-09-28 --db world.duckdb --trace"
).split()
# The window of the report, in pixels; the charts need few colours.
PAGE_WIDTH, PAGE_HEIGHT, COLOURS = 1200, 720, 128
# In ms since navigation: the first contentful paint, and the end of the load event.
PAINTED = "performance.getEntriesByName('first-contentful-paint')"
TIMES = f"[{PAINTED}[0].startTime, performance.getEntriesByType('navigation')[0].loadEventEnd]"
LOADS = 5


def main(arguments: list[str] | None = None) -> int:
    """Make the pictures; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.pictures", description=__doc__)
    parser.add_argument("--report", type=Path, metavar="FILE", help="report to photograph")
    report = parser.parse_args(arguments).report
    if report is not None and not report.is_file():
        parser.error(f"no file {report}; art-e eval report RUN makes one")
    (DOCS / "terminal.svg").write_text(terminal_picture(), encoding="utf-8")
    if report is not None:
        (DOCS / "report.png").write_bytes(screenshot(report))
        print(load_times(report))
    return 0


def terminal_picture() -> str:
    """Return the terminal after the question, as SVG without external resources."""
    screen = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    typed = f'art-e ask "{QUESTION}"', f" \\\n    {shlex.join(OPTIONS)}"
    screen.print(Text.assemble(("$ ", "bold green"), *typed), overflow="fold", no_wrap=False)
    with tempfile.TemporaryDirectory() as folder:
        printed = _ask(Path(folder))
    for line in Text.from_ansi(printed).split("\n"):
        # A terminal breaks lines at its edge, even within words.
        pieces = line.divide(range(WIDTH, max(len(line.plain), WIDTH), WIDTH))
        screen.print(Text("\n").join(pieces), no_wrap=True, crop=False)
    # Name the font, but don't fetch it.
    style = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return screen.export_svg(
        title="art-e", theme=terminal_theme.MONOKAI, code_format=style, unique_id="art-e"
    )


def _ask(folder: Path) -> str:
    environment = {"ART_E_HOME": str(folder), "PYTHONPATH": str(DOCS.parent)}
    environment["COLORTERM"] = "truecolor"
    ingest = [sys.executable, "-m", "art_e", "ingest", WORLD, "--db", "world.duckdb"]
    quiet = subprocess.DEVNULL
    subprocess.run(ingest, cwd=folder, env=os.environ | environment, check=True, stdout=quiet)
    return on_terminal(["ask", QUESTION, *OPTIONS], environment, WIDTH, cwd=folder).strip()


def screenshot(report: Path) -> bytes:
    """Return the first screen of the report, as PNG with few colours."""
    with running_browser() as browser:
        visit = Visit(browser, width=PAGE_WIDTH, height=PAGE_HEIGHT)
        screen = visit.open(report).screenshot()
        visit.close()
    picture = io.BytesIO()
    colours = Image.open(io.BytesIO(screen)).convert("RGB").quantize(COLOURS)
    colours.save(picture, "PNG", optimize=True)
    return picture.getvalue()


def load_times(report: Path) -> str:
    """Measure how long a browser takes to show the report; medians of `LOADS`."""
    with running_browser() as browser:
        visits = [Visit(browser, width=PAGE_WIDTH, height=PAGE_HEIGHT) for _ in range(LOADS)]
        pages = [each.open(report) for each in visits]
        for page in pages:
            page.wait_for_function(f"{PAINTED}.length > 0")
        painted, loaded = zip(*(each.evaluate(TIMES) for each in pages), strict=True)
        complaints = sum(len(each.complaints) + len(each.fetched) for each in visits)
    return (
        f"{report.stat().st_size:,} bytes; first picture after {median(painted):.0f} ms, all after"
        f" {median(loaded):.0f} ms; {complaints} messages of the console and requests"
    )


if __name__ == "__main__":
    sys.exit(main())
