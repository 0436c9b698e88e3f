"""A message made into what the inbox stores: raw bytes in, `ParsedEmail` or `Skipped` out.

Never an exception: what can't be read is guessed, left out or quarantined. Reasons for quarantine:
"empty" (no bytes, or only white space), "not-mail" (none of From, To, Date, Message-ID, Subject),
"too-large" (over 50 MB), "gone" and "unread" (its source could not give it), "too-slow" (over 20 s
of CPU time), "too-much-memory" (over 370 MB), "parse-error" (unforeseen; the detail names the
exception). The limits hold for what is indexed of a mail as well.
"""

import binascii
import datetime as dt
import hashlib
import html
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from email.message import Message
from typing import NamedTuple, TypeAlias, TypeVar

from inscriptis.css_profiles import CSS_PROFILES  # type: ignore[import-untyped]
from inscriptis.html_engine import Inscriptis  # type: ignore[import-untyped]
from inscriptis.model.config import ParserConfig  # type: ignore[import-untyped]
from lxml import etree
from lxml.html import HtmlElement, HTMLParser, document_fromstring

from art_e.inbox.mail import AttachedFile, Mailbox
from art_e.text import visible
from data_pipeline.ingest import headers as head
from data_pipeline.ingest.attachments import LARGEST_BYTES, Extractor
from data_pipeline.ingest.headers import Headers, PartType, decode_bytes, decode_words, scrub, tidy
from data_pipeline.ingest.labels import LEFT_OUT, in_order, of_mbox
from data_pipeline.ingest.records import (
    ATTACHMENT_SECONDS,
    CPU_SECONDS,
    LARGEST_MESSAGE,
    MEMORY_BYTES,
    MailFields,
    ParsedEmail,
    RawMessage,
    Skipped,
    limited_memory,
)

# Of a text that is read, in bytes, and of what is stored of a mail's texts.
_LARGEST_TEXT, MOST_CHARS = 6_000_000, 2_000_000
REST = f"\n[Longer than {MOST_CHARS:,} characters: the rest is left out]"

# ---- HTML mail made into readable text, and telling HTML from text that only mentions tags.

# Beyond these, tags are stripped. libxml2 drops what is nested deeper than 256.
_LONGEST_LAYOUT = 1_000_000
_DEEPEST_LAYOUT = 100

_CELL_GAP = "\ue000"  # private use: survives the layout's collapsing of white space
_BLOCKS = {"table": "div", "thead": "div", "tbody": "div", "tfoot": "div", "tr": "div"}
_CELLS = {"td": "span", "th": "span"}
_CONFIG = ParserConfig(css=CSS_PROFILES["strict"].copy(), display_links=False, display_images=False)

_UNSEEN = r"script|style|head|title|template"
_TOKEN = re.compile(r"<!--|-->|<[!?/]?[a-zA-Z\[!-][^<>]*>|<!\s*>")
_UNSEEN_TAG = re.compile(rf"<(/?)({_UNSEEN})\b", re.IGNORECASE)
_BLOCK_TAG = re.compile(r"</?(?:p|div|br|tr|table|li|ul|ol|h[1-6]|blockquote|hr|pre)\b", re.I)

_TAG = re.compile(
    r"</?(?:html|head|body|title|meta|style|script|table|tr|td|th|font|br|p|div|span|a|b|i|u|hr"
    r"|img|center|h[1-6]|ul|ol|li|strong|em|tbody)\b[^<>]*>",
    re.IGNORECASE,
)
_LINK = re.compile(r"</?a\b", re.IGNORECASE)
_DOCUMENT_START = re.compile(
    r"\s*(?:<![^<>]*>\s*)*(?:<!doctype\s+html|<(?:html|head|body|meta|title)\b)", re.IGNORECASE
)
_INNER_START = re.compile(r"^[ \t]*<(?:!doctype\s+html|html)\b", re.IGNORECASE | re.MULTILINE)
_INNER_END = "</html>"
_BLANK_LINES = re.compile(r"\n{3,}")
# A document inside a text needs this many tags, a text made of tags this share of them.
_INNER_TAGS = 20
_LEAST_TAGS = 5
_TAG_SHARE = 0.4
_LINES_PER_BLOCK = 4


