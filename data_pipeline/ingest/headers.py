"""What mail is made of: bytes and encoded words as text, addresses, dates, the header block.

Mail is hostile: charsets lie, headers are broken, and some would keep `email` busy for minutes.
"""

import binascii
import codecs
import contextlib
import datetime as dt
import email.utils
import functools
import re
from collections.abc import Callable, Iterable
from email.message import Message
from email.parser import BytesParser
from email.policy import compat32
from email.utils import parsedate_tz
from typing import NamedTuple, TypeVar

from art_e.inbox.mail import Mailbox
from art_e.text import visible

# ---- Bytes and strings as clean text.

# Labels that prove nothing: Western mailers write them on all that they send, so 8-bit text
# under them is read as UTF-8 where it is valid UTF-8.
_UNPROVEN = frozenset({"ascii", "iso8859-1", "cp1252"})
# Seven-bit encodings in which plain ASCII bytes do not stand for themselves.
_ESCAPED_SEVEN_BIT = re.compile(r"iso2022|hz|utf-7")
# Codecs of Python that are no charset of any mail (and "decode" escapes or domains).
_NO_CHARSET = frozenset({"unicode-escape", "raw-unicode-escape", "idna", "punycode", "undefined"})
_LONGEST_CACHED = 400  # characters
_CHARSET_NAME = re.compile(r"[A-Za-z0-9][\w.:+-]{0,39}", re.ASCII)

_SURROGATE = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")

# A soft break at the usual width of quoted-printable, not a rule of "=====".
_SOFT_BREAK = re.compile(r"^(?=.{40,77}$).*(?:[^=\n]|=[0-9A-F]{2})=$", re.MULTILINE)
_SURE_ESCAPE = re.compile(r"=3D|=20$", re.MULTILINE)
# What encoders must escape: "=", white space at a line's end, bytes over 127. Other
# hexadecimal digits after "=" are taken for what they mostly are, parts of URLs.
_ESCAPES = re.compile(r"=\n|(?:=(?:3D|20|09|[89A-F][0-9A-F]))+")
_T = TypeVar("_T")


def cached_if_short(function: Callable[[str], _T]) -> Callable[[str], _T]:
    """Remember what a function makes of short strings; hostile long ones don't fill the memory."""
    cached = functools.lru_cache(maxsize=8192)(function)

    @functools.wraps(function)
    def call(text: str) -> _T:
        return cached(text) if len(text) <= _LONGEST_CACHED else function(text)

    return call


@functools.lru_cache(maxsize=1024)
def _codec_name(charset: str) -> str | None:
    """Python's name of the text codec for a declared charset, if it has one."""
    charset = charset.strip().strip("\"'")
    if _CHARSET_NAME.fullmatch(charset):
        with contextlib.suppress(LookupError, ValueError):
            info = codecs.lookup(charset)
            name = info.name.replace("_", "-")
            if getattr(info, "_is_text_encoding", True) and name not in _NO_CHARSET:
                return name
    return None


def decode_bytes(data: bytes, charset: str = "") -> str:
    """Text of `data`: the declared charset if it can be right, else UTF-8, cp1252, Latin-1. ASCII
    bytes are ASCII whatever was declared, unless NUL bytes (UTF-16) or a seven-bit escaping charset
    say otherwise."""
    declared = _codec_name(charset) if charset else None
    if data.isascii() and not (declared and _ESCAPED_SEVEN_BIT.match(declared)):
        wide = declared is not None and declared.startswith(("utf-16", "utf-32"))
        if not (wide and b"\0" in data):
            return data.decode("ascii").replace("\0", "")
    candidates = ["utf-8", "cp1252"]
    if declared and declared not in _UNPROVEN:
        candidates.insert(0, declared)
    for name in candidates:
        with contextlib.suppress(LookupError, ValueError):
            return scrub(data.decode(name))
    return scrub(data.decode("latin-1"))


def scrub(text: str) -> str:
    """`text` without NUL characters; lone surrogates become U+FFFD."""
    if "\0" in text:
        text = text.replace("\0", "")
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def one_line(text: str) -> str:
    """`text` without control characters, each run of white space one space."""
    if not (text.isascii() and text.isprintable()):
        text = scrub(_CONTROL.sub("", text))
    return " ".join(text.split())


def tidy(text: str) -> str:
    """A body as it is stored: "\\n" line ends, no blanks at line ends, no blank lines around."""
    text = scrub(text)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return "\n".join(map(str.rstrip, text.split("\n"))).strip("\n")


