"""Reads the parts of a mail: encoded text, addresses, dates, the header block, MIME parts.

Mail is hostile: charsets lie, headers are broken, and some would keep `email` busy for minutes."""

import binascii
import codecs
import contextlib
import copy
import datetime as dt
import email.utils
import functools
import itertools
import re
import string
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from email.errors import MissingHeaderBodySeparatorDefect
from email.message import Message
from email.parser import BytesParser
from typing import NamedTuple, TypeAlias, TypeVar

from art_e.inbox.mail import Mailbox
from art_e.text import visible
from data_pipeline.ingest.charsets import SPELLINGS, codec_of, decode_bytes, scrub, strict

# ---- Bytes and strings as clean text.

_NOT_BASE64 = bytes(set(range(256)) - set((string.ascii_letters + string.digits + "+/").encode()))
_BASE64_PIECE = re.compile(rb"[^=]+")
_LONGEST_CACHED = 400  # characters
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")

# A soft break at the usual width of quoted-printable, not a rule of "=====".
_SOFT_BREAK = re.compile(r"^(?=.{40,77}$).*(?:[^=\n]|=[0-9A-F]{2})=$", re.MULTILINE)
_SURE_ESCAPE = re.compile(r"=3D|=20$", re.MULTILINE)
_UTF8_ESCAPE = re.compile(r"=(?:[CD][0-9A-F]|E[0-9A-F]=[89AB][0-9A-F])=[89AB][0-9A-F]")
# What encoders must escape: "=", white space at a line's end, bytes over 127. Other
# hexadecimal digits after "=" are mostly parts of URLs.
_ESCAPE = "=(?:3D|20|09|[89A-F][0-9A-F])"
# Begin with a fixed character: that makes the search four times as fast.
_ESCAPES = re.compile(f"{_ESCAPE}(?:{_ESCAPE})*")
_T = TypeVar("_T")


def cached_if_short(function: Callable[[str], _T]) -> Callable[[str], _T]:
    """Cache a function's results for short strings; hostile long ones would fill the memory."""
    cached = functools.lru_cache(maxsize=8192)(function)
    return lambda text: cached(text) if len(text) <= _LONGEST_CACHED else function(text)


def one_line(text: str) -> str:
    """Return `text` without control characters, and with one space for each run of white space."""
    if not (text.isascii() and text.isprintable()):
        text = scrub(_CONTROL.sub("", text))
    return " ".join(text.split())


def tidy(text: str) -> str:
    """Return a body as it is stored: "\\n" line ends, no blanks there, no blank lines around."""
    text = scrub(text)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return "\n".join(map(str.rstrip, text.split("\n"))).strip("\n")


def without_stray_quoted_printable(text: str) -> str:
    """Decode quoted-printable that a mailer left in a body it declared plain. The evidence is two
    letters of UTF-8, or two soft line breaks and two unmistakable escapes ("=3D", or "=20" at a
    line's end). A body is often only partly quoted-printable, and `?id=27946744` must survive."""
    if "=" not in text:
        return text
    checks = [(_UTF8_ESCAPE,), (_SURE_ESCAPE, _SOFT_BREAK)][: 2 if text.count("=\n") > 1 else 1]
    if not any(all(len(form.split(text, 2)) == 3 for form in check) for check in checks):
        return text
    # A soft break separates two runs of escapes, so remove it after decoding them.
    text = _ESCAPES.sub(
        lambda match: decode_bytes(bytes.fromhex(match[0].replace("=", ""))),
        text.replace("=\n", "\0"),
    )
    return text.replace("\0", "")


def unbase64(data: bytes) -> bytes:
    """Decode base64 of any length, in one piece or in several padded pieces."""
    pieces = (piece[0].translate(None, _NOT_BASE64) for piece in _BASE64_PIECE.finditer(data))
    # A single leftover character has only six bits.
    whole = (piece[: len(piece) - (len(piece) % 4 == 1)] for piece in pieces)
    return b"".join(binascii.a2b_base64(piece + b"=" * (-len(piece) % 4)) for piece in whole)


# ---- Address headers as mailboxes.

