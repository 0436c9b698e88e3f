"""`art-e golden generate`: what it tells, asks for, refuses and leaves behind."""

from pathlib import Path

import pytest

from art_e.question import load_questions
from data_pipeline.golden import cli as golden_progress
from tests.command_line import Run, json_of, the_error
from tests.data_pipeline.golden.writers import COST, MODEL, Writer
from tests.provider import KEY, Provider

FEW = ("--train", "1", "--validation", "0", "--test", "1", "--min-mails", "50", "--batches", "2")


@pytest.fixture
def command(world_db: Path, tmp_path: Path) -> tuple[object, ...]:
    return ("golden", "generate", "-m", MODEL, "--db", world_db, "--out", tmp_path / "set", *FEW)


def test_a_set_that_other_commands_read(
    art_e: Run,
    command: tuple[object, ...],
    world_db: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(golden_progress, "LINE_EVERY_S", 0.0)
    with Provider(Writer()) as provider:
        provider.stand_in_for_openai(monkeypatch)
        result = art_e(*command)
        assert result.exit_code == 0, result.output
        assert result.stdout == "generate: 20 rows, 20 kept\n"
        assert "mail text stays on this machine (127.0.0.1" in result.stderr
        assert "estimate: about $0.0" in result.stderr
        # A run's log tells what it costs while it goes on.
        assert "4 of 4 batches, 20 questions, $0.10 of about $" in result.stderr
        following = f"art-e golden filter --db {world_db} --out {tmp_path / 'set'}"
        assert following in result.stderr
        assert len(provider.requests) == 4
        again = json_of(art_e(*command, "--json"))
        assert len(provider.requests) == 4
    assert again["sums"] == {"in": 20, "kept": 20, "dropped": {}, "mended": {}, "unsure": {}}
    assert again["cost_usd"] == pytest.approx(4 * COST)
    questions = load_questions(str(tmp_path / "set"))
    assert {each.split for each in questions} == {"train", "test"}
    files = [each for each in (tmp_path / "set").rglob("*") if each.is_file()]
    assert not [each for each in files if KEY.encode() in each.read_bytes()]


def test_a_dry_run_asks_and_writes_nothing(
    art_e: Run, command: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not even a key is wanted.
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    plan = json_of(art_e(*command, "--dry-run", "--json"))
    assert [each["split"] for each in plan["inboxes"]].count("test") == 1
    assert plan["estimate"]["requests"] == sum(each["batches"] for each in plan["inboxes"]) == 4
    assert 0 < plan["estimate"]["usd"] < 1
    shown = art_e(*command, "--dry-run")
    assert shown.exit_code == 0
    assert plan["inboxes"][0]["address"] in shown.stdout
    assert "about $0.0" in shown.stdout
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize(
    ("options", "fix"),
    [
        (("-m", "offline"), "art-e golden import"),
        (("-m", "local:checkpoint"), "art-e serve"),
        (("-m", "nobody/nothing"), "unknown model"),
        (("--inbox", "nobody@nowhere.example"), "nearest"),
        (("--min-mails", "100000"), "lower --min-mails"),
        (("--train", "0", "--test", "0"), "above 0"),
        (("-m", "openai/of-our-own", "--max-cost", "1"), "--max-cost can't be kept"),
    ],
)
def test_refused_with_the_fix(
    art_e: Run,
    command: tuple[object, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    fix: str,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert fix in the_error(art_e(*command, *options))
    assert not (tmp_path / "set" / "manifest.json").exists()


def test_a_missing_key_is_named_before_anything_is_read(
    art_e: Run, command: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert "export OPENAI_API_KEY" in the_error(art_e(*command))