def without_stray_quoted_printable(text: str) -> str:
    """Decode quoted-printable that a mailer left in a body it declared plain. It needs two soft
    line breaks and two escapes that nothing else writes ("=3D", or "=20" at a line's end). A body
    is often only partly quoted-printable, and `?id=27946744` must survive."""
    checks = (_SURE_ESCAPE, _SOFT_BREAK)
    if text.count("=\n") < 2 or any(len(each.findall(text)) < 2 for each in checks):
        return text
    return _ESCAPES.sub(
        lambda match: decode_bytes(bytes.fromhex(match[0].strip("\n").replace("=", ""))), text
    )


# ---- Who wrote and who received a mail: address headers made into mailboxes.

_PLAIN = r"[^\s<>@,;:\"()\\\[\]]+@[^\s<>@,;:\"()\\\[\]]+"
_BARE_ITEM = re.compile(rf"\s*({_PLAIN})\s*")
# The name of a sender may have commas: From is one mailbox.
_NAMED_ITEM = re.compile(rf"([^<>@]*)<\s*({_PLAIN})\s*>\s*")
_SEPARATORS = re.compile(r"[\s<>,;:\"()\\\[\]]+")
_JUMBLE = re.compile(r"[,<>]")
_NEEDS_GRAMMAR = re.compile(r"[\"();:\\\[\]]")
_DIRT = re.compile(r"[\s\x00-\x20\x7f-\xa0<>\"]+")
# Beyond this the grammar of `email.utils` takes too long; addresses are picked out instead.
_LONGEST_GRAMMAR = 200_000

# Notes and Exchange tails behind a name: "/HOU/ECT@ECT", "@ENRON", " AT ENRON_DEVELOPMENT@CCMAIL".
_DIRECTORY_PATH = re.compile(r"/[^/@]*(?:/[^@]*)?@.*$|/[^/@\s]+/[^@]*$")
_DIRECTORY_DOMAIN = re.compile(r"(?: AT [A-Za-z_]+)?@[A-Za-z_]+\s*$")

# Newer Pythons refuse odd lists in their strict mode; the lenient one is the same everywhere.
_LENIENT = {"strict": False} if getattr(email.utils, "supports_strict_parsing", False) else {}


def mailboxes(values: Iterable[str]) -> list[Mailbox]:
    """The mailboxes of address headers (unfolded values), in order. RFC 2822 with groups, comments,
    quoted and encoded names; where that grammar finds nothing, anything that looks like an
    address."""
    found: list[Mailbox] = []
    for value in values:
        if "@" in value or "=?" in value:
            items = [_simple_item(item) for item in value.split(",")]
            simple = [] if None in items else [box for item in items for box in item or ()]
            found += simple or _grammar_list(value)
    return found


def sender_mailbox(value: str, directory_name: str = "") -> Mailbox:
    """The first mailbox of a From header; with no address at all its text is the name.
    `directory_name` (Enron's X-From) gives the name where From has none."""
    sender = _first_mailbox(value)
    if sender.name or not directory_name:
        return sender
    return Mailbox(sender.address, _readable_name(directory_name))


@cached_if_short
def _first_mailbox(value: str) -> Mailbox:
    named = _NAMED_ITEM.fullmatch(value)
    if named and '"' not in named[1]:
        first = [_mailbox(named[1], named[2])]
    else:
        first = mailboxes([value])[:1]
    return first[0] if first else Mailbox("", _clean_name(value.partition("<")[0] or value))


@cached_if_short
def _readable_name(directory_name: str) -> str:
    """The name in an X-From header: without address, directory path and quotes."""
    name = visible(decode_words(directory_name)).partition("<")[0][:1_000]
    name = name.replace("\\", "").replace('"', "").strip().strip("'").strip()
    name = _DIRECTORY_PATH.sub("", name)
    name = _DIRECTORY_DOMAIN.sub("", name).strip(" \"'")
    return "" if "@" in name else name


@cached_if_short
def _simple_item(item: str) -> tuple[Mailbox, ...] | None:
    """The mailbox of `a@x` or `Name <a@x>`, if any; None for what needs the grammar."""
    if _NEEDS_GRAMMAR.search(item):
        return None
    if bare := _BARE_ITEM.fullmatch(item):
        box = _mailbox("", bare[1])
    elif named := _NAMED_ITEM.fullmatch(item):
        box = _mailbox(named[1], named[2])
    else:
        return None if "@" in item else ()
    return (box,) if box.address else ()


