"""IMAP against a real Dovecot: nothing is lost or read twice, wherever the connection is cut; the
server is left as it was; passwords stay secret. A scripted server stands in for Gmail."""

import contextlib
import itertools
import shutil
import socketserver
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from art_e.inbox.file import InboxFile
from data_pipeline.ingest import imap
from data_pipeline.ingest.imap import Account, follow, load_state, state_file
from tests.builders import files_of, raw, tries
from tests.command_line import Run, json_of, the_error
from tests.dovecot import PASSWORD, USER, Server, Wire, dovecot


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with dovecot() as running:
        yield running


class Box(NamedTuple):
    """An account, the way to it, and the inbox file for it."""

    server: Server
    wire: Wire
    db: Path

    @property
    def url(self) -> str:
        return f"imap://{USER}@127.0.0.1:{self.wire.port}"

    def put(self, numbers: Sequence[int], folder: str = "INBOX", flags: str = r"\Seen") -> None:
        """Deliver mails of these numbers, each of 7 bytes times its number and more."""
        with self.server.client() as client:
            client.create(folder)
            for number in numbers:
                mail = raw(f"<{number}@x.example>", subject=f"{number}", body="zebra! " * number)
                assert client.append(folder, f"({flags})", "", mail.data)[0] == "OK"

    def stored(self) -> dict[str, tuple[str, ...]]:
        """The labels of the mails in the inbox file, by their numbers: those of the state, which
        are the spool's, and no others."""
        state = load_state(state_file(self.db))
        assert state is not None
        files = [file for file, _, _ in state.files()]
        spooled = Account.of(state.account).spool.rglob("*")
        assert sorted(files) == sorted(each for each in spooled if each.is_file())
        with InboxFile(self.db) as file:
            assert file.counts["read"] == len(files) == file.counts["stored"]
            rows = file.execute("SELECT message_id, labels FROM emails").fetchall()
        return {name[1:].partition("@")[0]: tuple(labels) for name, labels in rows}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ART_E_HOME", str(tmp_path / "home"))
    monkeypatch.setenv(imap.PASSWORD, PASSWORD)
    monkeypatch.setattr(imap, "WAITS_S", (0.0, 0.0, 0.0))
    monkeypatch.setattr(imap, "_BATCH_BYTES", 1200)
    return tmp_path / "home"


@pytest.fixture
def box(server: Server, home: Path) -> Iterator[Box]:
    """The account, empty again."""
    shutil.rmtree(server.folder / "mail", ignore_errors=True)
    wire = Wire(server.port)
    yield Box(server, wire, home / "inbox.duckdb")
    wire.close()


def test_all_folders_are_read_with_their_labels(art_e: Run, home: Path, box: Box) -> None:
    box.put([1], flags=r"\Seen \Flagged \Answered")
    box.put([2], flags=r"\Draft")
    folders = {
        "Altpapier": ("trash",), "Bulk": ("spam",), "Outgoing": ("sent",), "2024": ("2024",),
        "&AMQ-mter.Q&-A": ("Ämter/Q&A",), "Trash.old": ("Trash/old", "trash"),
        "INBOX.Gesendet": ("sent",), r'"a \"b\" \\ (c) {5} *"': (r'a "b" \ (c) {5} *',),
    }  # fmt: skip
    for number, folder in enumerate(folders, start=3):
        box.put([number], folder)
    shown = art_e("ingest", box.url)
    labels = [("answered", "inbox", "starred"), ("drafts", "inbox", "unread"), *folders.values()]
    assert box.stored() == {str(number): each for number, each in enumerate(labels, start=1)}
    assert "4  of these spam, trash or drafts" in shown.stdout
    with InboxFile(box.db) as file:
        assert file.owners() == [USER]
    assert {each.stat().st_mode & 0o777 for each in home.rglob("*")} == {0o600, 0o700}
    assert PASSWORD.encode() not in b"".join(files_of(home).values())


