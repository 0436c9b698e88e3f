"""Text from untrusted places (mail, models, the command line) made safe to store and show."""

import hashlib
import re
from collections.abc import Callable
from functools import cache
from importlib import resources

# The inside of a class of what shows as nothing: Unicode's Default_Ignorable_Code_Point, further
# format characters (Cf) without a shape, and blank Braille.
HIDDEN = (
    r"\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    r"\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U00013430-\U0001343f"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_HIDDEN = re.compile(f"[{HIDDEN}]")
_EMOJI = (
    r"[\xa9\xae\u203c\u2049\u2122\u2139\u2194-\u21aa\u2300-\u23ff\u24c2\u25aa-\u25fe\u2600-\u27bf"
    r"\u2934\u2935\u2b05-\u2b55\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
)
# Arabic to Sinhala, Tibetan to Myanmar, Khmer, Mongolian, and their kin.
_JOINING = (
    r"[\u0620-\u0dff\u0f00-\u109f\u1780-\u17b3\u17b6-\u17ff\u1820-\u18af\u1900-\u1cff"
    r"\ua800-\uabff\ufb50-\ufdff\ufe70-\ufefc\U00010a00-\U00011fff\U0001e900-\U0001e95f]"
)
_HAN = r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
# Zero, Myanmar, mathematics, punctuation of CJK, Phags-pa, Manichaean, hieroglyphs.
_OTHERS = (
    r"0\u1000-\u109f\u2205-\u22ff\u2a00-\u2aff\u3001-\u303f\ua840-\ua877\uaa60-\uaa7f"
    r"\uff01-\uff1b\U00010ac0-\U00010af6\U00013000-\U0001342f"
)
# Of England, Scotland and Wales. Other tags show as a black flag, whatever they spell.
_FLAGS = "|".join(
    "".join(chr(0xE0000 + ord(tag)) for tag in region) for region in ("gbeng", "gbsct", "gbwls")
)
# A hidden character and, if it means something there, itself: behind what it changes, and once.
_EACH_HIDDEN = re.compile(
    rf"(?=[{HIDDEN}])(?:((?<={_JOINING})[\u200c\u200d]"
    rf"|(?:(?<={_EMOJI})|(?<={_EMOJI}\ufe0f))\u200d(?={_EMOJI})|(?<={_EMOJI})[\ufe0e\ufe0f]"
    rf"|(?<=[#*0-9])\ufe0f(?=\u20e3)|(?<=\U0001f3f4)(?:{_FLAGS})\U000e007f"
    rf"|(?<=[{_HAN}])[\U000e0100-\U000e01ef]|(?<=[{_HAN}{_OTHERS}])[\ufe00-\ufe02]"
    r"|(?<=[\u1820-\u18aa])[\u180b-\u180f]|(?<=[\u2801-\u28ff])\u2800(?=[\u2801-\u28ff]))|.)"
)


def encodable(text: str) -> str:
    """`text` with "?" for lone surrogates: a model's JSON may hold them, UTF-8 can't."""
    return text.encode("utf-8", "replace").decode("utf-8")


def cut_line(text: str, most: int) -> str:
    """`text` on one line, encodable, cut with "..." after `most` characters."""
    line = " ".join(encodable(text).split())
    return line if len(line) <= most else f"{line[:most]}..."


def visible(text: str, named: Callable[[str], str] = lambda _: "") -> str:
    """`text` without characters that show as nothing, but where they mean something: joiners in
    words and emoji, one variation selector behind its base. `named` gives what stands for them."""
    if text.isascii() or _HIDDEN.search(text) is None:
        return text
    return _EACH_HIDDEN.sub(lambda found: found[1] or named(found[0]), text)


def printable(text: str) -> str:
    """`text` with spaces for control, escape and direction characters."""
    return "".join(each if each.isprintable() else " " for each in visible(encodable(text)))


def digest(text: str) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of `text`."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def prompt_text(package: str, name: str) -> str:
    """Return the prompt of that name of a package."""
    return resources.files(package).joinpath(f"prompts/{name}.txt").read_text(encoding="utf-8")
