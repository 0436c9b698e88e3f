"""The pieces of a mail that show why it was found, or hold given words."""

import itertools
import re
from bisect import bisect
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from art_e.inbox.tokenizer import fold, stems

SNIPPET_CHARS = 200

# Part of a body that is searched for a snippet: a limit on the cost of a hostile mail.
SEARCHED_CHARS = 50_000

# Words this near to each other fit into one snippet.
_WINDOW = SNIPPET_CHARS * 2 // 3

# Shown before and after a word that was found in a page.
_WORDS_AROUND = 25

_WORD = re.compile(r"[^\W_]+")


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
    """About `SNIPPET_CHARS` characters of `body` on one line, "..." where cut.

    It is the stretch with the most distinct stems of `wanted`. `folded` may pass in
    `searchable(body)`.
    """
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


class Passage(NamedTuple):
    """A piece of a text, and the number of its page from 1."""

    page: int
    text: str


def find_passages(pages: Sequence[str], wanted: Sequence[list[str]]) -> list[Passage]:
    """The pieces of a text in pages around every place that has one of the runs of stems `wanted`.

    A piece stays within the page on which the run begins, but for the end of the run itself.
    """
    text = "".join(pages)
    ends = list(itertools.accumulate(map(len, pages)))
    found = [
        (start + each.start(), start + each.end(), each[0])
        for start, page in zip([0, *ends], pages, strict=False)
        for each in _WORD.finditer(searchable(page))
    ]
    stemmed = stems([word for _, _, word in found])
    beginnings = {run[0] for run in wanted}
    pieces: list[tuple[int, int, int]] = []
    for place, (start, _, _) in enumerate(found):
        if stemmed[place] not in beginnings:
            continue
        lengths = [len(each) for each in wanted if stemmed[place : place + len(each)] == each]
        if not lengths:
            continue
        number, after = bisect(ends, start), place + max(lengths)
        first = max(found[max(0, place - _WORDS_AROUND)][0], ends[number - 1] if number else 0)
        last = min(found[min(len(found), after + _WORDS_AROUND) - 1][1], ends[number])
        last = max(last, found[after - 1][1])
        if pieces and pieces[-1][0] == number and first <= pieces[-1][2]:
            _, first, before = pieces.pop()
            last = max(last, before)
        pieces.append((number, first, last))
    return [Passage(number + 1, text[first:last].strip()) for number, first, last in pieces]


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
    """Where words of this stem begin in folded `text`.

    A Snowball stem differs from the start of its words in the last letter at most ("happi" of
    "happy", "age" of "aging"); exceptions such as "dying" are not found.
    """
    start = stem[:-1] if len(stem) > 3 or stem[2:] in ("i", "e") else stem
    position = text.find(start)
    while position >= 0:
        if not position or not text[position - 1].isalnum():
            word = _WORD.match(text, position)
            if word and _stem(word[0]) == stem:
                yield position
        position = text.find(start, position + len(start))


@lru_cache(65_536)
def _stem(word: str) -> str:
    return stems([word])[0]
