"""Text from untrusted places (mail, models, the command line) made safe to store and show."""

import hashlib
import re
import tomllib
from collections.abc import Callable
from functools import cache
from importlib import import_module  # importlib.resources takes 5 ms to import
from pathlib import Path
from typing import Any

# Character classes of regular expressions, given by their code points.
_LINES = Path(__file__).with_name("characters.txt").read_text("utf-8").splitlines()
CLASSES = {
    name: f"[{re.sub('[0-9a-fA-F]+ ?', lambda code: chr(int(code[0], 16)), spans)}]"
    for name, _, spans in (line.partition(" ") for line in _LINES)
    if name != "#"
}
_HIDDEN, _EMOJI, _JOINING, _HAN, _VARYING = map(
    CLASSES.__getitem__, ("hidden", "emoji", "joining", "han", "varying")
)
# The flags of England, Scotland and Wales. Other tags show as a black flag.
_FLAGS = "|".join(
    "".join(chr(0xE0000 + ord(tag)) for tag in region) for region in ("gbeng", "gbsct", "gbwls")
)
# A hidden character; group 1 has it if it has a meaning there, after the character that it changes.
_EACH_HIDDEN = (
    rf"(?={_HIDDEN})(?:((?<={_JOINING})[\u200c\u200d]"
    rf"|(?:(?<={_EMOJI})|(?<={_EMOJI}\ufe0f))\u200d(?={_EMOJI})|(?<={_EMOJI})[\ufe0e\ufe0f]"
    rf"|(?<=[#*0-9])\ufe0f(?=\u20e3)|(?<=\U0001f3f4)(?:{_FLAGS})\U000e007f"
    rf"|(?<={_HAN})[\U000e0100-\U000e01ef]|(?<={_VARYING})[\ufe00-\ufe02]"
    r"|(?<=[\u1820-\u18aa])[\u180b-\u180f]|(?<=[\u2801-\u28ff])\u2800(?=[\u2801-\u28ff]))|.)"
)


def encodable(text: str) -> str:
    """Replace lone surrogates with "?": a model's JSON may have them, but UTF-8 can't."""
    return text.encode("utf-8", "replace").decode("utf-8")


def cut_line(text: str, limit: int) -> str:
    """Return `text` on one line, encodable, cut with "..." after `limit` characters."""
    line = " ".join(encodable(text).split())
    return line if len(line) <= limit else f"{line[:limit]}..."


def visible(text: str, named: Callable[[str], str] = lambda _: "") -> str:
    """Replace meaningless invisible characters with `named(character)`, "" by default. Joiners in
    words and emoji, and one variation selector after its base, stay."""
    if text.isascii() or re.search(_HIDDEN, text) is None:
        return text
    return re.sub(_EACH_HIDDEN, lambda match: match[1] or named(match[0]), text)


def printable(text: str) -> str:
    """Replace control, escape and direction characters by spaces."""
    return "".join(each if each.isprintable() else " " for each in visible(encodable(text)))


def digest(text: str) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of `text`."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def prompt_text(package: str, name: str) -> str:
    """Return the prompt `name` of a package."""
    folder = Path(import_module(package).__path__[0], "prompts")
    return (folder / f"{name}.txt").read_text("utf-8")


@cache
def toml_table(package: str, name: str) -> dict[str, Any]:
    """Return the table in the TOML file `name` of a package."""
    return tomllib.loads(Path(import_module(package).__path__[0], name).read_text("utf-8"))
