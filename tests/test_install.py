"""What art-e does where only its core is installed, and how a missing extra is named."""

import json
import re
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest

from art_e import errors
from art_e.cli.main import COMMANDS
from tests.test_house import ROOT, locked

IMPORT = """
import contextlib, importlib, sys
for name in sys.argv[1:]:
    with contextlib.suppress(ModuleNotFoundError):
        print(importlib.import_module(name).__name__)
"""


def test_the_core_is_enough_except_to_measure_and_train(tmp_path: Path) -> None:
    """In an environment with what requirements/core.txt locks, and no more."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path], check=True)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(tmp_path)}))
    for package in map(metadata.distribution, [*locked("core.txt"), "art-e"]):
        for top in {file.parts[0] for file in package.files or ()} - {"..", "__pycache__"}:
            (site / top).symlink_to(str(package.locate_file(top)))
    (site / "checkout.pth").write_text(str(ROOT))
    python = tmp_path / "bin" / "python"

    def run(*words: str) -> tuple[int, str]:
        ended = subprocess.run(
            [python, *words], env={"ART_E_HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"},
            cwd=tmp_path, check=False, capture_output=True, text=True,
        )  # fmt: skip
        return ended.returncode, ended.stdout or ended.stderr

    assert run("-m", "art_e", "demo")[0] == 0
    modules = {module for module, _ in COMMANDS.values()}
    need_eval = {COMMANDS[name][0] for name in ("eval", "golden", "train", "reproduce")}
    assert set(run("-c", IMPORT, *modules)[1].split()) == modules - need_eval
    fix = re.escape(f": uv pip install --python {python} -e '{ROOT}[eval]'\n")
    for command in (["eval", "run"], ["ingest", "corbt/enron-emails"]):
        code, error = run("-m", "art_e", *command)
        assert code == 2 and re.fullmatch(rf"Error: .*needs? (pandas|datasets){fix}", error)


def test_an_extra_comes_from_that_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "__file__", str(tmp_path / "art_e" / "errors.py"))
    assert errors.install_command("imap").endswith(" install 'art-e[imap]'")
    record = tmp_path / "art_e-1.dist-info" / "direct_url.json"
    record.parent.mkdir()
    for kind, scheme, url in (("dir_info", "", "file:///a%20b"), ("vcs_info", "git+", "https://a")):
        record.write_text(json.dumps({kind: {}, "url": url}))
        assert errors.install_command("imap").endswith(f" install 'art-e[imap] @ {scheme}{url}'")
