"""Text from untrusted places (mail, models, the command line) made safe to store and show."""

import hashlib
import re

# Characters without a width that no script needs, and tags, which spell hidden ASCII.
INVISIBLE = r"[\u180e\u200b\u2060-\u2064\ufeff\U000e0000-\U000e007f]"
_INVISIBLE = re.compile(INVISIBLE)


def encodable(text: str) -> str:
    """`text` with "?" for lone surrogates: a model's JSON may hold them, UTF-8 can't."""
    return text.encode("utf-8", "replace").decode("utf-8")


def cut_line(text: str, most: int) -> str:
    """`text` on one line, encodable, cut with "..." after `most` characters."""
    line = " ".join(encodable(text).split())
    return line if len(line) <= most else f"{line[:most]}..."


def is_seen(text: str) -> bool:
    """Whether all of `text` can be seen."""
    return _INVISIBLE.search(text) is None


def printable(text: str) -> str:
    """`text` with spaces for control, escape and direction characters."""
    return "".join(each if each.isprintable() else " " for each in encodable(text))


def digest(text: str) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of `text`."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
