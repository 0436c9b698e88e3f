"""Sources: the same inbox from every format, detected by content; damage gives an error."""

import csv
import datetime as dt
import io
import lzma
import os
import re
import struct
import sys
import tarfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_pipeline.ingest import archives
from data_pipeline.ingest.archives import tar_members
from data_pipeline.ingest.build import IngestReport
from data_pipeline.ingest.records import LARGEST_MESSAGE, Format, RawMessage
from data_pipeline.ingest.sources import detect, open_source
from data_pipeline.synthetic.world import WorldConfig, messages, questions_of, world_of
from tests.builders import make_inbox, raw, table, the_error, tries
from tests.formats import WRITERS, parsed, write_archive, write_enron, write_maildir, zipped
from tests.processes import peak_of
from tests.queries import plain_connection

# Undated mail is not among them: in an mbox it takes the date of its From_ line.
DATED = b"Date: Tue, 16 Jan 2001 08:%02d:00 -0600\n"
PIECES = table(__file__, "pieces.toml")
ODD = [text.encode(charset) for charset, text in PIECES["mails"]]
MAILS = [each.data for each in islice(messages(WorldConfig(size=1000, seed=3)), 48)]
MAILS += [DATED % number + mail for number, mail in enumerate(ODD[:-2])]
MAILS += [DATED % 59 + mail for mail in ODD[-2:]]


def ingested(name: str, folder: Path) -> tuple[IngestReport, Path]:
    """Ingest the mails from one format, as `art-e ingest --no-filter` does."""
    folder.mkdir()
    expected, write = WRITERS[name]
    path = str(write(folder, MAILS))
    assert detect(path) == expected
    db = folder / "inbox.duckdb"
    return make_inbox(db, open_source(path, expected)), db


# The source of a mail and, in the Hugging Face set, the names of people depend on the format.
OF_EVERY_FORMAT = (
    "SELECT message_id, sent_at, subject, from_address, [x.address for x in to_recipients],"
    " [x.address for x in cc_recipients], [x.address for x in bcc_recipients], body,"
    " content_digest FROM emails ORDER BY email_id",
    "SELECT address, email_id, role FROM parties JOIN addresses USING (address_id)",
    "SELECT message_id, email_id FROM aliases",
)


def stored(db: Path) -> list[list[tuple[Any, ...]]]:
    with plain_connection(db) as connection:
        return [connection.execute(statement).fetchall() for statement in OF_EVERY_FORMAT]


@pytest.fixture(scope="module")
def of_eml(tmp_path_factory: pytest.TempPathFactory) -> tuple[IngestReport, Path]:
    return ingested("eml", tmp_path_factory.mktemp("formats") / "eml")


@pytest.mark.parametrize("name", [name for name in WRITERS if name != "eml"])
def test_all_formats_agree(name: str, of_eml: tuple[IngestReport, Path], tmp_path: Path) -> None:
    report, db = ingested(name, tmp_path / "mail")
    # Other files are counted.
    others = report.counts["not_mail"].get("other-file", 0)
    assert others == {"eml.zip": 4, "maildir": 2, "mbox.zip": 2, "mbox.tgz": 2}.get(name, 0)
    # A Hugging Face set has no attachments.
    same = {"not_mail": {}} | ({"attachments": 0, "unread": {}} if name == "parquet" else {})
    assert {**report.counts, **same} == {**of_eml[0].counts, **same}
    assert (report.counts["read"], report.counts["stored"]) == (len(MAILS), len(MAILS) - 1)
    assert stored(db) == stored(of_eml[1])


def opened(path: Path, name: Format) -> list[RawMessage]:
    return list(open_source(str(path), name))


def sources(path: Path, name: Format) -> list[str]:
    return sorted(item.source for item in opened(path, name))


def refusal(path: Path, name: Format) -> str:
    """Return the error for a source that can't be read."""
    return the_error(opened, path, name)


