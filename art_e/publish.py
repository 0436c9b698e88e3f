"""Text for others to see: cards in Markdown, and names without local paths."""

import html
import re
from functools import cache
from importlib import resources
from pathlib import Path

from jinja2 import Environment, StrictUndefined, Template

from art_e.text import cut_line, printable

_SHOWN_CHARS = 200
_MARKDOWN = re.compile(r"([\\`*_\[\]|#~$!:@])|(?<=www)(\.)", re.IGNORECASE)


class Own(str):
    """Our own Markdown, which `escaped` leaves as it is."""

    __slots__ = ()


def escaped(value: object) -> str:
    """Return a value as `{{ }}` shows it: one line without markup, links or HTML."""
    if isinstance(value, Own):
        return value
    if value is None or isinstance(value, bool):
        return {None: "-", True: "yes", False: "no"}[value]
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
    line = cut_line(printable(str(value)), _SHOWN_CHARS)
    return html.escape(_MARKDOWN.sub(r"\\\1\2", line), quote=False)


@cache
def template(package: str, name: str) -> Template:
    """Return the template in the file `name` of a package."""
    text = (resources.files(package) / name).read_text("utf-8")
    environment = Environment(
        undefined=StrictUndefined, finalize=escaped, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True,
    )  # fmt: skip
    return environment.from_string(text)


# Names for publication: hub ids as they are, and only the last part of paths.

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
# A model or data set in the hub's cache, as `huggingface_hub` names its folders.
_CACHED = re.compile(r"(?<![^\\/])(?:models|datasets)--([\w.-]+?)--([\w.-]+)(?![^\\/])")


def is_hub_id(name: str) -> bool:
    """Return True if `name` is a hub id and not a local file."""
    return _HUB_ID.fullmatch(name) is not None and not Path(name).exists()


def public_name(name: str) -> str:
    """Return a hub id, also for a folder in the hub's cache; the last part of any other path."""
    if is_hub_id(name):
        return name
    if cached := _CACHED.search(name):
        return f"{cached[1]}/{cached[2]}"
    last = re.split(r"[\\/]", name.rstrip("\\/"))[-1]
    is_home = name.rstrip("\\/") == str(Path.home()) or re.fullmatch(r"~\w*", last)
    return "~" if is_home else last or name
