"""Finds the text that a mail adds to earlier mails."""

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from art_e.inbox.mail import Email
from art_e.inbox.threads import FRAME
from art_e.inbox.tokenizer import tokens

QUOTED_WORDS = 8  # shorter matches are greetings or signatures, not quotes
LEFT_OUT = "[earlier text left out]"
_SEVERAL_LEFT_OUT = re.compile(rf"{re.escape(LEFT_OUT)}([\W_]*{re.escape(LEFT_OUT)})+")


class Runs(NamedTuple):
    """The line number of each word of a mail, and the hash of each run of `QUOTED_WORDS` words."""

    numbers: list[int]  # (words,)
    hashes: list[int]  # (words - 7,); Python salts hashes, so they mean nothing to another process


def runs_of(lines: Iterable[str]) -> Runs:
    """Return the runs of words of these lines."""
    listed = [tokens(line) for line in lines]
    numbers = [number for number, line in enumerate(listed) for _ in line]
    flat = list(itertools.chain.from_iterable(listed))
    runs = zip(*(flat[at:] for at in range(QUOTED_WORDS)), strict=False)  # overlapping
    return Runs(numbers, list(map(hash, runs)))


class Seen:
    """Stores the runs of words of noted mails, and finds the lines that quote them."""

    def __init__(self) -> None:
        self._name_of: dict[int, str] = {}

    def holding(self, runs: Runs) -> dict[int, str]:
        """Map the number of each line that a noted mail has to the name of that mail. All words of
        the line must be in noted runs; line breaks may differ."""
        if self._name_of.keys().isdisjoint(runs.hashes):
            return {}
        names = [""] * len(runs.numbers)
        for at, run in enumerate(runs.hashes):
            if name := self._name_of.get(run):
                names[at : at + QUOTED_WORDS] = [name] * QUOTED_WORDS  # the run covers its words
        words = list(zip(runs.numbers, names, strict=True))
        new = {number for number, name in words if not name}
        return {number: name for number, name in words if number not in new}

    def note(self, runs: Runs, name: str) -> None:
        for run in runs.hashes:
            self._name_of.setdefault(run, name)


def added_texts(bodies: Sequence[str]) -> list[str]:
    """Return the text of each mail of a thread, oldest first, without lines that an earlier mail
    has; `LEFT_OUT` replaces them and the headers above them."""
    seen, added = Seen(), []
    for body in bodies:
        lines = body.split("\n")
        held = seen.holding(runs := runs_of(lines))
        seen.note(runs, "earlier")
        lines = [LEFT_OUT if number in held else line for number, line in enumerate(lines)]
        added.append(_SEVERAL_LEFT_OUT.sub(LEFT_OUT, "\n".join(_without_frames(lines))))
    return added


def added_mails(mails: Sequence[Email]) -> list[Email]:
    """Return the mails of a thread, oldest first, each with only the text that it adds."""
    texts = added_texts([each.body for each in mails])
    return [replace(mail, body=text) for mail, text in zip(mails, texts, strict=True)]


def _without_frames(lines: Sequence[str]) -> list[str]:
    """Remove the lines above `LEFT_OUT` that say who wrote it, when, and to whom."""
    rest: list[str] = []
    for line in lines:
        start = len(rest)
        while line == LEFT_OUT and start and FRAME.match(rest[start - 1]):
            start -= 1
        while start < len(rest) and not rest[start].strip():
            start += 1
        rest[start:] = [line]
    return rest
