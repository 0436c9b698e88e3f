"""Ranks passages of the mails that were read by how well they answer a question.

A passage is a run of a mail's sentences. Question words weigh more if fewer hits have them.
`bench/fit_passages.py` fits the features' weights: a softmax over all passages of a question."""

import datetime as dt
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

from art_e.inbox.mail import format_date
from art_e.inbox.threads import WROTE
from art_e.inbox.tokenizer import FUNCTION_WORDS, STOP_WORDS, stems, tokens, words
from art_e.observation import tidy_lines
from art_e.text import toml_table

MAX_CHARS = 8_000  # further text of a body is ignored, so that no mail can make the baseline slow
MAX_SENTENCE_CHARS = 400
PASSAGE_CHARS, PASSAGE_SENTENCES = 700, 20  # limits of a passage
# A passage repeats one of the same mail, or of another mail, if it shares this part of its words.
_OVERLAP, _COPY = 0.5, 0.8
# A sentence's bonus for a value of the kind asked for; matching all of the question's words is 1.
_VALUE = 0.6

_DATA = toml_table("art_e", "data/baseline.toml")
WEIGHTS: dict[str, float] = _DATA["weights"]
# Words that don't tell what a question is about, by language.
_IDLE = {
    language: {*common, *words(_DATA["idle"].get(language, ""))}
    for language, common in {"en": STOP_WORDS, **FUNCTION_WORDS}.items()
}
_CONTACT = frozenset(words(_DATA["contact"]))
_OF_PERSONS = ("contact", "role")


@cache
def _pattern(kind: str, part: Literal["asked", "stated"]) -> re.Pattern[str]:
    """Return the pattern of questions that ask for a kind of value, or of texts that state one."""
    names = {name: f"(?:{'|'.join(_DATA[name.lower()].split())})" for name in ("MONTH", "WEEKDAY")}
    alternatives = "|".join(_DATA["values"][kind][part])
    flags = re.IGNORECASE if part == "asked" else 0
    return re.compile(re.sub("MONTH|WEEKDAY", lambda found: names[found[0]], alternatives), flags)


# A mail with more recipients, or with text that matches this, counts as bulk mail.
_MANY, _BULK = 15, re.compile(_DATA["bulk"], re.IGNORECASE)
_DEEP = 5
_PART_CHARS = 4  # minimum length of a compound's parts

_WROTE = re.compile(WROTE, re.IGNORECASE)
_ATTACHED = re.compile(r"\[(?:Attachment: .*\)|Text of (.*))\]$")
_END = re.compile(r"(?<=[.!?])[\"')]*\s+(?=[\"'(]*[A-Z0-9])")
_ABBREVIATION = re.compile(
    r"(?:\b(?:mr|mrs|ms|dr|prof|sr|jr|st|vs|inc|corp|ltd|no|nr|dept|approx|tel|fax|ext|jan|feb|mar"
    r"|apr|jun|jul|aug|sept?|oct|nov|dec|[a-z]|\d{1,2})|\b[ap]\.m|e\.g|i\.e)\.$",
    re.IGNORECASE,
)
_SHORT_LINE = 45  # characters; a shorter one may belong to a signature


class Sentence(NamedTuple):
    """A sentence, list item or short line. `depth` is 0 in the mail's own text and grows by one at
    each quoted mail. A `frame` is a line above quoted or attached text that names its source."""

    text: str
    depth: int
    frame: bool = False
    ends_line: bool = True


def split_sentences(body: str) -> list[Sentence]:
    """Return the sentences of `body` in order; list items and short lines count as sentences."""
    sentences: list[Sentence] = []
    depth = 0
    for line in tidy_lines(body[:MAX_CHARS], ""):
        text = line.removeprefix("> ")
        if text.startswith("[from ") or _WROTE.match(text):
            depth += 1
            by = text.removeprefix("[from ").partition(", to ")[0].strip("[]:")
            sentences.append(Sentence(f"{by}:", depth, frame=True))
        elif (attached := _ATTACHED.match(text)) is None:
            *parts, last = _cut(" ".join(text.split()))
            sentences += [Sentence(each, depth, ends_line=False) for each in parts]
            sentences.append(Sentence(last, depth))
        elif attached[1]:
            sentences.append(Sentence(f"{attached[1]}:", depth, frame=True))
    return sentences


def _cut(text: str) -> Iterator[str]:
    start = 0
    for end in _END.finditer(text):
        if not _ABBREVIATION.search(text, max(start, end.start() - 8), end.start()):
            yield from _at_most(text[start : end.start()])
            start = end.end()
    yield from _at_most(text[start:])