_PLAIN = r"[^\s<>@,;:\"()\\\[\]]+@[^\s<>@,;:\"()\\\[\]]+"
# `a@x` or `Name <a@x>`; the name of a sender may have commas, as From is one mailbox.
_ITEM = re.compile(rf"(?:([^<>@]*)(<))?\s*+({_PLAIN})\s*+(?(2)>\s*+)")
_NEEDS_GRAMMAR = re.compile(r"[\"();:\\\[\]]")  # quoted names, comments, groups, domain literals
_LIST_ITEM = re.compile(r'(?:"[^"]*+"|[^",;])++')  # possessive: it can't backtrack
_NO_NAME = re.compile(r"@|^/|:")
_DIRT = re.compile(r"[\s\x00-\x20\x7f-\xa0<>\"]+")
_LONGEST_GRAMMAR = 200_000  # `email.utils` is too slow for longer values: addresses are picked out

# Notes and Exchange append to a name: "/HOU/ECT@ECT", "@ENRON", " AT ENRON_DEVELOPMENT@CCMAIL".
_DIRECTORY_PATH = re.compile(r"/[^/@]*(?:/[^@]*)?@.*$|/[^/@\s]+/[^@]*$")
_DIRECTORY_DOMAIN = re.compile(r"(?: AT [A-Za-z_]+)?@[A-Za-z_]+\s*$")

# Newer Pythons refuse odd lists in their strict mode; the lenient one is the same everywhere.
_LENIENT = {"strict": False} if getattr(email.utils, "supports_strict_parsing", False) else {}


def mailboxes(values: Iterable[str]) -> list[Mailbox]:
    """Return the mailboxes of address headers (unfolded values), in order; bare names come last.
    Reads RFC 2822 with groups, comments, quoted and encoded names, or anything like an address."""
    return [box for value in values if value for box in _listed(value)]


@cached_if_short
def _listed(value: str) -> Sequence[Mailbox]:
    items = [_simple_item(item) for item in value.split(",")]
    boxes = simple = [] if None in items else [box for item in items for box in item or ()]
    if not simple and ("@" in value or "=?" in value):
        boxes = _grammar_list(value)
    if len(simple) < len(items):
        boxes = [*boxes, *_names_alone(value)]
    return boxes


def _names_alone(value: str) -> Iterator[Mailbox]:
    """Yield the people that Exchange names by a directory path, or by name only."""
    items = [item.strip() for item in _LIST_ITEM.findall(value)]
    for item, after in itertools.pairwise([*items, ""]):
        name, _, path = item.partition("<")
        is_quoted = item.startswith('"') or path.startswith("/")
        # "Van Dyke, Dick <d@x.com>" is one person.
        is_bare = " " in item and not path and "=?" not in item
        is_name = is_bare and (after.startswith('"') or "<" not in after)
        if (is_quoted or is_name) and not _NO_NAME.search(item) and (name := _clean_name(name)):
            yield Mailbox("", name)


def sender_mailbox(value: str, directory_name: str = "") -> Mailbox:
    """Return the first mailbox of a From header; without any address its text is the name.
    `directory_name` (Enron's X-From) gives the name if From has none."""
    sender = _first_mailbox(value)
    if sender.name or not directory_name:
        return sender
    return Mailbox(sender.address, _readable_name(directory_name))


@cached_if_short
def _first_mailbox(value: str) -> Mailbox:
    item = None if '"' in value else _ITEM.fullmatch(value)
    boxes = [_mailbox(item[1], item[3])] if item else mailboxes([value])
    return boxes[0] if boxes else Mailbox("", _clean_name(value.partition("<")[0] or value))


@cached_if_short
def _readable_name(directory_name: str) -> str:
    """Return the name in an X-From header, without address, directory path and quotes."""
    name = visible(decode_words(directory_name)).partition("<")[0][:1_000]
    name = name.replace("\\", "").replace('"', "").strip().strip("'").strip()
    name = _DIRECTORY_DOMAIN.sub("", _DIRECTORY_PATH.sub("", name)).strip(" \"'")
    return "" if "@" in name else name


@cached_if_short
def _simple_item(item: str) -> tuple[Mailbox, ...] | None:
    """Return the mailbox of an item, () if it has none, None if it needs the grammar."""
    if _NEEDS_GRAMMAR.search(item):
        return None
    if not (simple := _ITEM.fullmatch(item)):
        return None if "@" in item else ()
    box = _mailbox(simple[1], simple[3])
    return (box,) if box.address else ()


