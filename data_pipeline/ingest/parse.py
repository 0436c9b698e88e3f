"""Parses a message: raw bytes in, `ParsedEmail` or `Skipped` out.

It never raises: what can't be read is guessed, left out or quarantined. Reasons for quarantine:
"empty" (no bytes, or only white space), "not-mail" (no From, To, Date, Message-ID or Subject),
"too-large" (over 50 MB), "gone" and "unread" (the source failed), "too-slow" (over 20 s of CPU
time), "too-much-memory" (over 370 MB), "parse-error" (unforeseen; the detail names the exception).
The limits include the time and memory to index the mail."""

import datetime as dt
import hashlib
import html
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from email.message import Message
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from inscriptis.css_profiles import CSS_PROFILES  # type: ignore[import-untyped]
from inscriptis.html_engine import Inscriptis  # type: ignore[import-untyped]
from inscriptis.model.config import ParserConfig  # type: ignore[import-untyped]
from lxml import etree
from lxml.html import HtmlElement, HTMLParser, document_fromstring

from art_e.inbox.mail import AttachedFile, Mailbox
from art_e.text import visible
from data_pipeline.ingest import headers as head
from data_pipeline.ingest import outlook, records
from data_pipeline.ingest.attachments import PACKED, PICTURE, READ, Extractor, form_of, read
from data_pipeline.ingest.charsets import SPELLINGS, codec_of, decode_bytes, scrub
from data_pipeline.ingest.headers import Headers, Part, PartType, decode_words, tidy
from data_pipeline.ingest.labels import LEFT_OUT, in_order, of_mbox
from data_pipeline.ingest.records import ParsedEmail, RawMessage, Skipped

# Bytes of a text that are read, and characters of a mail that are stored.
_LARGEST_TEXT, MAX_TEXT_CHARS = 6_000_000, 2_000_000
REST = f"\n[Longer than {MAX_TEXT_CHARS:,} characters: the rest is left out]"

# ---- HTML mail as readable text, and telling HTML from text that only mentions tags.

# Beyond these, tags are only stripped. libxml2 drops elements at a depth over 256.
_LONGEST_LAYOUT, _DEEPEST_LAYOUT = 1_000_000, 100  # characters, nested elements

_CELL_GAP = "\ue000"  # private use: survives the layout's collapsing of white space
_INLINE, _TABLE_TAGS = SPELLINGS["html"]["inline"].split(), SPELLINGS["tables"]
_CONFIG = ParserConfig(css=CSS_PROFILES["strict"].copy(), display_links=False, display_images=False)

# Each alternative may also end with the text, so that matching takes linear time.
_UNSEEN = re.compile(
    r"<!--.*?(?:-->|\Z)|<(script|style|head|title|template)\b[^<>]*>.*?(?:</\1\b[^<>]*>|\Z)",
    re.IGNORECASE | re.DOTALL,
)
_TOKEN = re.compile(r"-->|<[!?/]?[a-zA-Z\[!-][^<>]*>|<!\s*>")
_BLOCK_TAG = re.compile(r"</?(?:p|div|br|tr|table|li|ul|ol|h[1-6]|blockquote|hr|pre)\b", re.I)

_TAG = re.compile(rf"</?(?:{SPELLINGS['html']['tags']})\b[^<>]*>", re.IGNORECASE)
# The address of a link as it is shown, and without its scheme.
_HREF = re.compile(r"(?:mailto:|(?=(?:https?:)?//))((?:(?:https?:)?//)?(\S{1,2000}?)/?)\Z", re.I)
_LINK = re.compile(r"</?a\b", re.IGNORECASE)
_DOCUMENT_START = re.compile(
    r"\s*(?:<![^<>]*>\s*)*(?:<!doctype\s+html|<(?:html|head|body|meta|title)\b)", re.IGNORECASE
)
_INNER_START = re.compile(r"^[ \t]*<(?:!doctype\s+html|html)\b", re.IGNORECASE | re.MULTILINE)
# Minimum tags of a document inside a text; minimum tags, and their share, of a text made of tags.
_INNER_TAGS, _MIN_TAGS, _TAG_SHARE = 20, 5, 0.4
_LINES_PER_BLOCK = 4  # with more lines per block tag, the line ends are the author's


