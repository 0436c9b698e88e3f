"""Mail as programs store it: every mail is read once, with labels; other files are counted."""

import bz2
import gzip
import re
import tomllib
from pathlib import Path

import pytest

from art_e.inbox.file import InboxFile
from data_pipeline.ingest.batch import Rules, default_rules
from data_pipeline.ingest.records import ParsedEmail, RawMessage
from data_pipeline.ingest.sources import detect, open_source
from tests.builders import make_inbox, the_error
from tests.formats import parse_message, zipped


def mail(number: int, body: str = "Text.", headers: str = "") -> bytes:
    return (
        f"{headers}From: ann@x.example\nTo: bob@x.example\nDate: Tue, 14 Mar 2023 09:00:00 +0000\n"
        f"Message-ID: <{number}@x.example>\nSubject: {number}\n\n{body}\n"
    ).encode()


def emlx(message: bytes, flags: int) -> bytes:
    tail = f'<?xml version="1.0"?><plist><dict><key>flags</key><integer>{flags}</integer></dict>'
    return b"%d\n%s%s" % (len(message), message, tail.encode())


STORES = tomllib.loads((Path(__file__).parents[1] / "data/stores.toml").read_text("utf-8"))
FROM = STORES.pop("from_lines")
# After a byte order mark of UTF-8.
DIALECTS = "\xef\xbb\xbf" + "\n".join(f"{line}\n{{{n}}}" for n, line in enumerate(FROM))
for ends in ("\n", "\r\n", "\r"):
    labels: dict[str, list[str]] = {str(number): [] for number in range(len(FROM))}
    STORES[f"dialects {ends!r}"] = {"files": {"all": DIALECTS}, "labels": labels, "ends": ends}


def contents(name: str, file: str | dict[str, str]) -> bytes:
    """Return the bytes of a file in the table."""
    if isinstance(file, dict):
        return zipped({inner: contents(inner, text) for inner, text in file.items()})

    def filled(match: re.Match[str]) -> str:
        text = mail(int(match[2])).decode()
        return text.partition("\n\n")[0] if match[1] else text

    text = file.replace("{dated}", "From a@x Tue Mar 14 09:00:00 2023\n")
    data = re.sub(r"\{(head )?(\d+)\}", filled, text).encode("latin-1")
    if name.endswith(".bz2"):
        return bz2.compress(data)
    return gzip.compress(data) if name.endswith(".gz") else data


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize("name", STORES)
def test_every_mail_of_a_store_is_read_once(name: str, tmp_path: Path) -> None:
    store = STORES[name]
    files = {file: contents(file, content) for file, content in store["files"].items()}
    ends = store.get("ends", "\n").encode()
    path = str(write(tmp_path, {file: data.replace(b"\n", ends) for file, data in files.items()}))
    assert detect(path) == "mail" and default_rules("mail") == Rules()
    items = [each for each in open_source(path, "mail") if isinstance(each, RawMessage)]
    faults = {each.source: each.fault.reason for each in items if each.fault}
    listed = store.get("faults", {}).items()
    assert faults == {file: reason for reason, files in listed for file in files}
    emails = [email for email in map(parse_message, items) if isinstance(email, ParsedEmail)]
    assert {email.subject: list(email.labels) for email in emails} == store["labels"]
    assert len(emails) == len(store["labels"])


def test_a_partial_emlx_gets_its_attachments_back(tmp_path: Path) -> None:
    parts = "--b\n\nText.\n--b\nX-Apple-Content-Length: 9\nContent-Type: text/plain\n\n--b--"
    message = mail(2, parts, "Content-Type: multipart/mixed; boundary=b\n")
    files = {f"Messages/{number}.partial.emlx": emlx(message, 1) for number in (1, 2)}
    path = write(tmp_path / "mail", {**files, "Attachments/2/2/a.txt": b"An okapi."})
    report = make_inbox(tmp_path / "inbox", open_source(str(path), "mail"))
    assert (report.counts["stored"], report.counts["cut"]) == (2, {"partial": 1})
    with InboxFile(tmp_path / "inbox") as file:
        assert len(file.open_inbox("bob@x.example").search(["okapi"])) == 1


@pytest.mark.parametrize(
    ("name", "data", "advice"),
    [
        ("a/Inbox.dbx", bytes.fromhex("cfad12fec5fd"), "apt install undbx"),
        ("a/mail.nsf", bytes.fromhex("1a0000040000"), "drag them into a folder"),
        ("a/backup.pst", b"!BDN", "apt install pst-utils"),
        ("a/mac.olm", zipped({"L/com.microsoft.__Messages/1.xml": b"<?xml"}), "to the desktop"),
    ],
)
def test_closed_formats_name_their_export(
    name: str, data: bytes, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    path = str(write(tmp_path, {name: data, "b/1.eml": mail(1)}))
    assert advice in the_error(lambda: list(open_source(path, detect(path))))


@pytest.mark.parametrize("ends", ["whole", "damaged"])
def test_readpst_reads_outlook(ends: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(write(tmp_path / "mail", {"backup.pst": b"!BDN" + bytes(60)}))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    # A stand-in for the program, which writes a folder tree at $8.
    script = {
        "whole": f'cd "$8"; /bin/mkdir Trash; /bin/cp {tmp_path}/1 Trash/1.eml',
        "damaged": "echo Error opening File >&2; exit 1",
    }[ends]
    write(tmp_path, {"1": mail(1), "bin/readpst": f"#!/bin/sh\n{script}\n".encode()})
    (tmp_path / "bin/readpst").chmod(0o755)
    if ends == "damaged":
        line = the_error(lambda: list(open_source(path, "mail")))
        assert "can't read" in line and "(Error opening File)" in line
        return
    [item] = open_source(path, "mail")
    assert isinstance(item, RawMessage) and item.labels == ("trash",)
    assert item.source == "backup.pst/Trash/1.eml"


def test_msg_files_are_read_with_their_people_and_files() -> None:
    """Files by MS-OXMSG: received with headers, sent without them, truncated, and one without its
    code page, after a line of Exchange."""
    items = open_source(str(Path(__file__).parents[1] / "data/outlook.tar.xz"), "mail")
    one, two, three, four = map(parse_message, items)
    assert isinstance(one, ParsedEmail) and isinstance(two, ParsedEmail)
    assert isinstance(four, ParsedEmail) and four.message_id == "<4@x.example>"
    assert (four.subject, four.body) == ("Договор аренды", "Аренда квартиры до мая")
    assert (one.message_id, one.subject, one.utc_offset) == ("<1@x.example>", "Schlüssel", 60)
    assert "Unter der Matte." in one.body and "The gate is blue." in one.body
    assert ("Plan ä.txt", b"the plan") in [(each.name, each.data) for each in one.files]
    parties = [box.address.partition("@")[0] for box in (two.sender, *two.to, *two.cc)]
    assert parties == ["ann", "bob", "cleo"]
    assert (two.body, str(two.sent_at)) == ("café", "2023-03-14 08:00:00")
    assert not isinstance(three, ParsedEmail) and three.reason == "parse-error"
