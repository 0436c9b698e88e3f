"""IMAP against a real Dovecot: nothing is lost or read twice, wherever the connection is cut; the
server is left as it was; passwords stay secret. A scripted server stands in for Gmail."""

import imaplib
import itertools
import json
import shutil
import signal
import socketserver
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from art_e.inbox.file import InboxFile
from data_pipeline.ingest import imap
from data_pipeline.ingest.imap import Account, follow, load_state, state_file
from data_pipeline.ingest.labels import of_imap
from tests.builders import contents, files_of, raw
from tests.command_line import Run, json_of, the_error
from tests.dovecot import PASSWORD, USER, Server, Wire, dovecot

Labels = dict[str, tuple[str, ...]]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with dovecot() as running:
        yield running


@pytest.fixture
def wire(server: Server, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    """The way to the account, which is empty again."""
    monkeypatch.setenv("ART_E_HOME", str(home))
    monkeypatch.setenv(imap.PASSWORD, PASSWORD)
    monkeypatch.setattr(imap, "WAITS_S", (0.0, 0.0, 0.0))
    monkeypatch.setattr(imap, "_BATCH_BYTES", 1200)
    shutil.rmtree(server.folder / "mail", ignore_errors=True)
    made = Wire(server.port)
    yield made
    made.close()


def put(
    server: Server, numbers: Sequence[int], folder: str = '"INBOX"', flags: str = r"\Seen"
) -> None:
    """Deliver mails of these numbers to a folder."""
    with server.client() as client:
        client.create(folder)
        for number in numbers:
            mail = raw(f"<{number}@x.example>", subject=f"Mail {number}", body="zebra " * number)
            kind, _ = client.append(folder, flags, "", mail.data)  # type: ignore[arg-type]
            assert kind == "OK"


def address(wire: Wire) -> str:
    return f"imap://{USER}@127.0.0.1:{wire.port}"


def stored(db: Path) -> Labels:
    """The labels of the mails in an inbox file, by the number in the message id."""
    with InboxFile(db) as file:
        rows = file.execute("SELECT message_id, labels FROM emails").fetchall()
    return {name.strip("<").partition("@")[0]: tuple(labels) for name, labels in rows}


def is_whole(db: Path) -> None:
    """Every message of the state is in the inbox file, and in the spool, and nothing else is."""
    state = load_state(state_file(db))
    assert state is not None
    files = [file for file, _, _ in state.files()]
    spool = Account.of(state.account).spool
    assert sorted(files) == sorted(each for each in spool.rglob("*") if each.is_file())
    with InboxFile(db) as file:
        assert file.counts["read"] == len(files) == file.counts["stored"]


def test_all_folders_are_read_with_their_labels(
    art_e: Run, home: Path, server: Server, wire: Wire
) -> None:
    put(server, [1], flags=r"\Seen \Flagged \Answered")
    put(server, [2], flags="")
    put(server, [3], "Altpapier")
    put(server, [4], "Bulk")
    put(server, [5], "Outgoing")
    put(server, [6], "&AMQ-mter.Q&-A")
    put(server, [7], r'"a \"b\" \\ (c) {5} *"', flags=r"\Draft")
    put(server, [8], "2024")
    put(server, [9], "Trash.old")
    shown = art_e("ingest", address(wire))
    assert shown.exit_code == 0, shown.output
    assert stored(home / "inbox.duckdb") == {
        "1": ("answered", "inbox", "starred"),
        "2": ("inbox", "unread"),
        "3": ("trash",),
        "4": ("spam",),
        "5": ("sent",),
        "6": ("Ämter/Q&A",),
        "7": ('a "b" \\ (c) {5} *', "drafts", "unread"),
        "8": ("2024",),
        "9": ("Trash/old", "trash"),
    }
    assert "4  of these spam, trash or drafts" in shown.stdout
    is_whole(home / "inbox.duckdb")
    with InboxFile(home / "inbox.duckdb") as file:
        assert file.owners() == [USER]
    assert {each.stat().st_mode & 0o777 for each in home.rglob("*")} == {0o600, 0o700}
    assert PASSWORD.encode() not in b"".join(files_of(home).values())


CUTS = [[], [0], [500, 0, 700], [1500], [2000, 1200], [2500, 1600, 1900]]


@pytest.mark.parametrize("cuts", CUTS)
def test_a_sync_brings_what_is_new_flagged_and_deleted(
    art_e: Run, home: Path, server: Server, wire: Wire, cuts: list[int]
) -> None:
    put(server, range(1, 9))
    put(server, [9], "Lists")
    art_e("ingest", address(wire))
    with server.client() as client:
        client.store("2,3", "+FLAGS", r"\Flagged")
        client.store("4", "-FLAGS", r"\Seen")
        client.store("1,8", "+FLAGS", r"\Deleted")
        client.expunge()
        client.delete("Lists")
    put(server, range(20, 28))
    put(server, [28], "New")
    wire.cuts = list(cuts)
    report = json_of(art_e("sync", "--json"))
    assert wire.cuts == []
    assert (report["new"], report["changed"], report["deleted"]) == (9, 3, 3)
    assert report["ingest"]["stored"] == 15
    is_whole(home / "inbox.duckdb")
    plain = {str(number): ("inbox",) for number in (5, 6, 7, *range(20, 28))}
    starred = {"2": ("inbox", "starred"), "3": ("inbox", "starred")}
    assert stored(home / "inbox.duckdb") == {
        **plain,
        **starred,
        "4": ("inbox", "unread"),
        "28": ("New",),
    }
    before = (home / "inbox.duckdb").stat()
    nothing = {"new": 0, "changed": 0, "deleted": 0, "ingest": None}
    assert json_of(art_e("sync", "--json")) == nothing
    assert (home / "inbox.duckdb").stat() == before
    assert art_e("sync").stdout == "0 new, 0 changed, 0 deleted\n"


@pytest.mark.parametrize("cuts", CUTS)
def test_a_folder_that_was_made_anew_is_read_anew(
    art_e: Run, home: Path, server: Server, wire: Wire, cuts: list[int]
) -> None:
    put(server, range(1, 6), "Lists")
    art_e("ingest", address(wire))
    with server.client() as client:
        client.delete("Lists")
    put(server, range(3, 10), "Lists")
    wire.cuts = list(cuts)
    report = json_of(art_e("sync", "--json"))
    assert (report["new"], report["changed"], report["deleted"]) == (7, 0, 5)
    is_whole(home / "inbox.duckdb")
    assert stored(home / "inbox.duckdb") == {str(number): ("Lists",) for number in range(3, 10)}


def test_wherever_it_is_cut_nothing_is_lost_or_twice(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    server: Server,
    wire: Wire,
) -> None:
    put(server, range(1, 6))
    put(server, [6, 7], "Lists")
    account = Account.of(address(wire))
    whole = None
    for cut in itertools.count(0, 113):
        home = tmp_path / str(cut)
        monkeypatch.setenv("ART_E_HOME", str(home))
        wire.cuts = [cut, cut // 2]
        follow(account, home / "db")
        state = json.loads(state_file(home / "db").read_text())
        found = [each.name for each in account.spool.rglob("*") if each.is_file()]
        assert sorted(found) == ["1", "1", "2", "2", "3", "4", "5"]
        assert state == (whole := whole or state)
        if "is cut" not in capsys.readouterr().err:
            break
    assert cut > 4000


def test_it_gives_up_after_three_more_and_goes_on_later(
    art_e: Run, home: Path, server: Server, wire: Wire
) -> None:
    put(server, range(1000, 1009))
    # The second one brings three mails of 6 kB, so that three more follow it.
    wire.cuts = [100, 25_000, *[100] * 9]
    cut = art_e("ingest", address(wire))
    assert cut.exit_code == 2
    *notes, error = cut.stderr.splitlines()
    assert len(notes) == 4
    assert error.startswith(f"Error: no connection to 127.0.0.1:{wire.port} (")
    assert error.endswith("the same command goes on from there")
    assert len(wire.cuts) == 6
    kept = {each: each.stat().st_ino for each in home.rglob("imap/*/*/*") if each.name.isdigit()}
    assert len(kept) == 3
    wire.cuts = []
    assert art_e("ingest", address(wire)).exit_code == 0
    assert {each: each.stat().st_ino for each in kept} == kept
    is_whole(home / "inbox.duckdb")


def test_ctrl_c_answers_at_once_and_keeps_what_was_fetched(
    art_e: Run, process: Callable[..., Any], home: Path, server: Server, wire: Wire
) -> None:
    put(server, range(1, 3))
    art_e("ingest", address(wire))
    before = contents(home / "inbox.duckdb")
    put(server, range(3, 40), flags=r"\Flagged")
    wire.cuts, wire.stalled = [15_000], threading.Event()
    running = process("sync")
    assert wire.stalled.wait(60)
    running.send_signal(signal.SIGINT)
    _, stderr = running.communicate(timeout=10)
    assert (running.returncode, len(stderr.splitlines())) == (130, 1)
    assert stderr.startswith("interrupted; the inbox is as it was")
    assert contents(home / "inbox.duckdb") == before
    wire.stalled = None
    assert json_of(art_e("sync", "--json"))["new"] == 37
    is_whole(home / "inbox.duckdb")


def test_an_ingest_that_was_interrupted_is_made_up_for(
    art_e: Run, home: Path, server: Server, wire: Wire
) -> None:
    put(server, [1])
    art_e("ingest", address(wire))
    put(server, [2])
    follow(Account.of(address(wire)), home / "inbox.duckdb")
    assert list(stored(home / "inbox.duckdb")) == ["1"]
    assert json_of(art_e("sync", "--json"))["new"] == 0
    is_whole(home / "inbox.duckdb")


def test_the_server_is_left_as_it_was(art_e: Run, server: Server, wire: Wire) -> None:
    put(server, [1, 2], flags="")
    put(server, [3, 4], "Lists", flags="")

    def facts() -> list[Any]:
        wanted = "(MESSAGES RECENT UNSEEN UIDNEXT UIDVALIDITY HIGHESTMODSEQ)"
        with imaplib.IMAP4("127.0.0.1", server.port) as client:
            client.authenticate("PLAIN", lambda _: f"\0{USER}\0{PASSWORD}".encode())
            both = [client.status(each, wanted) for each in ("INBOX", "Lists")]
            return [both, client.list(), client.lsub()]

    facts()
    before = facts()
    assert b"RECENT 2" in before[0][1][1][0]
    assert art_e("ingest", address(wire)).exit_code == 0
    assert art_e("sync").exit_code == 0
    assert facts() == before


# ---- Passwords and encryption.


def test_a_rejected_password_is_one_line_without_it(
    art_e: Run, home: Path, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(imap.PASSWORD, "melon-in-the-snow")
    line = the_error(art_e("ingest", address(wire)))
    assert line.startswith(f"Error: 127.0.0.1 rejects the password of {USER}: check both")
    assert "melon" not in line + str(files_of(home))
    monkeypatch.delenv(imap.PASSWORD)
    assert f"set {imap.PASSWORD}, or" in the_error(art_e("ingest", address(wire)))


def test_the_keyring_comes_first(
    art_e: Run, server: Server, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyring = pytest.importorskip("keyring")
    backend = pytest.importorskip("keyring.backend")

    class Ring(backend.KeyringBackend):  # type: ignore[misc, name-defined]
        priority = 1

        def get_password(self, service: str, username: str) -> str | None:
            return {("127.0.0.1", USER): PASSWORD}.get((service, username))

        def set_password(self, service: str, username: str, password: str) -> None: ...

    put(server, [1])
    monkeypatch.setenv(imap.PASSWORD, "wrong")
    before = keyring.get_keyring()
    keyring.set_keyring(Ring())
    try:
        assert art_e("ingest", address(wire)).exit_code == 0
    finally:
        keyring.set_keyring(before)


@pytest.mark.parametrize("scheme", ["imaps", "imap"])
def test_certificates_are_verified(
    art_e: Run, home: Path, server: Server, wire: Wire, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    put(server, [1])
    # Not of the loopback hosts that may go without.
    port = server.tls_port if scheme == "imaps" else server.port
    url = f"{scheme}://{USER.replace('@', '%40')}@127.0.0.2:{port}"
    line = the_error(art_e("ingest", url))
    assert "the certificate of 127.0.0.2 can't be trusted (self" in line
    monkeypatch.setenv("SSL_CERT_FILE", str(server.folder / "cert.pem"))
    assert art_e("ingest", url).exit_code == 0
    other = art_e("ingest", url.replace("127.0.0.2", "127.0.0.1"), "--db", home / "other.duckdb")
    assert (other.exit_code == 0) == (scheme == "imap")


@pytest.mark.parametrize(
    "url", ["imaps://me", f"imaps://me:{PASSWORD}@x.example", "imap://me@x.example/INBOX"]
)
def test_an_address_that_is_none_is_not_repeated(art_e: Run, url: str) -> None:
    line = the_error(art_e("ingest", url))
    assert "an IMAP account is written imaps://user@host" in line
    assert PASSWORD not in line


# ---- What goes with what.


def test_the_file_of_an_account_holds_that_alone(
    art_e: Run, home: Path, server: Server, wire: Wire, tmp_path: Path
) -> None:
    assert "begin with: art-e ingest imaps://" in the_error(art_e("sync"))
    put(server, [1, 2])
    other = tmp_path / "other.eml"
    other.write_bytes(raw("<other@x.example>").data)
    for options in (["--append"], ["--limit", 5], [other]):
        assert "into a file of its own" in the_error(art_e("ingest", address(wire), *options))
    art_e("ingest", other)
    assert "--replace makes it anew" in the_error(art_e("ingest", address(wire)))
    art_e("ingest", address(wire), "--replace", "--owner", "bob@x.example")
    assert stored(home / "inbox.duckdb").keys() == {"1", "2"}
    assert "art-e sync replaces all mail" in the_error(art_e("ingest", other, "--append"))
    put(server, [3])
    art_e("sync")
    assert stored(home / "inbox.duckdb").keys() == {"1", "2", "3"}
    with InboxFile(home / "inbox.duckdb") as file:
        assert file.owners() == ["bob@x.example"]
    art_e("ingest", other, "--replace")
    assert "begin with" in the_error(art_e("sync"))
    (home / "inbox.duckdb.sync.json").write_text("{")
    assert "delete it, then" in the_error(art_e("sync"))


# ---- Gmail, and servers that are hard to please.


REFUSED = b"refused"
Scripts = Callable[..., tuple[int, list[bytes]]]


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripts]:
    """Starts a server that answers commands by their beginnings; its port, and what it was sent."""
    monkeypatch.setenv(imap.PASSWORD, PASSWORD.strip("ä"))
    started = []

    def start(script: dict[bytes, bytes], host: str = "127.0.0.1") -> tuple[int, list[bytes]]:
        seen: list[bytes] = []

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.wfile.write(b"* OK ready\r\n")
                for line in self.rfile:
                    tag, _, command = line.rstrip().partition(b" ")
                    seen.append(command)
                    reply = script[max(filter(command.startswith, script), key=len)]
                    answer = b"" if reply == REFUSED else reply
                    end = b"NO it is broken" if reply == REFUSED else b"OK done"
                    self.wfile.write(answer + tag + b" " + end + b"\r\n")

        server = socketserver.ThreadingTCPServer((host, 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        started.append(server)
        return server.server_address[1], seen

    yield start
    for each in started:
        each.shutdown()
        each.server_close()


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


def test_gmail_is_read_once_with_its_labels_and_threads(
    art_e: Run, home: Path, scripted: Scripts
) -> None:
    port, seen = scripted(ALL_MAIL)
    shown = art_e("ingest", f"imap://me@127.0.0.1:{port}", "--owner", "me@x.example")
    assert shown.exit_code == 0, shown.output
    assert stored(home / "inbox.duckdb") == {
        "1": ("2024", "a ) UID 77", 'b" (', "inbox", "starred", "Ä"),
        "2": ("unread",),
    }
    with InboxFile(home / "inbox.duckdb") as file:
        rows = file.execute("SELECT gmail_thread, sent_at::VARCHAR FROM emails ORDER BY message_id")
        assert rows.fetchmany(1) == [("1278455344230334865", "2020-01-05 08:00:00")]
    opened = [each for each in seen if each.startswith((b"SELECT", b"EXAMINE"))]
    assert opened == [b'EXAMINE "[Gmail]/Alle Mails"', b'EXAMINE "[Gmail]/Spam"']


def test_what_the_server_refuses_is_left_out_and_nothing_else(
    art_e: Run, home: Path, scripted: Scripts
) -> None:
    script = {**ALL_MAIL, b"UID FETCH 4,9": REFUSED, b"UID FETCH 4 ": REFUSED}
    script[b"UID FETCH 9 "] = BODIES[1]
    port, _ = scripted(script)
    shown = art_e("ingest", f"imap://me@127.0.0.1:{port}", "--owner", "me@x.example")
    assert "a message can't be fetched and is left out (it is broken)" in shown.stderr
    assert stored(home / "inbox.duckdb").keys() == {"2"}
    # The next time it can, and a folder can't be opened.
    script |= {b"UID FETCH 4 ": BODIES[0] + b")\r\n", b'EXAMINE "[Gmail]/Spam"': REFUSED}
    assert json_of(art_e("sync", "--json"))["new"] == 1
    script[b'EXAMINE "[Gmail]/Alle Mails"'] = REFUSED
    report = art_e("sync", "--json")
    assert (json_of(report)["new"], json_of(report)["deleted"]) == (0, 0)
    assert "[Gmail]/Alle Mails can't be read (it is broken); it stays as it was" in report.stderr
    script[b"LIST"] = REFUSED
    assert "127.0.0.1 refuses (it is broken)" in the_error(art_e("sync"))


def test_no_password_is_sent_in_the_open(art_e: Run, scripted: Scripts) -> None:
    port, seen = scripted(BASE, "127.0.0.2")
    line = the_error(art_e("ingest", f"imap://me@127.0.0.2:{port}"))
    assert "127.0.0.2 would get the password in the open: use imaps://" in line
    assert seen == [b"CAPABILITY"]


@pytest.mark.parametrize(
    ("folder", "attributes", "labels"),
    [
        ("INBOX/Sent", "", ("sent",)),
        ("inbox/Papierkorb/2020", "", ("Papierkorb/2020", "trash")),
        ("Everything", "\\all", ()),
        ("Stars", "\\flagged", ("starred",)),
        ("Trash", "\\sent", ("sent",)),
    ],
)
def test_the_labels_of_folders(folder: str, attributes: str, labels: tuple[str, ...]) -> None:
    assert of_imap(folder, [attributes], ["\\seen"]) == labels