def html_to_text(source: str) -> str:
    """Return the text of an HTML document, readable line by line; never raises."""
    text = None
    if len(source) <= _LONGEST_LAYOUT:
        with suppress(etree.LxmlError, ValueError, LookupError, TypeError, AttributeError):
            text = _layout(source)
    lines = (_strip_tags(source) if text is None else text).split("\n")
    for at, line in enumerate(lines):
        if _CELL_GAP in line:
            lines[at] = "  ".join(filter(None, map(str.strip, line.split(_CELL_GAP))))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(map(str.rstrip, lines))).strip("\n")


def _without_html(text: str) -> str:
    """Make the HTML in a text declared plain readable: a text that starts as a document, a whole
    document (`<html>` at a line's start, at least 20 tags) inside one, or a text of which 40 % are
    tags. Links alone don't count: AOL wrote those into plain text."""
    if text.count("<") < _MIN_TAGS:
        return text
    if _DOCUMENT_START.match(text):
        return _converted(text, 0)
    inner = _INNER_START.search(text)
    if inner and len(_TAG.findall(text, inner.start())) >= _INNER_TAGS:
        return _converted(text, inner.start())
    tags = list(_TAG.finditer(text))
    others = sum(1 for tag in tags if not _LINK.match(tag[0]))
    length = sum(tag.end() - tag.start() for tag in tags)
    if others < _MIN_TAGS or length < _TAG_SHARE * len(text):
        return text
    return _converted(text, tags[0].start())


def _converted(text: str, start: int) -> str:
    end = text.lower().rfind("</html>", start)
    end = len(text) if end < 0 else end + len("</html>")
    source = text[start:end]
    # Plain lines in a frame of tags: a layout would join the lines.
    in_lines = len(_BLOCK_TAG.findall(source)) * _LINES_PER_BLOCK < source.count("\n")
    return text[:start] + (_strip_tags(source) if in_lines else html_to_text(source)) + text[end:]


def _layout(source: str) -> str | None:
    """Return the text as `inscriptis` lays it out; None if the document is too deep for it."""
    parser = HTMLParser(encoding="utf-8")
    tree = document_fromstring(source.encode("utf-8", "replace"), parser=parser)
    etree.strip_tags(tree, etree.Comment, etree.ProcessingInstruction)
    _show_links(tree)
    if not _flattened(tree):
        return None
    # Inline tags matter in preformatted text only, and take most of the time.
    if tree.find(".//pre") is None:
        etree.strip_tags(tree, *_INLINE)
    return str(Inscriptis(tree, _CONFIG).get_text())


def _show_links(tree: HtmlElement) -> None:
    """Write the address of each link after its text, once, unless the text contains it."""
    written = set[str]()
    for link in tree.iter("a"):
        address = _HREF.match((link.get("href") or "").strip().replace(" ", "%20"))
        if address and address[1] not in written:
            text = "".join(link.itertext()).strip()
            picture = "" if text else " ".join(each.get("alt") or "" for each in link.iter("img"))
            if (text or picture.strip()) and address[2] not in text:
                link.tail = f"{picture} ({address[1]}){link.tail or ''}"
                written.add(address[1])


def _flattened(tree: HtmlElement) -> bool:
    """Turn tables into rows of words, and drop attributes; return False if the tree is too deep."""
    pending = [(tree, 1)]
    while pending:
        element, depth = pending.pop()
        if depth > _DEEPEST_LAYOUT:
            return False
        pending.extend((child, depth + 1) for child in element)
        if not isinstance(element.tag, str):
            continue
        hidden = "display:none" in element.get("style", "").replace(" ", "").lower()
        element.attrib.clear()
        if _TABLE_TAGS.get(element.tag) == "span":
            element.tail = _CELL_GAP + (element.tail or "")
        element.tag = _TABLE_TAGS.get(element.tag, element.tag)
        if hidden:
            element.set("style", "display:none")
            element.tag = "title" if element.tag in _INLINE else element.tag
    return True


