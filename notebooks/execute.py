"""Execute the notebooks from top to bottom, and compare their stored outputs.

    python -m notebooks.execute                 # all, as `make notebooks`
    python -m notebooks.execute 01 02           # these
    python -m notebooks.execute 01 --update     # and store its outputs in the repository

All share a temporary `ART_E_HOME` and Jupyter: 05 reads the model of 04, and the user's files stay
untouched. The executed notebooks go to `runs/notebooks`, as .ipynb and .html. The repository stores
the outputs of those in `KEPT`: their texts must be equal, their pictures only present.
"""

import argparse
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import nbformat

FOLDER = Path(__file__).parent
OUT = FOLDER.parent / "runs" / "notebooks"
# Their outputs are the same on every machine; the others' contain times and training.
KEPT = ("01", "02", "03")
# A cell of 04 trains for minutes.
CELL_SECONDS = 1_800
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_PICTURES = ("image/png", "image/svg+xml")

Notebook = Any


class NotebookError(Exception):
    """A notebook failed."""


def notebooks() -> list[Path]:
    """Return the notebooks, in their order."""
    return sorted(FOLDER.glob("[0-9][0-9]_*.ipynb"))


def read(path: Path) -> Notebook:
    """Return the notebook of a file."""
    return nbformat.read(path, as_version=4)


def texts(cell: Notebook) -> list[str]:
    """Return the outputs of a cell: streams and results as text, pictures as their kind."""
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
    """Return a line for each code cell with other text, with the first difference."""
    for number, (old, new) in enumerate(zip(kept.cells, made.cells, strict=True), start=1):
        before, after = (
            [line for text in texts(each) for line in text.splitlines()] for each in (old, new)
        )
        if before != after:
            pairs = zip_longest(before, after, fillvalue="(nothing)")
            first, then = next(pair for pair in pairs if pair[0] != pair[1])
            yield f"cell {number} ({old['id']}): kept {first!r}, now {then!r}"


def executed(path: Path, scratch: Path) -> Notebook:
    """Return the notebook with its outputs. Raises `NotebookError` if a cell fails."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    made = cleared(read(path))
    folder = scratch / path.stem
    folder.mkdir()
    client = NotebookClient(
        made,
        # Else it warns about plain text, though it listens on this machine alone.
        extra_arguments=["--log-level=ERROR"],
        timeout=CELL_SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        coalesce_streams=True,
    )
    try:
        client.execute()
    except CellExecutionError as error:
        raise NotebookError(f"{path.name}: {_COLOUR.sub('', str(error))}") from None
    except (CellTimeoutError, DeadKernelError) as error:
        raise NotebookError(f"{path.name}: {error}") from None
    for cell in made.cells:
        cell.metadata.pop("execution", None)
    return made


def cleared(notebook: Notebook) -> Notebook:
    """Return the notebook without outputs and counts."""
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
        sys.stderr.write("if the new outputs are right: python -m notebooks.execute --update\n")
    return 1 if faults else 0


def _apart(scratch: Path) -> None:
    """Hide the user's mail, runs, kernels and start-up files, and the network."""
    own = {
        "ART_E_HOME": scratch / "home",
        "IPYTHONDIR": scratch / "ipython",
        "JUPYTER_CONFIG_DIR": scratch / "jupyter",
        "JUPYTER_DATA_DIR": scratch / "jupyter",
        "JUPYTER_RUNTIME_DIR": scratch / "jupyter",
        "JUPYTER_PLATFORM_DIRS": "1",
        "HF_HUB_OFFLINE": "1",
        # `shown` and this checkout's packages.
        "PYTHONPATH": os.pathsep.join([str(FOLDER), str(FOLDER.parent)]),
    }
    os.environ.update({name: str(value) for name, value in own.items()})
    os.environ.pop("ART_E_REPRODUCED", None)


def _html(made: Notebook) -> str:
    from nbconvert import HTMLExporter

    # Without addresses to load scripts from, because the page is read offline.
    exporter = HTMLExporter(require_js_url="", mathjax_url="", mermaid_js_url="")
    exporter.exclude_input_prompt = exporter.exclude_output_prompt = True
    page: str = exporter.from_notebook_node(made)[0]
    return page


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m notebooks.execute")
    numbers = [each.name[:2] for each in notebooks()]
    parser.add_argument("names", nargs="*", choices=[*numbers, []], metavar="NN", help="01 to 05")
    parser.add_argument("--update", action="store_true", help="store the outputs of 01 to 03")
    return parser


if __name__ == "__main__":
    sys.exit(main())