def html_to_text(source: str) -> str:
    """The text of an HTML document, readable line by line; never fails."""
    text = None
    if len(source) <= _LONGEST_LAYOUT:
        with suppress(etree.LxmlError, ValueError, LookupError, TypeError, AttributeError):
            text = _layout(source)
    lines = (_strip_tags(source) if text is None else text).split("\n")
    for at, line in enumerate(lines):
        if _CELL_GAP in line:
            cells = (cell.strip() for cell in line.split(_CELL_GAP))
            lines[at] = "  ".join(cell for cell in cells if cell)
    text = "\n".join(map(str.rstrip, lines))
    return _BLANK_LINES.sub("\n\n", text).strip("\n")


def _without_html(text: str) -> str:
    """`text`, declared plain, with the HTML in it made readable.

    It is HTML if it starts as a document, if a whole document (`<html>` at a line's start, at
    least 20 tags) stands inside, or if at least 40 % of it are tags, and not links alone (AOL
    wrote those into plain text). Text before and after the HTML stays as it is.
    """
    if text.count("<") < _LEAST_TAGS:
        return text
    if _DOCUMENT_START.match(text):
        return _converted(text, 0)
    inner = _INNER_START.search(text)
    if inner and len(_TAG.findall(text, inner.start())) >= _INNER_TAGS:
        return _converted(text, inner.start())
    tags = list(_TAG.finditer(text))
    others = sum(1 for tag in tags if not _LINK.match(tag[0]))
    length = sum(tag.end() - tag.start() for tag in tags)
    if others < _LEAST_TAGS or length < _TAG_SHARE * len(text):
        return text
    return _converted(text, tags[0].start())


def _converted(text: str, start: int) -> str:
    end = text.lower().rfind(_INNER_END, start)
    end = len(text) if end < 0 else end + len(_INNER_END)
    source = text[start:end]
    # Written in lines, with a frame of tags around: laying it out would join the lines.
    in_lines = len(_BLOCK_TAG.findall(source)) * _LINES_PER_BLOCK < source.count("\n")
    return text[:start] + (_strip_tags(source) if in_lines else html_to_text(source)) + text[end:]


def _layout(source: str) -> str | None:
    """The text as `inscriptis` lays it out; None if the document is too deep for it."""
    if not source.strip():
        return ""
    parser = HTMLParser(encoding="utf-8")
    tree = document_fromstring(source.encode("utf-8", "replace"), parser=parser)
    etree.strip_tags(tree, etree.Comment, etree.ProcessingInstruction)
    if not _flattened(tree):
        return None
    return str(Inscriptis(tree, _CONFIG).get_text())


def _flattened(tree: HtmlElement) -> bool:
    """Make tables rows of words and drop attributes, in place; False if the tree is too deep."""
    pending = [(tree, 1)]
    while pending:
        element, depth = pending.pop()
        if depth > _DEEPEST_LAYOUT:
            return False
        pending.extend((child, depth + 1) for child in element)
        if not isinstance(element.tag, str):
            continue
        style = element.get("style") or ""
        hidden = "display:none" in style.replace(" ", "").lower()
        element.attrib.clear()
        if hidden:
            element.set("style", "display:none")
        if element.tag in _CELLS:
            element.tag = _CELLS[element.tag]
            element.tail = _CELL_GAP + (element.tail or "")
        else:
            element.tag = _BLOCKS.get(element.tag, element.tag)
    return True