def _strip_tags(source: str) -> str:
    """Return the text between the tags, without scripts and styles, in linear time."""
    text = _UNSEEN.sub(" ", source)
    text = _TOKEN.sub(lambda tag: "\n" if _BLOCK_TAG.match(tag[0]) else " ", text)
    return "\n".join(" ".join(line.split()) for line in html.unescape(text).split("\n"))


# ---- Well-formed messages of one text, split without `email`, which takes five times as long.

# A block that `email` reads to its end: names start with a letter, and the colon follows at once.
_WELL_FORMED = re.compile(rb"(?:[A-Za-z][!-9;-~]*+:.*+\n(?:[ \t].*+\n)*+)++")
_FIELD = re.compile(r"^([!-9;-~]++):[ \t]*+(.*+(?:\n[ \t].*+)*+)", re.MULTILINE)
_LARGEST_BLOCK = 20_000  # larger blocks may have parameters that are too long to parse
_LONGEST_TYPE = 200
_SIMPLE_ENCODINGS = frozenset({"", "7bit", "8bit", "binary", "quoted-printable"})


class PlainMessage(NamedTuple):
    """The header fields, the readable body and the attached files of a message."""

    headers: Headers
    body: str
    files: Sequence[AttachedFile] = ()


def plain_message(data: bytes) -> PlainMessage | None:
    """Return the message if it is well formed and its body is one text, else None."""
    block, body = head.split_at_blank(data)
    if len(block) > _LARGEST_BLOCK or not _WELL_FORMED.fullmatch(block):
        return None
    headers = Headers(_FIELD.findall(block.decode("ascii", "surrogateescape")))
    content_type = headers.raw("content-type")
    encoding = headers.raw("content-transfer-encoding").lower()
    if len(content_type) > _LONGEST_TYPE or not content_type.isascii():
        return None
    kind = head.declared_type(content_type)
    if not kind.is_text or kind.is_container or encoding not in _SIMPLE_ENCODINGS:
        return None
    body = head.decode_content(body, encoding)
    if b"begin " in body and _UUENCODED.search(body):
        return None
    if not block.isascii():
        headers.charset = charset_of(body, kind)
    return PlainMessage(headers, leaf_text(body, kind).strip("\n"))


# ---- Invitations (text/calendar, RFC 5545) as lines of text: subject, time, place and people.

_CALENDAR, _FOLD = re.compile(rb"\s*BEGIN:VCALENDAR", re.IGNORECASE), re.compile(rb"\r?\n[ \t]")
# Name, parameters and value of a property.
_PROPERTY = re.compile(r'([\w-]+)((?:;(?:"[^"\n]*+"|[^":\n])*+)?):(.*)')
_PARAMETER = re.compile(r';(CN|TZID|PARTSTAT)=(?:"([^"]*)"|([^;]*))', re.IGNORECASE)
_DURATION = re.compile(SPELLINGS["durations"]["iso"])
_ENTRIES = ("VEVENT", "VTODO", "VJOURNAL")


