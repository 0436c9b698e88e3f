from pathlib import Path

import pytest

from tests.command_line import (
    ANN,
    BOB,
    EVE,
    HOSTILE_ID,
    LEASE_ID,
    Run,
    assert_safe,
    json_of,
    the_error,
)

EMAIL_KEYS = ["message_id", "date", "from", "to", "cc", "bcc", "subject", "body"]


def test_inboxes_lists_the_largest_first(art_e: Run, db: Path) -> None:
    listed = json_of(art_e("inboxes", "--db", db, "--json"))
    assert listed["total"] == 3
    assert listed["inboxes"][0] == {"address": ANN, "emails": 4, "sent": 1, "received": 3}
    assert {each["address"] for each in listed["inboxes"]} == {ANN, BOB, EVE}


def test_inboxes_says_how_many_more_there_are(art_e: Run, db: Path) -> None:
    result = art_e("inboxes", "--db", db, "--limit", "1")
    assert ANN in result.stdout and BOB not in result.stdout
    assert result.stderr == "2 more; --limit 3 shows all\n"


def test_search_finds_the_best_first(art_e: Run, db: Path) -> None:
    hits = json_of(art_e("search", "warehouse", "landlord", "--inbox", ANN, "--db", db, "--json"))
    assert [hit["message_id"] for hit in hits] == ["<lease.2@harbor.example>", LEASE_ID]
    assert hits[1]["missing"] == ["landlord"]
    shown = art_e("search", "warehouse", "landlord", "--inbox", ANN, "--db", db).stdout
    assert "2001-06-01  Bob Berg <bob@harbor.example>  Warehouse lease, again" in shown
    assert f"{LEASE_ID}   without: landlord" in shown


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (["--from", "ann"], ["<lunch.1@harbor.example>"]),
        (["--to", "bob"], ["<lunch.1@harbor.example>"]),
        (["--after", "2001-03-06"], ["<lease.2@harbor.example>", "<lunch.1@harbor.example>"]),
        (["--before", "2001-03-05"], [LEASE_ID]),
        (["--from", "bob", "--as-of", "2001-05-31"], [LEASE_ID]),
        (["--after", "2001-02-01", "--limit", "1"], ["<lease.2@harbor.example>"]),
    ],
)
def test_a_filter_alone_gives_the_newest_first(
    art_e: Run, db: Path, filters: list[str], found: list[str]
) -> None:
    hits = json_of(art_e("search", *filters, "--inbox", ANN, "--db", db, "--json"))
    assert [hit["message_id"] for hit in hits] == found


def test_search_without_a_hit_says_so_on_stderr(art_e: Run, db: Path) -> None:
    result = art_e("search", "xylophone", "--inbox", ANN, "--db", db)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "no mail of 4 mails matches" in result.stderr
    assert json_of(art_e("search", "xylophone", "--inbox", ANN, "--db", db, "--json")) == []


@pytest.mark.parametrize("shown_id", [LEASE_ID, LEASE_ID.strip("<>")])
def test_read_shows_the_whole_mail(art_e: Run, db: Path, shown_id: str) -> None:
    email = json_of(art_e("read", shown_id, "--inbox", ANN, "--db", db, "--json"))
    assert list(email) == EMAIL_KEYS
    assert email["to"] == [f"Ann Alm <{ANN}>"]
    shown = art_e("read", shown_id, "--inbox", ANN, "--db", db).stdout
    assert f"To: Ann Alm <{ANN}>\n" in shown
    assert shown.endswith("\nThe warehouse lease ends on March 31, 2002.\n\nBob\n")


def test_read_knows_no_mail_of_the_future(art_e: Run, db: Path) -> None:
    error = the_error(art_e("read", LEASE_ID, "--inbox", ANN, "--as-of", "2001-01-31", "--db", db))
    assert "up to 2001-01-31" in error


def test_a_file_with_one_owner_needs_no_inbox(art_e: Run, owned_db: Path, db: Path) -> None:
    assert json_of(art_e("search", "noodles", "--db", owned_db, "--json"))
    error = the_error(art_e("search", "noodles", "--db", db))
    assert "--inbox ADDRESS" in error and f"art-e inboxes --db {db}" in error


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["search", "x", "--inbox", "anne@harbor.example"], [ANN, "art-e inboxes"]),
        (["search", "--inbox", ANN], ["--from"]),
        (["search", "", "--inbox", ANN], ["letter or digit"]),
        (["search", "?!", "--from", "bob", "--inbox", ANN], ["letter or digit"]),
        (["search", "x", "--after", "01/02/2001", "--inbox", ANN], ["--after", "YYYY-MM-DD"]),
        (["search", "x", "--before", "2001-02-30", "--inbox", ANN], ["--before", "2001-02-30"]),
        (["search", "x", "--as-of", "２００１-01-01", "--inbox", ANN], ["--as-of"]),
        (
            ["search", "x", "--after", "2001-03-01", "--before", "2001-03-01", "--inbox", ANN],
            ["swap"],
        ),
        (["read", "<nowhere@x>", "--inbox", ANN], ["<nowhere@x>", "art-e search"]),
        (["read", LEASE_ID, "--inbox", EVE], [LEASE_ID]),
        (["read", LEASE_ID, "--as-of", "soon", "--inbox", ANN], ["--as-of", "soon"]),
    ],
)
def test_user_errors_are_one_line_with_the_fix(
    art_e: Run, db: Path, args: list[str], words: list[str]
) -> None:
    error = the_error(art_e(*args, "--db", db))
    for word in words:
        assert word in error


@pytest.mark.parametrize(
    "args",
    [["inboxes"], ["search", "x", "--inbox", ANN], ["read", "x", "--inbox", ANN]],
    ids=["inboxes", "search", "read"],
)
def test_a_missing_or_corrupt_file_says_how_to_make_one(
    art_e: Run, home: Path, tmp_path: Path, db: Path, args: list[str]
) -> None:
    assert f"art-e ingest SOURCE --db {home / 'inbox.duckdb'}" in the_error(art_e(*args))
    corrupt = tmp_path / "corrupt.duckdb"
    corrupt.write_bytes(b"not a database at all\n" * 1_000)
    assert f"art-e ingest SOURCE --db {corrupt}" in the_error(art_e(*args, "--db", corrupt))
    cut = tmp_path / "cut.duckdb"
    cut.write_bytes(db.read_bytes()[:9_000])
    assert f"art-e ingest SOURCE --db {cut}" in the_error(art_e(*args, "--db", cut))


@pytest.mark.parametrize(
    "args",
    [["search", "zebra"], ["read", HOSTILE_ID]],
    ids=["search", "read"],
)
@pytest.mark.parametrize("json", [[], ["--json"]], ids=["text", "json"])
def test_hostile_mail_is_only_text(art_e: Run, db: Path, args: list[str], json: list[str]) -> None:
    result = art_e(*args, "--inbox", ANN, "--db", db, *json)
    assert result.exit_code == 0
    assert "prize" in result.stdout
    assert "[bold]red[/bold]" in result.stdout
    assert_safe(result.stdout)
    if json:
        assert result.stdout.isascii()