def _grammar_list(value: str) -> list[Mailbox]:
    pairs: list[tuple[str, str]] = []
    if len(value) <= _LONGEST_GRAMMAR:
        with contextlib.suppress(ValueError, IndexError, TypeError, RecursionError):
            pairs = email.utils.getaddresses([value], **_LENIENT)
    boxes = [_mailbox(name, address) for name, address in pairs]
    if not any(box.address for box in boxes) or any(re.search("[,<>]", each) for _, each in pairs):
        # Whole entries inside an encoded word, unbalanced quotes and brackets.
        texts = re.split(r"[\s<>,;:\"()\\\[\]]+", decode_words(value))
        boxes = [_mailbox("", text) for text in texts if "@" in text]
    return [box for box in boxes if box.address]


def _mailbox(name: str | None, address: str) -> Mailbox:
    if "=?" in address and "@" in address:
        address = decode_words(address)
    address = _DIRT.sub("", visible(address)).strip("'`,;:").rstrip(".").lower()
    local, _, domain = address.rpartition("@")
    return Mailbox(address if local and domain else "", _clean_name(name) if name else "")


def _clean_name(name: str) -> str:
    name = decode_words(name).strip()
    if len(name) > 1 and name[0] == name[-1] and name[0] in "\"'":
        name = name[1:-1]
    return visible(one_line(name.strip('"')))


# ---- Dates of mail: RFC 2822 with all its dialects, ISO 8601, and which of several to believe.

_PLAUSIBLE_YEARS = range(1981, 2101)  # earlier dates come from clocks that were never set
_POSSIBLE_YEARS = range(1970, 2101)  # accepts placeholders such as 1979 if no date is better

_FURTHEST_ZONE = dt.timedelta(hours=14)  # UTC+14, the zone of Kiribati's Line Islands
_END_OF_DAY = dt.timedelta(days=1, seconds=-1)
_COMMENT = re.compile(r"\([^()]*\)")
_NUMBERS = [re.compile(form) for form in SPELLINGS["dates"].values()]
_PLAIN_DATE, _ISO, _CLOCK, _OFFSET = map(re.compile, SPELLINGS["times"].values())
_MONTHS = [f"{name.lower()} {more}".split() for name, more in SPELLINGS["months"].items()]
_MONTH = {start: number for number, starts in enumerate(_MONTHS, 1) for start in starts}
_CLOCKS_DIFFER = dt.timedelta(days=1)  # at most; a mail can't be newer than its arrival
_ARRIVALS = ("delivery-date", "x-originalarrivaltime", "resent-date")


def parse_date(text: str) -> dt.datetime | None:
    """Return the date in `text`, if any, in its zone; UTC if the zone is missing or over 14 h."""
    text = text.strip()[:200]  # characters; a hostile value may have a million
    with contextlib.suppress(ValueError):
        if plain := _PLAIN_DATE.fullmatch(text):
            day, month, year, time, zone = plain.groups()
            number = _MONTH[month.lower()]
            return dt.datetime.fromisoformat(f"{year}-{number:02}-{day:0>2}T{time}{zone}")
        if _ISO.match(text):
            return with_zone(dt.datetime.fromisoformat(text))
    while _COMMENT.search(text):  # comments nest
        text = _COMMENT.sub(" ", text)
    with contextlib.suppress(ValueError, OverflowError):
        return with_zone(_by_parts(decode_words(text)))
    return None