def invitation_text(calendar: str) -> str:
    """Return lines such as `When: Monday 17 April 2023, 14:30 to 15:30 (Europe/Berlin)` for each
    entry of an unfolded calendar; a calendar without entries is returned as it is."""
    lines: list[str] = []
    inside, entry, people = list[str](), dict[str, str](), list[str]()
    for match in filter(None, map(_PROPERTY.match, calendar.splitlines())):
        name, value = match[1].upper(), match[3].strip()
        options = {key.upper(): one or two for key, one, two in _PARAMETER.findall(match[2])}
        if name == "BEGIN":
            inside.append(value.upper())
        elif name == "END" and (inside or [""]).pop() in _ENTRIES:
            lines += [*_entry_lines(entry), *people, *entry.get("DESCRIPTION", "").splitlines()]
            entry, people = {}, []
        elif note := SPELLINGS["notes"].get(f"{name}:{value.upper()}"):
            lines += [note] if note not in lines else []
        elif inside and inside[-1] in _ENTRIES:
            if name in ("ORGANIZER", "ATTENDEE"):
                address = re.sub("(?i)^mailto:", "", value)
                person = f"{options['CN']} <{address}>" if options.get("CN") else address
                answer = options.get("PARTSTAT", "").lower().replace("needs-action", "")
                people.append(f"{name.title()}: {person}" + (f" ({answer})" if answer else ""))
            entry[name] = re.sub(r"\\(.)", lambda char: "\n" if char[1] in "nN" else char[1], value)
            entry[f"{name} zone"] = options.get("TZID", "")
    return "\n".join(lines) or calendar


def _entry_lines(entry: dict[str, str]) -> Iterator[str]:
    for name, label in SPELLINGS["invitation"].items():
        value = " ".join(entry.get(name, "").split())
        if name in ("DTSTART", "DUE") and value:
            end = entry.get("DTEND", "") if name == "DTSTART" else ""
            value = _span(value, entry[f"{name} zone"], end, entry.get("DURATION", ""))
        if value:
            yield f"{label}: {value}"


def _span(start: str, zone: str, end: str, duration: str) -> str:
    try:
        first, last = (dt.datetime.fromisoformat(each[:15]) for each in (start, end or start))
        if not end and (length := _DURATION.fullmatch(duration)):
            last += dt.timedelta(**{unit: int(n) for unit, n in length.groupdict("0").items()})
    except (ValueError, OverflowError):
        return f"{start} to {end}" if end else start
    is_whole = "T" not in start  # whole days; the end is exclusive
    last -= dt.timedelta(days=is_whole and last > first)
    day, last_day = (f"{each:%A} {each.day} {each:%B %Y}" for each in (first, last))
    if is_whole:
        return f"{day} to {last_day}" if last > first else day
    zone = "UTC" if start.endswith("Z") else zone
    until = f" to {last:%H:%M}" if last_day == day else f" to {last_day}, {last:%H:%M}"
    return f"{day}, {first:%H:%M}" + until * (last != first) + f" ({zone})" * bool(zone)


# ---- The body of a message: one text from a tree of MIME parts.

_DEEPEST_PART = 20  # a hostile mail nests thousands, and `_texts` recurses
_META = re.compile(
    rb"<(?:meta|\?xml)[^>]*?(?:charset|encoding) *= *[\"']?(?!utf-?16)([\w.:-]{2,40})",
    re.IGNORECASE,
)
_MESSAGES = frozenset(f"message/{kind}" for kind in ("rfc822", "global", "news", "partial"))
_UUENCODED = re.compile(rb"(?<![^\n])begin [0-7]{3,4} ([^\r\n]+)\r?\n(?:[ -`]*+\r?\n)*+end\b[^\n]*")
_QUOTED = re.compile(r"(?:> ?)*+ ?")
_WORD, _URL = re.compile(r"[^\W_]+"), re.compile(r"https?://\S+")

Used = TypeVar("Used")


def leaf_text(data: bytes, kind: PartType) -> str:
    """Return the readable text of a part's bytes (after transfer decoding); cut a long text."""
    is_calendar = kind.kind == "text/calendar" or bool(_CALENDAR.match(data))
    data = _FOLD.sub(b"", data) if is_calendar else data
    end = len(data)
    if end > _LARGEST_TEXT:
        end = data.rfind(b"\n", 0, _LARGEST_TEXT) + 1 or _LARGEST_TEXT
    text = decode_bytes(data[:end], charset_of(data, kind))
    if is_calendar:
        text = invitation_text(text)
    if kind.flowed:
        text = _unflowed(text, kind.flowed == "delsp")
    text = _cut(tidy(html_to_text(text)) if kind.is_html else plain_text(text))
    return text if end == len(data) or text.endswith(REST) else text + REST


