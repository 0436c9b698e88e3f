"""Every source: the same mails from each format, formats found by looking, errors as advice."""

import csv
import datetime as dt
import gzip
import io
import lzma
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from art_e.errors import UserError
from data_pipeline.ingest import sources as mbox
from data_pipeline.ingest import sources as synthetic
from data_pipeline.ingest.detect import detect, open_source
from data_pipeline.ingest.records import (
    LARGEST_MESSAGE,
    Format,
    MailFields,
    ParsedEmail,
    RawMessage,
)
from tests.formats import (
    WRITERS,
    archive_writer,
    parsed,
    write_csv,
    write_enron,
    write_maildir,
    write_mbox,
)

COUNT = 30


def made_mail(number: int) -> bytes:
    """A mail of one of several kinds, as raw bytes."""
    date = dt.datetime(2001, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=31 * number)
    lines = [
        f"Message-ID: <{number}.mail@example.com>",
        f"Date: {date:%a, %d %b %Y %H:%M:%S} -0600 (CST)",
        f"From: person{number % 7}@example.com",
        "To: " + ",\n\t".join(f"reader{reader}@example.com" for reader in range(number % 5 + 1)),
        f"Subject: Plan {number}\n about things",
    ]
    if number % 3 == 0:
        lines += [f"{role}: boss@example.com, reader0@example.com" for role in ("Cc", "Bcc")]
    body = f"Hello {number},\n\nFrom here on it is quoted.\n>From there, too.\n\n\nBye"
    match number % 6:
        case 1:
            lines += ["Content-Type: text/html", ""]
            body = f"<html><body><p>Hello {number}</p>\n<p>From here</p></body></html>"
        case 2:
            lines += ["Content-Type: text/plain; charset=utf-8", ""]
            body += ", café"
        case 3:
            lines += ["Content-Transfer-Encoding: quoted-printable", ""]
            body = f"Soft=\n break {number} caf=C3=A9\n"
        case 4:
            lines += ['Content-Type: multipart/mixed; boundary="b"', ""]
            body = f"--b\n\n{body}\n--b\nContent-Type: image/png; name=a.png\n\nxx\n--b--\n"
        case 5:
            lines += [""]
            body = ""
        case _:
            lines += [""]
    return "\n".join([*lines, body]).encode()


MAILS = [made_mail(number) for number in range(COUNT)]


def content(emails: Sequence[ParsedEmail]) -> list[tuple[object, ...]]:
    """What every format carries of each mail, in an order of its own."""
    return sorted(
        (e.message_id, e.sent_at, e.subject, e.sender.address,
         *([box.address for box in boxes] for boxes in (e.to, e.cc, e.bcc)), e.body)
        for e in emails
    )  # fmt: skip


EXPECTED = content(parsed(iter([RawMessage("x", mail) for mail in MAILS])))


@pytest.mark.parametrize("name", WRITERS)
def test_the_same_mails_from_every_format(name: str, tmp_path: Path) -> None:
    expected_format, write = WRITERS[name]
    path = write(tmp_path, MAILS)
    found = detect(str(path))
    assert found == expected_format
    emails = parsed(open_source(str(path), found))
    assert content(emails) == EXPECTED
    assert len({email.source for email in emails}) == COUNT
    again = parsed(open_source(str(path), found))
    assert [email.source for email in again] == [email.source for email in emails]


def test_enron_sources_are_the_same_from_folder_owner_and_archive(tmp_path: Path) -> None:
    archive = archive_writer("mail.tar.xz")(tmp_path, MAILS)

    def sources(path: Path) -> list[str]:
        return sorted(item.source for item in open_source(str(path), "enron"))

    of_folder = sources(tmp_path / "maildir")
    assert of_folder[0] == "maildir/owner-0/inbox/0."
    assert sources(tmp_path) == sources(archive) == of_folder
    owner = sources(tmp_path / "maildir" / "owner-1")
    assert owner == [source for source in of_folder if source.startswith("maildir/owner-1/")]


