"""Cards in Markdown: templates in which what others wrote can be nothing but text.

Knows nothing of what the cards say.
"""

import html
import re
from functools import cache
from importlib import resources

from jinja2 import Environment, StrictUndefined, Template

from art_e.text import cut_line

_SHOWN_CHARS = 200
_MARKDOWN = re.compile(r"([\\`*_\[\]|#~$!:@])|(?<=www)(\.)", re.IGNORECASE)


class Own(str):
    """Markdown of our own, which is not escaped."""

    __slots__ = ()


def escaped(value: object) -> str:
    """What `{{ }}` shows of a value: one line in which nothing is markup, links or HTML."""
    if isinstance(value, Own):
        return value
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    # Control characters end with the spaces: none is printable.
    line = "".join(c if c.isprintable() else " " for c in str(value))
    return html.escape(_MARKDOWN.sub(r"\\\1\2", cut_line(line, _SHOWN_CHARS)), quote=False)


@cache
def template(package: str, name: str) -> Template:
    """The template in the file `name` of a package; its filter `own` marks text as ours."""
    text = (resources.files(package) / name).read_text("utf-8")
    environment = Environment(
        undefined=StrictUndefined,
        finalize=escaped,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["own"] = Own
    return environment.from_string(text)