def _strip_tags(source: str) -> str:
    """The text between the tags, without scripts and styles; linear in the length."""
    pieces: list[str] = []
    unseen = ""  # the element (or comment) whose end is awaited
    end = length = 0
    for match in _TOKEN.finditer(source):
        token = match[0]
        if length > MOST_CHARS:
            pieces.append(REST)
            end = len(source)
            break
        if not unseen:
            length += match.start() - end + 1
            pieces.append(source[end : match.start()])
            pieces.append("\n" if _BLOCK_TAG.match(token) else " ")
        end = match.end()
        tag = _UNSEEN_TAG.match(token)
        if unseen == "<!--":
            unseen = "" if token == "-->" else unseen
        elif unseen:
            unseen = "" if tag and tag[1] and tag[2].lower() == unseen else unseen
        elif token == "<!--":
            unseen = token
        elif tag and not tag[1]:
            unseen = tag[2].lower()
    if not unseen:
        pieces.append(source[end:])
    lines = [" ".join(line.split()) for line in html.unescape("".join(pieces)).split("\n")]
    return "\n".join(lines)


# ---- Well-formed messages of one text, split without `email`, which takes five times as long.

# A block that `email` reads line by line to its end: names start with a letter, and
# nothing stands between them and the colon.
_WELL_FORMED = re.compile(rb"(?:[A-Za-z][!-9;-~]*+:.*+\n(?:[ \t].*+\n)*+)++")
_FIELD = re.compile(r"^([!-9;-~]++):[ \t]*+(.*+(?:\n[ \t].*+)*+)", re.MULTILINE)
# Larger blocks may have parameters that are too long to parse.
_LARGEST_BLOCK = 20_000
_LONGEST_TYPE = 200
_UNENCODED = frozenset({"", "7bit", "8bit", "binary"})


class PlainMessage(NamedTuple):
    """The header fields, the readable body and the attached files of a message."""

    headers: Headers
    body: str
    files: Sequence[AttachedFile] = ()


def plain_message(data: bytes) -> PlainMessage | None:
    """The message, if it is well formed and its body is one text; else None."""
    block, body = head.cut(data)
    if len(block) > _LARGEST_BLOCK or not _WELL_FORMED.fullmatch(block):
        return None
    headers = Headers(_FIELD.findall(block.decode("ascii", "surrogateescape")))
    content_type = headers.raw("content-type")
    encoding = headers.raw("content-transfer-encoding").lower()
    if len(content_type) > _LONGEST_TYPE or not content_type.isascii():
        return None
    kind = head.declared_type(content_type)
    if not kind.is_text or kind.is_container:
        return None
    if encoding == "quoted-printable":
        body = binascii.a2b_qp(body)
    elif encoding not in _UNENCODED:
        return None
    return PlainMessage(headers, leaf_text(body, kind).strip("\n"))


# ---- The body of a message: one text out of whatever tree of MIME parts it is.

_DEEPEST_PART = 20

_LONGEST_NAME = 200

Part: TypeAlias = "Message[str, str]"
Used = TypeVar("Used")


class _Attachment(NamedTuple):
    """An attached file, and the line that stands for it in the body."""

    line: str
    file: AttachedFile


def _message_texts(message: Part, attachments: list[_Attachment], depth: int = 0) -> list[str]:
    """The texts of a message, as `_texts`. One that is all of it may call itself an attachment."""
    kind = head.part_type(message)
    is_text = _is_text(message, kind)
    return _leaf(message, kind) if is_text else _texts(message, kind, attachments, depth)


def leaf_text(data: bytes, kind: PartType) -> str:
    """The readable text of a part's bytes, its transfer encoding undone; a long text is cut."""
    end = data.rfind(b"\n", 0, _LARGEST_TEXT) if len(data) > _LARGEST_TEXT else len(data)
    text = decode_bytes(data[:end], kind.charset)
    text = _cut(tidy(html_to_text(text)) if kind.is_html else plain_text(text))
    return text if end == len(data) or text.endswith(REST) else text + REST


def _cut(text: str) -> str:
    return text[: MOST_CHARS - len(REST)] + REST if len(text) > MOST_CHARS else text


def plain_text(text: str) -> str:
    """The readable text of a text/plain body: tidy, stray quoted-printable and HTML undone."""
    text = tidy(text)
    readable = _without_html(head.without_stray_quoted_printable(text))
    return text if readable is text else tidy(readable)


