"""The part of a mail that shows why it was found."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from art_e.inbox.threads import FRAME, HEADER, HEADERS, WROTE
from art_e.inbox.tokenizer import WORD, fold, is_unspaced, stems

SNIPPET_CHARS = 200

# Part of a body that is searched for a snippet: a limit on the cost of a hostile mail.
SEARCHED_CHARS = 50_000

_WINDOW = SNIPPET_CHARS * 2 // 3  # words this near to each other fit into one snippet

# Text to read beyond a snippet's length, to make up for frames of quoted mail that are left out.
_FRAME_CHARS = 1_000
# Where quoted mail begins in folded text: at a mark, or at a frame.
_SUBJECT = rf"(?:\n.*){{0,20}}?\n[ \t>]*\*?(?:{HEADERS['subject']})\*?\s?:"
_QUOTE = re.compile(fold(rf"(?m)\n[ \t]*(?:>|-{{4,}} ?\w|{WROTE}|{HEADER}.*{_SUBJECT})"))


class _CharacterFolds(dict[int, str]):
    """Maps a character to its folded form if that is one character, so that positions stay."""

    def __missing__(self, code: int) -> str:
        folded = fold(chr(code))
        self[code] = folded if len(folded) == 1 else chr(code)
        return self[code]


_FOLDED = _CharacterFolds()


def searchable(body: str) -> str:
    """Return the searched part of `body`, folded; positions stay the same."""
    text = body[:SEARCHED_CHARS]
    return text.lower() if text.isascii() else text.translate(_FOLDED)


def cut_snippet(
    body: str, terms: Sequence[str], folded: str | None = None, chars: int = SNIPPET_CHARS
) -> str:
    """Return about `chars` characters of `body` on one line, "..." where cut, without frames of
    quoted mail: the stretch with the most distinct stems of `terms`, of the mail's own text if
    that has one. `folded` may pass in `searchable(body)`."""
    is_searched = len(body) > SNIPPET_CHARS and len(terms) > 0
    # Otherwise the beginning is shown.
    text = folded or searchable(body if is_searched else body[: 2 * SNIPPET_CHARS])
    best = (_best_start(text, terms) if is_searched else None) or 0
    quote = _QUOTE.search(f"\n{text[: best + 2 * SNIPPET_CHARS]}")
    own_end = quote.start() if quote else len(body)
    if own_end < best and (above := _best_start(text[:own_end], terms)) is not None:
        best = above
    # Begin a little before the first match.
    start, limit = max(0, best - chars // 6), 2 * chars  # `limit` ends the search for a word start
    while start > 0 and not body[start - 1].isspace() and chars < limit:
        start, chars = start - 1, chars + 1
    end = start + chars + _FRAME_CHARS
    piece = body[start : min(own_end, end)]
    for line in body[max(start, own_end) : end].splitlines(keepends=True):
        if len(piece) > chars:
            break
        piece += "" if FRAME.match(line) else line.lstrip(" \t>")
    is_cut = end < len(body) or chars < len(piece)
    if chars < len(piece) and (space := piece.rfind(" ", chars - limit // 4, chars)) > 0:
        chars = space
    return f"{'...' if start else ''}{' '.join(piece[:chars].split())}{'...' if is_cut else ''}"


def _best_start(text: str, terms: Sequence[str]) -> int | None:
    if len(terms) == 1:
        return next(_occurrences(text, terms[0]), None)
    places = [(stem, _occurrences(text, stem)) for stem in terms]
    matches = [(first, stem) for stem, rest in places if (first := next(rest, -1)) >= 0]
    matches.sort()
    # If the first places of all stems fit into one snippet, nothing is better.
    if not matches or matches[-1][0] - matches[0][0] <= _WINDOW:
        return matches[0][0] if matches else None
    most_stems = len(matches)
    matches += [(place, stem) for stem, rest in places for place in rest]
    matches.sort()
    # Slide a window over the matches; `inside` counts each stem in it, `count` the distinct ones.
    best, best_count, start = 0, 0, 0
    inside = dict.fromkeys(terms, 0)
    count = 0
    for place, stem in matches:
        count += not inside[stem]
        inside[stem] += 1
        while place - matches[start][0] > _WINDOW:  # linear: each match enters and leaves once
            left = matches[start][1]
            inside[left] -= 1
            count -= not inside[left]  # its last place has left the window
            start += 1
        if count > best_count:
            best, best_count = matches[start][0], count
            if count == most_stems:
                break
    return best


def _occurrences(text: str, stem: str) -> Iterator[int]:
    """Yield where words of this stem begin in folded `text`. A Snowball stem differs from the start
    of its words at most in the last letter ("happi" of "happy", "age" of "aging"); exceptions such
    as "dying" are not found. In other languages every word is stemmed. Addresses and pairs of
    characters match anywhere, pairs also with the vowel signs that were folded away."""
    _, at, mark = stem.partition("@")
    if "." in mark or is_unspaced(stem):
        yield from (match.start() for match in pattern_of(stem).finditer(text))
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
    """Return the pattern of an address or a pair of characters in `searchable` text."""
    # Vowel signs and the sound marks of half-width kana.
    gap = r"(?:[^\w\s]|[\uff9e\uff9f]){0,3}" if is_unspaced(word) else ""
    return re.compile(gap.join(map(re.escape, word)))


@lru_cache(65_536)
def _stem(word: str) -> str:
    return stems([word])[0]