def _at_most(text: str) -> Iterator[str]:
    while len(text) > MAX_SENTENCE_CHARS:
        end = text.rfind(" ", 1, MAX_SENTENCE_CHARS)
        end = end if end > 0 else MAX_SENTENCE_CHARS
        yield text[:end]
        text = text[end:].lstrip()
    yield text


class Passage(NamedTuple):
    """A passage of the mail `handle`. Its `sentence` is the likeliest answer."""

    score: float
    handle: str
    text: str
    sentence: str
    features: dict[str, float]


def informative_words(question: str) -> list[str]:
    """Return the words of `question` that tell what it is about, else all its words."""
    every = list(dict.fromkeys(words(question)))
    idle = _IDLE[_language_of(every)]
    return [word for word in every if word not in idle] or every


def _language_of(every: list[str]) -> str:
    return max(_IDLE, key=lambda language: len(_IDLE[language].intersection(every)))


def word_parts(word: str, question: str) -> list[str]:
    """Return beginnings and ends of a possible compound ("Schwimmkurs"); none in English."""
    is_english = _language_of(words(question)) == "en"
    cuts = range(_PART_CHARS, 0 if is_english else len(word) - _PART_CHARS + 1)
    return [part for cut in cuts for part in (word[:cut], word[cut:])]


def _names(question: str) -> list[str]:
    matches = re.finditer(r"(?<!^)\b[^\W\d_a-z][\w'’-]*|\b\w*\d\w*", question)
    return [word for match in matches for word in words(match.group()) if word not in STOP_WORDS]


def name_stems(question: str) -> frozenset[str]:
    """Return the stems of the names and numbers in `question`."""
    return frozenset(stems(_names(question)))


def _kind_of(question: str) -> str | None:
    kinds = (kind for kind in _DATA["values"] if _pattern(kind, "asked").search(question))
    return next(kinds, None)


def person_asked_for(question: str) -> str:
    """Return the person whose number, address or role is asked for; empty if none is."""
    if _kind_of(question) not in _OF_PERSONS:
        return ""
    return " ".join(word for word in _names(question) if len(word) > 1 and word not in _CONTACT)


class _Query:
    """A question and its hits: stems with their weights, names, and the kind of value asked for."""

    def __init__(self, question: str, hits: Sequence[dict[str, Any]]) -> None:
        missing = Counter(stem for hit in hits for stem in {*stems(list(hit.get("missing", ())))})
        self.kind = _kind_of(question)
        idle = _CONTACT if self.kind == "contact" else ()
        keywords = tokens(
            " ".join(each for each in informative_words(question) if each not in idle)
        )
        # Smoothed inverse document frequency among the hits: 1 + log((N + 1) / (n + 1)).
        self.weights = {
            stem: 1 + math.log((len(hits) + 1) / (len(hits) - missing[stem] + 1))
            for stem in stems(keywords)
        }
        # If every hit lacks a word, its parts count as the word.
        self._stem_of = {stem: stem for stem in self.weights} | {
            part: stem
            for word, stem in zip(keywords, stems(keywords), strict=True)
            if missing[stem] == len(hits)
            for part in stems(word_parts(word, question))
        }
        self.names = name_stems(question) & self.weights.keys()
        self._words = frozenset(tokens(question))
        # A name in the question is not its answer, unless it is part of a longer word or number.
        names = "|".join(map(re.escape, re.findall(r"(?<!^)\b[A-Z0-9][\w'’-]*", question)))
        self._own = re.compile(rf"(?<![\w$€£])(?<!\d[,.:/-])(?:{names})(?!\w|[,.:/-]\d)")

    def held(self, text: str) -> frozenset[str]:
        known = self._stem_of.keys() & {*stems(tokens(text))}
        return frozenset(self._stem_of[stem] for stem in known)

    def share(self, held: frozenset[str], among: Collection[str] | None = None) -> float:
        """Return the share that `held` has of the weight of `among` (default: all stems)."""
        among = self.weights.keys() if among is None else among
        whole = sum(self.weights[stem] for stem in among)
        return sum(self.weights[stem] for stem in held if stem in among) / whole if whole else 1.0

    def stated(self, sentence: Sentence) -> bool | None:
        """Return True if the sentence states a value of the kind asked for; None without a kind."""
        if self.kind is None:
            return None
        text = self._own.sub(" ", sentence.text)
        return not sentence.frame and _pattern(self.kind, "stated").search(text) is not None

    def has_number(self, sentence: Sentence) -> bool:
        new = (word for word in words(sentence.text) if word not in self._words)
        return not sentence.frame and any(word[0].isdigit() for word in new)