def charset_of(data: bytes, kind: PartType) -> str:
    """Return the charset that a part declares, or else its HTML."""
    is_undeclared = kind.is_html and codec_of(kind.charset) in ("", "ascii")
    meta = _META.search(data, 0, 4_000) if is_undeclared else None
    return meta[1].decode() if meta else kind.charset


def _unflowed(text: str, is_delsp: bool) -> str:
    """Return format=flowed text (RFC 3676) with one line per paragraph."""
    paragraphs: list[list[str]] = []
    depth_of_open = -1
    for line in text.replace("\r\n", "\n").split("\n"):
        content = _QUOTED.sub("", line, count=1)
        depth = line[: len(line) - len(content)].count(">")
        if depth != depth_of_open or content == "-- ":
            paragraphs.append([">" * depth + " " * (depth > 0)])
        is_open = content.endswith(" ") and content != "-- "
        paragraphs[-1].append(content[:-1] if is_open and is_delsp else content)
        depth_of_open = depth if is_open else -1
    return "\n".join(map("".join, paragraphs))


def _cut(text: str) -> str:
    return text[: MAX_TEXT_CHARS - len(REST)] + REST if len(text) > MAX_TEXT_CHARS else text


def plain_text(text: str) -> str:
    """Return a text/plain body as tidy text, with stray quoted-printable and HTML decoded."""
    text = tidy(text)
    readable = _without_html(head.without_stray_quoted_printable(text))
    return text if readable is text else tidy(readable)


def _texts(
    part: Part, attachments: list[AttachedFile], depth: int = 0, *, is_message: bool = True
) -> list[str]:
    """Return the texts of a message or part in reading order, and append its `attachments`. The
    text of a whole message counts as text even if it is marked as an attachment."""
    kind = head.part_type(part)
    if kind.kind.startswith("multipart/") and not part.is_multipart():
        header = f"Content-Type: {kind.kind}\n\n".encode()
        part = head.parse_message_tree(header + head.part_bytes(part))
    if kind.is_container and part.is_multipart() and depth < _DEEPEST_PART:
        if kind.kind in _MESSAGES:
            texts = []
            for inner in map(partial(head.embedded_message, part), head.child_parts(part)):
                subject = decode_words(Headers(inner.raw_items()).first("subject"))
                lines = _texts(inner, attachments, depth + 1)
                texts.append("\n".join([f"[Attached message: {subject}]", *lines]))
            return texts
        if kind.kind.startswith("multipart/"):
            parts = [
                (head.part_type(child), _texts(child, attachments, depth + 1, is_message=False))
                for child in head.child_parts(part)
            ]
            if kind.kind == "multipart/alternative":
                return _chosen_texts([each for each in parts if each[1]])
            return [text for _, texts in parts for text in texts]
        if kind.kind.endswith(("status", "notification", "report")):
            fields = (field for child in head.child_parts(part) for field in child.items())
            return ["\n".join(f"{name}: {decode_words(str(value))}" for name, value in fields)]
    elif kind.is_text and not part.is_multipart():
        disposition = Headers(part.raw_items()).first("content-disposition").lower()
        data = head.part_bytes(part, is_text=True)
        is_file = form_of(AttachedFile("", kind.kind, data)) in (*READ, PICTURE)
        is_named = disposition.startswith("attachment") or head.file_name(part)
        if not is_file and (is_message or not is_named):
            attachments += map(_uuencoded, islice(_UUENCODED.finditer(data), _MAX_FILES))
            text = leaf_text(_UUENCODED.sub(b"", data, _MAX_FILES), kind)
            return [text] if text else []
    attachments.append(_attachment(part, kind))
    return []


def _uuencoded(match: re.Match[bytes]) -> AttachedFile:
    """Return a file that is encoded in the middle of a text, as before MIME."""
    part: Part = Message()
    part["Content-Transfer-Encoding"] = "x-uuencode"
    part.add_header("Content-Disposition", "attachment", filename=match[1].decode("latin-1"))
    part.set_payload(match[0].decode("latin-1"))
    return _attachment(part, PartType("application/octet-stream", ""))


