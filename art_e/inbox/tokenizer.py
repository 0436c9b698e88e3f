"""Splits text into the words that are indexed and searched.

A word is a run of letters and digits, in lower case, without accents and in its plain form (full
width, half width and ligatures are undone). Words are indexed under their Snowball stem, English or
of another script's main language. Words of mail in another Latin-script language are indexed again
with a mark ("hauser@de"), under that language's stem. In scripts without spaces, such as Chinese
and Thai, every two adjacent characters are a word; mail addresses are indexed whole, in addition to
their words. The macro `tokens_in` of the inbox file does the same without Python."""

import itertools
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from pathlib import Path

import Stemmer

from art_e.text import CLASSES, visible

TOKENIZER = "snowball/3"  # stored in every file's `meta`; a file of another tokenizer is rejected

MAX_WORD_CHARS = 64  # longer runs are encoded data or noise

# The most common words of each language, except "may", which is a month.
FUNCTION_WORDS = {
    line[:2]: frozenset(line.split()[1:])
    for line in Path(__file__).with_name("function_words.txt").read_text("utf-8").splitlines()
}
# Indexed, but dropped from a search that has other words ("The Who" finds The Who).
STOP_WORDS = FUNCTION_WORDS.pop("en")
# The marks of the other languages, which their words are indexed with.
MARKS = tuple(f"@{language}" for language in FUNCTION_WORDS)
_NOT_ENGLISH = frozenset().union(*FUNCTION_WORDS.values())
SAMPLE_CHARS = 600  # of a mail's beginning, from which its language is detected

# A mail address in lower case; the bounds (RFC 5321: 64, DNS: 63) keep the time linear.
_LOCAL, _DOMAIN = r"[a-z0-9_%+-][a-z0-9._%+-]{0,63}@", r"[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){1,8}"
ADDRESS = _LOCAL + _DOMAIN

WORD = re.compile(r"[^\W_]+")  # letters and digits of any script
UNSPACED = re.compile(f"{CLASSES['unspaced']}+")
_ADDRESS = re.compile(ADDRESS)
_LONGEST_CACHED = 200  # characters
_LOCAL_PART, _DOMAIN_NAME = re.compile(_LOCAL), re.compile(_DOMAIN)
# Affixes that are cut off: prepositions, articles and "and" before a word, endings after it.
_AFFIXES = {
    "ARABIC": re.compile("^(?:و?(?:ال|[بكف]ال|لل)|و)(?=.{3})|(?<=.{3})(?:ها|ان|ات|ون|ين|[هةيى])$"),
    "HEBREW": re.compile("^[ובהכלמש]+(?=.{3})|(?<=.{3})(?:ים|ות|יה|[הית])$"),
}
_FINAL_LETTERS = str.maketrans("ךםןףץ", "כמנפצ")
_SCRIPTS = {"CYRILLIC": "ru", "GREEK": "el", "ARMENIAN": "hy"}
# `fold` turns U+0439 into this letter; after a final vowel, it is restored for the stemmer.
_SHORT_I = re.compile("(?<=[\u0430\u0435\u0438\u043e\u0443\u044b\u044d\u044e\u044f])\u0438$")


@cache
def _stemmer_of(language: str) -> Stemmer.Stemmer:
    # Its own cache makes it five times slower on lists of distinct words.
    return Stemmer.Stemmer(language, 0)


class _Folds(dict[int, str]):
    def __missing__(self, code: int) -> str:
        char = chr(code)
        plain = unicodedata.normalize("NFKC", char)
        # A trademark sign ends a word, and a fraction is not two numbers.
        if len(plain) > 1 and not (char.isalnum() and plain.isalnum()):
            plain = char
        parts = unicodedata.normalize("NFD", plain)
        letters = "".join(part for part in parts if unicodedata.category(part)[0] != "M")
        # Without final sigma: each character has one lower case wherever it stands, in SQL too.
        letters = letters.replace("\N{GREEK CAPITAL LETTER SIGMA}", "\N{GREEK SMALL LETTER SIGMA}")
        self[code] = unicodedata.normalize("NFC", letters).lower()
        return self[code]


_FOLDS = _Folds()


