"""HTML mail made into readable text, and telling HTML from text that only mentions tags.

`inscriptis` lays the text out. Knows nothing of MIME. Mail is hostile: styles
are ignored (a margin of a million lines), tables become rows of words (column
padding multiplies a cell's width by the rows), and what is too deep or too
long for a layout is stripped of its tags instead, in linear time.
"""

import html
import re

from inscriptis.css_profiles import CSS_PROFILES  # type: ignore[import-untyped]
from inscriptis.html_engine import Inscriptis  # type: ignore[import-untyped]
from inscriptis.model.config import ParserConfig  # type: ignore[import-untyped]
from lxml import etree
from lxml.html import HtmlElement, HTMLParser, document_fromstring

# Beyond these, tags are stripped. libxml2 drops what is nested deeper than 256.
LONGEST_LAYOUT = 1_000_000
DEEPEST_LAYOUT = 100

_CELL_GAP = "\ue000"  # private use: survives the layout's collapsing of white space
_BLOCKS = {"table": "div", "thead": "div", "tbody": "div", "tfoot": "div", "tr": "div"}
_CELLS = {"td": "span", "th": "span"}
_CONFIG = ParserConfig(css=CSS_PROFILES["strict"].copy(), display_links=False, display_images=False)

_UNSEEN = r"script|style|head|title|template"
_TOKEN = re.compile(r"<!--|-->|<[!?/]?[a-zA-Z\[!-][^<>]*>|<!\s*>")
_UNSEEN_TAG = re.compile(rf"<(/?)({_UNSEEN})\b", re.IGNORECASE)
_BLOCK_TAG = re.compile(r"</?(?:p|div|br|tr|table|li|ul|ol|h[1-6]|blockquote|hr|pre)\b", re.I)

_TAG = re.compile(
    r"</?(?:html|head|body|title|meta|style|script|table|tr|td|th|font|br|p|div|span|a|b|i|u|hr"
    r"|img|center|h[1-6]|ul|ol|li|strong|em|tbody)\b[^<>]*>",
    re.IGNORECASE,
)
_LINK = re.compile(r"</?a\b", re.IGNORECASE)
_DOCUMENT_START = re.compile(
    r"\s*(?:<![^<>]*>\s*)*(?:<!doctype\s+html|<(?:html|head|body|meta|title)\b)", re.IGNORECASE
)
_INNER_START = re.compile(r"^[ \t]*<(?:!doctype\s+html|html)\b", re.IGNORECASE | re.MULTILINE)
_INNER_END = "</html>"
_BLANK_LINES = re.compile(r"\n{3,}")
# A document inside a text needs this many tags, a text made of tags this share of them.
_INNER_TAGS = 20
_LEAST_TAGS = 5
_TAG_SHARE = 0.4
_LINES_PER_BLOCK = 4


def html_to_text(source: str) -> str:
    """The text of an HTML document, readable line by line; never fails."""
    text = None
    if len(source) <= LONGEST_LAYOUT:
        try:
            text = _layout(source)
        except (etree.LxmlError, ValueError, LookupError, TypeError, AttributeError):
            text = None  # a document that the layout can't take
    if text is None:
        text = strip_tags(source)
    lines = [_row(line).rstrip() for line in text.split("\n")]
    return _BLANK_LINES.sub("\n\n", "\n".join(lines)).strip("\n")


def _row(line: str) -> str:
    """A line of the layout; cells of a table row stand two spaces apart."""
    if _CELL_GAP not in line:
        return line
    cells = (cell.strip() for cell in line.split(_CELL_GAP))
    return "  ".join(cell for cell in cells if cell)


def without_html(text: str) -> str:
    """`text`, declared plain, with what is really HTML in it made readable.

    Three cases, by rule: it starts as an HTML document; a whole document
    (`<html>` at a line's start, at least 20 tags) stands inside the text; at
    least 40 % of it are tags, and not links alone (AOL wrote those into plain
    text). Text before and after the HTML stays as it is.
    """
    if text.count("<") < _LEAST_TAGS:
        return text
    if _DOCUMENT_START.match(text):
        return _converted(text, 0)
    inner = _INNER_START.search(text)
    if inner and len(_TAG.findall(text, inner.start())) >= _INNER_TAGS:
        return _converted(text, inner.start())
    tags = list(_TAG.finditer(text))
    others = sum(1 for tag in tags if not _LINK.match(tag[0]))
    length = sum(tag.end() - tag.start() for tag in tags)
    if others < _LEAST_TAGS or length < _TAG_SHARE * len(text):
        return text
    return _converted(text, tags[0].start())


def _converted(text: str, start: int) -> str:
    end = text.lower().rfind(_INNER_END, start)
    end = len(text) if end < 0 else end + len(_INNER_END)
    source = text[start:end]
    # Written in lines, with a frame of tags around: laying it out would join the lines.
    in_lines = len(_BLOCK_TAG.findall(source)) * _LINES_PER_BLOCK < source.count("\n")
    return text[:start] + (strip_tags(source) if in_lines else html_to_text(source)) + text[end:]


def _layout(source: str) -> str | None:
    """The text as `inscriptis` lays it out; None where the document is too deep for it."""
    if not source.strip():
        return ""
    tree = document_fromstring(
        source.encode("utf-8", "replace"), parser=HTMLParser(encoding="utf-8")
    )
    etree.strip_tags(tree, etree.Comment, etree.ProcessingInstruction)
    if not _flattened(tree):
        return None
    return str(Inscriptis(tree, _CONFIG).get_text())


def _flattened(tree: HtmlElement) -> bool:
    """Make tables rows of words and drop attributes, in place; False if the tree is too deep."""
    pending = [(tree, 1)]
    while pending:
        element, depth = pending.pop()
        if depth > DEEPEST_LAYOUT:
            return False
        pending.extend((child, depth + 1) for child in element)
        if not isinstance(element.tag, str):
            continue
        style = element.get("style") or ""
        hidden = "display:none" in style.replace(" ", "").lower()
        element.attrib.clear()
        if hidden:
            element.set("style", "display:none")
        if element.tag in _CELLS:
            element.tag = _CELLS[element.tag]
            element.tail = _CELL_GAP + (element.tail or "")
        else:
            element.tag = _BLOCKS.get(element.tag, element.tag)
    return True


def strip_tags(source: str) -> str:
    """The text between the tags, without scripts and styles; linear in the length."""
    pieces: list[str] = []
    unseen = ""  # the element (or comment) whose end is awaited
    end = 0
    for match in _TOKEN.finditer(source):
        token = match[0]
        if not unseen:
            pieces.append(source[end : match.start()])
            pieces.append("\n" if _BLOCK_TAG.match(token) else " ")
        end = match.end()
        tag = _UNSEEN_TAG.match(token)
        if unseen == "<!--":
            unseen = "" if token == "-->" else unseen
        elif unseen:
            unseen = "" if tag and tag[1] and tag[2].lower() == unseen else unseen
        elif token == "<!--":
            unseen = token
        elif tag and not tag[1]:
            unseen = tag[2].lower()
    if not unseen:
        pieces.append(source[end:])
    lines = [" ".join(line.split()) for line in html.unescape("".join(pieces)).split("\n")]
    return "\n".join(lines)