def _chosen_texts(versions: list[tuple[PartType, list[str]]]) -> list[str]:
    """Return the plain text, or the HTML if over a third of its words are new, or both if also over
    half of the plain words are missing in the HTML (as in a mere notice); then the invitations."""
    plain = [text for kind, texts in versions if kind.kind == "text/plain" for text in texts]
    rich = [text for kind, texts in versions if kind.is_html or kind.is_container for text in texts]
    events = [text for kind, texts in versions if kind.kind == "text/calendar" for text in texts]
    if plain and rich:
        texts = (_URL.sub("", "\n".join(each).lower()) for each in (plain, rich))
        words, others = (set(_WORD.findall(text)) for text in texts)
        if len(others - words) * 3 > len(others):
            plain = [*plain, *rich] if len(words - others) * 2 > len(words) else rich
    return [*(plain or rich), *events] or [text for _, texts in versions[:1] for text in texts]


def _attachment(part: Part, kind: PartType) -> AttachedFile:
    name = head.file_name(part) or "unnamed"
    return AttachedFile(name, kind.kind, head.part_bytes(part), kind.charset)


def _storable(file: AttachedFile) -> AttachedFile:
    return file._replace(data=None) if len(file.data or b"") > records.LARGEST_FILE else file


def _line(file: AttachedFile) -> str:
    """Return a line such as `[Attachment: plan.pdf (application/pdf, 12 KB)]`."""
    is_empty = not file.data and file.kind.startswith(("multipart/", "message/"))
    size = "" if is_empty else f", {max(1, round(len(file.data or b'') / 1024)):,} KB"
    return f"[Attachment: {file.name} ({file.kind}{size})]"


def _open_packed(tree: Part, extractor: Extractor) -> None:
    """Unpack winmail.dat, signed S/MIME and .eml files in `tree`, without repeating its body."""
    parts = [(tree, 0)]
    for part, depth in parts:
        kind = head.part_type(part)
        is_file = kind.kind.startswith("application/") and not part.is_multipart()
        file = _storable(_attachment(part, kind)) if is_file else None
        form = form_of(file) if file else ""
        if file and form in PACKED and (mime := read(file, extractor.ask, leaf_text)[0]):
            packed = head.parse_message_tree(mime.encode("latin-1"))
            body, *others = head.child_parts(packed) or [packed]
            words = set(" ".join(_texts(tree, [])).split())
            if others and words.issuperset(" ".join(_texts(body, [])).split()):
                packed.set_payload([*others])
            del part["content-type"]
            part["content-type"] = PACKED[form]
            part.set_payload([packed])
        parts += [(child, depth + 1) for child in head.child_parts(part) if depth < _DEEPEST_PART]


# ---- The message.

_LONGEST_ID = 998  # characters, the longest line of RFC 5322
_LONGEST_THREAD, _LONGEST_LIST = 40, 300
_MANY = 20  # a mail that loses at least this many invisible characters says so
_MAX_FILES = 1_000  # attachments of a mail
# RFC 5322 sets no limit. Long lists lose the thread's first mails: a mail names its parent last.
_MAX_REFERENCES = 30
_REFERENCE = re.compile(rf"<[^<>\s]{{1,{_LONGEST_ID - 2}}}>")

_USUAL_ID = re.compile(rf"<[!-;=?-~]{{1,{_LONGEST_ID - 2}}}>")
_BRACKETED = re.compile(r"<([^<>]+)>")


