"""Decodes bytes: by their declared charset, as browsers do, else by evidence.

A label means its widest variant (GBK for gb2312, cp1252 for Latin-1). A bad byte costs
one character and never the whole text. Bytes whose label is missing, unknown or proven wrong are
read as UTF-8, as the charset declared next to them, or as what `chardet` takes them for."""

import codecs
import functools
import re
from contextlib import suppress
from typing import Any

import webencodings  # type: ignore[import-untyped]

from art_e.text import toml_table

SPELLINGS: dict[str, dict[str, str]] = toml_table(__package__, "spellings.toml")
_MISSPELLED = [(re.compile(form), name) for form, name in SPELLINGS["misspelled"].items()]
_UNPROVEN = ("", "ascii", "utf-8", "cp1252")  # labels that prove nothing: all Western mail has them
_ESCAPED = re.compile(r"iso2022|hz|utf-7")  # seven-bit: ASCII bytes encode other characters
_SEVERAL_BYTES = re.compile(r"gb|big5|cp9|cp874|euc|shift|johab")

_ASCII = bytes(range(0x80))
_HIGH_RUN, _CONTROLS = re.compile(rb"[\x80-\xff]{3,}"), re.compile(rb"[\x80-\x9f]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_JIS_RUN = re.compile(rb"(?:\x1b(\$|\()[@BIJ]|\x0e)([^\x1b\x0e\x0f]*)\x0f?")
_JIS_PAIR = re.compile(rb"[!-~]{2}")
# Bytes that `chardet` reads; Latin charsets that it tells from cp1252, and its minimum confidence.
_SAMPLE, _LATIN, _MIN_CONFIDENCE = 4_000, ("cp1250", "cp1254"), 0.05
_WESTERN = bytes(range(0x100)).decode("cp1252", "surrogateescape")
_BAD_BYTES = {0xDC00 + byte: _WESTERN[byte] for byte in range(0x80, 0x100)}  # surrogateescape's
_BAD_BYTES |= {0xDC00 + byte: chr(byte) for byte in b"\x81\x8d\x8f\x90\x9d"}  # not in cp1252
_AS_BYTES = {byte: 0xDC00 + byte for byte in range(0x80, 0x100)}
_AS_BYTES |= {ord(char): byte for byte, char in _BAD_BYTES.items()}
# Two characters that result if UTF-8 is read as cp1252.
_TWICE = re.compile(f"[\xc2-\xf4][\x80-\xbf{_WESTERN[0x80:0xA0]}]".translate(_BAD_BYTES))
# In UTF-8: characters written as surrogate pairs, and a truncated character.
_PAIRS = re.compile(rb"(?:\xed[\xa0-\xaf][\x80-\xbf]\xed[\xb0-\xbf][\x80-\xbf])+")
_CUT = r"[\udcf0-\udcf4][\udc80-\udcbf]{2}|[\udce0-\udcef][\udc80-\udcbf]\Z"


def _euro_or_bad(error: Any) -> tuple[str, int]:
    # A single 0x80 is the euro of Windows' GBK.
    return "€" if error.object[error.start : error.end] == b"\x80" else "\ufffd", error.end


codecs.register_error("euro", _euro_or_bad)


@functools.lru_cache(maxsize=1024)
def codec_of(label: str) -> str:
    """Return Python's codec for a declared charset, however it is spelled; "" if unknown."""
    label = scrub(label).strip(" \t\r\n\"';").lower()[:100]
    spellings = [label, label.removeprefix("x-")]
    spellings += [match.expand(name) for form, name in _MISSPELLED if (match := form.search(label))]
    for spelling in filter(None, spellings):
        standard = webencodings.lookup(spelling)
        codec: Any = standard and standard.codec_info
        with suppress(LookupError, ValueError):
            codec = codecs.lookup(spelling)
        if codec and getattr(codec, "_is_text_encoding", True):
            name: str = codec.name.replace("_", "-").removesuffix("-sig")
            return SPELLINGS["widest"].get(name, name)
    return ""


def decode_bytes(data: bytes, charset: str = "", nearby: str = "") -> str:
    """Return the text of `data`, labelled `charset`; `nearby` is a label next to it, such as the
    body's for a header. ASCII bytes are ASCII whatever their label, unless NUL bytes (UTF-16) or
    escapes of a seven-bit charset say otherwise."""
    declared = codec_of(charset) if charset else ""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        declared = "utf-16"
    elif declared in ("utf-16", "utf-16-le") and data[::2].count(0) > data[1::2].count(0):
        declared = "utf-16-be"
    if data.isascii():
        if b"\x1b" in data and b"\x1b$" in data and not _ESCAPED.match(declared):
            declared = "iso2022-jp"
        is_wide = declared.startswith(("utf-16", "utf-32")) and b"\0" in data
        if not is_wide and not _ESCAPED.match(declared):
            return data.decode("ascii").replace("\0", "")
    utf8 = strict(data, "utf-8")
    # A few multibyte characters may be valid UTF-8 by chance.
    is_chance = bool(utf8) and len(data) < len(utf8) + 4 and _SEVERAL_BYTES.match(declared)
    if not utf8 or "\0" in utf8 or data.isascii() or is_chance:
        utf8 = _as_labelled(data, declared) or utf8 or _by_evidence(data, declared, nearby)
    elif _TWICE.search(utf8):
        with suppress(ValueError):
            utf8 = utf8.translate(_AS_BYTES).encode("ascii", "surrogateescape").decode()
    return scrub(utf8)


def scrub(text: str) -> str:
    """Return `text` without NUL characters; lone surrogates become U+FFFD."""
    if "\0" in text:
        text = text.replace("\0", "")
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def strict(data: bytes, codec: str) -> str:
    """Return the text of `data`; "" if a byte is bad or the codec is unknown."""
    with suppress(LookupError, ValueError):
        return data.decode(codec)
    return ""


def _as_labelled(data: bytes, codec: str) -> str:
    """Return the text, or "" if the label proves nothing or over a quarter of the text is bad."""
    if codec in _UNPROVEN:
        return ""
    if _CONTROLS.search(data):
        codec = SPELLINGS["windows"].get(codec, codec)
    text = strict(data, codec) or strict(data, SPELLINGS["beside"].get(codec, ""))
    if not text or "\x0e" in text:
        if codec == "iso2022-jp":
            data, codec = _JIS_RUN.sub(_shift_jis, data), "cp932"
        text = data.decode(codec, "euro")
    size = len(data.translate(None, _ASCII)) or len(text)
    return text if text.count("\ufffd") * 4 <= size else ""


def _shift_jis(run: "re.Match[bytes]") -> bytes:
    """Return a run of ISO-2022-JP as Shift_JIS, for which Python has NEC's and IBM's characters."""

    def shifted(pair: "re.Match[bytes]") -> bytes:
        row, cell = pair[0]
        lead = (row + 1) // 2 + (0x70 if row < 0x5F else 0xB0)  # two rows of JIS share a lead byte
        return bytes((lead, cell + (0x1F + (cell >= 0x60) if row % 2 else 0x7E)))  # skips 0x7F

    if run[0][1:3] == b"(I" or not run[1]:  # half-width kana
        return bytes(byte | 0x80 if byte > 0x20 else byte for byte in run[2])
    return _JIS_PAIR.sub(shifted, run[2]) if run[1] == b"$" else run[2]


def _by_evidence(data: bytes, declared: str, nearby: str) -> str:
    data = _PAIRS.sub(_joined, data)
    readable = data.decode("utf-8", "ignore")
    valid = len(readable.encode()) - len(readable)
    lost = len(data) - len(readable) - valid
    # `valid` bytes continue characters of UTF-8, `lost` bytes are not UTF-8.
    if lost > (valid * 2 if declared == "utf-8" else valid / 3):
        is_latin = sum(map(len, _HIGH_RUN.findall(data))) * 3 < len(data.translate(None, _ASCII))
        near_codec = codec_of(nearby)
        if not is_latin or "cp1252" not in (declared, near_codec):
            text = _as_labelled(data, near_codec) or _as_labelled(data, _detected(data, is_latin))
            if text:
                return text
    return _repaired(data)


def _joined(pairs: "re.Match[bytes]") -> bytes:
    text = pairs[0].decode("utf-8", "surrogatepass")
    return text.encode("utf-16", "surrogatepass").decode("utf-16").encode()


def _repaired(data: bytes) -> str:
    """Decode UTF-8, each bad byte as cp1252 and each truncated character as U+FFFD."""
    text = data.decode("utf-8", "surrogateescape")
    # A bad byte that starts other characters of this text starts a truncated one.
    starts = {char.encode()[0] for char in set(_SURROGATE.sub("", text)) if not char.isascii()}
    cut = "|".join(rf"{chr(0xDC00 + byte)}[\udc80-\udcbf]*" for byte in starts)
    return re.sub(f"{cut}|{_CUT}" if cut else _CUT, "\ufffd", text).translate(_BAD_BYTES)


def _detected(data: bytes, is_latin: bool) -> str:
    """Return `chardet`'s codec; of a Latin script only `_LATIN` if it is sure, else ""."""
    import chardet  # imported late: it takes a tenth of a second, and few mails need it

    start = max(0, len(data) - len(data.lstrip(_ASCII)) - 100)
    guess = chardet.detect(
        data[start : start + _SAMPLE], encoding_era=chardet.EncodingEra.MODERN_WEB,
        compat_names=False, prefer_superset=True,
    )  # fmt: skip
    codec = codec_of(guess["encoding"] or "")
    is_sure = codec in _LATIN and guess["confidence"] >= _MIN_CONFIDENCE
    return codec if is_sure or not is_latin else ""
