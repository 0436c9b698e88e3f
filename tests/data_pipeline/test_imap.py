"""IMAP against a real Dovecot: no mail is lost or read twice, wherever the connection is cut; the
server stays unchanged; passwords stay secret. A scripted server stands in for Gmail."""

import base64
import contextlib
import itertools
import plistlib
import quopri
import re
import shutil
import socketserver
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.parse import parse_qs, parse_qsl, quote, urlsplit

import pytest

from art_e.inbox.file import InboxFile
from art_e.text import digest
from data_pipeline.accounts import imap, oauth, spool
from data_pipeline.accounts.imap import Account
from data_pipeline.accounts.spool import load_states, state_file
from tests.builders import files_of, raw, table, tries
from tests.command_line import Run, done, json_of, the_error
from tests.dovecot import PASSWORD, USER, Server, Wire, dovecot, token_for
from tests.provider import Reply, json_server

DOCS = Path(__file__).parents[2] / "docs/inbox.md"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with dovecot() as running:
        yield running


class Box(NamedTuple):
    """An account, the way to it, and the inbox file for it."""

    server: Server
    wire: Wire
    db: Path
    url: str

    def put(self, numbers: Sequence[int], folder: str = "INBOX", flags: str = r"\Seen") -> None:
        """Deliver mails of these numbers; a body has 7 bytes times its mail's number."""
        with self.server.client() as client:
            client.create(folder)
            for number in numbers:
                mail = raw(f"<{number}@x.example>", subject=f"{number}", body="zebra! " * number)
                assert client.append(folder, f"({flags})", "", mail.data)[0] == "OK"

    def stored(self) -> dict[str, tuple[str, ...]]:
        """Return the labels in the inbox file by mail number; check that the mails are those of
        the state, and of the spool."""
        states = load_states(self.db)
        spools = [Account.of(state.account).spool for state in states]
        both = zip(spools, states, strict=True)
        files = [folder / file for folder, state in both for file in state.messages]
        spooled = [each for spool in spools for each in spool.rglob("*")]
        assert sorted(files) == sorted(each for each in spooled if each.is_file())
        with InboxFile(self.db) as file:
            assert file.counts["read"] == len(files) == file.counts["stored"]
            rows = file.execute("SELECT message_id, labels FROM emails").fetchall()
        return {name[1:].partition("@")[0]: tuple(labels) for name, labels in rows}