def _texts(part: Part, kind: PartType, attachments: list[_Attachment], depth: int) -> list[str]:
    """The texts of a part in reading order; adds each attachment in it."""
    if kind.is_container and part.is_multipart() and depth < _DEEPEST_PART:
        if kind.kind == "message/rfc822":
            texts = []
            for inner in _children(part):
                subject = decode_words(Headers(inner.raw_items()).first("subject"))
                lines = _message_texts(inner, attachments, depth + 1)
                texts.append("\n".join([f"[Attached message: {subject}]", *lines]))
            return texts
        if kind.kind.startswith("multipart/"):
            kinds = [(child, head.part_type(child)) for child in _children(part)]
            parts = [(each, _texts(child, each, attachments, depth + 1)) for child, each in kinds]
            found = [each for each in parts if each[1]]
            if kind.kind == "multipart/alternative":
                # Plain text, else HTML or what holds it, else any.
                plain = [each for each in found if each[0].kind == "text/plain"]
                rich = [each for each in found if each[0].is_html or each[0].is_container]
                found = [*plain, *rich, *found][:1]
            return [text for _, texts in found for text in texts]
    elif _is_text(part, kind):
        disposition = Headers(part.raw_items()).first("content-disposition").lower()
        if not disposition.startswith("attachment") and not _file_name(part):
            return _leaf(part, kind)
    attachments.append(_attachment(part, kind))
    return []


def _leaf(part: Part, kind: PartType) -> list[str]:
    """The text of a text part. A multipart that has no parts is read as text, too."""
    data = part.get_payload(decode=True)
    text = leaf_text(data if isinstance(data, bytes) else b"", kind)
    return [text] if text else []


def _children(part: Part) -> list[Part]:
    payload = part.get_payload()
    return [child for child in payload if isinstance(child, Message)] if part.is_multipart() else []


def _is_text(part: Part, kind: PartType) -> bool:
    return kind.is_text and not part.is_multipart()


def _attachment(part: Part, kind: PartType) -> _Attachment:
    """The attachment, with a line such as `[Attachment: plan.pdf (application/pdf, 12 KB)]`."""
    content = part.get_payload(decode=True)
    data = content if isinstance(content, bytes) else b""
    size = f", {max(1, round(len(data) / 1024)):,} KB" if isinstance(content, bytes) else ""
    name = _file_name(part) or "unnamed"
    file = AttachedFile(scrub(name), kind.kind, data if len(data) <= LARGEST_BYTES else None)
    return _Attachment(f"[Attachment: {name} ({kind.kind}{size})]", file)


def _file_name(part: Part) -> str:
    try:
        name = part.get_filename("") or ""
    except (ValueError, LookupError, TypeError):  # RFC 2231 parameters beyond repair
        return "unnamed"
    data = str(name).encode("utf-8", "surrogateescape")
    return visible(decode_words(decode_bytes(data)))[:_LONGEST_NAME]


# ---- The message.

_LONGEST_ID = 998  # characters, the longest line of RFC 5322
_LONGEST_THREAD = 40
_MANY = 20  # characters that show as nothing
_MOST_READ, _MOST_FILES = 20, 1_000  # attachments of a mail
# RFC 5322 sets no limit; a thread's first mails may drop out, as a mail names its parent last.
_MOST_REFERENCES = 30
_REFERENCE = re.compile(rf"<[^<>\s]{{1,{_LONGEST_ID - 2}}}>")

_ESSENTIAL = ("from", "to", "date", "message-id", "subject")
_USUAL_ID = re.compile(rf"<[!-;=?-~]{{1,{_LONGEST_ID - 2}}}>")
_BRACKETED = re.compile(r"<([^<>]+)>")


def parse_message(
    message: RawMessage | MailFields, extractor: Extractor | None = None
) -> ParsedEmail | Skipped:
    """The mail, with the text of its attachments if there is an `extractor`, or why it can't be
    stored. Never raises."""
    return parse_within(message, extractor, lambda email: email)