def parse_within(
    message: RawMessage, extractor: Extractor | None, use: Callable[[ParsedEmail], Used | Skipped]
) -> Used | Skipped:
    """Parse a message and return the result of `use`, within the limits of one mail, or why it is
    skipped; never raises. With an `extractor` the mail has its attachments' texts."""
    source = scrub(message.source)
    try:
        if message.size > records.LARGEST_MESSAGE:
            return Skipped(source, "too-large", f"more than {records.LARGEST_MESSAGE:,} bytes")
        with _limited() if message.size > _QUICK else nullcontext():
            email = _parse_message(message, source, extractor)
            return email if isinstance(email, Skipped) else use(email)
    except _TooSlowError:
        if extractor is not None:
            extractor.close()  # or it might answer the next mail with this one's text
        return Skipped(source, "too-slow", f"more than {records.CPU_SECONDS:g} s of CPU time")
    except MemoryError:
        return Skipped(source, "too-much-memory", f"more than {records.MEMORY_BYTES:,} bytes")
    except Exception as error:  # noqa: BLE001 - the one place that promises "never raises"
        detail = head.one_line(f"{type(error).__name__}: {error}")[:200]
        return Skipped(source, "parse-error", detail)


# A message of fewer bytes takes under 2 s (see the tests). Timers would slow ingest by a tenth.
_QUICK = 20_000


class _TooSlowError(BaseException):
    """Parsing timed out. A BaseException, so that handlers of a part's errors don't catch it."""


