"""Whether a text states what a gold text states, by its content words.

For golds whose meaning is not in values or names. `text_fault` gives the rules.
Expects texts from `evals.normalise.clean`. Knows nothing of questions' kinds or
of verdicts.
"""

import re
from collections.abc import Iterator

from evals.mixups import other_kind
from evals.words import content_stems, negated, opposed

TEXT_RECALL = 0.5  # share of the gold's stems, beyond the question's, that an answer must have
FEW, FEW_RECALL = 3, 0.66  # of so few stems, this share
SHORT_GOLD = 6  # stems; in longer golds an "or" of the answer is natural
MAX_TIMES, MAX_STEMS = 6, 30  # an answer has at most MAX_TIMES x the gold's stems + MAX_STEMS

LIST_ITEM = 4  # stems in an item of a list, at most; longer ones are clauses

_OR = re.compile(r"\b(?<!more )(?<!sooner )(?<!whether )or\b(?! (?:so|not)\b)", re.IGNORECASE)
_ITEMS = re.compile(r"[,;/]|\b(?:and|or)\b|&|\.(?= |$)|(?:^| )[-*] |\b\d{1,2}[.)] ", re.IGNORECASE)
_SENTENCE = re.compile(r"[.;!?]+(?: |$)")


def text_fault(question: str, gold: str, answer: str, has_values: bool = False) -> str | None:
    """Why `answer` does not state what `gold` states, in one line, or None.

    `has_values`: the gold's values have been taken out of `gold` and found in the answer.
    """
    return next(_faults(question, gold, answer, has_values), None)


def _faults(question: str, gold: str, answer: str, has_values: bool) -> Iterator[str]:
    gold_stems, asked, said = (content_stems(text) for text in (gold, question, answer))
    new = set(gold_stems) - set(asked)
    beyond = new or set(gold_stems)
    if not (beyond or has_values or _plain(gold) in _plain(answer)):
        yield "has other words"  # of a gold such as "A-" or "all of us"
    hits = beyond & set(said)
    needed = TEXT_RECALL if has_values or len(beyond) > FEW else FEW_RECALL
    # One word beside values ("Street") says too little to fail an answer for.
    if len(hits) < needed * len(beyond) and not (has_values and len(beyond) == 1):
        yield f"has {len(hits)} of the gold's {len(beyond)} content words"
    whole = set(gold_stems)
    if len(beyond) == 1 and len(said) > FEW and len(whole & set(said)) < TEXT_RECALL * len(whole):
        yield "has the gold's one new word in another context"
    if len(said) > MAX_TIMES * len(gold_stems) + MAX_STEMS:
        yield f"too long to be an answer: {len(said)} content words"
    # A gold that only repeats words of the question chooses among them.
    if (not new or len(beyond) <= SHORT_GOLD) and _OR.search(answer) and not _OR.search(gold):
        yield "offers alternatives"
    if other := opposed(gold, answer):
        yield f"says the opposite: {other!r}"
    if other := other_kind(question, gold, answer):
        yield f"says another kind: {other!r}"
    if beyond and negated(_matching(answer, beyond)) != negated(gold):
        yield "denies what the gold affirms, or affirms what it denies"
    if fault := _list_fault(gold, answer, set(asked), has_values):
        yield fault


def _plain(text: str) -> str:
    words = [word.strip(".,;:!?\"'*()[]") for word in text.lower().split()]
    return f" {' '.join(word for word in words if word)} "


def _matching(answer: str, stems: set[str]) -> str:
    """The sentences of `answer` that have one of `stems`."""
    sentences = _SENTENCE.split(answer)
    return " ; ".join(text for text in sentences if stems & set(content_stems(text)))


def _list_fault(gold: str, answer: str, asked: set[str], has_values: bool) -> str | None:
    """A missing item of a gold list; padding where the gold is neither list nor values."""
    wanted = [stems for item in _ITEMS.split(gold) if (stems := set(content_stems(item)))]
    said = set(content_stems(answer))
    if len(wanted) >= 2:
        if all(len(item) <= LIST_ITEM for item in wanted):
            for item in wanted:
                missing = 2 * len(item & said) < len(item) and not item <= asked
                if missing and (len(item) > 1 or not has_values):
                    return f"lacks an item: {' '.join(sorted(item))}"
        return None
    if has_values:
        return None  # padding with values is a contradiction, and found as one
    known = asked.union(*wanted)
    items = [stems for item in _ITEMS.split(answer) if (stems := set(content_stems(item)))]
    strange = [item for item in items if len(item) <= 3 and not item & known]
    if len(items) >= 3 and len(strange) >= 2:
        return "lists candidates"
    return None