def fold(text: str) -> str:
    """Return `text` in lower case and its plain form, without accents."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", text.translate(_FOLDS))


def words(text: str) -> list[str]:
    """Return the words of `text` in order, with repetitions."""
    return WORD.findall(fold(text))


def name_sets(names: Iterable[str]) -> set[frozenset[str]]:
    """Return names of a person as sets of words, without initials and names of one word."""
    word_sets = (frozenset(word for word in words(name) if len(word) > 1) for name in names)
    return {name for name in word_sets if len(name) > 1}


def tokens(text: str) -> list[str]:
    """Return the indexed words of `text`; in scripts without spaces, pairs of characters."""
    every = words(text)
    if text.isascii():
        return every
    parts = (UNSPACED.sub(lambda run: f" {run[0]} ", word).split() for word in every)
    return [pair for part in itertools.chain.from_iterable(parts) for pair in _pairs(part)]


def _pairs(word: str) -> list[str]:
    if len(word) < 3 or not is_unspaced(word):
        return [word]
    return [word[at : at + 2] for at in range(len(word) - 1)]  # overlapping: n - 1 pairs


def is_unspaced(word: str) -> bool:
    """Return True if the word's script has no spaces between words."""
    return UNSPACED.match(word) is not None


def addresses(text: str) -> list[str]:
    """Return the mail addresses in `text`, in lower case, with repetitions."""
    lines = (line for line in text.splitlines() if "@" in line) if "@" in text else ()
    pieces = (piece for line in lines for piece in line.split() if "@" in piece)
    return [
        address
        for piece in pieces
        for address in (_seen_before if len(piece) < _LONGEST_CACHED else _addresses_in)(piece)
    ]


def _addresses_in(piece: str) -> Sequence[str]:
    """Return what `_ADDRESS.findall` finds in a folded piece, in time linear in the "@" signs."""
    piece, hits = fold(piece), list[str]()
    end, at = 0, piece.find("@")
    while at >= 0:
        start = max(end, at - 64, piece.rfind("@", 0, at) + 1)  # 64: the longest local part
        local = _LOCAL_PART.search(piece, start, at + 1)
        if local and (domain := _DOMAIN_NAME.match(piece, at + 1)):
            end = domain.end()
            hits.append(piece[local.start() : end])
        at = piece.find("@", max(at + 1, end))
    return hits


_seen_before = lru_cache(maxsize=8192)(_addresses_in)


def stems(surfaces: list[str]) -> list[str]:
    """Return the stem of each word, in order; an address is its own stem."""
    stemmed: list[str] = _stemmer_of("en").stemWords(surfaces)
    return [
        stem if word.isascii() and "@" not in word else _other_stem(word, stem)
        for word, stem in zip(surfaces, stemmed, strict=True)
    ]


def _other_stem(word: str, english: str) -> str:
    bare, at, mark = word.partition("@")
    if at:
        return f"{_stemmer_of(mark).stemWord(bare)}@{mark}" if mark in FUNCTION_WORDS else word
    script = unicodedata.name(word[0], "").partition(" ")[0]
    if script in _AFFIXES:
        return _AFFIXES[script].sub("", word).translate(_FINAL_LETTERS)
    if script not in _SCRIPTS:
        return english
    stem: str = _stemmer_of(_SCRIPTS[script]).stemWord(_SHORT_I.sub("\u0439", word))
    return stem


def language_of(sample: Iterable[str]) -> str:
    """Return the mark of the language of these words; empty if it is English or unknown."""
    if len(held := _NOT_ENGLISH.intersection(sample)) < 3:
        return ""
    count, language = max((len(held & listed), each) for each, listed in FUNCTION_WORDS.items())
    return f"@{language}" if count > max(2, len(STOP_WORDS.intersection(sample))) else ""


def marked(text: str) -> list[str]:
    """Return the words of folded `text` with its language's mark, without function words."""
    if not (mark := language_of(text[:SAMPLE_CHARS].split())):
        return []
    return [word + mark for word in text.split() if word not in _NOT_ENGLISH and _is_latin(word)]


def forms(word: str) -> list[str]:
    """Return a searched word, alone and with the mark of each language."""
    return [word, *(word + mark for mark in MARKS if _is_latin(word))]


def _is_latin(word: str) -> bool:
    return len(word) > 2 and word.isalpha() and word[0] < "\u0250"  # Latin Extended-B ends


def search_words(keywords: list[str]) -> list[str]:
    """Return the distinct words to search for, in order, without stop words if there are others;
    then the addresses, which replace their words."""
    text = fold(visible(" ".join(keywords)))
    rest = _ADDRESS.sub(" ", text) if "@" in text else text
    distinct = list(dict.fromkeys([*tokens(rest), *addresses(text)]))
    return [word for word in distinct if word not in STOP_WORDS] or distinct
