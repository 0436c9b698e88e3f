"""Bytes and strings of mail made into clean text: charsets that lie, stray quoted-printable."""

import codecs
import contextlib
import functools
import re
from collections.abc import Callable
from typing import TypeVar

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

# A soft break at the usual width of quoted-printable; a rule of "=====" is none.
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
    """Python's name of a text codec for a declared charset; None if there is none."""
    charset = charset.strip().strip("\"'")
    if _CHARSET_NAME.fullmatch(charset):
        with contextlib.suppress(LookupError, ValueError):
            info = codecs.lookup(charset)
            name = info.name.replace("_", "-")
            if getattr(info, "_is_text_encoding", True) and name not in _NO_CHARSET:
                return name
    return None


def decode_bytes(data: bytes, charset: str = "") -> str:
    """Text of `data`: the declared charset if it can be right, else UTF-8, cp1252, Latin-1.

    ASCII bytes are ASCII whatever was declared, unless NUL bytes (UTF-16) or a seven-bit
    escaping charset say otherwise.
    """
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
    """Decode quoted-printable that a mailer left in a body it declared plain.

    It needs two soft line breaks ("=" at the end of a line of 40 to 77 characters) and two
    escapes that nothing else writes ("=3D", or "=20" at a line's end). A body is often only
    partly quoted-printable, and `?id=27946744` must survive.
    """
    if text.count("=\n") < 2 or len(_SURE_ESCAPE.findall(text)) < 2:
        return text
    if len(_SOFT_BREAK.findall(text)) < 2:
        return text
    return _ESCAPES.sub(
        lambda match: decode_bytes(bytes.fromhex(match[0].strip("\n").replace("=", ""))), text
    )