def test_sources_are_relative_to_the_given_path(tmp_path: Path) -> None:
    archive = write_archive(tmp_path, MAILS)
    of_folder = sources(tmp_path / "maildir", "enron")
    assert of_folder[0] == "maildir/owner-0/inbox/0."
    assert sources(tmp_path, "enron") == sources(archive, "enron") == of_folder
    owner = sources(tmp_path / "maildir" / "owner-1", "enron")
    assert owner == [source for source in of_folder if source.startswith("maildir/owner-1/")]
    maildir = sources(write_maildir(tmp_path, MAILS), "maildir")
    assert {"new/0.host", ".Sent/cur/1.host", "Lists/cats/cur/5.host"} <= set(maildir)


def test_a_maildir_that_changes_is_read(tmp_path: Path) -> None:
    """Mails are flagged, moved to `cur` and deleted between listing and reading."""
    mails = tmp_path / "mail"
    for place, numbers in (("cur", (0, 2, 4)), ("new", (1, 3, 5)), ("tmp", (6,))):
        (mails / place).mkdir(parents=True)
        for number in numbers:
            (mails / place / f"{number}.host").write_bytes(raw(f"<{number}@t>").data)
    read = open_source(str(mails), "maildir")
    items = [next(read)]  # 0 in cur
    (mails / "cur/2.host").rename(mails / "cur/2.host:2,FS")
    (mails / "cur/4.host").unlink()
    items += [next(read) for _ in range(3)]  # up to 1 in new
    (mails / "new/3.host").rename(mails / "cur/3.host:2,S")
    (mails / "new/5.host").unlink()
    items += read
    names = [f"{place}.host" for place in "cur/0 cur/2 cur/4 new/1 new/3 new/5 tmp/6".split()]
    assert [each.source for each in items] == names
    faults = [each.source for each in items if isinstance(each, RawMessage) and each.fault]
    assert faults == [names[2], *names[5:]]
    assert isinstance(items[1], RawMessage) and "starred" in items[1].labels
    assert make_inbox(tmp_path / "inbox.duckdb", items).counts["quarantined"] == {"gone": 2}


def test_other_files_are_counted_and_links_not_followed(tmp_path: Path) -> None:
    # A file is read up to the limit of the parser.
    with (tmp_path / "huge.eml").open("wb") as sparse:
        sparse.truncate(LARGEST_MESSAGE * 20)
    [item] = opened(tmp_path / "huge.eml", "eml")
    assert isinstance(item, RawMessage) and len(item.data) == LARGEST_MESSAGE + 1
    root = write_enron(tmp_path, MAILS)
    (root / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
    (root / "loop").symlink_to(root)
    (root / "owner-0" / "link.").symlink_to(root / "owner-0" / "inbox" / "0.")
    archive = tmp_path / "mail.tar"
    with tarfile.open(archive, "w") as file:
        file.add(root, "maildir")
    assert len(sources(root, "enron")) == len(MAILS) + 1
    assert sources(archive, "enron") == sources(root, "enron")


def test_mbox_gives_bodies_dates_and_sources(tmp_path: Path) -> None:
    (tmp_path / "box.mbox").write_bytes(
        b"From ann@x.com Fri Jan 12 09:30:00 2001\r\nSubject: one\r\n\r\nFrom then, at 9:30 in 2001"
        b" we\r\nwent on.\r\n>From here\r\n>>From deeper\r\n\r\n"
        b"From - Mon Apr 03 12:00:00 +0200 2017\nX-Gmail-Labels: Inbox\nSubject: two\n\nbody\n\n"
        b"From someone\n"
    )
    items = opened(tmp_path, "mail")
    assert [item.source for item in items] == ["box.mbox#1", "box.mbox#2"]
    one, two = map(parsed, items)
    assert one.body == "From then, at 9:30 in 2001 we\nwent on.\nFrom here\n>From deeper"
    assert (one.sent_at, one.utc_offset) == (dt.datetime(2001, 1, 12, 9, 30), 0)
    assert (two.body, two.utc_offset) == ("body\n\nFrom someone", 120)
    assert two.sent_at == dt.datetime(2017, 4, 3, 10)


def test_csv_fields_may_have_any_length_and_bytes(tmp_path: Path) -> None:
    file = tmp_path / "emails.csv"
    text = io.StringIO(newline="")
    long_row = ["Subject: long\n\n" + "x" * 300_000, "", "a/1."]
    latin_row = ["Subject: caf\udce9\r\n\r\nx", "", ""]
    csv.writer(text).writerows([["message", "other", "file"], long_row, latin_row, []])
    file.write_bytes(lzma.compress(text.getvalue().encode("utf-8", "surrogateescape")))
    assert detect(str(file)) == "csv"
    long, latin, empty = opened(file, "csv")
    assert long == RawMessage("a/1.", b"Subject: long\n\n" + b"x" * 300_000)
    assert latin == RawMessage("emails.csv#2", b"Subject: caf\xe9\r\n\r\nx")
    assert empty == RawMessage("emails.csv#3", b"")


def test_all_splits_of_hub_sets_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {
        "message_id": "<1@x>", "subject": None, "from": "a@x.com", "to": ["b@x.com", None],
        "cc": None, "bcc": None, "date": "2001-01-12T09:30:00Z", "body": "x", "file_name": None,
    }  # fmt: skip
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: {"train": [row], "test": [row]})
    assert detect("owner/mail") == "hf"
    first, second = open_source("owner/mail", "hf")
    assert (first.source, second.source) == ("owner/mail#1", "owner/mail#2")
    mail = parsed(first)
    assert (mail.subject, [box.address for box in mail.to], mail.cc) == ("", ["b@x.com"], ())
    assert mail.sent_at == dt.datetime(2001, 1, 12, 9, 30)
    error = ConnectionError("Couldn't reach 'owner/mail' on the Hub\n(offline)")
    monkeypatch.setattr(datasets, "load_dataset", mock.Mock(side_effect=error))
    line = refusal(Path("owner/mail"), "hf")
    assert re.search("owner/mail.*offline.*check the name and the network", line)