def parse_within(
    message: RawMessage | MailFields,
    extractor: Extractor | None,
    use: Callable[[ParsedEmail], Used | Skipped],
) -> Used | Skipped:
    """What `use` makes of the mail within the limits of one mail, or why there is nothing."""
    source = scrub(message.source)
    try:
        if message.size > LARGEST_MESSAGE:
            return Skipped(source, "too-large", f"more than {LARGEST_MESSAGE:,} bytes")
        with _limited() if message.size > _QUICK else nullcontext():
            if isinstance(message, MailFields):
                email = _from_fields(message, source)
            else:
                email = _parse_message(message, source, extractor)
            return email if isinstance(email, Skipped) else use(email)
    except _TooSlowError:
        if extractor is not None:
            extractor.close()  # it may be about to answer
        return Skipped(source, "too-slow", f"more than {CPU_SECONDS:g} s of CPU time")
    except MemoryError:
        return Skipped(source, "too-much-memory", f"more than {MEMORY_BYTES:,} bytes")
    except Exception as error:  # noqa: BLE001 - the one place that promises "never raises"
        detail = head.one_line(f"{type(error).__name__}: {error}")[:200]
        return Skipped(source, "parse-error", detail)


# In bytes. A message up to this takes no 2 s whatever is in it (see the tests); a timer for each of
# them would slow the ingest by a tenth.
_QUICK = 20_000


class _TooSlowError(BaseException):
    """A mail's time is over; no handler of what one part of it raises may take this."""


