"""art-e with only its core installed, and the error for a missing extra."""

import json
import re
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest

from art_e import __version__, errors
from art_e.cli.main import COMMANDS
from tests.test_house import ROOT, locked

IMPORT = """
import contextlib, importlib, sys
for name in sys.argv[1:]:
    with contextlib.suppress(ModuleNotFoundError):
        print(importlib.import_module(name).__name__)
"""


def environment(folder: Path, *packages: str) -> None:
    """Make an environment with these packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
    for package in map(metadata.distribution, packages):
        for top in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
            (site / top).symlink_to(str(package.locate_file(top)))


def run(folder: Path, *words: str) -> tuple[int, str]:
    ended = subprocess.run(
        [folder / "bin" / words[0], *words[1:]], check=False, capture_output=True, text=True,
        cwd=folder, env={"ART_E_HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    return ended.returncode, ended.stdout or ended.stderr


def test_a_release_builds_installs_and_runs_with_the_core_alone(tmp_path: Path) -> None:
    """Follow `make release`, with packages that are installed already; then ask for an extra."""
    environment(tmp_path, *locked("core.txt"))
    source, dist = tmp_path / "source", tmp_path / "dist"
    left_out = shutil.ignore_patterns(".*", "__pycache__", "build", "docs", "runs", "tests")
    shutil.copytree(ROOT, source, ignore=left_out)
    build = f"build --no-isolation --outdir {dist} {source}"
    wheel = f"{dist}/art_e-{__version__}-py3-none-any.whl"
    pip = f"pip --python {tmp_path}/bin/python install --no-deps --no-index {wheel}"
    for words in (build, pip):
        subprocess.run([sys.executable, "-m", *words.split()], check=True, capture_output=True)
    assert run(tmp_path, "art-e", "demo")[0] == 0
    modules = {module for module, _ in COMMANDS.values()}
    need_eval = {COMMANDS[name][0] for name in ("eval", "golden", "train", "reproduce")}
    assert set(run(tmp_path, "python", "-c", IMPORT, *modules)[1].split()) == modules - need_eval
    package = f"'art-e[eval] @ file://{wheel}'"
    fix = re.escape(f": uv pip install --python {tmp_path}/bin/python {package}\n")
    for command in ("eval run", "ingest corbt/enron-emails"):
        code, error = run(tmp_path, "art-e", *command.split())
        assert code == 2 and re.fullmatch(rf"Error: .*needs? (pandas|datasets){fix}", error)


def test_an_extra_comes_from_that_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "art_e" / "errors.py"))
    assert errors.install_command("imap").endswith(" install 'art-e[imap]'")
    (tmp_path / "pyproject.toml").touch()
    assert errors.install_command("imap").endswith(f" install -e '{tmp_path}[imap]'")
    record = tmp_path / "art_e-1.dist-info" / "direct_url.json"
    record.parent.mkdir()
    for kind, scheme, url in (("dir_info", "", "file:///a%20b"), ("vcs_info", "git+", "https://a")):
        record.write_text(json.dumps({kind: {}, "url": url}))
        assert errors.install_command("imap").endswith(f" install 'art-e[imap] @ {scheme}{url}'")
