"""The sentences of a mail's body, and the kind of value that each states.

Regular expressions over plain text, for the offline baseline. Knows nothing of
questions and scores.
"""

import re
from typing import Literal, NamedTuple

Value = Literal["date", "amount", "number", "person", "place", "contact", "code"]

# A body is looked at up to here, so that no mail can make the baseline slow.
MAX_CHARS = 8_000
MAX_SENTENCE_CHARS = 400

_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    r"sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_WEEKDAY = r"(?:mon|tues?|wednes|thurs?|fri|satur|sun)day"
_PATTERNS: dict[Value, re.Pattern[str]] = {
    "date": re.compile(
        rf"\b{_MONTH}\.?\s+\d|\b\d{{1,2}}(?:st|nd|rd|th)?(?:\s+of)?\s+{_MONTH}\b"
        rf"|\b(?:end|middle|beginning|start|week|month|first half) of (?:the )?\w+"
        rf"|\b(?:mid|late|early|in|by|until|since|for)[ -]{_MONTH}\b"
        rf"|\b{_WEEKDAY}\b|\bthe \d{{1,2}}(?:st|nd|rd|th)\b|\bnext (?:week|month|year)\b"
        r"|\b\d{1,2}/\d{1,2}(?:/\d{2,4})?\b|\b\d{4}-\d\d-\d\d\b"
        r"|\b\d{1,2}(?::\d\d)?\s*[ap]\.?m\b|\b\d{1,2}:\d\d\b|\bnoon\b",
        re.IGNORECASE,
    ),
    "amount": re.compile(
        r"[$€£]\s?\d|\b(?:usd|eur|gbp)\s?\d|\b\d[\d,.]*\s?(?:k|mm|million|billion|cents?|dollars?|"
        r"usd|eur|gbp|per ?cent)\b|\d\s?%",
        re.IGNORECASE,
    ),
    "number": re.compile(
        r"\b(?:\d[\d,.]*|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)\b",
        re.IGNORECASE,
    ),
    "contact": re.compile(r"[\w.+-]+@[\w-]+\.\w|\(?\b\d{3}\)?[ .-]+\d{3}[ .-]\d{4}\b|\bx\d{4,5}\b"),
    "person": re.compile(r"\b[A-Z][\w'’-]+(?: [A-Z]\.?)? [A-Z][\w'’-]+|(?<=[\w,] )[A-Z][a-z]+\b"),
    "code": re.compile(
        r"#\s?\d|\b(?=\w*\d)(?=\w*[A-Z])[A-Z\d][\w-]{2,}\b|\b\d[\d-]{4,}\b|\b[A-Z]{1,6}-\d{2,}\b"
    ),
    "place": re.compile(
        r"\b(?:in|at|to|from|room|near|floor)\s+(?:the\s+)?(?:[A-Z]|\d)|\b[Rr]oom\s+\w+|\b[A-Z]{2,}\d+"
    ),
}

# Lines that frame quoted mail or sign it off, not sentences of it.
_FRAME = re.compile(
    r"\s*(?:-{2,}|_{3,}|={3,}|\*{3,}|(?:from|to|cc|bcc|sent|date|subject)\s*:|on .{0,80} wrote:$)",
    re.IGNORECASE,
)
_QUOTE = re.compile(r"^(?:\s*>)+\s?")
_BULLET = re.compile(r"\s*(?:[-*•+]|\d{1,2}[.)])\s")
_END = re.compile(r"(?<=[.!?])[\"')]*\s+(?=[\"'(]*[A-Z0-9])")
_ABBREVIATION = re.compile(
    r"(?:\b(?:mr|mrs|ms|dr|prof|sr|jr|st|vs|inc|corp|ltd|no|dept|approx|[a-z])|\b[ap]\.m|e\.g|i\.e)\.$",
    re.IGNORECASE,
)


class Sentence(NamedTuple):
    """One sentence; `depth` counts the replies above it: 0 is the mail's own text."""

    text: str
    depth: int


def split_sentences(body: str) -> list[Sentence]:
    """The sentences of `body` in order; list items and short lines stand for themselves."""
    found: list[Sentence] = []
    paragraph: list[str] = []
    depth = 0
    # For each mark of quoted mail above ("Original Message"), the ">" before it.
    marks: list[int] = []

    def close() -> None:
        if paragraph:
            text = " ".join(" ".join(paragraph).split())
            found.extend(Sentence(each, depth) for each in _cut(text))
            paragraph.clear()

    for raw in body[:MAX_CHARS].splitlines():
        quote = _QUOTE.match(raw)
        line = raw[quote.end() :] if quote else raw
        quotes = quote.group().count(">") if quote else 0
        if line.strip():
            # What is quoted less than a mark does not stand below it.
            marks = [each for each in marks if each <= quotes]
        level = len(marks) + quotes
        framed = _FRAME.match(line)
        if framed and ("original message" in line.lower() or "forwarded" in line.lower()):
            marks.append(quotes)
        if level != depth or framed or not line.strip() or _BULLET.match(line):
            close()
            depth = level
        if framed:
            continue
        if line.strip():
            paragraph.append(line.strip())
            if len(line) < 45:
                # A line that ends early ends its paragraph: tables, lists, signatures.
                close()
    close()
    return found


def states(text: str, value: Value) -> bool:
    """Whether `text` holds a value of that kind."""
    return _PATTERNS[value].search(text) is not None


def _cut(text: str) -> list[str]:
    pieces: list[str] = []
    start = 0
    for end in _END.finditer(text):
        if _ABBREVIATION.search(text, max(start, end.start() - 8), end.start()):
            continue
        pieces.append(text[start : end.start()])
        start = end.end()
    pieces.append(text[start:])
    return [piece[:MAX_SENTENCE_CHARS] for piece in pieces if piece]
