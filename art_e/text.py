"""Text from untrusted places (mail, models, the command line) made safe to store and show."""

import hashlib
import re
import tomllib
from collections.abc import Callable
from functools import cache
from importlib import import_module  # importlib.resources takes 5 ms to import
from pathlib import Path
from typing import Any

# A regular expression's classes of characters, given by their code points.
_LINES = Path(__file__).with_name("characters.txt").read_text("utf-8").splitlines()
CLASSES = {
    name: f"[{re.sub('[0-9a-fA-F]+ ?', lambda code: chr(int(code[0], 16)), spans)}]"
    for name, _, spans in (line.partition(" ") for line in _LINES)
    if name != "#"
}
_HIDDEN, _EMOJI, _JOINING, _HAN, _VARYING = map(
    CLASSES.__getitem__, ("hidden", "emoji", "joining", "han", "varying")
)
# Of England, Scotland and Wales. Other tags show as a black flag, whatever they spell.
_FLAGS = "|".join(
    "".join(chr(0xE0000 + ord(tag)) for tag in region) for region in ("gbeng", "gbsct", "gbwls")
)
# A hidden character and, if it means something there, itself: behind what it changes, and once.
_EACH_HIDDEN = (
    rf"(?={_HIDDEN})(?:((?<={_JOINING})[\u200c\u200d]"
    rf"|(?:(?<={_EMOJI})|(?<={_EMOJI}\ufe0f))\u200d(?={_EMOJI})|(?<={_EMOJI})[\ufe0e\ufe0f]"
    rf"|(?<=[#*0-9])\ufe0f(?=\u20e3)|(?<=\U0001f3f4)(?:{_FLAGS})\U000e007f"
    rf"|(?<={_HAN})[\U000e0100-\U000e01ef]|(?<={_VARYING})[\ufe00-\ufe02]"
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
    if text.isascii() or re.search(_HIDDEN, text) is None:
        return text
    return re.sub(_EACH_HIDDEN, lambda found: found[1] or named(found[0]), text)


def printable(text: str) -> str:
    """`text` with spaces for control, escape and direction characters."""
    return "".join(each if each.isprintable() else " " for each in visible(encodable(text)))


def digest(text: str) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of `text`."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def prompt_text(package: str, name: str) -> str:
    """Return the prompt of that name of a package."""
    folder = Path(import_module(package).__path__[0], "prompts")
    return (folder / f"{name}.txt").read_text("utf-8")


@cache
def toml_table(package: str, name: str) -> dict[str, Any]:
    """Return the table in the TOML file `name` of a package."""
    folder = import_module(package).__path__[0]
    return tomllib.loads(Path(folder, name).read_text("utf-8"))