def _by_parts(text: str) -> dt.datetime:
    """Return a date in any order and language. Raises ValueError if it has no month, day or year.
    (`email` takes an unknown zone for UTC, and "+1" for a minute.)"""
    text = unicodedata.normalize("NFKC", text).lower()
    text = re.sub("[a-z]+", lambda word: SPELLINGS["zones"].get(word[0], word[0]), text)
    date = next(filter(None, (form.search(text) for form in _NUMBERS)), None)
    text = text.replace(date[0], " ") if date else text
    clock, text = _CLOCK.search(text), _CLOCK.sub(" ", text, count=1)
    offset, text = _OFFSET.search(text), _OFFSET.sub(" ", text)
    if date:
        year, month, day = (int(date[part]) for part in ("year", "month", "day"))
    else:
        words = re.findall(r"[^\W\d_]+", text)
        starts = (_MONTH.get(word[:4]) or _MONTH.get(word[:3]) for word in words)
        month, (day, year) = next(filter(None, starts), 0), map(int, re.findall(r"\d+", text)[:2])
        year += 1900 if 69 <= year < 200 else 2000 if year < 69 else 0  # C counts from 1900
    hour, minute, second = (int(clock[at] or 0) for at in (2, 3, 4)) if clock else (0, 0, 0)
    if clock and (half := clock[1] or clock[5]):
        hour = hour % 12 + (0 if half == "a" else 12)
    # datetime has no leap seconds; 25:00 counts as the end of the written day.
    time = dt.timedelta(hours=hour, minutes=minute, seconds=min(second, 59))
    local = dt.datetime(year, month, day) + min(time, _END_OF_DAY)
    zone = dt.timedelta()
    if offset:
        zone = dt.timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0))
    if zone > _FURTHEST_ZONE:
        return local
    return local.replace(tzinfo=dt.timezone(-zone if offset and offset[1] == "-" else zone))


def with_zone(date: dt.datetime) -> dt.datetime | None:
    """Return `date` to the second; naive dates count as UTC. None if it may not exist in UTC."""
    date = date.replace(microsecond=0, tzinfo=date.tzinfo or dt.UTC)
    return date if dt.MINYEAR < date.year < dt.MAXYEAR else None


def most_plausible(*candidates: dt.datetime | None) -> dt.datetime | None:
    """Return the first candidate of a plausible year, else the first of a possible one, or None."""
    years = (_PLAUSIBLE_YEARS, _POSSIBLE_YEARS)
    dates = [date for date in candidates if date is not None]
    return next((d for span in years for d in dates if d.astimezone(dt.UTC).year in span), None)


def sent_date(headers: "Headers", envelope_date: dt.datetime | None) -> dt.datetime | None:
    """Return a mail's Date, or another date if that is absurd or after the newest Received."""
    date = next(filter(None, map(parse_date, headers.every("date"))), None)
    today = dt.datetime.now(dt.UTC) + _CLOCKS_DIFFER
    received = map(parse_date, (value.rpartition(";")[2] for value in headers.every("received")))
    dates = [each for each in received if each and each.year in _PLAUSIBLE_YEARS and each < today]
    latest = dates[0] + _CLOCKS_DIFFER if dates else today  # servers add Received on top
    if date and date.year in _PLAUSIBLE_YEARS and date < latest:
        return date
    arrived = map(parse_date, map(headers.first, _ARRIVALS))
    return most_plausible(*dates, envelope_date and with_zone(envelope_date), *arrived, date)


# ---- The header block of a message: repaired, parsed by `email`, decoded.

_LONGEST_VALUE = 1_000_000  # longer ones are cut: 880 recipients take 60,000 characters
_LARGEST_BLOCK = 1_000_000  # bytes of a header block; the rest belongs to the body
# `email` takes 100 bytes for a line, 1,000 for a part; containers with more are read as text.
_MAX_LINES, _MAX_PARTS = 1_000_000, 20_000

_BLANK_LINE = re.compile(rb"\n\r?\n")
_NAME = rb"[!-9;-~]+[ \t]*:"
# A line that is neither a header nor indented (nor the block's end). Names start with a
# letter here: "9:40 to 10:00" is the rest of a subject, not the header "9".
_STRAY_LINE = re.compile(rb"\n(?![A-Za-z][!-9;-~]*[ \t]*:|[ \t]|\Z)")
_ENDING_LINE = re.compile(rb"\n(?!" + _NAME + rb"|[ \t]|\Z)")  # where `email` ends headers
# The From line of an mbox, and the quoted ones of mboxes that it was in before.
_FROM_LINES = re.compile(rb"\A(?:>?From (?!:)[^\n]*\n)+")
_NAME_OF = re.compile(rb"^([!-9;-~]+)[ \t]*:", re.MULTILINE)
# Headers that don't occur in texts: a new one after a stray line proves that the block goes on.
_WELL_KNOWN = frozenset(SPELLINGS["headers"]["known"].encode().split())
# `email` takes quadratic time for the parameters of these headers.
_ENDLESS_PARAMETERS = re.compile(
    rb"^content-(?:type|disposition)[ \t]*:(?:[^\n]|\n[ \t]){20000}", re.IGNORECASE | re.MULTILINE
)
_LONGEST_TYPE, _LONGEST_NAME = 20_000, 200

