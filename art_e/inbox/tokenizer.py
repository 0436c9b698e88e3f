"""From text to the words that are indexed and searched.

A word is a run of letters and digits, in lower case and without accents. DuckDB gets the same words
without Python, for the SQL macro of the inbox file:

    regexp_extract_all(lower(strip_accents(text)), '[\\p{L}\\p{N}]+')

Words are indexed under their stem (Snowball English).
"""

import re
import unicodedata

import Stemmer

# Stands in every file's `meta`; a file of another tokenizer is rejected.
TOKENIZER = "snowball-english/1"

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

_WORD = re.compile(r"[^\W_]+")
# Its own cache makes it five times slower on lists of distinct words.
_stemmer = Stemmer.Stemmer("english", 0)


def fold(text: str) -> str:
    """`text` in lower case without accents, as DuckDB's `lower(strip_accents(text))`."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFD", text)
    kept = "".join(char for char in decomposed if unicodedata.category(char)[0] != "M")
    # DuckDB knows no final sigma: each character has one lower case.
    return (
        unicodedata.normalize("NFC", kept)
        .replace("\N{GREEK CAPITAL LETTER SIGMA}", "\N{GREEK SMALL LETTER SIGMA}")
        .lower()
    )


def words(text: str) -> list[str]:
    """The words of `text` in order, with repetitions."""
    return _WORD.findall(fold(text))


def stems(surfaces: list[str]) -> list[str]:
    """The stem of each word, in order."""
    stemmed: list[str] = _stemmer.stemWords(surfaces)
    return stemmed


def search_words(keywords: list[str]) -> list[str]:
    """The distinct words to search for, in order, without stop words if there are others."""
    distinct = list(dict.fromkeys(words(" ".join(keywords))))
    return [word for word in distinct if word not in STOP_WORDS] or distinct
