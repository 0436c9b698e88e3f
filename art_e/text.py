"""Text that may come from anywhere: mail, models, the command line. Knows nothing of these."""

import hashlib


def encodable(text: str) -> str:
    """`text` with "?" for each lone surrogate, which a model's JSON may hold and UTF-8 can't."""
    return text.encode("utf-8", "replace").decode("utf-8")


def cut_line(text: str, most: int) -> str:
    """`text` on one line, encodable, with "..." for what is beyond `most` characters."""
    line = " ".join(encodable(text).split())
    return line if len(line) <= most else f"{line[:most]}..."


def printable(text: str) -> str:
    """`text` without what is no character to see: control, escape and direction characters."""
    return "".join(each if each.isprintable() else " " for each in encodable(text))


def digest(text: str) -> str:
    """A short name for `text`, the same wherever it is made: 16 hexadecimal digits of SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