def test_enron_files_that_are_no_mail_do_not_vanish_and_links_are_not_followed(
    tmp_path: Path,
) -> None:
    root = write_enron(tmp_path, MAILS)
    (root / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
    (root / "loop").symlink_to(root)
    (root / "owner-0" / "link.").symlink_to(root / "owner-0" / "inbox" / "0.")
    items = list(open_source(str(root), "enron"))
    assert len(items) == COUNT + 1
    archive = tmp_path / "mail.tar"
    with tarfile.open(archive, "w") as file:
        file.add(root, "maildir")
    assert {item.source for item in open_source(str(archive), "enron")} == {
        item.source for item in items
    }


@pytest.mark.parametrize("name", ["mail.tar.xz", "mail.tar.gz", "mail.tar"])
def test_a_cut_archive_is_a_user_error(name: str, tmp_path: Path) -> None:
    archive = archive_writer(name)(tmp_path, MAILS)
    data = archive.read_bytes()
    archive.write_bytes(data[: len(data) * 2 // 3])
    with pytest.raises(UserError, match=r"damaged or cut off .* again") as caught:
        list(open_source(str(archive), "enron"))
    assert "\n" not in str(caught.value)


def test_a_damaged_archive_is_a_user_error(tmp_path: Path) -> None:
    archive = tmp_path / "mail.tar.xz"
    archive.write_bytes(b"\xfd7zXZ\0" + b"nonsense" * 100)
    with pytest.raises(UserError, match="damaged"):
        detect(str(archive))
    with pytest.raises(UserError, match="damaged"):
        list(open_source(str(archive), "enron"))


def test_mbox_bodies_envelopes_and_sources(tmp_path: Path) -> None:
    file = tmp_path / "box"
    file.write_bytes(
        b"From ann@x.com Fri Jan 12 09:30:00 2001\r\nSubject: one\r\n\r\nFrom me to you.\r\n"
        b"From then, at 10:30 in 2001, we\r\nwent on.\r\n>From here\r\n>>From deeper\r\n\r\n"
        b"From - Mon Apr 03 12:00:00 +0200 2017\nX-Gmail-Labels: Inbox\nSubject: two\n\nbody\n\n"
        b"From someone\n"
    )
    items = list(mbox.read_mbox(file))
    assert [item.source for item in items] == ["box#1", "box#2"]
    assert [item.envelope_date for item in items] == [
        dt.datetime(2001, 1, 12, 9, 30),
        dt.datetime(2017, 4, 3, 10),
    ]
    first, second = parsed(iter(items))
    assert first.body == (
        "From me to you.\nFrom then, at 10:30 in 2001, we\nwent on.\nFrom here\n>From deeper"
    )
    assert second.body == "body\n\nFrom someone"
    assert second.sent_at == dt.datetime(2017, 4, 3, 10)


def test_mbox_of_any_layout(tmp_path: Path) -> None:
    folder = tmp_path / "Takeout"
    folder.mkdir()
    for name in ("b.mbox", "a.mbox"):
        (folder / name).write_bytes(b"From a@x Fri Jan 12 09:30:00 2001\nSubject: s\n\nx\n")
    (folder / "archive_browser.html").write_text("<html>")
    assert detect(str(folder)) == "mbox"
    assert [item.source for item in mbox.read_mbox(folder)] == ["a.mbox#1", "b.mbox#1"]


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress])
def test_compressed_mbox_and_csv(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    for write, expected in ((write_mbox, "mbox"), (write_csv, "csv")):
        packed = tmp_path / "packed"
        packed.write_bytes(compress(write(tmp_path, MAILS).read_bytes()))
        found = detect(str(packed))
        assert found == expected
        assert content(parsed(open_source(str(packed), found))) == EXPECTED


def test_maildir_sources_have_no_flags(tmp_path: Path) -> None:
    sources = {item.source for item in open_source(str(write_maildir(tmp_path, MAILS)), "maildir")}
    assert {"new/0.host", ".Sent/cur/1.host", "Lists/cats/cur/5.host"} <= sources


def test_csv_fields_of_any_length_and_bytes(tmp_path: Path) -> None:
    file = tmp_path / "emails.csv"
    text = io.StringIO(newline="")
    rows = csv.writer(text)
    rows.writerow(["message", "other", "file"])
    rows.writerow(["Subject: long\n\n" + "x" * 300_000, "", "a/1."])
    rows.writerow(["Subject: caf\udce9\r\n\r\nx", "", ""])
    rows.writerow([])
    file.write_bytes(text.getvalue().encode("utf-8", "surrogateescape"))
    long, latin, empty = open_source(str(file), detect(str(file)))
    assert isinstance(long, RawMessage)
    assert (long.source, len(long.data)) == ("a/1.", 300_015)
    assert latin == RawMessage("emails.csv#2", b"Subject: caf\xe9\r\n\r\nx")
    assert empty == RawMessage("emails.csv#3", b"")


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ('a/1.,"Subject: s\n\nhalf a mes', "unexpected end of data"),
        ('a/1.,"one"\na/2.,"broken" quote"\na/3.,"three"\n', "expected after"),
        ('a/1.,"one"\na/2.', "the last row lacks columns"),
    ],
)
def test_a_damaged_csv_is_not_read_as_if_it_were_whole(tmp_path: Path, rows: str, why: str) -> None:
    file = tmp_path / "emails.csv"
    file.write_text(f"file,message\n{rows}")
    with pytest.raises(UserError, match=f"damaged or cut off .*{why}"):
        list(open_source(str(file), "csv"))


def test_a_message_file_is_read_no_further_than_needed(tmp_path: Path) -> None:
    file = tmp_path / "huge.eml"
    with file.open("wb") as sparse:
        sparse.write(b"Subject: huge\n\n")
        sparse.truncate(LARGEST_MESSAGE * 20)
    (item,) = open_source(str(file), "eml")
    assert isinstance(item, RawMessage)
    assert len(item.data) == LARGEST_MESSAGE + 1