@pytest.fixture
def home(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(imap.PASSWORD, "a plain one")
    monkeypatch.setattr(spool, "WAITS_S", (0.0, 0.0, 0.0))
    monkeypatch.setattr(spool, "_BATCH_BYTES", 1200)
    return home


@pytest.fixture
def box(server: Server, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    """Empty the account."""
    monkeypatch.setenv(imap.PASSWORD, PASSWORD)
    shutil.rmtree(server.folder / "mail", ignore_errors=True)
    wire = Wire(server.port)
    yield Box(server, wire, home / "inbox.duckdb", f"imap://{USER}@127.0.0.1:{wire.port}")
    wire.close()


def test_folders_are_read_with_labels_and_stay_unchanged(art_e: Run, home: Path, box: Box) -> None:
    box.put([1], flags=r"\Seen \Flagged \Answered")
    box.put([2], flags=r"\Draft")
    folders = {name: tuple(labels) for name, labels in SERVERS["folders"].items()}
    for number, folder in enumerate(folders, start=3):
        box.put([number], folder)

    def facts() -> list[Any]:
        fields = "(MESSAGES RECENT UNSEEN UIDNEXT UIDVALIDITY HIGHESTMODSEQ)"
        with box.server.client(select=False) as client:
            states = [client.status(each, fields) for each in ("INBOX", *folders)]
            return [states, client.list(), client.lsub()]

    facts()  # turns on the modification sequence
    before = facts()
    assert "RECENT 1 " in str(before)
    ingested = art_e("ingest", box.url)
    assert facts() == before
    labels = [("answered", "inbox", "starred"), ("drafts", "inbox", "unread"), *folders.values()]
    assert box.stored() == {str(number): each for number, each in enumerate(labels, start=1)}
    assert "4  of these spam, trash or drafts" in ingested.stdout
    with InboxFile(box.db) as file:
        assert file.owners() == [USER]
    assert {each.stat().st_mode & 0o777 for each in home.rglob("*")} == {0o600, 0o700}
    assert PASSWORD.encode() not in b"".join(files_of(home).values())


def test_a_sync_updates_the_inbox_file(art_e: Run, box: Box) -> None:
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


def test_a_cut_connection_loses_and_repeats_no_mail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, box: Box
) -> None:
    box.put(range(1, 6))
    box.put([6, 7], "Lists")
    whole = None
    for cut in itertools.count(0, tries(400, 113)):
        monkeypatch.setenv("ART_E_HOME", str(tmp_path / str(cut)))
        box.wire.cuts = [cut, cut // 2]
        assert not spool.follow({Account.of(box.url): ""}, tmp_path / str(cut) / "db")[1]
        state = state_file(tmp_path / str(cut) / "db").read_text()
        assert state == (whole := whole or state)
        names = [each.name for each in (tmp_path / str(cut)).rglob("imap/*/*/*")]
        assert sorted(names) == ["1", "1", "2", "2", "3", "4", "5"]
        if "is cut" not in capsys.readouterr().err:
            break
    assert cut > 3000


def test_ingest_gives_up_after_three_retries_and_resumes(art_e: Run, home: Path, box: Box) -> None:
    box.put(range(1000, 1009))
    # The second connection brings three mails of 7 kB, so that three more retries follow.
    box.wire.cuts = [100, 27_000, *[100] * 9]
    *notes, error = art_e("ingest", box.url).stderr.splitlines()
    assert (len(notes), len(box.wire.cuts)) == (4, 6)
    assert error.startswith(f"Error: no connection to {box.url} (it was closed)")
    assert error.endswith("the same command goes on from there")
    spooled = {each: each.stat().st_ino for each in home.rglob("imap/*/*/*")}
    assert len(spooled) == 3
    box.wire.cuts = []
    assert art_e("ingest", box.url).exit_code == 0
    assert {each: each.stat().st_ino for each in spooled} == spooled
    assert len(box.stored()) == 9


def test_wrong_password_is_an_error(art_e: Run, box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(imap.PASSWORD, "melon-in-the-snow")
    line = the_error(art_e("ingest", box.url))
    assert line.startswith(f"Error: {box.url} rejects the password: check both")
    assert "melon" not in line + str(files_of(box.db.parent))
    with monkeypatch.context() as patch:
        patch.delenv(imap.PASSWORD)
        assert f"set {imap.PASSWORD}, or" in the_error(art_e("ingest", box.url))
    # The keyring comes first.
    passwords = {("127.0.0.1", USER): PASSWORD}
    keyring = pytest.importorskip("keyring")
    monkeypatch.setattr(keyring, "get_password", lambda *names: passwords.get(names))
    box.put([1])
    assert art_e("ingest", box.url).exit_code == 0


def test_certificates_are_verified(art_e: Run, box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    box.put([1])
    # An address that, unlike localhost, needs a certificate.
    host = f"{USER.replace('@', '%40')}@127.0.0.2"
    urls = (f"imaps://{host}:{box.server.tls_port}", f"imap://{host}:{box.server.port}")
    for url in urls:
        line = the_error(art_e("ingest", url))
        assert f"the certificate of {url} can't be trusted (self".replace("%40", "@") in line
    monkeypatch.setenv("SSL_CERT_FILE", str(box.server.folder / "cert.pem"))
    for url in urls:
        assert art_e("ingest", url, "--replace").exit_code == 0
    # The certificate is for another address.
    other = urls[0].replace("127.0.0.2", "127.0.0.1")
    assert "can't be trusted" in the_error(art_e("ingest", other, "--replace"))
    # Damaged data counts as a lost connection.
    box.put(range(1000, 1009))
    wire = Wire(box.server.tls_port)
    wire.cuts = [-30_000, -9_000]
    ingested = art_e("ingest", f"imaps://{host[:-9]}localhost:{wire.port}", "--replace")
    wire.close()
    assert (ingested.exit_code, ingested.stderr.count("is cut ([SSL")) == (0, 2), ingested.stderr
    assert len(box.stored()) == 10


def test_a_file_of_accounts_holds_no_other_mail(art_e: Run, box: Box, tmp_path: Path) -> None:
    assert "start with: art-e ingest imaps://" in the_error(art_e("sync"))
    other = tmp_path / "other.eml"
    other.write_bytes(raw("<other@x.example>").data)
    for options in (["--limit", 5], [other]):
        assert "into a file without other mail" in the_error(art_e("ingest", box.url, *options))
    box.put([1, 2])
    art_e("ingest", box.url, "--owner", "bob@x.example")
    with spool.locked_accounts(box.db):
        for command in (("sync",), ("ingest", other, "--replace")):
            assert f"accounts of {box.db} are being read already" in the_error(art_e(*command))
    assert "art-e sync updates it" in the_error(art_e("ingest", box.url))
    assert "art-e sync replaces all mail" in the_error(art_e("ingest", other, "--append"))
    # A sync completes an interrupted ingest.
    box.put([3])
    spool.follow({Account.of(box.url): ""}, box.db)
    assert json_of(art_e("sync", "--json"))["new"] == 0
    assert box.stored().keys() == {"1", "2", "3"}
    with InboxFile(box.db) as file:
        assert file.owners() == ["bob@x.example"]
    # A file from elsewhere could name an account that would get the password.
    shutil.rmtree(Account.of(box.url).spool)
    assert f"if it is yours: art-e ingest {box.url}" in the_error(art_e("sync"))
    for damaged in ("{", '[{"account": "imap://me@x", "messages": {"../../x": ["", [], ""]}}]'):
        state_file(box.db).write_text(damaged)
        assert "is damaged, or of an earlier version: delete it" in the_error(art_e("sync"))
    art_e("ingest", other, "--replace")
    assert "start with" in the_error(art_e("sync"))


# ---- Gmail, and servers that refuse or misbehave.

REFUSED = b"refused"
# An answer, or an iterable of its parts.
Script = dict[bytes, bytes | Iterable[bytes]]


class Scripted(socketserver.StreamRequestHandler):
    """Answers commands by their prefixes in the server's `script`, and records them."""

    def handle(self) -> None:
        server: Any = self.server
        with contextlib.suppress(ConnectionError):
            self.wfile.write(server.script.get(b"", b"* OK ready\r\n"))
            for line in self.rfile:
                tag, _, command = line.rstrip().partition(b" ")
                server.seen.append(command)
                reply = server.script[max(filter(command.startswith, server.script), key=len)]
                end = b" OK done"
                if isinstance(reply, bytes) and reply.startswith(REFUSED):
                    reply, end = b"", b" NO " + (reply[len(REFUSED) :] or b"it is broken")
                for part in [reply] if isinstance(reply, bytes) else reply:
                    self.wfile.write(part)
                self.wfile.write(tag + end + b"\r\n")


@contextlib.contextmanager
def scripted(script: Script, host: str = "127.0.0.1") -> Iterator[tuple[str, list[bytes]]]:
    """Start a server; yield its account's address, and the list of commands that it receives."""
    with socketserver.ThreadingTCPServer((host, 0), Scripted) as server:
        server.daemon_threads = True
        server.script, server.seen = script, []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield f"imap://me@{host}:{server.server_address[1]}", server.seen  # type: ignore[attr-defined]
        finally:
            server.shutdown()


def literal(data: bytes) -> bytes:
    return b"{%d}\r\n%s" % (len(data), data)


def answers_of(table: dict[str, str]) -> Script:
    lines = {key: text.replace("\n", "\r\n") for key, text in table.items()}
    return {key.encode(): text.encode("latin-1") for key, text in lines.items()}


SERVERS = table(__file__, "imap_servers.toml")
BASE = answers_of(SERVERS["base"])
OPENED = b"* %d EXISTS\r\n* OK [UIDVALIDITY 7] fine\r\n"
ONE, TWO = (raw(f"<{number}@x.example>", date=None).data for number in (1, 2))
BODIES = [
    b'* 1 FETCH (UID 4 X-NAME {3}\r\nabc INTERNALDATE " 5-Jan-2020 10:00:00 +0200" BODY[]<0> '
    + literal(ONE),
    b"* 2 FETCH (BODY[]<0> " + literal(TWO) + b" UID 9 FLAGS ())\r\n",
]
ALL_MAIL = answers_of(SERVERS["gmail"])
ALL_MAIL[b"UID FETCH 4,9"] = BODIES[0] + b")\r\n" + BODIES[1]


def test_gmail_is_read_once_with_its_labels_and_threads(art_e: Run, home: Path) -> None:
    with scripted(ALL_MAIL) as (url, seen):
        art_e("ingest", url, "--owner", "me@x.example")
    query = "SELECT labels, gmail_thread, sent_at::VARCHAR FROM emails ORDER BY message_id"
    with InboxFile(home / "inbox.duckdb") as file:
        first, second = file.execute(query).fetchall()
    labels = ["2024", "a ) UID 77", 'b" (', "inbox", "starred", "Ä"]
    assert first == (labels, "1278455344230334865", "2020-01-05 08:00:00")
    assert second[:2] == (["unread"], "12")
    opened = [each for each in seen if each.startswith((b"SELECT", b"EXAMINE"))]
    assert opened == [b'EXAMINE "[Gmail]/Alle Mails"', b'EXAMINE "[Gmail]/Spam"']


def test_only_refused_messages_and_folders_are_left_out(art_e: Run, home: Path) -> None:
    script = {**ALL_MAIL, b"UID FETCH 4,9": REFUSED, b"UID FETCH 4 ": REFUSED}
    script[b"UID FETCH 9 "] = BODIES[1]
    with scripted(script) as (url, _):
        ingested = art_e("ingest", url, "--json")
        assert "a message can't be fetched and is left out (it is broken)" in ingested.stderr
        assert json_of(ingested)["stored"] == 1
        # The next sync can fetch it. A symlink's target is replaced, not the link.
        script[b"UID FETCH 4 "] = BODIES[0] + b")\r\n"
        link = home / "link"
        link.symlink_to(home / "inbox.duckdb")
        report = json_of(art_e("sync", "--db", link, "--json"))
        assert (report["new"], report["ingest"]["stored"]) == (1, 2)
        assert link.is_symlink()
        # Now the folder can't be read.
        script[b'EXAMINE "[Gmail]/Alle Mails"'] = REFUSED
        again = art_e("sync", "--json")
        assert (json_of(again)["new"], json_of(again)["deleted"]) == (0, 0)
        assert "[Gmail]/Alle Mails can't be read (it is broken); it stays as it was" in again.stderr
        script[b"LIST"] = REFUSED
        assert f"{url} refuses (it is broken)" in the_error(art_e("sync"))


@pytest.mark.usefixtures("home")
def test_passwords_are_not_sent_unencrypted_or_repeated(art_e: Run) -> None:
    for url in ("imaps://me", f"imaps://me:{PASSWORD}@x.example", "imap://me@x.example:99999"):
        line = the_error(art_e("ingest", url))
        assert "an IMAP account is written imaps://user@host" in line and PASSWORD not in line
    with scripted(BASE, "127.0.0.2") as (url, seen):
        line = the_error(art_e("ingest", url))
    assert "127.0.0.2 would get the password unencrypted: use imaps://" in line
    assert seen == [b"CAPABILITY"]


LISTED = b"* 1 FETCH (UID 4 FLAGS () RFC822.SIZE 100)\r\n"
SMALL: Script = {
    **BASE,
    b"LIST": b'* LIST () "/" "INBOX"\r\n',
    b"EXAMINE": OPENED % 1,
    b"UID FETCH 1:*": LISTED,
    b"UID FETCH 4": BODIES[0] + b")\r\n",
}
ODD = (
    b"1/../../../../victim", b"-1", b"9" * 5000, b"4294967296", b"(4)", b'"4"', b"four", b"\xff\xfe"
)  # fmt: skip
NONSENSE: dict[str, Script] = {
    **{f"validity {odd[:9]!r}": {b"EXAMINE": (OPENED % 1).replace(b"7", odd)} for odd in ODD},
    **{f"UID {odd[:9]!r}": {b"UID FETCH 1:*": LISTED.replace(b"4", odd)} for odd in (b"0", *ODD)},
    **{f"size {odd[:9]!r}": {b"UID FETCH 1:*": LISTED.replace(b"100", odd)} for odd in ODD},
    **{name: answers_of(table) for name, table in SERVERS["nonsense"].items()},
    "count": {b"EXAMINE": b"* " + b"9" * 5000 + b" EXISTS\r\n"},
    "its digits": {b"UID FETCH 1:*": b"* 1 FETCH (UID {%s}\r\n" % (b"9" * 5000)},
    # Endless answers.
    "lines": {b"LIST": itertools.repeat(b"* FOO 1\r\n" * 1000)},
    "a long line": {b"LIST": itertools.repeat(b"x" * 1000)},
    "literals": {b"LIST": itertools.chain([b"* LIST ({0}\r\n"], itertools.repeat(b"{0}\r\n" * 99))},
}


@pytest.mark.parametrize("name", list(NONSENSE)[:: tries(3, 1)])
def test_malformed_answers_give_one_line_with_the_server(art_e: Run, home: Path, name: str) -> None:
    with scripted({**SMALL, **NONSENSE[name]}) as (url, _):
        line = the_error(art_e("ingest", url))
    assert line.startswith((f"Error: {url} does not answer like", f"Error: {url} refuses ("))
    assert "check its name and that" in line
    assert len(line) < 400
    # Files are written to the spool only, and no mail is among them.
    assert not [each for each in home.parent.rglob("*") if each.name in ("victim", "4")]
    assert {each.suffix for each in home.iterdir()} <= {"", ".json", ".lock"}


def test_server_messages_never_show_the_password(art_e: Run, home: Path, monkeypatch: Any) -> None:
    secret = b"melon & snow-7 \xc3\xa4pfel"
    monkeypatch.setenv(imap.PASSWORD, secret.decode())
    codes = [
        secret, b'"' + secret + b'"', secret.upper(), secret[:11], secret.hex().encode(),
        b" ".join(bytes([each]) for each in secret[:13]), quote(secret, safe="").encode(),
        base64.b64encode(secret), base64.b64encode(b"\0me\0" + secret), quopri.encodestring(secret),
    ]  # fmt: skip
    for number, code in enumerate(codes):
        commands = (b"LIST", b"EXAMINE", b"UID FETCH 1:*", b"UID FETCH 4", b"LOGIN")
        places: list[Script] = [{key: REFUSED + b"no: " + code + b"?"} for key in commands]
        places += [
            {b"LOGIN": REFUSED + b"[UNAVAILABLE] " + code},
            {b"": b"* NO " + code + b"\r\n"},
            {b"LIST": code + b"\r\n"},
            {b"EXAMINE": REFUSED, b"LIST": b'* LIST () "/" ' + literal(code) + b"\r\n"},
        ]
        for place in places[number % (step := tries(4, 1)) :: step]:
            with scripted({**SMALL, **place}) as (url, _):
                ingested = art_e("ingest", url)
            assert ingested.exit_code == 2
            stderr = ingested.stderr.casefold()
            pieces = (code.decode("utf-8", "replace"), str(code)[2:-1], "melon", "pfel")
            assert not [each for each in pieces if each.casefold() in stderr], stderr


def late(part: bytes) -> bytes:
    time.sleep(0.02)
    return part


def test_answers_are_limited(art_e: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A literal above the largest mail is skipped and counted, and the next mail is read."""
    large = b"* 1 FETCH (UID 4 BODY[]<0> {70000000}\r\n"
    listed = LISTED + LISTED.replace(b"4", b"9")
    script = {**SMALL, b"EXAMINE": OPENED % 2, b"UID FETCH 1:*": listed}
    script[b"UID FETCH 4,9"] = [large, *[b"x" * 1_000_000] * 70, b")\r\n", BODIES[1]]
    with scripted(script) as (url, _):
        report = json_of(art_e("ingest", url, "--json"))
    assert (report["read"], report["stored"], report["quarantined"]) == (2, 1, {"too-large": 1})
    # An answer that trickles in byte by byte times out, after progress notes.
    monkeypatch.setattr(imap, "_TIMEOUT_S", 1.0)
    monkeypatch.setattr(imap, "_SIGN_S", 0.3)
    with scripted({**SMALL, b"LIST": map(late, itertools.repeat(b"x"))}) as (url, _):
        ingested = art_e("ingest", url, "--replace")
    assert ingested.exit_code == 2
    assert "127.0.0.1: 0.0 MB so far" in ingested.stderr
    assert f"no connection to {url} (it is too slow)" in ingested.stderr


LONG_LINES: dict[str, Script] = {
    "labels": {b"UID FETCH 1:*": b"* 1 FETCH (" + b"X-GM-LABELS (" * 70_000 + b"\r\n"},
    "quotes": {b"UID FETCH 1:*": b"* 1 FETCH (X-GM-LABELS (" + b'"\\' * 450_000 + b"\r\n"},
    "fields": {b"UID FETCH 1:*": b"* 1 FETCH (" + b" A (" * 240_000 + b"\r\n"},
    "name": {b"LIST": b'* LIST () "/" "' + b"&" * 900_000 + b'"\r\n'},
    "names": {b"LIST": b'* LIST () "/" ' + b'"\\' * 450_000 + b"\r\n"},
}


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("name", LONG_LINES)
def test_long_lines_take_linear_time(art_e: Run, name: str) -> None:
    began = time.process_time()
    with scripted({**SMALL, **LONG_LINES[name]}) as (url, _):
        art_e("ingest", url, "--replace")
    assert time.process_time() - began < 10


def test_a_disk_error_is_not_a_lost_connection(art_e: Run, home: Path) -> None:
    with scripted(SMALL) as (url, _):
        account = Account.of(url)
        account.spool.mkdir(parents=True)
        (account.spool / f"{digest('INBOX')}-7").write_text("in the way")
        line = the_error(art_e("ingest", str(account)))
    assert f"{digest('INBOX')}-7: File exists; name another place" in line


def test_a_file_follows_several_accounts(art_e: Run, box: Box, home: Path) -> None:
    """Each owner has their own mail, even with the same ids. A server's refusal is an error that
    names the account, and does not affect the others' mail."""
    box.put([1])
    other = {**SMALL, b"AUTHENTICATE": b""}
    other[b"CAPABILITY"] = b"* CAPABILITY IMAP4rev1 AUTH=PLAIN\r\n"
    art_e("ingest", box.url)
    with scripted(other) as (url, _):
        more = url.replace("me", "me%40x.example")
        added = art_e("ingest", more, "--append")
        assert added.stdout.startswith("1 new, 0 changed, 0 deleted\n"), added.stderr
        assert "2  read\n" in added.stdout
        with InboxFile(box.db) as file:
            assert set(file.owners()) == {USER, "me@x.example"}
            assert len(file.open_inbox(USER)) == len(file.open_inbox("me@x.example")) == 1
        other[b"LIST"] = REFUSED
        box.put([2])
        error = f"Error: {Account.of(more)} refuses (it is broken)"
        synced = art_e("sync")
        assert synced.exit_code == 2 and synced.stderr.startswith(error)
        assert synced.stdout.startswith("1 new, 0 changed, 0 deleted\n")
        assert len(load_states(box.db)) == 2
        again = art_e("ingest", more, box.url, "--replace")
        assert again.exit_code == 2 and error in again.stderr and " 3  stored\n" in again.stdout
        assert error in the_error(art_e("ingest", more, "--replace"))
    art_e("ingest", box.url, "--replace")
    assert [each.owner for each in load_states(box.db)] == [USER]
    with InboxFile(box.db) as file:
        assert len(file.open_inbox(USER)) == 2


def test_the_service_files_in_the_docs_are_valid(tmp_path: Path) -> None:
    unit, plist = re.findall(r"```(?:ini|xml)\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
    job = plistlib.loads(plist.encode())
    assert job["ProgramArguments"][1:] == ["sync", "--every", "10m"]
    # A restart every ten seconds would lock the account.
    assert job["ThrottleInterval"] == 3600 and "\nRestartSec=1h\n" in unit
    if systemd := shutil.which("systemd-analyze"):
        path = tmp_path / "art-e.service"
        path.write_text(unit.replace("%h/art-e/.venv/bin/art-e", sys.executable))
        verify = [systemd, "verify", str(path)]
        done = subprocess.run(verify, capture_output=True, text=True, check=False)
        assert path.name not in done.stderr


def test_sync_repeats_until_stopped(art_e: Run, box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync survives lost connections, but stops at a wrong password."""
    box.put([1])
    art_e("ingest", box.url)
    assert "--every must be a time such as" in the_error(art_e("sync", "--every", "soon"))
    waits: list[float] = []
    clock = SimpleNamespace(time=lambda: sum(waits))

    def sleep(seconds: float) -> None:
        # The machine sleeps for an hour.
        waits.append(seconds + 3600 * (len(waits) == 20))
        if len(waits) == 60:
            box.wire.cuts = [0] * 9
        elif len(waits) == 120:
            box.wire.cuts = []
            box.put([2])
        elif len(waits) == 180:
            raise KeyboardInterrupt

    clock.sleep = sleep
    monkeypatch.setattr("data_pipeline.cli.time", clock)
    monkeypatch.setattr(spool, "time", SimpleNamespace(**vars(time) | {"sleep": lambda _: None}))
    synced = art_e("sync", "--every", "1m")
    assert synced.exit_code == 130
    assert re.findall(r"\d new(?=,)", synced.stdout) == ["0 new", "0 new", "1 new"]
    assert "no connection to" in synced.stderr and "the next sync is in 1m" in synced.stderr
    monkeypatch.setenv(imap.PASSWORD, "wrong")
    assert "rejects the password" in the_error(art_e("sync", "--every", "1s"))


@pytest.fixture
def endpoint() -> Iterator[Any]:
    """Serve `answers` in order (texts as redirects), and record the fields in `seen`."""
    served = SimpleNamespace(seen=[], answers=[])

    def answer(_: str, __: str, ___: Mapping[str, str], body: bytes) -> tuple[int, Any] | Reply:
        served.seen.append(dict(parse_qsl(body.decode())))
        value = served.answers.pop(0)
        value = Reply(b"", 302, {"Location": value}) if isinstance(value, str) else value
        return value if isinstance(value, Reply) else (400 if "error" in value else 200, value)

    with json_server(answer) as served.url:
        yield served


CODE = {"device_code": "dev-secret-1", "user_code": "AB-12", "interval": 0}
CODE["verification_uri"] = "https://x.example/d"


def token_reply(**more: str) -> dict[str, str]:
    return {"access_token": token_for(USER), "refresh_token": "first-secret-2", **more}


def login(endpoint: Any) -> list[str]:
    urls = f"{endpoint.url}/device,{endpoint.url}/token,imap"
    return ["--client-id", "my-id", "--endpoints", urls]


def test_sign_in_by_code_and_token_renewal(art_e: Run, box: Box, endpoint: Any) -> None:
    box.put([1])
    endpoint.answers += [CODE, {"error": "authorization_pending"}, token_reply()]
    result = art_e("login", box.url, *login(endpoint))
    assert "open https://x.example/d and enter the code AB-12" in result.stderr
    assert f"art-e ingest {Account.of(box.url)}" in result.stdout
    file = Account.of(box.url).grant_file
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    endpoint.answers += [token_reply(refresh_token="second-secret-3"), token_reply()]
    assert json_of(art_e("ingest", box.url, "--json"))["stored"] == 1
    box.put([2])
    assert json_of(art_e("sync", "--json"))["new"] == 1
    assert {each["client_id"] for each in endpoint.seen} == {"my-id"}
    code = ("urn:ietf:params:oauth:grant-type:device_code", None)
    renewals = [("refresh_token", "first-secret-2"), ("refresh_token", "second-secret-3")]
    kinds = [(each.get("grant_type"), each.get("refresh_token")) for each in endpoint.seen]
    assert kinds == [(None, None), code, code, *renewals]
    # Refusals by the account's server and by the endpoint. Without a token no password is sent.
    expired = {"error": "invalid_grant", "error_description": "AADSTS700082: first-secret-2 is old"}
    for answer, words in (
        (token_reply(access_token=token_for("bob@home.example")), f"{box.url} rejects the sign-in"),
        (expired, "refuses (invalid_grant, AADSTS700082): sign in again with art-e login"),
        ({"access_token": ""}, "127.0.0.1 refuses (without a reason): try again later"),
        (f"{endpoint.url}/other", "redirects elsewhere"),
    ):
        endpoint.answers.append(answer)
        line = the_error(art_e("sync"))
        assert words in line and "secret" not in line
    assert len(endpoint.seen) == 9
    secrets = [name for name, data in files_of(box.db.parent).items() if b"secret-" in data]
    assert [Path(name).name for name in secrets] == [file.name]


REFUSALS: list[tuple[list[Any], str]] = [
    ([{"error": "invalid_client"}], "refuses (invalid_client): check --client-id and the settings"),
    ([CODE, {"error": "slow_down"}, {"error": "expired_token"}], "and enter the code in time"),
    ([CODE, {"error": "access_denied", "error_description": "dev-secret-1"}], "again, and accept"),
    ([CODE, {"error": ["dev-secret-1"]}], "refuses (without a reason): try again later"),
    ([CODE, {"access_token": "secret"}], "or with another scope"),
    ([CODE, Reply(b"<html>dev-secret-1", 503)], "like an OAuth server (HTTP 503): check its"),
    ([CODE, "https://x.example/"], "redirects elsewhere, and no token is sent there"),
]


def test_sign_in_errors_have_a_fix(art_e: Run, home: Path, endpoint: Any, monkeypatch: Any) -> None:
    account, waits = "imaps://me@x.example", list[float]()
    monkeypatch.setattr(oauth, "time", SimpleNamespace(**vars(time) | {"sleep": waits.append}))
    for answers, words in REFUSALS:
        endpoint.answers[:] = answers
        ended = art_e("login", account, *login(endpoint))
        assert (ended.exit_code, ended.stdout) == (2, "") and words in ended.stderr, ended.stderr
        assert ended.stderr.count("\n") == 1 + (CODE in answers) and "secret" not in ended.stderr
    assert waits == [0, 5, 0, 0, 0, 0, 0]
    for urls, words in SERVERS["endpoints"].items():
        options = ("--client-id", "my-id", "--endpoints", urls)
        assert words in the_error(art_e("login", account, *options))
    # Microsoft accepts only OAuths: none is sent.
    line = the_error(art_e("ingest", "imaps://me@x.example@outlook.office365.com"))
    assert "accepts only OAuth" in line and "art-e login imaps://me@x.example@outlook" in line
    assert "give --client-id ID" in the_error(art_e("login", "imaps://me@imap.gmail.com"))


def test_sign_in_at_google_by_a_pasted_address(
    art_e: Run, endpoint: Any, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    google = oauth.PROVIDERS["gmail.com"].model_copy(update={"token_url": f"{endpoint.url}/token"})
    monkeypatch.setitem(oauth.PROVIDERS, "gmail.com", google)
    monkeypatch.setattr("secrets.token_urlsafe", lambda size: f"random-{size}")
    monkeypatch.setenv("ART_E_IMAP_CLIENT_SECRET", "my-own")
    command = ("login", "imaps://me@imap.gmail.com", "--client-id", "my-id")
    refused = ("error=access_denied&state=random-16", "refuses (access_denied): run it again, and")
    for pasted, words in (("code=1&state=another", "not the address of the last page"), refused):
        result = art_e(*command, keys=f"http://127.0.0.1:1/?{pasted}\n")
        assert result.exit_code == 2 and words in result.stderr
    endpoint.answers += [token_reply()]
    keys = "http://127.0.0.1:1/?state=random-16&code=4%2Fabc&scope=x\n"
    result = done(art_e(*command, keys=keys))
    query = parse_qs(urlsplit(result.stderr.split()[4]).query)
    assert query["scope"] == ["https://mail.google.com/"] and query["state"] == ["random-16"]
    [fields] = endpoint.seen
    names = ("code", "code_verifier", "client_secret")
    assert [fields[each] for each in names] == ["4/abc", "random-64", "my-own"]
