"""The body of a message: one text out of whatever tree of MIME parts it is.

text/plain before HTML, attachments named at the tail, attached mails read.
Knows nothing of headers other than those that describe a part.
"""

from collections.abc import Sequence
from email.message import Message
from typing import NamedTuple, TypeAlias

from data_pipeline.mail.headers import PartType, decode_words, headers_of, part_type
from data_pipeline.mail.html import html_to_text, without_html
from data_pipeline.mail.text import decode_bytes, tidy, without_stray_quoted_printable

DEEPEST_PART = 20

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
    readable = without_html(without_stray_quoted_printable(text))
    return text if readable is text else tidy(readable)


def _content(part: Part, kind: PartType, depth: int) -> Content:
    if kind.is_container and part.is_multipart():
        if depth >= DEEPEST_PART:
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
