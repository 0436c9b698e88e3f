"""Reads Outlook's .msg files (MS-OXMSG): streams of properties in, an Internet message out."""

import datetime as dt
import io
import re
from email import message_from_bytes
from email.message import Message
from email.mime.application import MIMEApplication
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText
from email.utils import format_datetime

import olefile
from compressed_rtf import decompress
from striprtf.striprtf import rtf_to_text

from data_pipeline.ingest.charsets import decode_bytes

MAGIC = bytes.fromhex("d0cf11e0a1b11ae1")
_NTFS_EPOCH, _LAST_TICK = dt.datetime(1601, 1, 1, tzinfo=dt.UTC), 26 * 10**17  # ticks: 100 ns
# MIME fields of the original headers, which are replaced because the parts are written again.
_MIME_FIELD = re.compile(r"^(?:content-[\w-]+|mime-version):.*\n(?:[ \t].*\n)*", re.I | re.M)
_TABLE, _INNER = "__properties_version1.0", "__substg1.0_3701000D/"


def convert_msg(data: bytes) -> bytes:
    """Return the message of a .msg file. Raises any exception if the file is damaged."""
    with olefile.OleFileIO(io.BytesIO(data)) as file:
        streams = {"/".join(path): file.openstream(path).read() for path in file.listdir()}
    return _message(_Item(streams, "", 32), streams)


class _Item:
    """The properties below `place`; numbers are in a table after a header of `skip` bytes."""

    def __init__(self, streams: dict[str, bytes], place: str, skip: int) -> None:
        self._streams, self.place = streams, place
        table = streams.get(place + _TABLE, b"")
        rows = (table[at : at + 16] for at in range(skip, len(table) - 15, 16))
        self.numbers = {int.from_bytes(row[2:4], "little"): row[8:] for row in rows}

    def number(self, tag: int) -> int:
        return int.from_bytes(self.numbers.get(tag, b""), "little")

    def data(self, tag: int, kind: str) -> bytes:
        return self._streams.get(f"{self.place}__substg1.0_{tag:04X}{kind}", b"")

    def text(self, *tags: int) -> str:
        """Return the first of these properties that has text."""
        number = self.number(0x3FFD) or self.number(0x3FDE)
        page = f"cp{number}" if number else ""
        wide = (self.data(tag, "001F").decode("utf-16-le", "replace") for tag in tags)
        narrow = (decode_bytes(self.data(tag, "001E").rstrip(b"\0"), page) for tag in tags)
        return next(filter(None, (*wide, *narrow)), "").strip("\0")

    def party(self, name: int, *addresses: int) -> str:
        """Return a name with its mail address, leaving out the directory paths of Exchange."""
        mail = next((each for tag in addresses if "@" in (each := self.text(tag))), "")
        label = self.text(name).replace('"', "")
        return f'"{label}" <{mail}>' if mail else label

    def below(self, kind: str) -> list["_Item"]:
        """Return the recipients or the attachments."""
        pattern = re.compile(rf"{re.escape(self.place)}__{kind}_version1\.0_#\w+/")
        places = {match[0] for match in map(pattern.match, self._streams) if match}
        return [_Item(self._streams, place, 8) for place in sorted(places)]


def _message(item: _Item, streams: dict[str, bytes]) -> bytes:
    # Exchange writes its own line above the headers.
    lines = filter(re.compile(r"[!-9;-~]+:|[ \t]+\S").match, item.text(0x007D).splitlines())
    head = _MIME_FIELD.sub("", "".join(f"{line}\n" for line in lines))
    fields = {"From": item.party(0x0C1A, 0x5D01, 0x5D02, 0x0C1F, 0x0065)}
    for person in item.below("recip"):
        role = {2: "Cc", 3: "Bcc"}.get(person.number(0x0C15) & 3, "To")
        fields[role] = f"{fields.get(role, '')}, {person.party(0x3001, 0x39FE, 0x3003)}".strip(", ")
    texts = {"Subject": 0x0037, "Message-ID": 0x1035, "In-Reply-To": 0x1042, "References": 0x1039}
    fields |= {name: item.text(tag) for name, tag in texts.items()}
    if 0 < (ticks := item.number(0x0039) or item.number(0x0E06)) < _LAST_TICK:
        fields["Date"] = format_datetime(_NTFS_EPOCH + dt.timedelta(microseconds=ticks // 10))
    for name, text in fields.items():
        if text and not re.search(rf"^{name}:", head, re.I | re.M):
            head += f"{name}: {' '.join(text.split())}\n"
    page = decode_bytes(item.data(0x1013, "0102"), f"cp{item.number(0x3FDE) or 1252}")
    plain, page = item.text(0x1000), item.text(0x1013) or page
    if not (plain or page) and (packed := item.data(0x1009, "0102")):
        plain = rtf_to_text(decompress(packed).decode("latin-1"), errors="replace")
    kinds = {"plain": plain, "html": page}
    bodies = [MIMEText(text, kind, "utf-8") for kind, text in kinds.items() if text]
    files = [_attached(part, streams) for part in item.below("attach")]
    whole = MIMEMultipart(_subparts=[MIMEMultipart("alternative", _subparts=bodies), *files])
    return head.encode("utf-8", "replace") + whole.as_bytes()


def _attached(item: _Item, streams: dict[str, bytes]) -> Message:
    inner = _Item(streams, item.place + _INNER, 24)
    if f"{inner.place}{_TABLE}" in streams:
        return message_from_bytes(b"Content-Type: message/rfc822\n\n" + _message(inner, streams))
    part, kind = MIMEApplication(item.data(0x3701, "0102")), item.text(0x370E)
    if re.fullmatch(r"[\w.+-]+/[\w.+-]+", kind):
        part.replace_header("Content-Type", kind)
    name = " ".join(item.text(0x3707, 0x3704, 0x3001).split())
    part.add_header("Content-Disposition", "attachment", filename=("utf-8", "", name))
    return part
