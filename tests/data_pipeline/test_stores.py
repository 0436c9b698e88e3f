"""Mail as programs store it: every mail once, with its folder's labels, and no file in silence."""

import bz2
import gzip
from pathlib import Path

import pytest

from art_e.inbox.file import InboxFile
from data_pipeline.ingest.batch import Rules, default_rules
from data_pipeline.ingest.build import Source, ingest
from data_pipeline.ingest.parse import parse_message
from data_pipeline.ingest.records import ParsedEmail, RawMessage
from data_pipeline.ingest.sources import detect, open_source
from tests.builders import the_error
from tests.formats import zipped


def mail(number: int, body: str = "Text.", headers: str = "") -> bytes:
    return (
        f"{headers}From: ann@x.example\nTo: bob@x.example\nDate: Tue, 14 Mar 2023 09:00:00 +0000\n"
        f"Message-ID: <{number}@x.example>\nSubject: {number}\n\n{body}\n"
    ).encode()


def emlx(message: bytes, flags: int, off: int = 0) -> bytes:
    """A file whose count of bytes may be off."""
    tail = f'<?xml version="1.0"?><plist><dict><key>flags</key><integer>{flags}</integer></dict>'
    return b"%d\n%s%s" % (len(message) + off, message, tail.encode())


def counted(message: bytes, off: int = 0) -> bytes:
    """A message of an mbox whose Content-Length may be off."""
    block, _, body = message.partition(b"\n\n")
    return b"%s%s\nContent-Length: %d\n\n%s\n" % (DATED, block, len(body) + off, body)


