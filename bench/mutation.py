"""Measure how many faults the tests find, by seeded mutants of code whose errors would be silent.

    python -m bench.mutation                         # all areas, 26 mutants each, an hour or two
    python -m bench.mutation reward tools --number 5 --out mutants.jsonl

A mutant is the working tree with one small change: another comparison, operator, constant or
returned value, a negated condition; in SQL another function, direction or number. Mutants are
sampled with a seed from the files of an area. The area's tests run on a copy of the tree until the
first failure. A mutant is killed if a test fails or if the tests take ten times as long as without
it. Results are appended to `--out`; the same command continues there.
"""

import argparse
import ast
import concurrent.futures
import copy
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from art_e.storage import append_line, whole_lines

ROOT = Path(__file__).parent.parent
SEED = 7
SLOWEST = 10.0
_LOG = threading.Lock()


class Area(NamedTuple):
    """Source files and the tests that should find a fault in them, the fastest tests first."""

    files: tuple[str, ...]
    tests: tuple[str, ...]


# Without the tests of commands and models, which are slow and test other things.
_ART_E = (
    "tests/art_e",
    *(f"--ignore=tests/art_e/{name}" for name in ("cli", "inbox", "models")),
    *(f"--ignore-glob=*/test_{name}*" for name in ("privacy", "mcp", "storage")),
)
_EVALS = tuple(f"tests/evals/test_{name}.py" for name in ("intervals", "metrics", "benchmark"))
_INGEST = tuple(f"tests/data_pipeline/test_{name}.py" for name in ("parse", "sources", "ingest"))
AREAS = {
    "episode": Area(("art_e/episode.py",), _ART_E),
    "tools": Area(("art_e/tools.py",), _ART_E),
    "reward": Area(("training/reward.py",), ("tests/training/test_reward.py",)),
    "copies": Area(
        ("data_pipeline/ingest/*.sql", "data_pipeline/ingest/b[ua]*.py"),
        (*_INGEST, "tests/art_e/inbox", "tests/data_pipeline/test_labels.py"),
    ),
    "parser": Area(
        ("data_pipeline/ingest/parse.py", "data_pipeline/ingest/headers.py"),
        ("tests/data_pipeline/test_parse.py", "tests/data_pipeline/test_parse_properties.py"),
    ),
    "ranking": Area(
        tuple(f"art_e/inbox/{name}.py" for name in ("slice", "inbox", "snippet")),
        ("tests/art_e/inbox",),
    ),
    "metrics": Area(("evals/metrics.py", "evals/scored.py"), _EVALS),
    "intervals": Area(("evals/statistics.py",), _EVALS),
}

_OTHER: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot,
    ast.IsNot: ast.Is, ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
_SQL = (
    (r"\bmin\(", "max("), (r"\bmax\(", "min("), (r"\bAND\b", "OR"), (r"<>", "="), (r" = ", " <> "),
    (r" < ", " <= "), (r"\bDISTINCT\b", ""), (r"\bUNION ALL\b", "EXCEPT"), (r" - 1\b", ""),
    (r"\bNOT\b", ""), (r"\bSEMI\b", "ANTI"), (r"\bANTI\b", "SEMI"), (r"\barg_min\(", "arg_max("),
    (r"\bDESC\b", "ASC"), (r"\bLEFT JOIN\b", "JOIN"),
)  # fmt: skip


class Mutant(NamedTuple):
    """A file's new text, and the place and kind of the change."""

    file: str
    line: int
    change: str
    text: str


def mutants(area: Area) -> list[Mutant]:
    """Return all mutants of an area's files, in order."""
    every = list[Mutant]()
    for pattern in area.files:
        for path in sorted(ROOT.glob(pattern)):
            mutate = _mutate_sql if path.suffix == ".sql" else _mutate_python
            every += mutate(str(path.relative_to(ROOT)), path.read_text("utf-8"))
    return every


def _mutate_sql(file: str, text: str) -> Iterator[Mutant]:
    for pattern, replacement in _SQL:
        for match in re.finditer(pattern, text):
            start, end = match.span()
            if "--" in text[text.rfind("\n", 0, start) + 1 : start]:
                continue
            line = text.count("\n", 0, start) + 1
            change = f"{match[0].strip()} -> {replacement.strip()}"
            yield Mutant(file, line, change, text[:start] + replacement + text[end:])