def test_synthetic_sources_have_options() -> None:
    assert detect("synthetic:5000") == "synthetic"
    config = WorldConfig(5000, 3, short=True, vocabulary=800, names=4, stories="travel+project")
    text = "synthetic:5_000,seed=3,short,vocabulary=800,names=4,stories=travel+project"
    assert world_of(text) == config
    for text in ("", "many", "10,seed", "10,tall", "10,split", "10,split=dev"):
        assert "synthetic:SIZE" in the_error(world_of, f"synthetic:{text}")
    questions = questions_of("synthetic:1000,seed=2")
    held_out = questions_of("synthetic:1000,seed=2,split=validation")
    assert {each.split for each in questions} == {"train", "validation", "test"}
    assert {each.split for each in held_out} == {"validation"}
    assert [each.id for each in held_out] == [each.id for each in questions]


def test_formats_are_detected_by_content(tmp_path: Path) -> None:
    (tmp_path / "mail.csv").write_bytes(b"From a@x Fri Jan 12 09:30:00 2001\nSubject: s\n\nx\n")
    assert detect(f"{tmp_path}/mail.csv") == "mail"
    message = tmp_path / "1."
    message.write_bytes(b"X-Odd: 1\r\nSubject: s\r\n\r\nx\n")
    assert detect(str(message)) == "mail"
    (tmp_path / "notes" / "more").mkdir(parents=True)
    for name in ("notes/a.txt", "notes/more/1"):
        (tmp_path / name).write_text("Dear diary")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "old.mac").write_bytes(b"\xff\0one\rtwo\r")
    with tarfile.open(tmp_path / "photos.tar", "w") as file:
        file.add(message, "photos/one.jpg")
    formats = "--format mail|mbox|maildir|eml|enron|csv|hf|imap|synthetic"
    names = ("notes", "notes/a.txt", "photos.tar", "old.mac", "empty")
    for name, advice in {**dict.fromkeys(names, formats), "no/where/": "no file or f"}.items():
        assert advice in the_error(detect, f"{tmp_path}/{name}")


