"""Whether a final answer declines to answer ("I don't know" in any words).

None, and text without a letter or digit, abstain. Very short text does if it is one of `_SHORT`:
"No." and "None" are answers. Other text gets a score from its words and runs of words: a logistic
regression whose weights stand in `abstention.tsv`. Names and numbers count as such, whatever they
are, because answers have them and abstentions hardly. `python -m bench.fit_abstention` fits
the weights to labelled texts; docs/evaluation.md says how well they do on texts of others.
"""

import math
import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from importlib import resources

# Longer text is read no further, which bounds the work.
_MAX_CHARS, _MAX_WORDS = 2_000, 120
# Below even odds, because answers that look like abstentions are rarer than in the texts fitted to.
_THRESHOLD = -0.5
# Text of so few words says too little for a score; of fewer than `_SOME`, the score must be sure.
_FEW, _SOME = 2, 5
_SURE = 1.5
_SHORT = frozenset(
    "unknown|unclear|undetermined|unspecified|unstated|n a|na|null|idk|no idea|no clue|no answer|"
    "not specified|not stated|not given|not mentioned|not found|not known|not sure|not available|"
    "not disclosed|not clear|no information|no info|insufficient information|"
    "can not|nothing found|unable to".split("|")
)
# The longest run of words that has a weight.
_RUN = 4

_APOSTROPHES = re.compile(r"['’‘`´ʼ′]")
_OPENING = re.compile(r"^\W*(?:final )?answer ?: ?", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+|[.!?;:\n]")
_MAIL = re.compile(r"\be-?mails?\b|\bmails\b|\bmessages?\b", re.IGNORECASE)
_EXPANSIONS = {
    "dont": "do not", "doesnt": "does not", "didnt": "did not", "isnt": "is not",
    "arent": "are not", "wasnt": "was not", "werent": "were not", "cant": "can not",
    "cannot": "can not", "couldnt": "could not", "havent": "have not", "hasnt": "has not",
    "hadnt": "had not", "im": "i am", "ive": "i have", "dunno": "i do not know",
    "idk": "i do not know", "its": "it is", "theres": "there is", "wouldnt": "would not",
    "wont": "will not",
}  # fmt: skip


def is_abstention(answer: str | None) -> bool:
    """True if `answer` declines to answer: None, empty, or "I don't know" in any words."""
    if answer is None or not re.search(r"\w", answer):
        return True
    # In lower case, because of two names it matters which.
    words = [each for each in _folded(answer.lower()) if each != "."]
    if len(words) <= _FEW:
        return " ".join(words) in _SHORT
    return score(answer) > (_THRESHOLD if len(words) >= _SOME else _SURE)


def score(answer: str) -> float:
    """The logarithm of the odds that the text declines to answer."""
    runs, weights = set(word_runs(answer)), _weights()
    return weights[""] + sum(weights.get(run, 0.0) for run in runs) / math.sqrt(len(runs))


def word_runs(text: str) -> Iterator[str]:
    """The runs of one to four words of the folded text, and its length as "#" and a number."""
    words = ["^", *_folded(text), "$"]
    yield f"#{min(6, len(words) // 4)}"
    for length in range(1, _RUN + 1):
        for start in range(len(words) - length + 1):
            yield " ".join(words[start : start + length])


def _folded(text: str) -> list[str]:
    """The words, with "0" for numbers, "Name" for names, and "." for the end of a sentence."""
    text = unicodedata.normalize("NFKC", text[:_MAX_CHARS])[:_MAX_CHARS]
    text = _APOSTROPHES.sub("", _OPENING.sub("", text))
    shouted, words, opens = text.isupper(), list[str](), True
    for word in _WORD.findall(_MAIL.sub("mail", text)):
        if word in ".!?;:\n":
            words += ["."] if words and words[-1] != "." else []
            opens = True
            continue
        if any(map(str.isdigit, word)):
            words.append("0")
        elif word.lower() in _EXPANSIONS:
            words += _EXPANSIONS[word.lower()].split()
        elif not shouted and word != "I" and word[0].isupper() and (not opens or word.isupper()):
            words.append("Name")
        else:
            words.append(word.lower())
        opens = False
    return words[:_MAX_WORDS]


@cache
def _weights() -> dict[str, float]:
    text = resources.files("art_e").joinpath("abstention.tsv").read_text(encoding="utf-8")
    rows = (line.split("\t") for line in text.splitlines())
    return {run: float(weight) for run, weight in rows}
