import json
from pathlib import Path

import pytest

from tests.art_e.cli.conftest import Run, json_of


def test_a_fresh_machine_works(art_e: Run, home: Path) -> None:
    report = json_of(art_e("doctor", "--json"))
    states = {check["name"]: check["state"] for check in report["checks"]}
    assert report["ok"] is True
    assert states["Python"] == states["DuckDB"] == states["packages"] == "ok"
    assert states["inbox file"] == "missing"
    shown = art_e("doctor")
    assert shown.exit_code == 0
    assert "-> art-e ingest SOURCE makes one" in shown.stdout
    assert not home.exists()


def test_an_inbox_file_is_counted(art_e: Run, db: Path) -> None:
    assert f"{db}: 4 mails, 3 addresses" in art_e("doctor", "--db", db).stdout


def test_what_is_broken_is_said_with_its_fix(
    art_e: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corrupt = tmp_path / "corrupt.duckdb"
    corrupt.write_bytes(b"nothing")
    result = art_e("doctor", "--db", corrupt, "--json")
    assert result.exit_code == 1
    [inbox] = [each for each in json.loads(result.stdout)["checks"] if each["state"] == "broken"]
    assert "art-e ingest" in inbox["detail"]
    monkeypatch.setattr("art_e.cli.doctor.CORE", ("duckdb", "nothing_of_that_name"))
    result = art_e("doctor")
    assert result.exit_code == 1
    assert "nothing_of_that_name" in result.stdout and "pip install" in result.stdout


def test_absent_training_is_no_fault(art_e: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("art_e.cli.doctor.TRAINING", ("nothing_of_that_name",))
    result = art_e("doctor")
    assert result.exit_code == 0
    assert "pip install 'art-e[train]'" in result.stdout
