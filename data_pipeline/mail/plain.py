"""Well-formed messages of one text, split without `email`, which takes five times as long.

    bytes -> plain_message -> headers, body text; None where it takes `email` to tell

What comes out is what `headers.py` and `body.py` make of the same bytes.
Knows nothing of MIME trees, addresses or dates.
"""

import binascii
import re
from typing import NamedTuple

from data_pipeline.mail.body import leaf_text
from data_pipeline.mail.headers import Headers, cut, declared_type

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