def ranked_passages(
    question: str, hits: Sequence[dict[str, Any]], mails: Sequence[dict[str, Any]]
) -> list[Passage]:
    """Return every passage of `mails`, best first. Hits and mails are as an episode shows them."""
    query = _Query(question, hits)
    ranks = {hit["message_id"]: rank for rank, hit in enumerate(hits)}
    bulk = {hit["message_id"] for hit in hits if hit.get("bulk")}
    days = [_day(mail["date"]) for mail in mails]
    passages: list[Passage] = []
    for mail, day in zip(mails, days, strict=True):
        recipients = sum(len(mail.get(role, ())) for role in ("to", "cc", "bcc"))
        is_bulk = recipients > _MANY or mail["message_id"] in bulk or _BULK.search(mail["body"])
        features = {
            "first": 1 / (1 + ranks[mail["message_id"]]),
            "age": math.log1p((max(days) - day).days),  # days before the newest of the mails
            "long": math.log1p(len(mail["body"])),
            "bulk": float(bool(is_bulk)),
            "subject": query.share(query.held(mail["subject"])),
        }
        passages += _passages(query, mail, f"{day:%B %Y}", features)
    return sorted(passages, key=lambda each: -each.score)


def best_passages(passages: Sequence[Passage], count: int) -> list[Passage]:
    """Return the first `count` ranked passages, without those that repeat a better one."""
    best: list[Passage] = []
    for passage in passages:
        if len(best) < count and not any(_repeats(passage, other) for other in best):
            best.append(passage)
    return best


def _repeats(passage: Passage, other: Passage) -> bool:
    """Return True if `other` has most words of `passage` (nearly all, if from another mail)."""
    every = _words_said(passage.text)
    new = every - _words_said(other.text)
    if passage.handle == other.handle:
        return len(new) <= (1 - _OVERLAP) * len(every)
    # A passage with a new number gives another answer.
    return len(new) <= (1 - _COPY) * len(every) and not any(word[0].isdigit() for word in new)


def _words_said(text: str) -> set[str]:
    return {word for line in text.splitlines() if not line.endswith(":") for word in words(line)}


def _day(date: str) -> dt.date:
    return dt.date.min if date == format_date(None) else dt.date.fromisoformat(date[:10])


def _passages(
    query: _Query, mail: dict[str, Any], month: str, of_mail: dict[str, float]
) -> Iterator[Passage]:
    sentences = split_sentences(mail["body"] or mail["subject"])
    held = [query.held(each.text) for each in sentences]
    shares = [query.share(each) for each in held]
    stated = [query.stated(each) for each in sentences]
    fits = [share + _VALUE * bool(value) for share, value in zip(shares, stated, strict=True)]
    lengths = [len(each.text) + 1 for each in sentences]
    # Per sentence, the question's stems in its author and date: the mail's, or the last frame's.
    by = query.held(f"{mail['from']} {month}")
    authors = [by := own if each.frame else by for each, own in zip(sentences, held, strict=True)]
    subject = query.held(mail["subject"])
    # The share of names near each value; a short line may be a signature, so its author counts.
    named = [
        query.share(
            held[at].union(*held[max(0, at - 2) : at], authors[at] if length < _SHORT_LINE else ()),
            query.names,
        )
        if query.kind in _OF_PERSONS and stated[at]
        else 0.0
        for at, length in enumerate(lengths)
    ]
    # From each sentence, the longest passage within the limits: sentences[start:end], `size` chars.
    end = size = before = covered = 0  # `before`: characters of the sentences before `start`
    for start, length in enumerate(lengths):
        while end < len(sentences) and (
            end == start
            or (size + lengths[end] <= PASSAGE_CHARS and end - start < PASSAGE_SENTENCES)
        ):
            size, end = size + lengths[end], end + 1
        # Otherwise the previous passage contains this one.
        if end > covered:
            covered = end
            best = max(range(start, end), key=shares.__getitem__)
            around = sentences[max(start, best - 1) : min(end, best + 2)]
            inside = subject.union(authors[best], *held[start:end])
            part = sentences[start:end]
            features = of_mail | {
                "person": max(named[start:end]),
                "near": query.share(inside),
                "best": shares[best],
                "names": query.share(inside, query.names),
                "kind": 0.0 if stated[best] is None else 1.0 if any(stated[start:end]) else -1.0,
                "number": float(any(map(query.has_number, around))),
                "depth": min(sentences[best].depth, _DEEP),
                "place": math.log1p(before),
                "frames": sum(each.frame for each in part) / len(part),
            }
            # The passage's logit in the softmax that the weights were fitted with.
            score = sum(WEIGHTS[name] * size for name, size in features.items())
            text = "".join(each.text + ("\n" if each.ends_line else " ") for each in part).strip()
            answer = sentences[max(range(start, end), key=fits.__getitem__)].text
            yield Passage(score, mail["message_id"], text, answer, features)
        size, before = size - length, before + length  # the first sentence leaves the window