FORWARD = "From bob@x.example Mon Mar 13 08:00:00 2023\nSubject: keys\nIn the blue tin."
DATED = b"From a@x Tue Mar 14 09:00:00 2023\n"
INNER = f"So:\n\n{DATED.decode()}{mail(9).decode()}"
LETTER = "From now on:\nFrom: you know whom\n\nFrom me at 10:30 in 2023\nnothing: new"
UW = b"Subject: DON'T DELETE THIS MESSAGE -- FOLDER INTERNAL DATA\nX-IMAP: 1 2\nFrom: a@x.example\n"
# From_ lines as programs write them.
FROM = (
    "From a@x Tue Mar 14 09:00:00 2023", "From ", "From -", "From ???@??? Tue Mar 14 09:00:00 2023",
    "From - Tue Mar 14 09:00:00 2023", 'From "Kim P." Tue Mar 14 09:00:00 2023', "From kim@x.org",
    "From a@x Tue Mar 14 09:00 CET 2023", "From a@x Tue, 14 Mar 2023 09:00:00 GMT",
    "From MAILER-DAEMON", "From - Tue Mar 14 2023", "From ???@???", "From a@x 2023-03-14T09:00:00Z",
    "From - Tue Mar 14 09:00:00 2023\nFrom a@x Tue Mar 14 09:00:00 2023",
    "From a@x Tue Mar 14 09:00:00 MET DST 2023", "From a@x Tue Mar 14 09:00:00 2023 remote from b",
    "From", "From\ta@x\tTue Mar 14 09:00:00 2023", "From a@x 03/14/23 9:00 AM", "From - 1678784400",
    "From a@x Tue Mar 14 09:00:00 23 remote from b",
)  # fmt: skip
DIALECTS = b"\n".join(f"{line}\n".encode() + mail(n) for n, line in enumerate(FROM))
BARE = [b"From \n" + mail(number) + b"\n" for number in range(3)]
INBOX, TRASH, UNREAD = ("inbox",), ("trash",), ("inbox", "unread")
NAMED: dict[str, tuple[str, ...]] = {str(number): () for number in range(len(FROM))}
STORES: dict[str, tuple[dict[str, bytes], dict[str, tuple[str, ...]], dict[str, str]]] = {
    "dialects": ({"all": DIALECTS}, NAMED, {}),
    "windows": ({"all": DIALECTS.replace(b"\n", b"\r\n")}, NAMED, {}),
    "old Mac": ({"all": DIALECTS.replace(b"\n", b"\r")}, NAMED, {}),
    "byte order mark": ({"all": b"\xef\xbb\xbf" + DIALECTS}, NAMED, {}),
    "mboxcl2": ({"all": counted(mail(1, INNER)) + counted(mail(2, INNER))}, {"1": (), "2": ()}, {}),
    "wrong lengths": (
        {"all": counted(mail(1), -3) + counted(mail(2), 4), "b": counted(mail(3), 10**7) + BARE[0],
         "c": counted(mail(4), 260) + counted(mail(5))},
        {"1": (), "2": (), "3": (), "0": (), "4": (), "5": ()}, {},
    ),
    "MMDF": ({"all": b"".join(b"\1\1\1\1\n%s\1\1\1\1\n" % each for each in
                             (mail(1, INNER), DATED + mail(2, INNER)))}, {"1": (), "2": ()}, {}),
    "packed": (
        {"a.zip": zipped({"Mail/cur/1.h:2,S": mail(1), "Mail/.Trash/cur/1678784400.2.h": mail(2),
                          "Mail/tmp/3.h:2,": mail(3), "Trash-1.mbox": BARE[0]}),
         "Trash.mbox.bz2": bz2.compress(DATED + mail(4)), "x.7z": b"7z", "a/._1.eml": b"\0"},
        {"1": INBOX, "2": ("trash", "unread"), "0": TRASH, "4": TRASH},
        {"Mail/tmp/3.h": "other-file", "x.7z": "packed", "a/._1.eml": "other-file"},
    ),
    "no From_ line at first": ({"a.mbox": mail(0) + b"\n" + BARE[1]}, {"0": (), "1": ()}, {}),
    "bodies": (
        {"all": b"\n".join([b"From a@x Tue Mar 14 09:00:00 2023\n" + mail(1, FORWARD),
                            b"From \n" + mail(2, f"So.\n\n{LETTER}"), BARE[0]])},
        {"1": (), "2": (), "0": ()}, {},
    ),
    "UW-IMAP": ({"all": b"From a@x Tue Mar 14 09:00:00 2023\n" + UW + b"\nNotes.\n\n" + BARE[1]},
                {"1": ()}, {"all#1": "bookkeeping"}),
    "Thunderbird": (
        {"prefs.js": b"// Mozilla\n", "Mail/Trash": BARE[0], "Mail/Trash.msf": b"// <!--",
         "Mail/Trash.sbd/Old": BARE[1], "Mail/nstmp": BARE[1], "Mail/Drafts": b"",
         "Mail/Work": b"From \n" + mail(2, headers="X-Mozilla-Status: 0005\n")
         + b"\nFrom \n" + mail(3, headers="X-Mozilla-Status: 0008\n")},
        {"0": TRASH, "1": TRASH, "2": ("starred",), "3": ("trash", "unread")},
        dict.fromkeys(("prefs.js", "Mail/Trash.msf", "Mail/nstmp", "Mail/Drafts"), "other-file"),
    ),
    "MH": (
        {"inbox/1": mail(1), "inbox/,2": mail(2), "trash/3": mail(3), ".mh_sequences": b"unseen: 1",
         "inbox/4": mail(4, "long " * 2000), "inbox/4-lease.pdf": b"%PDF",
         "inbox/.mh_sequences": b"cur: 4\nunseen: 1 3-9\nreplied: 4\n"},
        {"1": UNREAD, "2": TRASH, "3": TRASH, "4": ("answered", *UNREAD)},
        {".mh_sequences": "other-file", "inbox/4-lease.pdf": "other-file",
         "inbox/.mh_sequences": "other-file"},
    ),
    "Apple": (
        {"V10/1/INBOX.mbox/2/Data/Messages/1.emlx": emlx(mail(1), 1 << 40 | 17),
         "V10/1/INBOX.mbox/2/Data/Messages/2.partial.emlx": emlx(mail(2), 0),
         "V10/1/INBOX.mbox/2/Data/Messages/3.emlx": emlx(mail(3), 5, off=-9),
         "V10/1/INBOX.mbox/2/Data/Messages/4.emlx": emlx(mail(4), 5, off=99),
         "V10/1/INBOX.mbox/2/Data/Attachments/2/1/note.eml": mail(5),
         "V10/MailData/Envelope Index": b"SQLite format 3\0", "Sent Messages.mbox/mbox": BARE[0]},
        {"1": ("inbox", "starred"), "2": UNREAD, "3": ("answered", "inbox"), "0": ("sent",),
         "4": ("answered", "inbox")},
        {"V10/1/INBOX.mbox/2/Data/Messages/2.partial.emlx": "partial",
         "V10/1/INBOX.mbox/2/Data/Attachments/2/1/note.eml": "other-file",
         "V10/MailData/Envelope Index": "other-file"},
    ),
    "Maildir++ and its kind": (
        {".Entw&APw-rfe/cur/1.h:2,S": mail(1), ".R&D/cur/2.h:2,S": mail(2), "In/tmp/5": mail(5),
         "Mail/.inbox.directory/B&APw-ro/cur/3.h:2,S": mail(3), "In/cur/4.eml": mail(4)},
        {"1": ("drafts",), "2": ("R&D",), "3": ("inbox/Büro",), "4": ("In",)},
        {"In/tmp/5": "other-file"},
    ),
    "Evolution": (
        {".Trash/cur/1.host!2,S": mail(1), ".Trash/new/x": mail(4), ".Trash/tmp/2.host": mail(2),
         "folders/INBOX/cur/3f/77": gzip.compress(mail(3)), "folders/INBOX/new/.keep": b"",
         "Old": b"From a@x Tue Mar 14 09:00:00 2023\n" + mail(5, headers="X-Evolution: 01-0011\n")},
        {"1": TRASH, "3": UNREAD, "4": ("trash", "unread"), "5": ("answered",)},
        {".Trash/tmp/2.host": "other-file", "folders/INBOX/new/.keep": "other-file"},
    ),
}  # fmt: skip


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize("name", STORES)
def test_every_mail_of_a_store_is_read_once(name: str, tmp_path: Path) -> None:
    files, labels, faults = STORES[name]
    path = str(write(tmp_path, files))
    assert detect(path) == "mail" and default_rules("mail") == Rules()
    items = [each for each in open_source(path, "mail") if isinstance(each, RawMessage)]
    assert {each.source: each.fault.reason for each in items if each.fault} == faults
    emails = [email for email in map(parse_message, items) if isinstance(email, ParsedEmail)]
    assert {email.subject: email.labels for email in emails} == labels
    assert len(emails) == len(labels)


