"""Execute the notebooks from top to bottom, and hold the kept outputs against what comes out.

    python -m notebooks.execute                 # all; what `make notebooks` runs
    python -m notebooks.execute 01 02           # these
    python -m notebooks.execute 01 --update     # and keep its outputs in the repository

Each runs in a folder of its own, with an `ART_E_HOME` and a Jupyter of their own that all share
and that are thrown away, so that 05 sees what 04 trained and nothing of the user's is read or
written. The executed notebooks are left in `runs/notebooks`, as .ipynb and .html. Those of
`KEPT` have their outputs in the repository: the texts must come out the same, letter by letter;
of pictures only that there is one. The others are kept without outputs. Knows nothing of what
is in them.
"""

import argparse
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import nbformat

FOLDER = Path(__file__).parent
OUT = FOLDER.parent / "runs" / "notebooks"
# Their outputs are the same on every machine; those of the others have times and are trained.
KEPT = ("01", "02", "03")
# A cell of 04 trains for minutes.
CELL_SECONDS = 1_800
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PICTURES = ("image/png", "image/svg+xml")

Notebook = Any


class NotebookError(Exception):
    """What went wrong in which notebook, for people."""


def notebooks() -> list[Path]:
    """The notebooks, in the order in which they are read."""
    return sorted(FOLDER.glob("[0-9][0-9]_*.ipynb"))


def read(path: Path) -> Notebook:
    """The notebook of a file."""
    return nbformat.read(path, as_version=4)


def texts(cell: Notebook) -> list[str]:
    """What a cell put out: each stream and result as text, a picture as its kind alone."""
    found: list[str] = []
    for output in cell.get("outputs", ()):
        if output["output_type"] == "stream":
            found.append(f"{output['name']}: {output['text']}")
        elif output["output_type"] == "error":
            found.append(f"{output['ename']}: {output['evalue']}")
        else:
            data = output["data"]
            pictures = [kind for kind in _PICTURES if kind in data]
            found += pictures or [f"{kind}: {data[kind]}" for kind in sorted(data)]
    return found


def differences(kept: Notebook, made: Notebook) -> Iterator[str]:
    """A line for each code cell whose text is not what is kept, with what differs first."""
    for number, (old, new) in enumerate(zip(kept.cells, made.cells, strict=True), start=1):
        before, after = (
            [line for text in texts(each) for line in text.splitlines()] for each in (old, new)
        )
        if before != after:
            at = next(
                (
                    place
                    for place, pair in enumerate(zip(before, after, strict=False))
                    if pair[0] != pair[1]
                ),
                min(len(before), len(after)),
            )
            first, then = (
                lines[at] if at < len(lines) else "(nothing)" for lines in (before, after)
            )
            yield f"cell {number} ({old['id']}): kept {first!r}, now {then!r}"


def executed(path: Path, scratch: Path) -> Notebook:
    """The notebook with what its cells put out. Raises `NotebookError` where a cell fails."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    made = cleared(read(path))
    folder = scratch / path.stem
    folder.mkdir()
    client = NotebookClient(
        made,
        # It warns that what it is told is not encrypted: it listens on this machine alone.
        extra_arguments=["--log-level=ERROR"],
        timeout=CELL_SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        # Streams as they came, not in the pieces in which they arrived.
        coalesce_streams=True,
    )
    try:
        client.execute()
    except CellExecutionError as error:
        raise NotebookError(f"{path.name}: {_COLOUR.sub('', str(error))}") from None
    except (CellTimeoutError, DeadKernelError) as error:
        raise NotebookError(f"{path.name}: {error}") from None
    # When a cell ran is nobody's business.
    for cell in made.cells:
        cell.metadata.pop("execution", None)
    return made


def cleared(notebook: Notebook) -> Notebook:
    """The notebook without outputs and counts."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return notebook


def main(arguments: Sequence[str] | None = None) -> int:
    """Execute the notebooks that `arguments` name; the exit code."""
    chosen = _parser().parse_args(arguments)
    paths = [each for each in notebooks() if not chosen.names or each.name[:2] in chosen.names]
    faults = 0
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        _apart(Path(scratch))
        for path in paths:
            begun = time.perf_counter()
            try:
                made = executed(path, Path(scratch))
            except NotebookError as error:
                sys.stderr.write(f"{error}\n")
                return 1
            nbformat.write(made, OUT / path.name)
            (OUT / path.name).with_suffix(".html").write_text(_html(made), encoding="utf-8")
            sys.stdout.write(f"{path.stem}  {time.perf_counter() - begun:.0f} s\n")
            sys.stdout.flush()
            if path.name[:2] not in KEPT:
                continue
            if chosen.update:
                nbformat.write(made, path)
                continue
            for line in differences(read(path), made):
                faults += 1
                sys.stderr.write(f"{path.name}, {line}\n")
    if faults:
        sys.stderr.write("what is right? python -m notebooks.execute --update keeps what is now\n")
    return 1 if faults else 0


def _apart(scratch: Path) -> None:
    """Nothing of the user's: neither mail nor runs, kernels or start-up files; no network."""
    own = {
        "ART_E_HOME": scratch / "home",
        "IPYTHONDIR": scratch / "ipython",
        "JUPYTER_CONFIG_DIR": scratch / "jupyter",
        "JUPYTER_DATA_DIR": scratch / "jupyter",
        "JUPYTER_RUNTIME_DIR": scratch / "jupyter",
        "JUPYTER_PLATFORM_DIRS": "1",
        "HF_HUB_OFFLINE": "1",
        # Where `shown` is found.
        "PYTHONPATH": FOLDER,
    }
    os.environ.update({name: str(value) for name, value in own.items()})
    os.environ.pop("ART_E_REPRODUCED", None)


def _html(made: Notebook) -> str:
    from nbconvert import HTMLExporter

    # No address to load scripts from: the page is read offline.
    exporter = HTMLExporter(require_js_url="", mathjax_url="", mermaid_js_url="")
    exporter.exclude_input_prompt = exporter.exclude_output_prompt = True
    page: str = exporter.from_notebook_node(made)[0]
    return page


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m notebooks.execute")
    numbers = [each.name[:2] for each in notebooks()]
    parser.add_argument("names", nargs="*", choices=[*numbers, []], metavar="NN", help="01 to 05")
    parser.add_argument("--update", action="store_true", help="keep what 01 to 03 put out")
    return parser


if __name__ == "__main__":
    sys.exit(main())