def _grammar_list(value: str) -> list[Mailbox]:
    pairs: list[tuple[str, str]] = []
    if len(value) <= _LONGEST_GRAMMAR:
        with contextlib.suppress(ValueError, IndexError, TypeError, RecursionError):
            pairs = email.utils.getaddresses([value], **_LENIENT)
    found = [_mailbox(name, address) for name, address in pairs]
    if not any(box.address for box in found) or any(_JUMBLE.search(each) for _, each in pairs):
        # Whole entries inside an encoded word, unbalanced quotes and brackets.
        texts = _SEPARATORS.split(decode_words(value))
        found = [_mailbox("", text) for text in texts if "@" in text]
    return [box for box in found if box.address]


def _mailbox(name: str, address: str) -> Mailbox:
    """A clean mailbox; its address is "" if unusable."""
    if "=?" in address and "@" in address:
        address = decode_words(address)
    address = _DIRT.sub("", visible(address)).strip("'`,;:").rstrip(".").lower()
    local, _, domain = address.rpartition("@")
    if not local or not domain:
        address = ""
    return Mailbox(address, _clean_name(name) if name else "")


def _clean_name(name: str) -> str:
    name = decode_words(name).strip()
    if len(name) > 1 and name[0] == name[-1] and name[0] in "\"'":
        name = name[1:-1]
    return visible(one_line(name.strip('"')))


# ---- Dates of mail: RFC 2822 with all its dialects, ISO 8601, and which of several to believe.

# Mail is older than 1981 only by a clock that was never set.
_PLAUSIBLE_YEARS = range(1981, 2101)
# Placeholders such as Enron's 1979 are kept where nothing better is known.
_POSSIBLE_YEARS = range(1970, 2101)

_FURTHEST_ZONE = dt.timedelta(hours=14)
_COMMENT = re.compile(r"\([^()]*\)")
_ISO = re.compile(r"\d{4}-\d\d-\d\d")


def parse_date(text: str) -> dt.datetime | None:
    """The date in `text`, in its own zone, if there is one. A zone that is missing or further than
    14 hours from UTC counts as UTC."""
    text = text.strip()[:200]
    if not text:
        return None
    try:
        if _ISO.match(text):
            return zoned(dt.datetime.fromisoformat(text))
        while _COMMENT.search(text):  # comments nest
            text = _COMMENT.sub(" ", text)
        parsed = parsedate_tz(text)
        if parsed is None:
            return None
        year, month, day, hour, minute, second = parsed[:6]
        # A leap second has no place in datetime.
        local = dt.datetime(year, month, day, hour, minute, min(second, 59))
        distance = dt.timedelta(seconds=parsed[9] or 0)
        far = abs(distance) > _FURTHEST_ZONE
        return zoned(local if far else local.replace(tzinfo=dt.timezone(distance)))
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def zoned(date: dt.datetime) -> dt.datetime | None:
    """`date` to the second; naive dates count as UTC. None where UTC leaves the calendar."""
    date = date.replace(microsecond=0, tzinfo=date.tzinfo or dt.UTC)
    try:
        date.astimezone(dt.UTC)
    except OverflowError:
        return None
    return date


def most_plausible(*candidates: dt.datetime | None) -> dt.datetime | None:
    """The first candidate of a plausible year, else the first of a possible one, else None."""
    years = (_PLAUSIBLE_YEARS, _POSSIBLE_YEARS)
    dates = [date for date in candidates if date is not None]
    return next((d for span in years for d in dates if d.astimezone(dt.UTC).year in span), None)


# ---- The header block of a message: mended where it is broken, read by `email`, decoded.

# Longer values are cut: 880 recipients with names take 60,000 characters.
_LONGEST_VALUE = 1_000_000
# Of a header block, in bytes; what is behind belongs to the body.
_LARGEST_BLOCK = 1_000_000
# `email` takes a hundred bytes for a line of a container, and a thousand for a part. A container
# with more of them is read as text.
_MOST_LINES, _MOST_PARTS = 1_000_000, 20_000