@pytest.mark.parametrize("name", ["enron", "maildir", "mbox", "eml", "csv", "hf"])
def test_missing_empty_and_irregular_sources_are_errors(name: Format, tmp_path: Path) -> None:
    assert "no file or folder" in refusal(tmp_path / "nowhere", name)
    empty, folder = tmp_path / "empty", tmp_path / "folder"
    empty.write_bytes(b"") if name == "csv" else empty.mkdir()
    assert str(empty) in refusal(empty, name)
    folder.mkdir()
    (folder / "1.eml").write_bytes(raw().data)
    os.mkfifo(folder / "2.eml")
    for path in (str(folder / "2.eml"), "/dev/zero"):
        assert "nor a folder: save" in the_error(open_source, path, name)
        assert "nor a folder: save" in the_error(detect, path)
    assert len(opened(folder, "eml")) == 1


def parquet(columns: dict[str, Any], compression: str = "snappy") -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, compression=compression)
    return buffer.getvalue()


def with_byte(data: bytes, byte: int, *places: int) -> bytes:
    changed = bytearray(data)
    for place in places:
        changed[place] = byte
    return bytes(changed)


FROM = b"From a@x Mon Apr 03 12:00:00 2017\n"
ZIP = zipped({"Mail/All.mbox": FROM + b"Subject: s\n\nx\n"})
DIRECTORY = b"PK\1\2"
CSV = b"file,message\n"


@pytest.mark.parametrize(
    ("name", "data", "advice"),
    [
        ("enron", b"\xfd7zXZ\0" + b"nonsense" * 100, "damaged .* again"),
        ("mbox", ZIP[:-30], "damaged .* again"),
        ("mbox", with_byte(ZIP, 1, ZIP.index(DIRECTORY) + 8), "is encrypted; unpack it"),
        ("csv", CSV + b'a/1.,"Subject: s\n\nhalf a mes', "cut off .*unexpected end of data"),
        ("csv", CSV + b'a/1.,"one"\na/2.,"broken" quote"\na/3.,"three"\n', "expected after"),
        ("csv", CSV + b'a/1.,"one"\na/2.', "the last row lacks columns"),
        ("csv", b"number\n1\n", "lacks the columns file and message"),
        ("hf", b"PAR1" + b"nonsense" * 20, "isn't readable Parquet.* again"),
        ("hf", parquet({"subject": ["s"]}), "lacks the columns message_id, from"),
    ],
)
def test_damaged_files_are_not_read(name: Format, data: bytes, advice: str, tmp_path: Path) -> None:
    (tmp_path / "mail").write_bytes(data)
    assert re.search(advice, refusal(tmp_path / "mail", name))


def test_archives_must_not_be_zip_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, alone = tmp_path / "mail.zip", tmp_path / "mail.mbox.xz"
    mail = b"Subject: s\n\n" + b"x" * 1_000_000
    file.write_bytes(zipped({"a.eml": mail}, 60))
    assert "overlap" in refusal(file, "eml")
    file.write_bytes(zipped({f"{number}.eml": mail for number in range(10)}))
    assert len(opened(file, "eml")) == 10
    alone.write_bytes(lzma.compress(FROM + b"x" * 10_000_000))
    assert len(opened(alone, "mbox")) == 1
    monkeypatch.setattr(archives, "_ALWAYS_FINE", 1_000_000)
    bound = "unpacks to over 200 times its size"
    assert bound in refusal(file, "eml") and bound in refusal(alone, "mbox")


def bomb(count: int, size: int) -> bytes:
    """Return a small Parquet file with `count` mails of the same body of `size` characters."""
    body = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), ["a" * size])
    columns = dict.fromkeys(("message_id", "subject", "from", "to", "date"), ["x"] * count)
    return parquet({**columns, "body": body}, "zstd")


def long_directory(count: int) -> bytes:
    """Return a zip whose directory lists `count` empty files that it doesn't contain."""
    directory = zipped({"0000000.eml": b""}).partition(DIRECTORY)[2]
    entry = DIRECTORY + directory[: 46 - len(DIRECTORY)]
    entries = b"".join(entry + b"%07d.eml" % number for number in range(count))
    counts = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, len(entries), 4)
    place = struct.pack("<4sLQL", b"PK\6\7", 0, 4 + len(entries), 1)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, *[0xFFFF] * 2, *[0xFFFFFFFF] * 2, 0)
    return ZIP[:4] + entries + counts + place + end


