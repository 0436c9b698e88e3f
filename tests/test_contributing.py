"""The diffs of CONTRIBUTING.md apply to the tree as it is, and what they add passes its tests."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documented import ROOT, Block, blocks

PAGE = ROOT / "CONTRIBUTING.md"
DIFFS = [each for each in blocks(PAGE) if each.language == "diff"]
FOLDERS = ("art_e", "data_pipeline", "evals", "training", "tests", "docs")
FILES = ("README.md", "pyproject.toml")


def test_there_is_one_for_each_kind_of_change() -> None:
    assert len(DIFFS) == 3


@pytest.mark.parametrize("block", DIFFS, ids=lambda each: each.where)
def test_the_diff_applies_and_its_tests_pass(block: Block, tmp_path: Path) -> None:
    for name in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__", "*.png", "*.duckdb")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    for name in FILES:
        shutil.copy(ROOT / name, tmp_path / name)
    # git would look for the repository around the folder, and apply nothing to what is ignored.
    alone = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
    applied = subprocess.run(
        ["git", "apply", "--verbose", "-"],
        cwd=tmp_path,
        env=alone,
        input=f"{block.text}\n",
        check=False,
        capture_output=True,
        text=True,
    )
    assert applied.returncode == 0, applied.stderr
    changed = re.findall(r"^\+\+\+ b/(.+)$", block.text, re.MULTILINE)
    assert all((tmp_path / each).read_bytes() != _before(each) for each in changed)
    tests = [each for each in changed if each.startswith("tests/")]
    assert tests
    run_there(tmp_path, "pytest", "-q", "-p", "no:cacheprovider", *tests)
    modules = [each for each in changed if each.endswith(".py")]
    run_there(tmp_path, "ruff", "check", *modules)
    run_there(tmp_path, "ruff", "format", "--check", *modules)


def _before(name: str) -> bytes:
    file = ROOT / name
    return file.read_bytes() if file.exists() else b""


def run_there(folder: Path, module: str, *arguments: str) -> None:
    """Run a tool on the copy, whose packages come before the installed ones."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
