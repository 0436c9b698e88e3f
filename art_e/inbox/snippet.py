"""The piece of a mail that shows why it was found."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from art_e.inbox.tokenizer import WORD, fold, is_unspaced, stems

SNIPPET_CHARS = 200

# Part of a body that is searched for a snippet: a limit on the cost of a hostile mail.
SEARCHED_CHARS = 50_000

# Words this near to each other fit into one snippet.
_WINDOW = SNIPPET_CHARS * 2 // 3


class _CharacterFolds(dict[int, str]):
    """Each character without accents if that is one character, so that positions stay the same."""

    def __missing__(self, code: int) -> str:
        folded = fold(chr(code))
        self[code] = folded if len(folded) == 1 else chr(code)
        return self[code]


_FOLDED = _CharacterFolds()


def searchable(body: str) -> str:
    """The searched part of `body`, folded; positions stay the same."""
    text = body[:SEARCHED_CHARS]
    return text.lower() if text.isascii() else text.translate(_FOLDED)


def cut_snippet(body: str, wanted: Sequence[str], folded: str | None = None) -> str:
    """About `SNIPPET_CHARS` characters of `body` on one line, "..." where cut. It is the stretch
    with the most distinct stems of `wanted`. `folded` may pass in `searchable(body)`."""
    start = 0
    if len(body) > SNIPPET_CHARS and wanted:
        # A little of what stands before the first word.
        start = max(0, _best_start(folded or searchable(body), wanted) - SNIPPET_CHARS // 6)
    end = min(len(body), start + SNIPPET_CHARS)
    while start > 0 and not body[start - 1].isspace() and end - start < 2 * SNIPPET_CHARS:
        start -= 1
    if end < len(body) and (space := body.rfind(" ", start + SNIPPET_CHARS // 2, end)) > 0:
        end = space
    shown = " ".join(body[start:end].split())
    return f"{'...' if start else ''}{shown}{'...' if end < len(body) else ''}"


def _best_start(text: str, wanted: Sequence[str]) -> int:
    if len(wanted) == 1:
        return next(_occurrences(text, wanted[0]), 0)
    places = [(stem, _occurrences(text, stem)) for stem in wanted]
    found = [(first, stem) for stem, rest in places if (first := next(rest, -1)) >= 0]
    found.sort()
    # If the first places of all stems fit into one snippet, nothing is better.
    if not found or found[-1][0] - found[0][0] <= _WINDOW:
        return found[0][0] if found else 0
    most = len(found)
    found += [(place, stem) for stem, rest in places for place in rest]
    found.sort()
    best, best_count, start = 0, 0, 0
    inside = dict.fromkeys(wanted, 0)
    count = 0
    for place, stem in found:
        count += not inside[stem]
        inside[stem] += 1
        while place - found[start][0] > _WINDOW:
            left = found[start][1]
            inside[left] -= 1
            count -= not inside[left]
            start += 1
        if count > best_count:
            best, best_count = found[start][0], count
            if count == most:
                break
    return best


def _occurrences(text: str, stem: str) -> Iterator[int]:
    """Where words of this stem begin in folded `text`. A Snowball stem differs from the start of
    its words in the last letter at most ("happi" of "happy", "age" of "aging"); exceptions such as
    "dying" are not found. Of other languages every word is stemmed. Addresses and pairs of
    characters are found wherever they stand, pairs with the vowel signs that were folded away."""
    _, at, mark = stem.partition("@")
    if "." in mark or is_unspaced(stem):
        yield from (found.start() for found in pattern_of(stem).finditer(text))
        return
    if at or not stem.isascii():
        words = WORD.finditer(text)
        yield from (word.start() for word in words if _stem(word[0] + at + mark) == stem)
        return
    start = stem[:-1] if len(stem) > 3 or stem[2:] in ("i", "e") else stem
    position = text.find(start)
    while position >= 0:
        if not position or not text[position - 1].isalnum():
            word = WORD.match(text, position)
            if word and _stem(word[0]) == stem:
                yield position
        position = text.find(start, position + len(start))


def pattern_of(word: str) -> re.Pattern[str]:
    """What finds an address or a pair of characters in `searchable` text."""
    # Vowel signs and the sound marks of half-width kana.
    gap = r"(?:[^\w\s]|[\uff9e\uff9f]){0,3}" if is_unspaced(word) else ""
    return re.compile(gap.join(map(re.escape, word)))


@lru_cache(65_536)
def _stem(word: str) -> str:
    return stems([word])[0]