def test_a_parquet_file_of_another_shape_is_a_user_error(tmp_path: Path) -> None:
    file = tmp_path / "numbers.parquet"
    pq.write_table(pa.table({"subject": ["s"], "number": [1]}), file)
    assert detect(str(file)) == "hf"
    with pytest.raises(UserError, match=r"lacks the columns message_id, from"):
        list(open_source(str(file), "hf"))


def test_damaged_parquet_is_a_user_error(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    file.write_bytes(b"PAR1" + b"nonsense" * 20)
    with pytest.raises(UserError, match="again"):
        list(open_source(str(file), "hf"))


def test_a_hub_set_that_cannot_be_loaded_names_the_ways_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import datasets

    def offline(*_: object, **__: object) -> object:
        raise ConnectionError("Couldn't reach 'owner/mail' on the Hub\n(offline)")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    assert detect("owner/mail") == "hf"
    with pytest.raises(UserError, match=r"owner/mail.*offline.*check the name and the network"):
        list(open_source("owner/mail", "hf"))


def test_hub_sets_are_read_split_by_split(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    row = {
        "message_id": "<1@x>", "subject": None, "from": "a@x.com", "to": ["b@x.com", None],
        "cc": None, "bcc": None, "date": "2001-01-12T09:30:00Z", "body": "x", "file_name": None,
    }  # fmt: skip
    splits = {
        name: datasets.Dataset.from_list([row]).to_iterable_dataset() for name in ("train", "test")
    }
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: splits)
    first, second = open_source("owner/mail", "hf")
    assert isinstance(first, MailFields)
    assert (first.source, second.source) == ("owner/mail#1", "owner/mail#2")
    assert (first.subject, list(first.to), list(first.cc)) == ("", ["b@x.com"], [])
    assert first.date == dt.datetime(2001, 1, 12, 9, 30)


@pytest.mark.parametrize("format_", ["enron", "maildir", "mbox", "eml", "csv"])
def test_missing_and_empty_places_are_user_errors(format_: Format, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no file or folder"):
        open_source(str(tmp_path / "nowhere"), format_)
    empty = tmp_path / "empty"
    if format_ == "csv":
        empty.write_bytes(b"")
    else:
        empty.mkdir()
    with pytest.raises(UserError) as caught:
        list(open_source(str(empty), format_))
    assert "\n" not in str(caught.value)
    assert str(empty) in str(caught.value)


def test_detect_explains_what_it_cannot_tell(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("Dear diary")
    (tmp_path / "none").mkdir()
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(UserError, match=r"--format enron\|maildir\|mbox\|eml\|csv\|hf\|synthetic"):
        detect(str(tmp_path / "notes"))
    with pytest.raises(UserError, match="--format"):
        detect(str(tmp_path / "notes" / "a.txt"))
    with pytest.raises(UserError, match="no files"):
        detect(str(tmp_path / "none"))
    with pytest.raises(UserError, match="empty"):
        detect(str(tmp_path / "empty"))
    with pytest.raises(UserError, match="no file or folder"):
        detect(str(tmp_path / "no" / "where"))


def test_detect_looks_past_misleading_names(tmp_path: Path) -> None:
    box = tmp_path / "mail.csv"
    box.write_bytes(b"From a@x Fri Jan 12 09:30:00 2001\nSubject: s\n\nx\n")
    assert detect(str(box)) == "mbox"
    message = tmp_path / "1."
    message.write_bytes(b"X-Odd: 1\r\nSubject: s\r\n\r\nx\n")
    assert detect(str(message)) == "eml"
    other = tmp_path / "photos.tar"
    with tarfile.open(other, "w") as file:
        file.add(message, "photos/one.jpg")
    with pytest.raises(UserError, match="--format"):
        detect(str(other))


def test_synthetic_sources_are_spelled_out() -> None:
    assert detect("synthetic:5000") == "synthetic"
    config, split = synthetic.described("synthetic:5_000,seed=3,short,vocabulary=800")
    assert (config.size, config.seed, config.short, config.vocabulary) == (5000, 3, True, 800)
    assert split is None
    assert synthetic.described("synthetic:5000,names=4").config.names == 4
    for text in ("", "many", "10,seed", "10,tall", "10,split", "10,split=dev"):
        with pytest.raises(UserError, match="synthetic:SIZE"):
            synthetic.described(f"synthetic:{text}")


def test_a_world_may_be_of_one_split() -> None:
    parted = synthetic.questions_of("synthetic:1000,seed=2")
    assert {each.split for each in parted} == {"train", "validation", "test"}
    held_out = synthetic.questions_of("synthetic:1000,seed=2,split=validation")
    assert {each.split for each in held_out} == {"validation"}
    assert [each.id for each in held_out] == [each.id for each in parted]


def test_the_synthetic_world_is_mail() -> None:
    items = open_source("synthetic:1000,seed=1", "synthetic")
    emails = parsed(item for item, _ in zip(items, range(20), strict=False))
    assert len(emails) == 20
