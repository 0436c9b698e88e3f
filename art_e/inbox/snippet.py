"""The piece of a mail that shows why it was found. Knows nothing of ranking or storage."""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from art_e.inbox.tokenizer import fold, stems

SNIPPET_CHARS = 200

# A snippet is looked for in this much of a body: enough for any mail people write,
# and a bound on what a hostile one costs.
SEARCHED_CHARS = 50_000


_WORD = re.compile(r"[^\W_]+")


class _CharacterFolds(dict[int, str]):
    """Each character without accents, where that is one character: positions stay the same."""

    def __missing__(self, code: int) -> str:
        folded = fold(chr(code))
        self[code] = folded if len(folded) == 1 else chr(code)
        return self[code]


_FOLDED = _CharacterFolds()


class SnippetFinder:
    """Cuts snippets for one search: the stretch with the most distinct wanted stems."""

    def __init__(self, wanted: Iterable[str]) -> None:
        self._stems = frozenset(wanted)

    def cut(self, body: str) -> str:
        """At most about `SNIPPET_CHARS` characters of `body` on one line, "..." where cut."""
        start = self._best_start(body)
        end = min(len(body), start + SNIPPET_CHARS)
        while start > 0 and not body[start - 1].isspace() and end - start < 2 * SNIPPET_CHARS:
            start -= 1
        if end < len(body) and (space := body.rfind(" ", start + SNIPPET_CHARS // 2, end)) > 0:
            end = space
        text = " ".join(body[start:end].split())
        return f"{'...' if start else ''}{text}{'...' if end < len(body) else ''}"

    def _best_start(self, body: str) -> int:
        if len(body) <= SNIPPET_CHARS or not self._stems:
            return 0
        text = body[:SEARCHED_CHARS]
        text = text.lower() if text.isascii() else text.translate(_FOLDED)
        found = sorted(
            (position, stem) for stem in self._stems for position in _occurrences(text, stem)
        )
        best, best_count, first = 0, 0, 0
        for last, (position, _) in enumerate(found):
            while position - found[first][0] > SNIPPET_CHARS * 2 // 3:
                first += 1
            count = len({stem for _, stem in found[first : last + 1]})
            if count > best_count:
                best, best_count = found[first][0], count
        # A little of what stands before the first word.
        return max(0, best - SNIPPET_CHARS // 6)


def _occurrences(text: str, stem: str) -> Iterator[int]:
    """Where words of this stem begin in folded `text`.

    A Snowball stem differs from the start of its words in the last letter at most
    ("happi" of "happy", "age" of "aging"); "dying" and its like are exceptions, and
    not found.
    """
    start = stem[:-1] if len(stem) > 3 or stem[2:] in ("i", "e") else stem
    position = text.find(start)
    while position >= 0:
        if position == 0 or not text[position - 1].isalnum():
            word = _WORD.match(text, position)
            if word and _stem(word.group()) == stem:
                yield position
        position = text.find(start, position + len(start))


@lru_cache(65_536)
def _stem(word: str) -> str:
    return stems([word])[0]