def _mutate_python(file: str, text: str) -> Iterator[Mutant]:
    tree = ast.parse(text)
    lines = text.encode().split(b"\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    # Skip decorators: a dataclass without `frozen` or `slots` is not a fault.
    decorators = {
        id(part)
        for node in ast.walk(tree)
        for decorator in getattr(node, "decorator_list", ())
        for part in ast.walk(decorator)
    }
    for node in ast.walk(tree):
        if id(node) in decorators:
            continue
        for changed in _changes(node):
            before, after = ast.unparse(node), ast.unparse(changed)
            if before == after or not isinstance(node, ast.expr | ast.stmt):
                continue
            assert node.end_lineno is not None and node.end_col_offset is not None
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            # Parentheses keep an expression together, even over several lines.
            new = f"({after})" if isinstance(node, ast.expr) else after
            source = text.encode()
            whole = (source[:start] + new.encode() + source[end:]).decode()
            yield Mutant(file, node.lineno, f"{before} -> {after}"[:160], whole)


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield copies of the node with one change each."""
    match node:
        case ast.Compare(ops=ops):
            for place, op in enumerate(ops):
                if type(op) in _OTHER:
                    yield _with(node, ops=[*ops[:place], _OTHER[type(op)](), *ops[place + 1 :]])
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in _OTHER:
            yield _with(node, op=_OTHER[type(op)]())
        case ast.UnaryOp(op=ast.Not()):
            yield node.operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield ast.Constant(value + 1)
        case ast.IfExp():
            yield _with(node, test=ast.UnaryOp(ast.Not(), node.test))
        case ast.Return(value=value) if value is not None:
            yield ast.Return(ast.Constant(None))


def _with(node: ast.AST, **fields: Any) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def is_killed(mutant: Mutant, tests: tuple[str, ...], limit: float, tree: Path) -> bool:
    """Return whether the tests fail with this mutant; restore the file in the tree."""
    target = tree / mutant.file
    original = target.read_text("utf-8")
    target.write_text(mutant.text, encoding="utf-8")
    try:
        return run(tests, tree, limit) != 0
    except subprocess.TimeoutExpired:
        return True
    finally:
        target.write_text(original, encoding="utf-8")


def run(tests: tuple[str, ...], tree: Path, limit: float | None = None) -> int:
    """Run pytest in the tree; return its exit code."""
    options = ["-q", "-x", "-p", "no:cacheprovider"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        timeout=limit,
        check=False,
    ).returncode


def copy_tree(folder: Path) -> Path:
    """Copy the working tree without hidden files and runs."""
    left_out = shutil.ignore_patterns(".*", "runs", "__pycache__")
    return Path(shutil.copytree(ROOT, folder, ignore=left_out, dirs_exist_ok=True))


def measure(name: str, number: int, out: Path, tree: Path) -> None:
    """Test the sampled mutants of an area that `out` does not have yet."""
    area = AREAS[name]
    every = mutants(area)
    sample = random.Random(f"{SEED} {name}").sample(every, min(number, len(every)))
    done = {(row["file"], row["line"], row["change"]) for row in map(json.loads, whole_lines(out))}
    rest = [each for each in sample if (each.file, each.line, each.change) not in done]
    if not rest:
        return
    started = time.monotonic()
    if code := run(area.tests, tree):
        raise SystemExit(f"the tests of {name} fail without a mutant (exit code {code})")
    limit = SLOWEST * (time.monotonic() - started)
    for mutant in rest:
        killed = is_killed(mutant, area.tests, limit, tree)
        row = {"area": name, **mutant._asdict(), "killed": killed}
        del row["text"]
        with _LOG:
            append_line(out, json.dumps(row))
        print("killed  " if killed else "SURVIVED", f"{mutant.file}:{mutant.line} {mutant.change}")


def main(arguments: list[str] | None = None) -> int:
    """Test the mutants and print how many were killed, by area."""
    parser = argparse.ArgumentParser(prog="python -m bench.mutation", description=__doc__)
    parser.add_argument("areas", nargs="*", help=f"of {', '.join(AREAS)} (default: all)")
    parser.add_argument("--number", type=int, default=26, help="mutants per area")
    parser.add_argument("--out", type=Path, default=Path("mutants.jsonl"), help="file of results")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="areas at the same time")
    options = parser.parse_args(arguments)
    names = options.areas or list(AREAS)
    if unknown := set(names) - AREAS.keys():
        parser.error(f"no area {', '.join(sorted(unknown))}; there are {', '.join(AREAS)}")

    def measure_area(name: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            measure(name, options.number, options.out, copy_tree(Path(folder)))

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(measure_area, names))
    rows = [json.loads(each) for each in whole_lines(options.out)]
    for name in (*names, None):
        of_area = [each["killed"] for each in rows if name in {each["area"], None}]
        print(f"{name or 'all':10} {sum(of_area):4} of {len(of_area)} killed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