# One encoded word; broken mailers put blanks into it, "?" into a short one, or leave out its end.
_WORD = re.compile(
    r"=\?([^?\s]{0,60})\?([bBqQ])\?"
    r"(?:([^?\r\n]*+)(?:\?=|\??\Z)|((?:[^?\r\n]|\?(?!=)){0,600})\?=)"
)
_BETWEEN_WORDS = re.compile(r"(?<=\?=)\s+(?==\?[^?\s]{0,60}\?[bBqQ]\?)")

# The first part of a container whose header doesn't name the boundary (RFC 2046: up to 70 long).
_BOUNDARY = re.compile(rb'^--([^\r\n"\\]{0,69}[!-~])[ \t]*+\r?\n(?=content-)', re.I | re.MULTILINE)

_ENCODING = "content-transfer-encoding"
_ENCODINGS = {name: re.compile(form) for name, form in SPELLINGS["encodings"].items()}
_BASE64_LINES = re.compile(rb"(?:[ \t]*+[A-Za-z0-9+/=]*+[ \t\r]*+(?:\n|\Z))*+")
_BASE64_LINE = re.compile(rb"^[A-Za-z0-9+/]{60}", re.MULTILINE)
_MIN_READABLE = 16  # bytes: fewer may read as text by chance
BINARY = re.compile(rb"[\0-\x08\x0e-\x1a\x1c-\x1f]")

_PARSER = BytesParser()
Part: TypeAlias = "Message[str, str]"


class PartType(NamedTuple):
    """The content of a Content-Type header; `kind` is in lower case, such as "text/plain"."""

    kind: str
    charset: str
    flowed: str = ""  # "flowed" or "delsp": a line with a blank at its end goes on in the next

    @property
    def is_container(self) -> bool:
        return self.kind.startswith(("multipart/", "message/"))

    @property
    def is_html(self) -> bool:
        return self.kind in ("text/html", "application/xhtml+xml")

    @property
    def is_text(self) -> bool:
        # A multipart without a boundary comes from the parser as one text.
        return self.kind.startswith(("text/", "multipart/")) or self.is_html


class Headers:
    """Header fields by lower-case name, in the order of the message. Takes (name, value) pairs as
    `email` gives them: values may be folded and hold bytes over 127 as surrogates, probably in the
    `charset` of the body. `first` and `every` return clean lines; encoded words are not decoded."""

    __slots__ = ("_values", "charset")

    def __init__(self, items: Iterable[tuple[str, str]]) -> None:
        values: dict[str, list[str]] = {}
        for name, value in items:
            values.setdefault(name.lower(), []).append(value)
        self._values, self.charset = values, ""

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def first(self, name: str) -> str:
        return _readable(self.raw(name), self.charset) if name in self._values else ""

    def raw(self, name: str) -> str:
        """Return the first non-empty value of `name` (lower case), as it was sent, else ""."""
        values = self._values.get(name, [""])
        return values[0] or next(filter(None, values), "")

    def every(self, name: str) -> list[str]:
        return [_readable(value, self.charset) for value in self._values.get(name, ())]


def split_at_blank(data: bytes) -> tuple[bytes, bytes]:
    """Return the header block, with LF line ends, and the body, cut at the first blank line."""
    data = _trimmed(data)
    blank = _BLANK_LINE.search(data)
    block = (data[: blank.start()] if blank else data) + b"\n"
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b" ")
    return block, data[blank.end() :] if blank else b""


