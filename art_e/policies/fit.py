"""How well a sentence of a mail fits a question: features, and their weighted sum.

The weights are those of a softmax over the sentences of all mails read, fitted
on the synthetic training questions so that the right sentences stand out:
`python -m evals.calibration` fits and prints them. Knows nothing of messages
and turns.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

from art_e.inbox.mail import format_date
from art_e.inbox.tokenizer import STOP_WORDS, stems, words
from art_e.policies.sentences import Sentence, Value, split_sentences, states

# Feature -> weight, by `python -m evals.calibration`; `candidates` measures them: shares of the
# question's words (own sentence, with neighbours and subject, whole mail) and of its
# names, whether the value asked for is stated, place among the hits, age.
WEIGHTS: dict[str, float] = {
    "own": 1.65,
    "near": 1.42,
    "mail": 1.09,
    "names": 1.17,
    "stated": 1.56,
    "not_stated": -1.56,
    "rank": -1.16,
    "newest": 2.21,
    "quoted": -0.13,
    "question": -0.52,
    "short": -1.93,
}

_SHORT_WORDS = 4

# The date of a mail that has none, as observations spell it.
UNDATED = format_date(None)

# Words about the question, not about what is asked for.
_IDLE = STOP_WORDS | set(
    "tell say said give know please date day time name many much long often exactly".split()
)

# What a question asks for, by its words; the first that fits.
_ASKED: tuple[tuple[str, Value], ...] = (
    (r"\b(?:phone|e-?mail address|contact information|extension)\b", "contact"),
    (r"\bhow (?:many|often)\b", "number"),
    (
        r"\bhow (?:much|large|big|high)\b"
        r"|\b(?:costs?|price|salary|bonus|budget|amount|fee|rate|total|sum|allowance|limit)\b",
        "amount",
    ),
    (r"\bwhen\b|\b(?:what|which) (?:day|dates?|time|month|week)\b|\bdeadline\b|\bdue\b", "date"),
    (r"\bwho(?:m|se)?\b", "person"),
    (r"\bwhere\b|\b(?:city|room|hotel|building|office|place|location|site)\b", "place"),
    (r"\bnumber\b|\bcode\b", "code"),
)


class ReadMail(NamedTuple):
    """A mail as a policy has read it; `rank` is its place among the hits, from 0."""

    handle: str
    date: str
    subject: str
    sender: str
    body: str
    rank: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sentence that may be the answer, of the mail `handle`."""

    score: float
    text: str
    handle: str
    features: dict[str, float]


def informative_words(question: str) -> list[str]:
    """The words of `question` that tell what is asked about; all, if none does."""
    every = list(dict.fromkeys(words(question)))
    return [word for word in every if word not in _IDLE] or every


def asked_value(question: str) -> Value | None:
    """The kind of value that answers `question`, where its words tell."""
    asked = question.lower()
    return next((value for pattern, value in _ASKED if re.search(pattern, asked)), None)


def name_stems(question: str) -> frozenset[str]:
    """Stems of the names and numbers in `question`: what an answer's mail must be about."""
    found = re.finditer(r"(?<!^)\b[^\W\d_a-z][\w'’-]*|\b\w*\d\w*", question)
    named = [word for match in found for word in words(match.group()) if word not in STOP_WORDS]
    return frozenset(stems(named))


def candidates(question: str, mails: list[ReadMail]) -> list[Candidate]:
    """Every sentence of `mails` with its score, in reading order.

    None where `question` has no words: everything would fit it.
    """
    wanted = frozenset(stems(informative_words(question)))
    if not wanted:
        return []
    names = name_stems(question) & wanted
    value = asked_value(question)
    # A mail without a date is not taken for a new one.
    dates = sorted({mail.date for mail in mails}, key=lambda date: (date != UNDATED, date))
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
            found.append(Candidate(score, sentence.text, mail.handle, measured))
    return found


def _states(sentence: Sentence, value: Value | None, question: str) -> bool | None:
    """Whether the sentence states the value asked for; None where no value is."""
    if value is None:
        return None
    text = sentence.text
    # What the question says itself is not what it asks for; as a part of another word or
    # number it is something else.
    for name in re.findall(r"(?<!^)\b[A-Z0-9][\w'’-]*", question):
        whole = rf"(?<![\w$€£])(?<!\d[,.:/-]){re.escape(name)}(?!\w|[,.:/-]\d)"
        text = re.sub(whole, " ", text)
    return states(text, value)


def _held(text: str, wanted: frozenset[str]) -> frozenset[str]:
    return wanted.intersection(stems(words(text)))


def _share(held: frozenset[str], of: frozenset[str]) -> float:
    return len(held) / len(of) if of else 1.0