def test_a_sync_brings_what_changed(art_e: Run, box: Box) -> None:
    box.put(range(1, 9))
    box.put([9], "Lists")
    box.put(range(10, 15), "Renewed")
    art_e("ingest", box.url)
    with box.server.client() as client:
        client.store("2,3", "+FLAGS", r"\Flagged")
        client.store("4", "-FLAGS", r"\Seen")
        client.store("1,8", "+FLAGS", r"\Deleted")
        client.expunge()
        client.delete("Lists")
        client.delete("Renewed")
    box.put(range(20, 26))
    # The same UIDs under another UIDVALIDITY.
    box.put(range(12, 18), "Renewed")
    box.wire.cuts = [500, 0, 700]
    report = json_of(art_e("sync", "--json"))
    assert box.wire.cuts == []
    assert (report["new"], report["changed"], report["deleted"]) == (12, 3, 8)
    assert box.stored() == {
        **{str(number): ("inbox",) for number in (5, 6, 7, *range(20, 26))},
        **{str(number): ("inbox", "starred") for number in (2, 3)},
        **{str(number): ("Renewed",) for number in range(12, 18)},
        "4": ("inbox", "unread"),
    }
    before = box.db.stat()
    assert art_e("sync").stdout == "0 new, 0 changed, 0 deleted\n"
    assert box.db.stat() == before