def test_a_partial_mail_is_stored_with_the_files_beside_it_and_listed(tmp_path: Path) -> None:
    parts = "--b\n\nText.\n--b\nX-Apple-Content-Length: 9\nContent-Type: text/plain\n\n--b--"
    message = mail(2, parts, "Content-Type: multipart/mixed; boundary=b\n")
    files = {f"Messages/{number}.partial.emlx": emlx(message, 1) for number in (1, 2)}
    path = write(tmp_path / "mail", {**files, "Attachments/2/2/a.txt": b"An okapi."})
    report = ingest([Source(open_source(str(path), "mail"), Rules())], tmp_path / "inbox")
    assert (report.counts["stored"], report.counts["cut"]) == (2, {"partial": 1})
    with InboxFile(tmp_path / "inbox") as file:
        assert len(file.open_inbox("bob@x.example").search(["okapi"])) == 1


@pytest.mark.parametrize(
    ("name", "data", "advice"),
    [
        ("a/Inbox.dbx", bytes.fromhex("cfad12fec5fd"), "apt install undbx"),
        ("a/mail.nsf", bytes.fromhex("1a0000040000"), "drag them into a folder"),
        ("a/mac.olm", zipped({"L/com.microsoft.__Messages/1.xml": b"<?xml"}), "to the desktop"),
    ],
)
def test_what_only_its_program_reads_has_a_way_out(
    name: str, data: bytes, advice: str, tmp_path: Path
) -> None:
    path = str(write(tmp_path, {name: data, "b/1.eml": mail(1)}))
    assert advice in the_error(lambda: list(open_source(path, detect(path))))


def test_enrons_mail_is_known_by_its_headers(tmp_path: Path) -> None:
    headers = "X-Folder: \\Ann\\Inbox\nX-Origin: ANN-A\nX-FileName: ann.nsf\n"
    assert detect(str(write(tmp_path / "a", {"maildir/ann/1.": mail(1, "", headers)}))) == "enron"
    assert detect(str(write(tmp_path / "b", {"maildir/ann/1.": mail(1)}))) == "mail"


@pytest.mark.parametrize("ends", ["whole", "damaged"])
def test_readpst_takes_outlooks_data_files_apart(
    ends: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(write(tmp_path / "mail", {"backup.pst": b"!BDN" + bytes(60)}))
    assert detect(path) == "mail"
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert "apt install pst-utils" in the_error(lambda: list(open_source(path, "mail")))
    # Stands in for the program, which writes a folder tree at $8.
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
    assert isinstance(item, RawMessage) and item.labels == TRASH
    assert item.source == "backup.pst/Trash/1.eml"


def test_msg_files_are_read_with_their_people_and_files() -> None:
    """Files written after MS-OXMSG: received with its headers, sent without them, cut;
    and without its code page, below a line of Exchange's."""
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
