"""How well a sentence of a mail fits a question: features, and their weighted sum.

The weights come from a softmax over the sentences of all mails read, fitted with an L2 penalty of
0.01 on the training questions of three made-up companies of 5,000 mails (seeds 1 to 3).
"""

import datetime as dt
import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from art_e.inbox.mail import format_date
from art_e.inbox.tokenizer import STOP_WORDS, stems, words
from art_e.text import toml_table

# Further text of a body is ignored, so that no mail can make the baseline slow.
MAX_CHARS = 8_000
MAX_SENTENCE_CHARS = 400


_DATA = toml_table("art_e", "data/baseline.toml")
WEIGHTS: dict[str, float] = _DATA["weights"]


def _patterns(part: str) -> dict[str, re.Pattern[str]]:
    """The patterns that are `asked` or `stated`, by the kind of value."""
    joined = {name: "|".join(value[part]) for name, value in _DATA["values"].items()}
    return {
        name: re.compile(text.replace("MONTH", _DATA["month"])) for name, text in joined.items()
    }


_ASKED, _STATED = _patterns("asked"), _patterns("stated")

# Lines that frame quoted mail or sign it off.
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
    """One sentence; `depth` is 0 in the mail's own text, and counts quoting below it."""

    text: str
    depth: int


def split_sentences(body: str) -> list[Sentence]:
    """The sentences of `body` in order; list items and short lines count as sentences."""
    found: list[Sentence] = []
    paragraph: list[str] = []
    depth = 0
    # For each "Original Message" mark above, how many ">" stand before it.
    marks: list[int] = []

    def close() -> None:
        if paragraph:
            text = " ".join(" ".join(paragraph).split())
            found.extend(Sentence(each, depth) for each in _cut(text))
            paragraph.clear()

    for raw in body[:MAX_CHARS].splitlines():
        quote = _QUOTE.match(raw)
        line, quotes = (raw[quote.end() :], quote[0].count(">")) if quote else (raw, 0)
        if line.strip():
            # Text that is quoted less than a mark does not belong below it.
            marks = [each for each in marks if each <= quotes]
        level = len(marks) + quotes
        framed = _FRAME.match(line)
        if framed and ("original message" in line.lower() or "forwarded" in line.lower()):
            marks.append(quotes)
        if level != depth or framed or not line.strip() or _BULLET.match(line):
            close()
            depth = level
        if line.strip() and not framed:
            paragraph.append(line.strip())
            if len(line) < 45:
                # A line that ends early ends its paragraph: tables, lists, signatures.
                close()
    close()
    return found


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


_SHORT_WORDS = 4
# Words about the question rather than its subject.
_IDLE = STOP_WORDS | set(
    "tell say said give know please date day time name many much long often exactly".split()
)


class ReadMail(NamedTuple):
    """A mail that a policy has read; `rank` is its place among the hits, from 0."""

    handle: str
    date: str
    subject: str
    sender: str
    body: str
    rank: int


@dataclass(frozen=True, slots=True)
class AnswerCandidate:
    """A sentence of the mail `handle` that may be the answer."""

    score: float
    text: str
    handle: str
    features: dict[str, float]


def informative_words(question: str) -> list[str]:
    """The words of `question` that tell what it is about, else all its words."""
    every = list(dict.fromkeys(words(question)))
    return [word for word in every if word not in _IDLE] or every


def name_stems(question: str) -> frozenset[str]:
    """Stems of the names and numbers in `question`."""
    found = re.finditer(r"(?<!^)\b[^\W\d_a-z][\w'’-]*|\b\w*\d\w*", question)
    named = [word for match in found for word in words(match.group()) if word not in STOP_WORDS]
    return frozenset(stems(named))


def _sent(date: str) -> float:
    """When a mail with this shown date was sent, in Unix time; long ago without a date."""
    return -math.inf if date == format_date(None) else dt.datetime.fromisoformat(date).timestamp()


@lru_cache(1)
def candidates(question: str, mails: tuple[ReadMail, ...]) -> list[AnswerCandidate]:
    """Every sentence of `mails` with its score, in reading order; none without question words."""
    wanted = frozenset(stems(informative_words(question)))
    if not wanted:
        return []
    names = name_stems(question) & wanted
    text = question.lower()
    value = next((kind for kind, pattern in _ASKED.items() if pattern.search(text)), None)
    dates = sorted({mail.date for mail in mails}, key=_sent)
    found = []
    for mail in mails:
        frame = _held(f"{mail.subject} {mail.sender}", wanted)
        sentences = split_sentences(mail.body)
        held = [_held(each.text, wanted) for each in sentences]
        everything = frame.union(*held)
        newest = dates.index(mail.date) / (len(dates) - 1) if len(dates) > 1 else 1.0
        for number, sentence in enumerate(sentences):
            near = frame.union(*held[max(0, number - 1) : number + 2])
            stated = _states(sentence, value, question)
            measured = {
                "own": _share(held[number], wanted),
                "near": _share(near, wanted),
                "mail": _share(everything, wanted),
                "names": _share(everything & names, names),
                "stated": float(stated is True),
                "not_stated": float(stated is False),
                "rank": mail.rank / 10,
                "newest": newest,
                "quoted": float(sentence.depth > 0),
                "question": float(sentence.text.endswith("?")),
                "short": float(len(sentence.text.split()) < _SHORT_WORDS),
            }
            score = sum(WEIGHTS[name] * size for name, size in measured.items())
            found.append(AnswerCandidate(score, sentence.text, mail.handle, measured))
    return found


def _states(sentence: Sentence, value: str | None, question: str) -> bool | None:
    """Whether the sentence states the value asked for; None if no value is asked for."""
    if value is None:
        return None
    text = sentence.text
    # The question's own names are no answer, unless they are part of another word or number.
    for name in re.findall(r"(?<!^)\b[A-Z0-9][\w'’-]*", question):
        whole = rf"(?<![\w$€£])(?<!\d[,.:/-]){re.escape(name)}(?!\w|[,.:/-]\d)"
        text = re.sub(whole, " ", text)
    return _STATED[value].search(text) is not None


def _held(text: str, wanted: frozenset[str]) -> frozenset[str]:
    return wanted.intersection(stems(words(text)))


def _share(held: frozenset[str], of: frozenset[str]) -> float:
    return len(held) / len(of) if of else 1.0