@contextmanager
def _limited() -> Iterator[None]:
    """Raise `_TooSlowError` in this block after `CPU_SECONDS`, or `MemoryError`. Only a main thread
    can be interrupted, so mail is parsed in main threads."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(*_: object) -> None:
        raise _TooSlowError

    before = signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, records.CPU_SECONDS)  # CPU time: other load doesn't count
    try:
        with records.limited_memory():
            yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _parse_message(
    raw: RawMessage, source: str, extractor: Extractor | None
) -> ParsedEmail | Skipped:
    if raw.fault and not raw.data:
        return raw.fault._replace(source=source)
    if not raw.data or raw.data.isspace():
        return Skipped(source, "empty", f"{len(raw.data):,} bytes")
    data = outlook.convert_msg(raw.data) if raw.data.startswith(outlook.MAGIC) else raw.data
    headers, body, files = plain_message(data) or message_by_email(data, extractor)
    if not any(name in headers for name in ("from", "to", "date", "message-id", "subject")):
        return Skipped(source, "not-mail", "no From, To, Date, Message-ID or Subject")
    labels, thread = raw.labels, raw.gmail_thread
    if raw.in_mbox:
        labels = in_order([*labels, *of_mbox(headers)])
        thread = headers.first("x-gm-thrid")[:_LONGEST_THREAD]
    readings = [_reading(file, extractor) for file in files[:_MAX_FILES]] if extractor else []
    place = {"labels": labels, "junk": not LEFT_OUT.isdisjoint(labels), "gmail_thread": thread}
    place["owner"] = raw.owner
    attached = _cut("".join(text for _, text in readings))
    stored = tuple(file for file, _ in readings) or tuple(files[:_MAX_FILES])
    date = raw.envelope_date
    return compose(source, headers, body, date, attached=attached, files=stored, **place)


def _reading(file: AttachedFile, extractor: Extractor) -> tuple[AttachedFile, str]:
    """Return the file, marked if it is not read, and its text under its name."""
    text, unread = read(file, extractor.ask, leaf_text)
    reason = unread and f": {unread}"
    entry = f"\n\n[Text of {file.name}{reason}]\n{_visible(tidy(scrub(text)))}".rstrip()
    return file._replace(unread=unread), entry if text or unread not in ("", PICTURE) else ""


def message_by_email(data: bytes, extractor: Extractor | None = None) -> PlainMessage:
    """Return header fields, readable body and files of any message, parsed by `email`."""
    tree = head.parse_message_tree(data)
    if extractor is not None:
        extractor.ends = time.monotonic() + records.ATTACHMENT_SECONDS
        _open_packed(tree, extractor)
    attachments: list[AttachedFile] = []
    texts = _texts(tree, attachments)
    body = "\n\n".join([*texts, "\n".join(map(_line, attachments))]).strip("\n")
    headers = Headers(tree.raw_items())
    headers.charset = next(filter(None, (head.part_type(each).charset for each in tree.walk())), "")
    return PlainMessage(headers, body, list(map(_storable, attachments)))


def compose(
    source: str, headers: Headers, body: str, envelope_date: dt.datetime | None, **more: Any
) -> ParsedEmail:
    """Build the mail from its headers and decoded body; `more` are further fields."""
    date = head.sent_date(headers, envelope_date)
    sent_at = date and date.astimezone(dt.UTC).replace(tzinfo=None)
    offset = date and date.utcoffset()
    zone = int(offset.total_seconds()) // 60 if offset else 0
    author = next(filter(None, map(headers.first, ("from", "sender", "return-path"))), "")
    sender = head.sender_mailbox(author, headers.first("x-from"))
    seen: set[str] = set()  # an address has one role, the strongest: to before cc before bcc
    roles: list[tuple[Mailbox, ...]] = []
    for values in map(headers.every, ("to", "cc", "bcc")):
        boxes: dict[str, Mailbox] = {}
        for box in head.mailboxes(values):
            if (key := box.address or box.name) not in seen:
                boxes.setdefault(key, box)
        seen.update(boxes)
        roles.append(tuple(boxes.values()))
    to, cc, bcc = roles
    decoded = decode_words(headers.first("subject"))
    subject = visible(decoded)
    body = _visible(_cut(body), len(decoded) - len(subject))
    message_id = _clean_message_id(headers.first("message-id"))
    message_id = message_id or derived_message_id(sent_at, sender, subject, body)
    mailing_list = " ".join(decode_words(headers.first(name)) for name in ("list-id", "list-post"))
    mailing_list = " ".join(visible(mailing_list).replace("mailto:", "").split())[:_LONGEST_LIST]
    ids = " ".join(map(headers.first, ("references", "in-reply-to")))
    references = tuple(dict.fromkeys(_REFERENCE.findall(visible(ids))))[-_MAX_REFERENCES:]
    delivered = head.mailboxes(map(headers.first, ("delivered-to", "x-original-to", "envelope-to")))
    delivered_to = next((box.address for box in delivered if box.address), "")
    return ParsedEmail(
        source, message_id, sent_at, subject, sender, to, cc, bcc, body, utc_offset=zone,
        references=references, delivered_to=delivered_to, mailing_list=mailing_list,
        bulk=_is_bulk(headers), **more,
    )  # fmt: skip


def _is_bulk(headers: Headers) -> bool:
    # Bills and bookings have only one of Precedence, List-Unsubscribe and Feedback-ID.
    automatic = headers.first("auto-submitted").lower().startswith("auto-replied")
    precedence = headers.first("precedence").lower() in ("bulk", "list", "junk")
    mass = "list-unsubscribe" in headers and (precedence or "feedback-id" in headers)
    return "list-id" in headers or "list-post" in headers or automatic or mass


def _visible(text: str, lost: int = 0) -> str:
    """Remove invisible characters; if many are gone, `lost` included, a first line says so."""
    seen = visible(text)
    if hidden := len(text) - len(seen):
        seen, lost = tidy(seen), lost + hidden
    return f"[{lost:,} hidden characters left out]\n{seen}".rstrip() if lost >= _MANY else seen


def _clean_message_id(value: str) -> str:
    """Return the id in its angle brackets, without white space; "" if it is unusable."""
    if _USUAL_ID.fullmatch(value):
        return value
    value = "".join(visible(head.one_line(value)).split())
    bracketed = _BRACKETED.search(value)
    inner = bracketed[1] if bracketed else value.replace("<", "").replace(">", "")
    return f"<{inner}>" if inner and len(inner) + 2 <= _LONGEST_ID else ""


def derived_message_id(sent: dt.datetime | None, sender: Mailbox, subject: str, body: str) -> str:
    """Return a stable id: a hash of date, sender (address, else name), subject and body."""
    date = sent.isoformat() if sent else ""
    content = "\0".join((date, sender.address or sender.name, subject, body))  # fields have no "\0"
    return f"<{hashlib.sha256(content.encode()).hexdigest()[:32]}@derived.art-e.invalid>"