_BLANK_LINE = re.compile(rb"\n\r?\n")
_NAME = rb"[!-9;-~]+[ \t]*:"
# A line that is neither a header nor indented (the block's end is no line). Names start
# with a letter here: "9:40 to 10:00" is the rest of a subject, not the header "9".
_STRAY_LINE = re.compile(rb"\n(?![A-Za-z][!-9;-~]*[ \t]*:|[ \t]|\Z)")
# The line at which `email` ends the headers.
_ENDING_LINE = re.compile(rb"\n(?!" + _NAME + rb"|[ \t]|\Z)")
_FIRST_HEADER = re.compile(rb"(?:From [^\n]*\n)?" + _NAME)
_NAME_OF = re.compile(rb"^([!-9;-~]+)[ \t]*:", re.MULTILINE)
# Headers that no paragraph of text looks like; one of them, not seen before, after
# a stray line proves that the header block goes on.
_WELL_KNOWN = frozenset(
    b"""from to cc bcc subject date message-id mime-version content-type
    content-transfer-encoding content-disposition received return-path reply-to sender
    in-reply-to references delivered-to x-from x-to x-cc x-bcc x-folder x-origin x-filename
    x-mailer x-priority x-gmail-labels""".split()
)
# `email` takes quadratic time for the parameters of these headers.
_ENDLESS_PARAMETERS = re.compile(
    rb"^content-(?:type|disposition)[ \t]*:(?:[^\n]|\n[ \t]){20000}", re.IGNORECASE | re.MULTILINE
)
_LONGEST_TYPE = 20_000
_HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})

_FOLD = re.compile(r"\r?\n[ \t]*|\r")
# One encoded word; its text may hold a stray "?" or blanks, as broken mailers write them.
_WORD = re.compile(r"=\?([^?\s]{1,60})\?([bBqQ])\?((?:[^?\r\n]|\?(?!=)){0,600})\?=")
_BETWEEN_WORDS = re.compile(r"(?<=\?=)\s+(?==\?[^?\s]{1,60}\?[bBqQ]\?)")

_PARSER = BytesParser(policy=compat32)


class SplitMessage(NamedTuple):
    """A message cut at its first blank line; `block` has LF line ends."""

    block: bytes
    body: bytes


class PartType(NamedTuple):
    """What a Content-Type header says: `kind` is "text/plain" and the like, in lower case."""

    kind: str
    charset: str

    @property
    def is_container(self) -> bool:
        """Whether parts (or a message) may stand inside."""
        return self.kind.startswith(("multipart/", "message/"))

    @property
    def is_html(self) -> bool:
        """Whether it is HTML or XHTML."""
        return self.kind in _HTML_TYPES

    @property
    def is_text(self) -> bool:
        """Whether it is read as text, unless it has parts."""
        # A multipart without a boundary comes from the parser as one text.
        return self.kind.startswith(("text/", "multipart/")) or self.is_html


class Headers:
    """Header fields by lower-case name, in the order of the message. Takes (name, value) pairs as
    `email` gives them: values may be folded and hold bytes over 127 as surrogates. `first` and
    `every` return clean lines; encoded words are not decoded."""

    __slots__ = ("_values",)

    def __init__(self, items: Iterable[tuple[str, str]]) -> None:
        values: dict[str, list[str]] = {}
        for name, value in items:
            values.setdefault(name.lower(), []).append(value)
        self._values = values

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def first(self, name: str) -> str:
        """The first value of `name` (lower case), else ""."""
        return _readable(self.raw(name))

    def raw(self, name: str) -> str:
        """The first value of `name` (lower case) as the message has it, else ""."""
        return self._values.get(name, [""])[0]

    def every(self, name: str) -> list[str]:
        """All values of `name` (lower case)."""
        return [_readable(value) for value in self._values.get(name, ())]


def cut(data: bytes) -> SplitMessage:
    """`data` cut at its first blank line (LF or CRLF), its header block not mended."""
    data = _trimmed(data)
    blank = _BLANK_LINE.search(data)
    block = (data[: blank.start()] if blank else data) + b"\n"
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b" ")
    return SplitMessage(block, data[blank.end() :] if blank else b"")


def split_message(data: bytes) -> SplitMessage:
    """Cut `data` at the first blank line (LF or CRLF) and mend its header block."""
    block, body = cut(data)
    if len(block) > _LARGEST_BLOCK:
        end = block.rfind(b"\n", 0, _LARGEST_BLOCK) + 1 or _LARGEST_BLOCK
        block, body = block[:end], block[end:] + b"\n" + body
    stray = _STRAY_LINE.search(block)
    if stray is None:
        return SplitMessage(block, body)
    if not _FIRST_HEADER.match(block):
        return SplitMessage(b"", _trimmed(data))
    mended = _fold_stray_lines(block, stray.start())
    ending = _ENDING_LINE.search(mended)
    if ending is None:
        return SplitMessage(mended, body)
    cut_at = ending.start() + 1
    return SplitMessage(mended[:cut_at], mended[cut_at:] + b"\n" + body)