@contextmanager
def _limited() -> Iterator[None]:
    """Raise `_TooSlowError` here after `CPU_SECONDS` of this process's time, or `MemoryError`. Only
    a main thread can be interrupted; all that parse mail are."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(*_: object) -> None:
        raise _TooSlowError

    before = signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        with limited_memory(MEMORY_BYTES):
            yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _parse_message(
    raw: RawMessage, source: str, extractor: Extractor | None
) -> ParsedEmail | Skipped:
    if raw.gone or raw.unread:
        why = raw.unread or "moved or deleted while the mail was read"
        return Skipped(source, "gone" if raw.gone else "unread", why)
    if not raw.data or raw.data.isspace():
        return Skipped(source, "empty", f"{len(raw.data):,} bytes")
    headers, body, files = plain_message(raw.data) or message_by_email(raw.data)
    if not any(name in headers for name in _ESSENTIAL):
        return Skipped(source, "not-mail", "no From, To, Date, Message-ID or Subject")
    email = compose(source, headers, body, raw.envelope_date)
    labels, thread = raw.labels, raw.gmail_thread
    if raw.in_mbox:
        labels = in_order([*labels, *of_mbox(headers)])
        thread = headers.first("x-gm-thrid")[:_LONGEST_THREAD]
    if not (labels or thread or files):
        return email
    return replace(
        email,
        labels=labels,
        junk=not LEFT_OUT.isdisjoint(labels),
        gmail_thread=thread,
        attached="" if extractor is None else _attached(files, extractor),
        files=tuple(files[:_MOST_FILES]),
    )


def _attached(files: Sequence[AttachedFile], extractor: Extractor) -> str:
    """The texts of attachments, each under its name, that can be read in their time."""
    ends = time.monotonic() + ATTACHMENT_SECONDS
    texts = []
    for name, kind, data in files[:_MOST_READ]:
        text = extractor.text_of(name, kind, data, ends - time.monotonic()) if data else ""
        if text is None:
            texts.append(f"\n\n[Text of {name} left out: it takes too long or too much memory]")
        elif text:
            texts.append(f"\n\n[Text of {name}]\n{_shown(tidy(scrub(text)))}")
    return "".join(texts)


def message_by_email(data: bytes) -> PlainMessage:
    """The header fields and the readable body of any message, by the standard library."""
    tree = head.parse_message_tree(head.split_message(data))
    attachments: list[_Attachment] = []
    texts = _message_texts(tree, attachments)
    lines = "\n".join(each.line for each in attachments)
    body = "\n\n".join([*texts, lines]).strip("\n")
    return PlainMessage(Headers(tree.raw_items()), body, [each.file for each in attachments])


def compose(
    source: str, headers: Headers, body: str, envelope_date: dt.datetime | None
) -> ParsedEmail:
    """The mail of a header block and a body that is text already."""
    ids = " ".join(headers.first(name) for name in ("references", "in-reply-to"))
    delivered = (headers.first(name) for name in ("delivered-to", "x-original-to", "envelope-to"))
    date = head.most_plausible(
        head.parse_date(headers.first("date")),
        head.parse_date(headers.first("received").rpartition(";")[2]),
        envelope_date and head.zoned(envelope_date),
    )
    texts = map(headers.first, ("message-id", "subject", "from", "x-from"))
    message_id, subject, sender, directory_name = texts
    to, cc, bcc = map(headers.every, ("to", "cc", "bcc"))
    fields = MailFields(source, message_id, subject, sender, to, cc, bcc, date, body)
    email = _email(fields, directory_name)
    return replace(
        email,
        references=tuple(dict.fromkeys(_REFERENCE.findall(visible(ids))))[-_MOST_REFERENCES:],
        delivered_to=next((box.address for box in head.mailboxes(delivered) if box.address), ""),
    )


def _from_fields(fields: MailFields, source: str) -> ParsedEmail | Skipped:
    if not any((fields.message_id, fields.subject, fields.sender, fields.date, *fields.to)):
        if not fields.body.strip():
            return Skipped(source, "empty", "no fields and no body")
        return Skipped(source, "not-mail", "no sender, recipient, date, message id or subject")
    date = head.most_plausible(fields.date and head.zoned(fields.date))
    sender, body = head.one_line(fields.sender), plain_text(fields.body[:_LARGEST_TEXT])
    return _email(fields._replace(source=source, sender=sender, date=date, body=body))


def _email(fields: MailFields, directory_name: str = "") -> ParsedEmail:
    """The mail of fields whose body and date are clean already."""
    fields = fields._replace(body=_cut(fields.body))
    # An address has one role, the strongest: to before cc before bcc.
    seen: set[str] = set()
    roles: list[tuple[Mailbox, ...]] = []
    for values in (fields.to, fields.cc, fields.bcc):
        boxes: dict[str, Mailbox] = {}
        for box in head.mailboxes(values):
            if box.address not in seen:
                boxes.setdefault(box.address, box)
        seen.update(boxes)
        roles.append(tuple(boxes.values()))
    to, cc, bcc = roles
    sender = head.sender_mailbox(fields.sender, directory_name)
    decoded = decode_words(fields.subject)
    subject = visible(decoded)
    body = _shown(fields.body, len(decoded) - len(subject))
    sent_at = fields.date and fields.date.astimezone(dt.UTC).replace(tzinfo=None)
    offset = fields.date and fields.date.utcoffset()
    zone = int(offset.total_seconds()) // 60 if offset else 0
    message_id = _clean_message_id(fields.message_id)
    message_id = message_id or derived_message_id(sent_at, sender, subject, body)
    return ParsedEmail(
        fields.source, message_id, sent_at, subject, sender, to, cc, bcc, body, utc_offset=zone
    )


def _shown(text: str, left_out: int = 0) -> str:
    """The text without characters that show as nothing, after a line that says so if they were
    many; `left_out` were before it."""
    seen = visible(text)
    if lost := len(text) - len(seen):
        seen, left_out = tidy(seen), left_out + lost
    return f"[{left_out:,} hidden characters left out]\n{seen}" if left_out >= _MANY else seen


def _clean_message_id(value: str) -> str:
    """The id in its angle brackets and without white space; "" if there is no usable one."""
    if _USUAL_ID.fullmatch(value):
        return value
    value = "".join(visible(head.one_line(value)).split())
    bracketed = _BRACKETED.search(value)
    inner = bracketed[1] if bracketed else value.replace("<", "").replace(">", "")
    return f"<{inner}>" if inner and len(inner) + 2 <= _LONGEST_ID else ""


def derived_message_id(sent: dt.datetime | None, sender: Mailbox, subject: str, body: str) -> str:
    """A stable id for a mail that has none: a hash of date, sender (the address, or else
    the name), subject and body."""
    date = sent.isoformat() if sent else ""
    content = "\0".join((date, sender.address or sender.name, subject, body))
    return f"<{hashlib.sha256(content.encode()).hexdigest()[:32]}@derived.art-e.invalid>"
