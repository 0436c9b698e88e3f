"""Decides whether a final answer declines to answer ("I don't know" in any words).

An answer is read clause by clause. It declines if it is empty, if a clause says that the
information is missing and no clause says anything else, or if it ends with "so I can't answer". The
patterns, in seven languages, are in `abstention.txt`; docs/journal has measurements of them."""

import re
import unicodedata
from collections.abc import Iterable
from functools import cache
from importlib import resources

_MAX_CHARS, _MAX_CLAUSE = 2_000, 300  # text beyond these is not read, which bounds the work

_APOSTROPHES = re.compile(r"['’‘`´ʼ′]")
# Sources, which may stand in brackets, and quotations inside a sentence.
_SOURCES = re.compile(r"\[[^\[\]]*\]|\((?=[^()]*\bm\d|\w+ ?:)[^()]*\)")
_QUOTE = re.compile(r"(?<=\w\W)[\"“„«][^\"”“»]+[\"”“»]")
_E_MAIL = re.compile(r"\be-mail")
_TITLE = re.compile(r"\b(mr|mrs|ms|dr|prof)\.")
_CLAUSES = re.compile(
    r"[.!?;:\n)–—]+(?=\s|$)|\s\(|\s-\s|,?\s\b(?=(?:but|however|although|though|yet|while|whereas"
    r"|aber|jedoch|mais|pero|ma|mas|maar)\b)|,\s(?=(?:so|only|and|none|neither|nothing|no|it|the|i)\b)"
)
_NOT = re.compile(r"\b(do|does|did|is|are|was|were|could|have|has|had|would|should)nt\b")
_CAN_NOT = re.compile(r"\b(?:cant|cannot|wont)\b")
_VALUE = re.compile(r"(?<=\w )[A-Z][\w&-]+|(?<=[, ])\$?\d[\d.,:/]*")  # names, amounts, times


def is_abstention(answer: str | None, question: str = "", mails: Iterable[str] = ()) -> bool:
    """Return True if `answer` declines to answer: None, empty, or "I don't know" in any words. A
    value or name that is in the cited `mails` but not in `question` makes it an answer, unless its
    first clause is like "I don't know"."""
    if answer == "I don't know":
        return True  # without compiling the patterns, which takes time
    clauses = _clauses(answer or "")
    kinds = [kind for clause in clauses if (kind := _kind(clause)) != "filler"]
    # "The lease is discussed, so I can't say" declines; "I can't say for sure, but in May" answers.
    declines = bool(kinds) and "content" not in kinds
    if clauses and not declines and kinds[-1:] != ["decisive"]:
        return False
    if not kinds or _patterns()["lack"].search(clauses[0]):
        return True
    values = {value.strip(".,:").casefold() for value in _VALUE.findall(answer or "")}
    asked_words = set(re.findall(r"\w+", question.casefold()))
    stated = {word for mail in mails for word in re.findall(r"[^\s.,:;()<>\"]+", mail.casefold())}
    return not (values - asked_words) & stated


def _kind(clause: str) -> str:
    patterns = _patterns()
    if patterns["lack"].search(clause):
        return "decisive" if patterns["decisive"].search(clause) else "missing"
    if patterns["missing"].search(clause):
        return "filler" if patterns["reported"].search(clause) else "missing"
    return "filler" if patterns["filler"].search(clause) else "content"


def _clauses(text: str) -> list[str]:
    """Return the clauses in lower case, without accents and punctuation."""
    text = unicodedata.normalize("NFKD", text[:_MAX_CHARS].casefold())
    text = "".join(char for char in text if not unicodedata.combining(char))
    text = _SOURCES.sub(" ", _APOSTROPHES.sub("", text))
    text = _E_MAIL.sub("email", text)
    text = _QUOTE.sub(" quoted words ", _TITLE.sub(r"\1", text))
    text = _CAN_NOT.sub("can not", _NOT.sub(r"\1 not", text))
    text = _patterns()["opener"].sub(r"\1.", text)
    parts = (" ".join(re.findall(r"[^\W_]+", part)) for part in _CLAUSES.split(text))
    return [part[:_MAX_CLAUSE] for part in parts if part]


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    text = resources.files("art_e").joinpath("abstention.txt").read_text(encoding="utf-8")
    parts = dict[str, list[str]]()
    for line in text.splitlines():
        name, _, pattern = line.partition(" = ")
        if pattern and not name.startswith("#"):
            parts.setdefault(name, []).append(pattern)
    joined = {name: "|".join(patterns) for name, patterns in parts.items()}
    between = r"(?: \w+){0,7}? "  # at most seven words apart; the bound keeps the time linear
    joined["missing"] += rf"|\b(?:NEG){between}(?:KNOW)\b|\b(?:KNOW){between}(?:NEG)\b"
    joined["opener"] = rf"((?:^|[.!?]\s)\W*(?:{joined['opener']})\b[^,.!?]{{0,80}}),"
    # A name in capitals stands for its list of words; one list may name another.
    for name in [name for name in joined if name.isupper()]:
        words = joined.pop(name).replace("\\", r"\\")
        for other, pattern in joined.items():
            joined[other] = re.sub(rf"\b{name}\b", words, pattern)
    return {name: re.compile(pattern) for name, pattern in joined.items()}