def test_wherever_it_is_cut_nothing_is_lost_or_twice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, box: Box
) -> None:
    box.put(range(1, 6))
    box.put([6, 7], "Lists")
    whole = None
    for cut in itertools.count(0, tries(400, 113)):
        monkeypatch.setenv("ART_E_HOME", str(tmp_path / str(cut)))
        box.wire.cuts = [cut, cut // 2]
        follow(Account.of(box.url), tmp_path / str(cut) / "db")
        state = state_file(tmp_path / str(cut) / "db").read_text()
        assert state == (whole := whole or state)
        found = [each.name for each in (tmp_path / str(cut)).rglob("imap/*/*/*")]
        assert sorted(found) == ["1", "1", "2", "2", "3", "4", "5"]
        if "is cut" not in capsys.readouterr().err:
            break
    assert cut > 3000


def test_it_gives_up_after_three_more_and_goes_on_later(art_e: Run, home: Path, box: Box) -> None:
    box.put(range(1000, 1009))
    # The second connection brings three mails of 7 kB, so that three more follow it.
    box.wire.cuts = [100, 27_000, *[100] * 9]
    *notes, error = art_e("ingest", box.url).stderr.splitlines()
    assert (len(notes), len(box.wire.cuts)) == (4, 6)
    assert error.startswith(f"Error: no connection to 127.0.0.1:{box.wire.port} (it was closed)")
    assert error.endswith("the same command goes on from there")
    kept = {each: each.stat().st_ino for each in home.rglob("imap/*/*/*")}
    assert len(kept) == 3
    box.wire.cuts = []
    assert art_e("ingest", box.url).exit_code == 0
    assert {each: each.stat().st_ino for each in kept} == kept
    assert len(box.stored()) == 9


def test_a_sync_makes_up_for_an_ingest_that_was_interrupted(art_e: Run, box: Box) -> None:
    box.put([1, 2])
    art_e("ingest", box.url)
    box.put([3])
    follow(Account.of(box.url), box.db)
    assert json_of(art_e("sync", "--json"))["new"] == 0
    assert len(box.stored()) == 3


def test_the_server_is_left_as_it_was(art_e: Run, box: Box) -> None:
    box.put([1, 2], flags="")
    box.put([3, 4], "Lists", flags="")

    def facts() -> list[Any]:
        wanted = "(MESSAGES RECENT UNSEEN UIDNEXT UIDVALIDITY HIGHESTMODSEQ)"
        with box.server.client(select=False) as client:
            both = [client.status(each, wanted) for each in ("INBOX", "Lists")]
            return [both, client.list(), client.lsub()]

    facts()  # turns the modification sequence on
    before = facts()
    assert "RECENT 2 " in str(before)
    assert art_e("ingest", box.url).exit_code == art_e("sync").exit_code == 0
    assert facts() == before


# ---- Passwords and encryption.


def test_a_rejected_password_is_one_line_without_it(
    art_e: Run, home: Path, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(imap.PASSWORD, "melon-in-the-snow")
    line = the_error(art_e("ingest", box.url))
    assert line.startswith(f"Error: 127.0.0.1 rejects the password of {USER}: check both")
    assert "melon" not in line + str(files_of(home))
    with monkeypatch.context() as patch:
        patch.delenv(imap.PASSWORD)
        assert f"set {imap.PASSWORD}, or" in the_error(art_e("ingest", box.url))
    # The keyring comes first.
    kept = {("127.0.0.1", USER): PASSWORD}
    keyring = pytest.importorskip("keyring")
    monkeypatch.setattr(keyring, "get_password", lambda *names: kept.get(names))
    box.put([1])
    assert art_e("ingest", box.url).exit_code == 0


def test_certificates_are_verified(art_e: Run, box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    box.put([1])
    # Not of the names of this machine that may go without.
    host = f"{USER.replace('@', '%40')}@127.0.0.2"
    urls = (f"imaps://{host}:{box.server.tls_port}", f"imap://{host}:{box.server.port}")
    for url in urls:
        line = the_error(art_e("ingest", url))
        assert "the certificate of 127.0.0.2 can't be trusted (self" in line
    monkeypatch.setenv("SSL_CERT_FILE", str(box.server.folder / "cert.pem"))
    for url in urls:
        assert art_e("ingest", url, "--replace").exit_code == 0
    # The certificate is not of this address.
    other = urls[0].replace("127.0.0.2", "127.0.0.1")
    assert "can't be trusted" in the_error(art_e("ingest", other, "--replace"))


def test_an_address_that_is_none_is_not_repeated(art_e: Run) -> None:
    for url in ("imaps://me", f"imaps://me:{PASSWORD}@x.example", "imap://me@x.example:99999"):
        line = the_error(art_e("ingest", url))
        assert "an IMAP account is written imaps://user@host" in line
        assert PASSWORD not in line


def test_the_file_of_an_account_holds_that_alone(art_e: Run, box: Box, tmp_path: Path) -> None:
    assert "begin with: art-e ingest imaps://" in the_error(art_e("sync"))
    other = tmp_path / "other.eml"
    other.write_bytes(raw("<other@x.example>").data)
    for options in (["--append"], ["--limit", 5], [other]):
        assert "into a file of its own" in the_error(art_e("ingest", box.url, *options))
    box.put([1, 2])
    art_e("ingest", box.url, "--owner", "bob@x.example")
    assert "art-e sync renews it" in the_error(art_e("ingest", box.url))
    assert "art-e sync replaces all mail" in the_error(art_e("ingest", other, "--append"))
    box.put([3])
    art_e("sync")
    assert box.stored().keys() == {"1", "2", "3"}
    with InboxFile(box.db) as file:
        assert file.owners() == ["bob@x.example"]
    state_file(box.db).write_text("{")
    assert "is damaged: delete it" in the_error(art_e("sync"))
    art_e("ingest", other, "--replace")
    assert "begin with" in the_error(art_e("sync"))


# ---- Gmail, and servers that are hard to please.

REFUSED = b"refused"


class Scripted(socketserver.StreamRequestHandler):
    """Answers commands by their beginnings, as the server's `script` says, and notes them."""

    def handle(self) -> None:
        server: Any = self.server
        self.wfile.write(b"* OK ready\r\n")
        for line in self.rfile:
            tag, _, command = line.rstrip().partition(b" ")
            server.seen.append(command)
            reply = server.script[max(filter(command.startswith, server.script), key=len)]
            end = (b"", b" NO it is broken") if reply == REFUSED else (reply, b" OK done")
            self.wfile.write(end[0] + tag + end[1] + b"\r\n")


@contextlib.contextmanager
def scripted(script: dict[bytes, bytes], host: str = "127.0.0.1") -> Iterator[Any]:
    """A server's port, and what it is sent."""
    server: Any = socketserver.ThreadingTCPServer((host, 0), Scripted)
    with server:
        server.daemon_threads, server.script, server.seen = True, script, []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1], server.seen
        server.shutdown()


def literal(data: bytes) -> bytes:
    return b"{%d}\r\n%s" % (len(data), data)


BASE = {b"CAPABILITY": b"* CAPABILITY IMAP4rev1\r\n", b"LOGIN": b""}
OPENED = b"* %d EXISTS\r\n* OK [UIDVALIDITY 7] fine\r\n"
ONE, TWO = (raw(f"<{number}@x.example>", date=None).data for number in (1, 2))
BODIES = [
    b'* 1 FETCH (UID 4 INTERNALDATE " 5-Jan-2020 10:00:00 +0200" BODY[]<0> ' + literal(ONE),
    b"* 2 FETCH (BODY[]<0> " + literal(TWO) + b" UID 9 FLAGS ())\r\n",
]
ALL_MAIL = {
    **BASE,
    b"CAPABILITY": b"* CAPABILITY IMAP4rev1 X-GM-EXT-1\r\n",
    b"LIST": b'* LIST (\\HasNoChildren) "/" "INBOX"\r\n'
    b'* LIST (\\HasChildren \\Noselect) "/" "[Gmail]"\r\n'
    b'* LIST (\\All) "/" ' + literal(b"[Gmail]/Alle Mails") + b"\r\n"
    b'* LIST (\\Junk) "/" "[Gmail]/Spam"\r\n',
    b'EXAMINE "[Gmail]/Alle Mails"': OPENED % 2,
    b'EXAMINE "[Gmail]/Spam"': OPENED % 0,
    b"UID FETCH 1:*": b'* 1 FETCH (X-GM-THRID 1278455344230334865 X-GM-LABELS ("\\\\Inbox"'
    b' "\\\\Starred" "a ) UID 77" &AMQ- 2024 ' + literal(b'b" (') + b")"
    b" UID 4 RFC822.SIZE 5 FLAGS (\\Seen $Work))\r\n"
    b"* 2 FETCH (FLAGS (\\Flagged))\r\n"
    b"* 2 FETCH (X-GM-THRID 12 X-GM-LABELS () UID 9 RFC822.SIZE 5 FLAGS ())\r\n",
    b"UID FETCH 4,9": BODIES[0] + b")\r\n" + BODIES[1],
}


@pytest.fixture
def plain_password(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(imap.PASSWORD, "a plain one")
    return home


def test_gmail_is_read_once_with_its_labels_and_threads(art_e: Run, plain_password: Path) -> None:
    with scripted(ALL_MAIL) as (port, seen):
        art_e("ingest", f"imap://me@127.0.0.1:{port}", "--owner", "me@x.example")
    query = "SELECT labels, gmail_thread, sent_at::VARCHAR FROM emails ORDER BY message_id"
    with InboxFile(plain_password / "inbox.duckdb") as file:
        first, second = file.execute(query).fetchall()
    labels = ["2024", "a ) UID 77", 'b" (', "inbox", "starred", "Ä"]
    assert first == (labels, "1278455344230334865", "2020-01-05 08:00:00")
    assert second[:2] == (["unread"], "12")
    opened = [each for each in seen if each.startswith((b"SELECT", b"EXAMINE"))]
    assert opened == [b'EXAMINE "[Gmail]/Alle Mails"', b'EXAMINE "[Gmail]/Spam"']


def test_what_the_server_refuses_is_left_out_and_nothing_else(
    art_e: Run, plain_password: Path
) -> None:
    script = {**ALL_MAIL, b"UID FETCH 4,9": REFUSED, b"UID FETCH 4 ": REFUSED}
    script[b"UID FETCH 9 "] = BODIES[1]
    with scripted(script) as (port, _):
        shown = art_e("ingest", f"imap://me@127.0.0.1:{port}", "--json")
        assert "a message can't be fetched and is left out (it is broken)" in shown.stderr
        assert json_of(shown)["stored"] == 1
        # The next time it can be. What a link names is renewed, and not the link.
        script[b"UID FETCH 4 "] = BODIES[0] + b")\r\n"
        link = plain_password / "link"
        link.symlink_to(plain_password / "inbox.duckdb")
        report = json_of(art_e("sync", "--db", link, "--json"))
        assert (report["new"], report["ingest"]["stored"]) == (1, 2)
        assert link.is_symlink()
        # Then the folder can't.
        script[b'EXAMINE "[Gmail]/Alle Mails"'] = REFUSED
        again = art_e("sync", "--json")
        assert (json_of(again)["new"], json_of(again)["deleted"]) == (0, 0)
        assert "[Gmail]/Alle Mails can't be read (it is broken); it stays as it was" in again.stderr
        script[b"LIST"] = REFUSED
        assert "127.0.0.1 refuses (it is broken)" in the_error(art_e("sync"))


@pytest.mark.usefixtures("plain_password")
def test_no_password_is_sent_in_the_open(art_e: Run) -> None:
    with scripted(BASE, "127.0.0.2") as (port, seen):
        line = the_error(art_e("ingest", f"imap://me@127.0.0.2:{port}"))
    assert "127.0.0.2 would get the password in the open: use imaps://" in line
    assert seen == [b"CAPABILITY"]
