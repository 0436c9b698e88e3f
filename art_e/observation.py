"""Prepares a mail's text for lean observations: tidied, without text that was shown before.

A line in brackets stands for text left out ("[quoted from m1]", "[disclaimer]", "[signature]") or
for the headers of quoted mail. If a mail imitates such a line, its bracket becomes round."""

import re
import textwrap
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from art_e.inbox.snippet import cut_snippet
from art_e.inbox.threads import HEADER, HEADERS, bare_subject
from art_e.inbox.tokenizer import stems, words
from art_e.quotations import Runs, Seen, runs_of
from art_e.text import cut_line

_KINDS = {name: kind for kind, names in HEADERS.items() for name in names.split("|")}
_HEADER = re.compile(rf"{HEADER}\s*(.*)", re.IGNORECASE)
_QUOTE = re.compile(r"(?:\s*>)+")
# The lines above the headers of quoted mail: a rule, a name and a time.
_DATE = r"\d\d?/\d\d?/\d{2,4}(?:,? \d\d?:\d\d(?::\d\d)?)?(?: ?[ap]m)?"
_ABOVE = re.compile(
    rf"-{{4,}}.*\w|.*-{{4,}}$|please respond to|(?:.{{3,80}} on )?{_DATE}[ -]*$"
    r"|\d\d?:\d\d.{0,6}[ -]*$",
    re.IGNORECASE,
)
_STAMP = re.compile(rf"{_DATE}[ -]*$", re.IGNORECASE)
_IDLE = re.compile(
    rf"original message|please respond to|forwarded by .{{3,80}}? on {_DATE}", re.IGNORECASE
)
# Headers of one mail are near each other. A recipient's line has one of these characters.
_NEAR, _LISTED = 30, re.compile("[@/;<>,]")
_NAME_CHARS, _NAMED = 60, 2  # of quoted mail: limit of a name's line, listed recipients
# After a name: the address, and where Lotus Notes keeps the mailbox.
_BEHIND_NAME = re.compile(
    r"(?<=[a-z])(?:/[A-Z][\w ]*)*@[A-Z]\w*|(?<=[a-z])(?:/[A-Z][\w ]*)+"
    r"|(?<=\S)\s*[<\[(][^<>\[\]()]*@[^<>\[\]()]*[>\])](?:@[\w.]+)?"
)
# A line with a word of each row is a disclaimer.
_DISCLAIMER = (
    ("confidential", "privileged", "vertraulich", "confidentiel", "proprietary"),
    ("intended", "sole use", "addressee", "named above", "bestimmt", "destin"),
    ("in error", "notify", "prohibited", "unauthori", "irrt", "erreur"),
)
_WRAPPED = 45  # a longer line continues in the next one, unless that is an item or a table's row
_ITEM = re.compile(r"[-*•+o]\s|\(?\w{1,2}[.)]\s|-{2}")
_CELLS = re.compile(r"(?<![.!?:;,\s])(?:\t+| {2,})(?=\S)")
_IMITATED = re.compile(r"\[(?=quoted |disclaimer|signature|from )", re.IGNORECASE)
BREAK = "\n "  # between lines; after a space a word is the same token as in the middle of a line
OPENING_CHARS = 60  # of a mail's own beginning, before its matching stretch
_SIGNATURE_LINES, _SIGNATURE_CHARS, _SIGNATURE_WORDS = 8, 60, 4


def tidy_lines(body: str, subject: str) -> list[str]:
    """Return the lines of a mail's body: paragraphs unwrapped, headers of quoted mail and
    disclaimers as one line in brackets, without rules and blank lines."""
    lines: list[str] = []
    width, last_prefix = 0, ""
    for line, is_frame in _framed(body.splitlines(), bare_subject(subject)):
        text = _bare(line)
        prefix = "> " if _QUOTE.match(line) else ""
        if is_frame or not any(map(str.isalnum, text)):
            lines += [line] if is_frame else []
            width = 0 if is_frame or not text else width
            continue
        has_cells = "  " in text or "\t" in text
        cells = [" ".join(cell.split()) for cell in _CELLS.split(text)] if has_cells else [text]
        text = _IMITATED.sub("(", "  ".join(cells))
        if width > _WRAPPED and prefix == last_prefix and not _ITEM.match(text) and not cells[1:]:
            lines[-1] += f" {text}"
        else:
            lines.append(prefix + text)
        width, last_prefix = 0 if cells[1:] else len(line), prefix
    return ["[disclaimer]" if _is_disclaimer(line) else line for line in lines]


def _is_disclaimer(line: str) -> bool:
    text = line.lower()
    return all(any(sign in text for sign in signs) for signs in _DISCLAIMER)


def _framed(lines: Sequence[str], subject: str) -> list[tuple[str, bool]]:
    """Return (line, is_frame) pairs, with the headers of each quoted mail joined into one line."""
    framed: list[tuple[str, bool]] = []
    at = 0
    while at < len(lines):
        may_start = ":" in lines[at] and _HEADER.match(_bare(lines[at]))
        end, fields = _headers(lines, at) if may_start else (at, {})
        if end == at:
            framed.append((lines[at], False))
            at += 1
            continue
        above: list[str] = []
        while framed and not framed[-1][1]:
            line, first = _bare(framed[-1][0]), next(filter(None, above), "")
            is_name = _STAMP.match(first) is not None and len(line) < _NAME_CHARS
            if line and not (_ABOVE.match(line) or is_name):
                break
            above.insert(0, line)
            framed.pop()
        framed.append((_summary(above, fields, subject), True))
        at = end
    return framed


