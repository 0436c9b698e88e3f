"""`art-e golden export --push`: a dry run shows what leaves, file by file, and asks nobody."""

import json
from pathlib import Path

import pytest

from tests.command_line import ANN, LEASE_ID, Run, json_of, the_error
from tests.hub import Hub, no_network, running

ROWS: list[dict[str, object]] = [
    {
        "id": "q-1", "question": "When does the lease end?", "answer": "March 31, 2002",
        "message_ids": [LEASE_ID], "inbox_address": ANN, "query_date": "2001-02-28",
        "how_realistic": 0.9, "kind": "lookup", "split": "test",
    },
    {
        "id": "q-2", "question": "What does eve@evil.example charge?", "answer": None,
        "message_ids": [], "inbox_address": ANN, "query_date": "2001-02-28",
        "how_realistic": 0.9, "kind": "unanswerable", "answerable": False, "split": "test",
    },
]  # fmt: skip


@pytest.fixture
def golden(art_e: Run, db: Path, tmp_path: Path) -> Path:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps(each) + "\n" for each in ROWS), "utf-8")
    json_of(art_e("golden", "import", rows, "--db", db, "--out", tmp_path / "golden", "--json"))
    return tmp_path / "golden"


def test_a_dry_run_lists_what_the_push_sends_and_asks_nobody(
    art_e: Run, golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = tmp_path / "published"
    command = ("golden", "export", golden, "--to", to, "--push", "me/set", "--json")
    with running(Hub()) as hub:
        hub.stand_in(monkeypatch)
        with no_network():
            dry = json_of(art_e(*command, "--dry-run"))
        assert hub.requests == 0
        pushed = json_of(art_e(*command))
    assert pushed["push"]["files"] == dry["push"]["files"]
    assert {each["path"]: each["bytes"] for each in dry["push"]["files"]} == {
        name: len(data) for name, data in hub.repos["me/set"].items()
    }
    assert (dry["url"], dry["push"]["url"], dry["push"]["dry_run"]) == (None, None, True)
    assert pushed["url"] == pushed["push"]["url"] == f"{hub.url}/datasets/me/set"
    assert dry["push"]["contents"] == pushed["push"]["contents"]
    assert (dry["push"]["hub_id"], dry["push"]["repo_type"]) == ("me/set", "dataset")
    assert dry["push"]["private"] is hub.private["me/set"] is True


def test_a_dry_run_says_what_is_in_it(art_e: Run, golden: Path, tmp_path: Path) -> None:
    to = tmp_path / "published"
    command = ("golden", "export", golden, "--to", to, "--push", "me/set", "--dry-run")
    told = json_of(art_e(*command, "--json"))["push"]["contents"]
    assert (told["questions"], told["answers"], told["mails"]) == (2, 1, 0)
    assert (told["inboxes"], told["addresses"]) == (1, 2)
    shown = art_e(*command, "--public")
    assert shown.exit_code == 0
    for line in (
        "would go to the hub as the dataset me/set (public):",
        f"{(to / 'README.md').stat().st_size:>15,}  README.md",
        "  2 questions, 1 with an answer",
        "  the names of 1 inbox",
        "  2 e-mail addresses",
    ):
        assert line in shown.stdout.splitlines()
    assert "mails named by their ids: 1;" in shown.stdout
    assert "made up" not in shown.stdout
    assert "nothing was sent" in shown.stderr


@pytest.mark.parametrize(
    ("more", "said"),
    [(["--dry-run"], "add --push OWNER/NAME"), (["--push", "a/b/c", "--dry-run"], "check the id")],
)
def test_what_can_be_no_push_is_told_before_anything_is_written(
    art_e: Run, golden: Path, tmp_path: Path, more: list[str], said: str
) -> None:
    to = tmp_path / "published"
    assert said in the_error(art_e("golden", "export", golden, "--to", to, *more))
    assert not to.exists()