def _trimmed(data: bytes) -> bytes:
    """`data` without byte order mark and blank lines before, with line ends that have LF."""
    data = data.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
    if b"\n" not in data and b"\r" in data:
        data = data.replace(b"\r", b"\n")  # the line ends of an old Macintosh
    return data


def _fold_stray_lines(block: bytes, first_stray: int) -> bytes:
    """Indent stray lines that well-known headers follow, so that they continue a header. Only a
    header that did not occur before counts: a body may start without a blank line and quote "From:"
    and "Subject:" of another mail."""
    seen = {name.lower() for name in _NAME_OF.findall(block, 0, first_stray + 1)}
    last = 0
    for match in _NAME_OF.finditer(block, first_stray + 1):
        if match[1].lower() in _WELL_KNOWN - seen:
            last = match.start()
    return _STRAY_LINE.sub(b"\n ", block[:last]) + block[last:]


def part_type(part: "Message[str, str]") -> PartType:
    """The type and charset of a message or MIME part that `email` has parsed."""
    declared = part.get("content-type")
    if declared is None:
        return PartType(part.get_default_type(), "")
    return declared_type(str(declared))


@functools.lru_cache(maxsize=1024)
def declared_type(value: str) -> PartType:
    """What the value of a Content-Type header says."""
    part: Message[str, str] = Message()
    part["Content-Type"] = _readable(value[:_LONGEST_TYPE])
    kind = one_line(part.get_content_type())
    charset: object = ""
    with contextlib.suppress(ValueError, LookupError, TypeError):  # RFC 2231 beyond repair
        charset = part.get_param("charset", "")
    return PartType(kind, charset[2] if isinstance(charset, tuple) else str(charset))


def parse_message_tree(message: SplitMessage) -> "Message[str, str]":
    """The message as `email` sees it: its MIME tree, or its headers and a payload. Only containers
    are parsed whole. Those nested too deeply for `email`, with too many lines or parts, or with
    parameters that would keep it busy for minutes, are read as text."""
    tree = _PARSER.parsebytes(message.block, headersonly=True)
    is_container = part_type(tree).is_container
    data = message.block + b"\n" + message.body if is_container else message.block
    is_large = data.count(b"\n") > _MOST_LINES or data.count(b"\n--") > _MOST_PARTS
    if (is_container and is_large) or _ENDLESS_PARAMETERS.search(data):
        del tree["content-type"], tree["content-disposition"]
    elif is_container:
        try:
            return _PARSER.parsebytes(data)
        except RecursionError:
            del tree["content-type"]
    del data  # as large as the message
    tree.set_payload(message.body.decode("ascii", "surrogateescape"))
    return tree


def _readable(value: str) -> str:
    """A raw header value on one line: unfolded, bytes over 127 decoded."""
    if not value:
        return ""
    value = value[:_LONGEST_VALUE]
    if "\n" in value or "\r" in value:
        value = _FOLD.sub(" ", value)
    if not value.isascii():
        try:
            value = decode_bytes(value.encode("ascii", "surrogateescape"))
        except UnicodeEncodeError:  # text already, not bytes in disguise
            value = scrub(value)
    return value.replace("\0", "").strip()


def decode_words(value: str) -> str:
    """`value` with its RFC 2047 encoded words decoded, on one clean line. What can't be decoded
    stays. Neighbouring words of one charset are joined as bytes first, because mailers cut
    characters in two."""
    if "=?" not in value:
        return one_line(value)
    value = _BETWEEN_WORDS.sub("", value)
    pieces: list[str] = []
    pending, charset, end = b"", "", 0
    for match in _WORD.finditer(value):
        raw = match[3].encode("utf-8", "replace")
        try:
            padded = raw + b"=" * (-len(raw.rstrip(b"=")) % 4)
            quoted = match[2] in "qQ"
            data = binascii.a2b_qp(raw, header=True) if quoted else binascii.a2b_base64(padded)
        except binascii.Error:
            continue
        word_charset = match[1].partition("*")[0]  # RFC 2231 allows "charset*language"
        if match.start() != end or word_charset.lower() != charset.lower():
            pieces += [decode_bytes(pending, charset), value[end : match.start()]]
            pending = b""
        pending, charset, end = pending + data, word_charset, match.end()
    pieces += [decode_bytes(pending, charset), value[end:]]
    return one_line("".join(pieces))