def opened_alone(path: Path, name: Format) -> tuple[str, float, int]:
    """Return the error for a file, and the seconds and kilobytes that it took this new process."""
    started, before = time.process_time(), peak_of("self")
    line = refusal(path, name)
    return line, time.process_time() - started, peak_of("self") - before


@pytest.mark.fire
@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited on Linux")
@pytest.mark.parametrize(
    ("form", "packed"),
    [
        ("hf", partial(bomb, 2_000, tries(2_000_000, 20_000_000))),
        pytest.param("hf", partial(bomb, 1, 1_500_000_000), marks=pytest.mark.long),
        pytest.param("eml", partial(long_directory, 2_000_000), marks=pytest.mark.long),
    ],
    ids=["many bodies", "one body", "a directory"],
)
def test_gigabytes_are_refused(form: Format, packed: Callable[[], bytes], tmp_path: Path) -> None:
    (tmp_path / "mail").write_bytes(packed())
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        line, seconds, kilobytes = pool.submit(opened_alone, tmp_path / "mail", form).result()
    assert "unpacks to more than ingest's memory limit" in line
    assert seconds < 30 and kilobytes < 500_000


def test_unreadable_zip_entries_are_quarantined(tmp_path: Path) -> None:
    file = tmp_path / "mail.zip"
    data = zipped({name: raw(f"<{name}>").data for name in ("a.eml", "b.eml")})
    deflate64 = 9
    file.write_bytes(with_byte(data, deflate64, 8, data.index(DIRECTORY) + 10))
    report = make_inbox(tmp_path / "i", open_source(str(file), detect(str(file))))
    assert report.counts["quarantined"] == {"unread": 1}
    assert report.counts["stored"] == 1


# ---- Tar: every file of an archive is read, and all damage is reported.

TAR_FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
LISTED = [("b", tarfile.REGTYPE, 6_000), ("dir", tarfile.DIRTYPE, 0), ("link", tarfile.SYMTYPE, 0)]
LISTED += [("caf\u00e9", tarfile.REGTYPE, 0), ("c", tarfile.AREGTYPE, 512)]


def archive(listed: list[tuple[str, bytes, int]], form: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as file:
        for name, kind, size in listed:
            member = tarfile.TarInfo(name)
            member.type, member.size, member.linkname = kind, size, "b" * (kind == tarfile.SYMTYPE)
            file.addfile(member, io.BytesIO(b"x" * size))
    return buffer.getvalue()


def tar_files(data: bytes, file: Path) -> list[tuple[str, bytes]]:
    file.write_bytes(data)
    return [(name, take(5_000)) for name, take in tar_members(file)]


@pytest.mark.parametrize("form", TAR_FORMATS)
@pytest.mark.parametrize("first", ["a", "d/" * 55 + "x", "d/" * 40 + "caf\udce9"])
def test_a_tar_is_read_whole_or_damage_is_reported(form: int, first: str, tmp_path: Path) -> None:
    data = archive([(first, tarfile.REGTYPE, 100), *LISTED], form)
    sizes = [(first, 100), *((name, size) for name, kind, size in LISTED if kind < b"1")]
    path = tmp_path / "mail.tar"
    assert tar_files(data, path) == [(name, b"x" * min(size, 5_000)) for name, size in sizes]
    starts = {data[at : at + 2]: at for at in range(0, len(data), tarfile.BLOCKSIZE)}
    second, last = starts[b"b\0"], starts[b"c\0"]
    cuts = [0, 100, 600, second + 511, second + 600, second + 6_500, last]
    damaged = [data[:end] for end in cuts]
    for spoil in (b"\0" * tarfile.BLOCKSIZE, b"x"):
        damaged += [data[:at] + spoil + data[at + len(spoil) :] for at in (second, last)]
    if form != tarfile.USTAR_FORMAT:  # a header that would fill the memory
        damaged.append(archive([("n" * 2_000_000, tarfile.REGTYPE, 1)], form))
    for data in damaged:
        with pytest.raises(tarfile.TarError):
            tar_files(data, path)