def _bare(line: str) -> str:
    quote = _QUOTE.match(line) if ">" in line else None
    return (line[quote.end() :] if quote else line).strip()


def _headers(lines: Sequence[str], start: int) -> tuple[int, dict[str, str]]:
    """Return the end of quoted mail's headers and their values; `start` if they lack a subject."""
    fields: dict[str, str] = {}
    last, end = "", start
    for at in range(start, min(len(lines), start + _NEAR)):
        text = _bare(lines[at])
        if header := _HEADER.match(text):
            last = _KINDS[header[1].lower()]
            if last == "to":
                fields["to"] = f"{fields.get('to', '')}; {header[2]}"
            fields.setdefault(last, header[2])
        elif not text and "subject" in fields:
            break
        elif text and last == "to" and _LISTED.search(text):
            fields["to"] += f" {text}"
        elif text:
            break
        else:
            continue
        end = at + 1
    return (end, fields) if "subject" in fields and len(fields) > 1 else (start, {})


def _summary(above: Sequence[str], fields: dict[str, str], subject: str) -> str:
    """Return the line that replaces quoted mail's headers and the lines `above` them."""
    head = ", ".join(filter(None, (line.strip("-_ ") for line in above)))
    people = [name for name in re.split("[;,]", fields.get("to", "")) if name.strip()]
    listed = ", ".join(_without_address(name).strip("<>'\" ") for name in people[:_NAMED])
    more = f" and {len(people) - _NAMED} more" if len(people) > _NAMED else ""
    other = fields.get("subject", "")
    parts = [
        _IDLE.sub(" ", head), fields.get("by", ""), fields.get("at", ""),
        listed and f"to {listed}{more}",
        f"subject {other}" if bare_subject(other) != subject else "",
    ]  # fmt: skip
    texts = (" ".join(_without_address(part).split()).strip(",-_ ") for part in parts)
    return f"[from {', '.join(filter(None, texts))}]"


def _without_address(text: str) -> str:
    return _BEHIND_NAME.sub("", text)


class MailText(NamedTuple):
    """An author's lines, and the runs of words of those that are not in brackets."""

    lines: Sequence[str]
    author: str
    runs: Runs


def text_of(lines: Sequence[str], author: str) -> MailText:
    """Return the lines with their author and their runs of words."""
    return MailText(lines, author, runs_of("" if line.startswith("[") else line for line in lines))


@lru_cache(256)  # mails: a question's rollouts and later turns show the same ones again
def tidy_text(body: str, subject: str, author: str) -> MailText:
    """Return a mail's tidied text."""
    return text_of(tidy_lines(body, subject), author)


class ShownTexts:
    """Tracks which text of its mails an episode has shown."""

    def __init__(self) -> None:
        self._seen = Seen()
        self._signed: dict[str, set[str]] = {}

    def new(self, text: MailText) -> list[str]:
        """Return the lines, with marks in place of text and signatures shown in other mails."""
        new: list[str] = []
        held = self._seen.holding(text.runs)
        for number, line in enumerate(text.lines):
            mark = f"[quoted from {held[number]}]" if number in held else line
            if number in held:
                while new and (new[-1] == mark or new[-1].startswith(("[from ", "[disclaimer"))):
                    new.pop()
            new.append(mark)
        end = _own_end(new)
        start, signed = end, self._signed.get(text.author, set())
        while start and new[start - 1] in signed:
            start -= 1
        if len(words(" ".join(new[start:end]))) >= _SIGNATURE_WORDS:
            new[start:end] = ["[signature]"]
        return new

    def note(self, text: MailText, name: str) -> None:
        self._seen.note(text.runs, name)
        end = _own_end(text.lines)
        last = text.lines[max(0, end - _SIGNATURE_LINES) : end]
        signed = self._signed.setdefault(text.author, set())
        signed.update(line for line in last if len(line) <= _SIGNATURE_CHARS)


def _own_end(lines: Sequence[str]) -> int:
    """Return the index of the first line that is quoted or in brackets, or the number of lines."""
    return next((n for n, line in enumerate(lines) if line.startswith(("> ", "["))), len(lines))


def pages_of(lines: Sequence[str], chars: int) -> list[str]:
    """Return the lines in pages of about `chars` characters; longer lines are cut at spaces."""
    pages: list[str] = [""]
    for line in lines:
        is_long = len(line) > chars
        for piece in textwrap.wrap(line, chars, break_on_hyphens=False) if is_long else [line]:
            if pages[-1] and len(pages[-1]) + len(piece) >= chars:
                pages.append("")
            pages[-1] += f"{BREAK}{piece}" if pages[-1] else piece
    return pages


def plain(lines: Sequence[str]) -> list[str]:
    """Return the lines without quote marks, and without those in brackets."""
    return [line.removeprefix("> ") for line in lines if not line.startswith("[")]


def excerpt(lines: Sequence[str], matches: Sequence[str], chars: int) -> str:
    """Return the mail's opening and about `chars` characters with the most `matches`."""
    snippet = cut_snippet(" ".join(plain(lines)), stems(list(matches)), chars=chars)
    opening = cut_line(" ".join(plain(lines[: _own_end(lines)])), OPENING_CHARS)
    return f"{opening} {snippet}" if opening and snippet.startswith("...") else snippet
