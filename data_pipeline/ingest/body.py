"""The body of a message: one text out of a tree of MIME parts.

text/plain before HTML, attachments named at the end, attached mails included.
"""

import binascii
import contextlib
import html
import re
from collections.abc import Sequence
from email.message import Message
from typing import NamedTuple, TypeAlias

from inscriptis.css_profiles import CSS_PROFILES  # type: ignore[import-untyped]
from inscriptis.html_engine import Inscriptis  # type: ignore[import-untyped]
from inscriptis.model.config import ParserConfig  # type: ignore[import-untyped]
from lxml import etree
from lxml.html import HtmlElement, HTMLParser, document_fromstring

from data_pipeline.ingest.headers import (
    Headers,
    PartType,
    cut,
    declared_type,
    decode_words,
    headers_of,
    part_type,
)
from data_pipeline.ingest.text import decode_bytes, tidy, without_stray_quoted_printable

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
        with contextlib.suppress(
            etree.LxmlError, ValueError, LookupError, TypeError, AttributeError
        ):
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
    tree = document_fromstring(
        source.encode("utf-8", "replace"), parser=HTMLParser(encoding="utf-8")
    )
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
    end = 0
    for match in _TOKEN.finditer(source):
        token = match[0]
        if not unseen:
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
    """The header fields and the readable body of a message."""

    headers: Headers
    body: str


def plain_message(data: bytes) -> PlainMessage | None:
    """The message, if it is well formed and its body is one text; else None."""
    block, body = cut(data)
    if len(block) > _LARGEST_BLOCK or not _WELL_FORMED.fullmatch(block):
        return None
    headers = Headers(_FIELD.findall(block.decode("ascii", "surrogateescape")))
    content_type = headers.raw("content-type")
    encoding = headers.raw("content-transfer-encoding").lower()
    if len(content_type) > _LONGEST_TYPE or not content_type.isascii():
        return None
    kind = declared_type(content_type)
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


class Content(NamedTuple):
    """What a part contributes: texts in reading order, attachments as lines for the tail."""

    texts: list[str]
    attachments: list[str]


def message_body(message: Part) -> str:
    """The body of a parsed message, "" if it has none.

    A text that is the whole message is its body even if it calls itself an attachment.
    """
    kind = part_type(message)
    content = _leaf(message, kind) if _is_text(message, kind) else _content(message, kind, 0)
    tail = ["\n".join(content.attachments)] if content.attachments else []
    return "\n\n".join(content.texts + tail).strip("\n")


def leaf_text(data: bytes, kind: PartType) -> str:
    """The readable text of a part's bytes, its transfer encoding undone."""
    text = decode_bytes(data, kind.charset)
    return tidy(html_to_text(text)) if kind.is_html else plain_text(text)


def plain_text(text: str) -> str:
    """The readable text of a text/plain body: tidy, stray quoted-printable and HTML undone."""
    text = tidy(text)
    readable = _without_html(without_stray_quoted_printable(text))
    return text if readable is text else tidy(readable)


def _content(part: Part, kind: PartType, depth: int) -> Content:
    if kind.is_container and part.is_multipart():
        if depth >= _DEEPEST_PART:
            return Content([], [_attachment_line(part, kind)])
        if kind.kind == "message/rfc822":
            return _attached_message(part, depth)
        if kind.kind.startswith("multipart/"):
            return _joined(part, kind, depth)
    elif _is_text(part, kind) and not _is_attachment(part):
        return _leaf(part, kind)
    return Content([], [_attachment_line(part, kind)])


def _joined(part: Part, kind: PartType, depth: int) -> Content:
    """The parts of a multipart, one after the other, or the best of its alternatives."""
    kinds = [(child, part_type(child)) for child in _children(part)]
    contents = [(child, _content(part, child, depth + 1)) for part, child in kinds]
    attachments = [line for _, content in contents for line in content.attachments]
    if kind.kind == "multipart/alternative":
        return Content(_best_alternative(contents), attachments)
    return Content([text for _, content in contents for text in content.texts], attachments)


def _leaf(part: Part, kind: PartType) -> Content:
    """The text of a text part. A multipart that has no parts is read as text, too."""
    data = part.get_payload(decode=True)
    text = leaf_text(data if isinstance(data, bytes) else b"", kind)
    return Content([text] if text else [], [])


def _attached_message(part: Part, depth: int) -> Content:
    texts: list[str] = []
    attachments: list[str] = []
    for inner in _children(part):
        kind = part_type(inner)
        subject = decode_words(headers_of(inner).first("subject"))
        content = _leaf(inner, kind) if _is_text(inner, kind) else _content(inner, kind, depth + 1)
        texts.append("\n".join([f"[Attached message: {subject}]", *content.texts]))
        attachments += content.attachments
    return Content(texts, attachments)


def _best_alternative(contents: Sequence[tuple[PartType, Content]]) -> list[str]:
    """Of several forms of one text: plain, else HTML or what holds it, else any."""
    with_text = [(kind, content.texts) for kind, content in contents if content.texts]
    for kind, texts in with_text:
        if kind.kind == "text/plain":
            return texts
    for kind, texts in with_text:
        if kind.is_html or kind.is_container:
            return texts
    return with_text[0][1] if with_text else []


def _children(part: Part) -> list[Part]:
    payload = part.get_payload()
    return [child for child in payload if isinstance(child, Message)] if part.is_multipart() else []


def _is_text(part: Part, kind: PartType) -> bool:
    return kind.is_text and not part.is_multipart()


def _is_attachment(part: Part) -> bool:
    disposition = headers_of(part).first("content-disposition").lower()
    return disposition.startswith("attachment") or bool(_file_name(part))


def _attachment_line(part: Part, kind: PartType) -> str:
    """One line that names an attachment: `[Attachment: plan.pdf (application/pdf, 12 KB)]`."""
    size = _size(part)
    return f"[Attachment: {_file_name(part) or 'unnamed'} ({kind.kind}{size and ', '}{size})]"


def _file_name(part: Part) -> str:
    try:
        name = part.get_filename("") or ""
    except (ValueError, LookupError, TypeError):  # RFC 2231 parameters beyond repair
        return "unnamed"
    data = str(name).encode("utf-8", "surrogateescape")
    return decode_words(decode_bytes(data))[:_LONGEST_NAME]


def _size(part: Part) -> str:
    """The size of a leaf, in whole KB; base64 isn't decoded for it."""
    try:
        payload = part.get_payload()
    except (TypeError, ValueError):  # `email` stumbles over charset*= (RFC 2231) and NUL characters
        data = part.get_payload(decode=True)
        payload = data.decode("latin-1") if isinstance(data, bytes) else ""
    if not isinstance(payload, str):
        return ""
    size = len(payload)
    if headers_of(part).first("content-transfer-encoding").lower() == "base64":
        size = (size - payload.count("\n") - payload.count("\r")) * 3 // 4
    return f"{max(1, round(size / 1024)):,} KB"