def split_message(data: bytes) -> tuple[bytes, bytes]:
    """Return the repaired header block, and the body."""
    block, body = split_at_blank(data)
    block = _FROM_LINES.sub(b"", block)
    if len(block) > _LARGEST_BLOCK:
        end = block.rfind(b"\n", 0, _LARGEST_BLOCK) + 1 or _LARGEST_BLOCK
        block, body = block[:end], block[end:] + b"\n" + body
    if stray := _STRAY_LINE.search(block):
        if not _NAME_OF.match(block):
            return b"", _trimmed(data)
        # Indent stray lines before well-known headers, so that they continue a header. Only headers
        # that did not occur before count: a body may start without a blank line and quote "From:"
        # and "Subject:" of another mail.
        first = stray.start() + 1
        seen = {name.lower() for name in _NAME_OF.findall(block, 0, first)}
        names = _NAME_OF.finditer(block, first)
        new = [name.start() for name in names if name[1].lower() in _WELL_KNOWN - seen]
        last = new[-1] if new else 0
        block = _STRAY_LINE.sub(b"\n ", block[:last]) + block[last:]
        if ending := _ENDING_LINE.search(block):
            end = ending.start() + 1
            block, body = block[:end], block[end:] + b"\n" + body
    return _NAME_OF.sub(rb"\1:", block), body


def _trimmed(data: bytes) -> bytes:
    """Return `data` without byte order mark and leading blank lines, with LF in line ends."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        data = decode_bytes(data).encode()
    data = data.lstrip(codecs.BOM_UTF8 + b"\r\n")
    if b"\n" not in data and b"\r" in data:
        data = data.replace(b"\r", b"\n")  # the line ends of an old Macintosh
    return data


def part_type(part: Part) -> PartType:
    """Return the type and charset of a message or MIME part that `email` has parsed."""
    return declared_type(str(part.get("content-type", part.get_default_type())))


@functools.lru_cache(maxsize=1024)
def declared_type(value: str) -> PartType:
    """Return the content of a Content-Type value."""
    part: Part = Message()
    part["Content-Type"] = _readable(value[:_LONGEST_TYPE])
    kind = one_line(part.get_content_type())
    charset = flowed = ""
    with contextlib.suppress(ValueError, LookupError, TypeError):  # RFC 2231 beyond repair
        charset = part.get_content_charset("")
        if str(part.get_param("format")).lower() == "flowed":
            flowed = "delsp" if str(part.get_param("delsp")).lower() == "yes" else "flowed"
    return PartType(kind, charset, flowed)


def encoding_of(part: Part) -> str:
    """Return the transfer encoding of a part; "" if its bytes are not encoded."""
    label = str(part.get(_ENCODING, "")).lower()
    return next((name for name, form in _ENCODINGS.items() if form.search(label)), "")


def part_bytes(part: Part, *, is_text: bool = False) -> bytes:
    """Return the decoded content of a part, however its transfer encoding is spelled."""
    encoding, raw = encoding_of(part), copy.copy(part)
    del raw[_ENCODING]
    raw[_ENCODING] = encoding if encoding == "x-uuencode" else "binary"
    content = raw.get_payload(decode=True)
    return decode_content(content if isinstance(content, bytes) else b"", encoding, is_text=is_text)


def decode_content(data: bytes, encoding: str, *, is_text: bool = True) -> bytes:
    """Return `data` decoded; a text that looks entirely like base64 is base64 whatever its label. A
    list's footer after the base64 of a text is kept as it is."""
    if encoding == "quoted-printable":
        data = binascii.a2b_qp(re.sub(rb"=[ \t]+(?=\r?\n)", b"=", data))
    is_base64 = encoding == "base64"
    if not (is_text and (is_base64 or _BASE64_LINE.match(data))):
        return unbase64(data) if is_base64 else data
    lines = _BASE64_LINES.match(data)
    end = lines.end() if lines else 0
    rest = unbase64(data[end:])
    is_readable = len(rest) >= _MIN_READABLE and not BINARY.search(rest) and strict(rest, "utf-8")
    end = len(data) if is_readable or _BASE64_LINE.search(data, end) else end
    content = unbase64(data[:end])
    one_case = data in (data.lower(), data.upper())  # such as a line of x, or a checksum
    if not is_base64 and (one_case or end < len(data) or BINARY.search(content)):
        return data
    return content + (b"\n" + data[end:] if data[end:] else b"")


