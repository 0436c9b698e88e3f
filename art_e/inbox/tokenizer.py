"""From text to the words that are indexed and searched.

A word is a run of letters and digits, in lower case and without accents. Words are indexed under
their stem (Snowball English); of Chinese, Japanese and Korean, which write no spaces, every two
characters that stand together; and mail addresses whole, besides their words. The macro `tokens_in`
of the inbox file gives the same without Python.
"""

import itertools
import re
import unicodedata
from collections.abc import Iterator

import Stemmer

from art_e.text import visible

# Stands in every file's `meta`; a file of another tokenizer is rejected.
TOKENIZER = "snowball-english/2"

# Longer runs are encoded data or noise.
MAX_WORD_CHARS = 64

# Function words. They are indexed, and dropped from a search that has other words ("The Who" still
# finds The Who). "may" is absent: it is a month.
STOP_WORDS = frozenset(
    """
    a about an and any are as at be been but by can could did do does for from had has have he her
    him his how i if in into is it its me my no not of on or our s she should so such t that the
    their them then there these they this to us was we were what when where which who whom whose
    why will with would you your
    """.split()
)

# Kana, Han and Hangul, as a class of characters in Python and in DuckDB.
CJK = (
    "\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7a3\uf900-\ufad9\uff66-\uff9d\U00020000-\U0002fa1d"
)
# A mail address in lower case; the bounds keep the time linear.
_LOCAL, _DOMAIN = r"[a-z0-9_%+-][a-z0-9._%+-]{0,63}@", r"[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){1,8}"
ADDRESS = _LOCAL + _DOMAIN

WORD = re.compile(r"[^\W_]+")
# More marks than the stream-safe text format (UAX #15) allows in a row, or other signs.
_LONG_RUN = re.compile(r"[^\w\s\x00-\x7f]{31,}")
_CJK = re.compile(f"[{CJK}]+")
_ADDRESS = re.compile(ADDRESS)
_LOCAL_PART, _DOMAIN_NAME = re.compile(_LOCAL), re.compile(_DOMAIN)
# Its own cache makes it five times slower on lists of distinct words.
_stemmer = Stemmer.Stemmer("english", 0)


def fold(text: str) -> str:
    """`text` in lower case without accents."""
    if text.isascii():
        return text.lower()
    # NFD sorts a run of marks in quadratic time, so long runs go before it.
    text = _LONG_RUN.sub(lambda run: _without_marks(run[0]), text)
    kept = _without_marks(unicodedata.normalize("NFD", text))
    # Without final sigma: each character has one lower case wherever it stands, in SQL too.
    return (
        unicodedata.normalize("NFC", kept)
        .replace("\N{GREEK CAPITAL LETTER SIGMA}", "\N{GREEK SMALL LETTER SIGMA}")
        .lower()
    )


class _Unmarked:
    """For `str.translate`, which takes less memory than a list of characters."""

    def __getitem__(self, code: int) -> int | None:
        return None if unicodedata.category(chr(code))[0] == "M" else code


def _without_marks(text: str) -> str:
    return text.translate(_Unmarked())


def words(text: str) -> list[str]:
    """The words of `text` in order, with repetitions."""
    return WORD.findall(fold(text))


def tokens(text: str) -> list[str]:
    """What is indexed of `text`: its words, those of CJK as pairs of characters."""
    found = words(text)
    if text.isascii():
        return found
    parts = (_CJK.sub(lambda run: f" {run[0]} ", word).split() for word in found)
    return [pair for part in itertools.chain.from_iterable(parts) for pair in _pairs(part)]


def _pairs(word: str) -> list[str]:
    if len(word) < 3 or not is_cjk(word):
        return [word]
    return [word[at : at + 2] for at in range(len(word) - 1)]


def is_cjk(word: str) -> bool:
    """Whether a word begins as CJK, and so has no edges that tell it from the text around it."""
    return _CJK.match(word) is not None


def addresses(text: str) -> list[str]:
    """The mail addresses in `text`, in lower case, with repetitions."""
    lines = (line for line in text.splitlines() if "@" in line) if "@" in text else ()
    pieces = (piece for line in lines for piece in line.split() if "@" in piece)
    return [address for piece in pieces for address in _addresses_in(fold(piece))]


def _addresses_in(piece: str) -> Iterator[str]:
    """What `_ADDRESS.findall` gives, at a cost that depends on the "@" alone."""
    end, at = 0, piece.find("@")
    while at >= 0:
        start = max(end, at - 64, piece.rfind("@", 0, at) + 1)
        local = _LOCAL_PART.search(piece, start, at + 1)
        if local and (domain := _DOMAIN_NAME.match(piece, at + 1)):
            end = domain.end()
            yield piece[local.start() : end]
        at = piece.find("@", max(at + 1, end))


def stems(surfaces: list[str]) -> list[str]:
    """The stem of each word, in order; that of an address is the address."""
    stemmed: list[str] = _stemmer.stemWords(surfaces)
    return [word if "@" in word else stem for word, stem in zip(surfaces, stemmed, strict=True)]


def search_words(keywords: list[str]) -> list[str]:
    """The distinct words to search for, in order, without stop words if there are others; then the
    addresses, which stand for their words."""
    text = fold(visible(" ".join(keywords)))
    rest = _ADDRESS.sub(" ", text) if "@" in text else text
    distinct = list(dict.fromkeys([*tokens(rest), *addresses(text)]))
    return [word for word in distinct if word not in STOP_WORDS] or distinct