def parse_message_tree(message: bytes) -> Part:
    """Return the message as `email` parses it: a MIME tree, or headers and a payload. Only
    containers are parsed whole. Those nested too deeply for `email`, with too many lines or parts,
    or with parameters that would keep it busy for minutes, are read as text."""
    block, body = split_message(message)
    tree = _PARSER.parsebytes(block, headersonly=True)
    is_container = part_type(tree).is_container
    data = block + b"\n" + body if is_container else block
    is_large = data.count(b"\n") > _MAX_LINES or data.count(b"\n--") > _MAX_PARTS
    if (is_container and is_large) or _ENDLESS_PARAMETERS.search(data):
        del tree["content-type"], tree["content-disposition"]
    elif is_container:
        try:
            tree = _PARSER.parsebytes(data)
            if not tree.is_multipart() and (line := _BOUNDARY.search(data)):
                kind = part_type(tree).kind.encode()
                head = b'Content-Type: %b; boundary="%b"\n' % (kind, line[1])
                tree = _PARSER.parsebytes(head + data)
            return tree
        except RecursionError:
            del tree["content-type"]
    del data  # as large as the message
    tree.set_payload(body.decode("ascii", "surrogateescape"))
    return tree


def embedded_message(part: Part, message: Part) -> Part:
    """Return the message in a part, decoded: `email` ignores the part's transfer encoding."""
    encoding = encoding_of(part)
    if message.is_multipart() or (message.keys() and encoding != "quoted-printable"):
        return message
    # A soft break in a header looks to `email` like the end of the headers.
    is_torn = any(isinstance(each, MissingHeaderBodySeparatorDefect) for each in message.defects)
    lines = "".join(f"{name}: {value}\n" for name, value in message.raw_items())
    del message[_ENCODING]
    data = (lines + "\n" * (not is_torn)).encode("ascii", "surrogateescape")
    data = decode_content(data + part_bytes(message), encoding, is_text=False)
    return parse_message_tree(data)


def child_parts(part: Part) -> list[Part]:
    """Return the parts of a container."""
    payload = part.get_payload()
    return [child for child in payload if isinstance(child, Message)] if part.is_multipart() else []


def file_name(part: Part) -> str:
    """Return the name of an attached file, on one line; "" if it has none."""
    headers = Headers(part.raw_items())
    for header, parameter in (("content-disposition", "filename"), ("content-type", "name")):
        field: Part = Message()
        field[header] = headers.first(header)[:_LONGEST_TYPE]
        try:
            options = field.get_params([], header)
        except (ValueError, LookupError, TypeError):  # RFC 2231 parameters beyond repair
            return "unnamed"
        names = [value for key, value in options if key.lower() == parameter]
        # RFC 6266: the plain name is for programs that can't read the other one.
        name = max(names, key=lambda value: isinstance(value, tuple), default="")
        if isinstance(name, tuple):
            name = decode_bytes(name[2].encode("latin-1", "replace"), name[0] or "")
        if name:
            return visible(decode_words(name))[:_LONGEST_NAME]
    return ""


def _readable(value: str, charset: str = "") -> str:
    """Return a raw header value on one line: unfolded, bytes over 127 decoded."""
    value = value[:_LONGEST_VALUE]
    if "\n" in value or "\r" in value:
        lines = value.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        value = " ".join(line.lstrip(" \t") for line in lines)
    if not value.isascii():
        try:
            value = decode_bytes(value.encode("ascii", "surrogateescape"), nearby=charset)
        except UnicodeEncodeError:  # already text, not bytes as surrogates
            value = scrub(value)
    return value.replace("\0", "").strip()


def decode_words(value: str) -> str:
    """Decode RFC 2047 words to one clean line; undecodable ones stay. Adjacent words of one charset
    are joined as bytes first, because mailers cut characters in two."""
    if "=?" not in value:
        return one_line(value)
    value = _BETWEEN_WORDS.sub("", value)
    pieces: list[str] = []
    pending, charset, end = b"", "", 0
    for match in _WORD.finditer(value):
        raw = (match[3] or match[4] or "").encode("utf-8", "replace")
        data = binascii.a2b_qp(raw, header=True) if match[2] in "qQ" else unbase64(raw)
        if raw and not data:
            continue
        word_charset = codec_of(match[1].partition("*")[0])  # RFC 2231 allows "charset*language"
        if match.start() != end or word_charset != charset:
            pieces += [decode_bytes(pending, charset), value[end : match.start()]]
            pending = b""
        pending, charset, end = pending + data, word_charset, match.end()
    pieces += [decode_bytes(pending, charset), value[end:]]
    return one_line("".join(pieces))
