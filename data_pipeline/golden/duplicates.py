"""Questions that ask the same, each with the one that is kept in its stead.

Two questions of one inbox ask the same

- where their texts are the same but for case and punctuation, and they have the same answer;
- where their texts are near, and they have the same answer. Near means that both have the
  same values (dates, amounts, codes), that the share of their content stems which both
  have is at least `NEAR`, and that neither has a name where the other has another one.
  Where one has a content word for which the other has another, they must also share a
  gold mail; and so must all whose answer many questions have, such as "yes" or "3".

Questions of two inboxes ask the same where that holds and they share a gold mail: the
mail went to both. Mails are the same by content, answers by the offline judge: one taken
for the other, of near texts each for each.

Where two have the same text and share a gold mail, but have different answers, one of them
may be wrong. Which one can't be told here: both are disputed, and both are kept.

Kept is the most realistic one, then an answerable one, then the smallest id. A row is
compared with kept rows only, so that a chain of near ones is not dropped for its first.
Candidates come from MinHash and LSH, so that the work grows with the rows and not with
their pairs. Knows nothing of sets.
"""

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal

from datasketch import MinHash, MinHashLSH

from art_e.abstention import is_abstention
from art_e.question import Question
from data_pipeline.golden.golden_set import natural
from evals.judges.names import asks_yes_no, content_stems, negated
from evals.judges.offline import OfflineJudge, read_claims

NEAR = 0.5
# Bands and rows that miss 4 in 1,000 pairs of `NEAR` (1 - (1 - NEAR^3)^42); what they find
# is compared word by word.
_PERMUTATIONS = 128
_BANDS = (42, 3)
_SEED = 1
# Bounds on the work for each row, which only a set of thousands of near texts meets: of
# kept rows it is compared with the best ones, and it is no candidate itself where there
# are so many already.
_CANDIDATES = 100
_JUDGED = 5

_WORDS = re.compile(r"\w+")
_ASKING = frozenset("who whom whose what which when where why how".split())
_SAME_ASKING = {"whom": "who", "which": "what"}


@dataclass(frozen=True, slots=True)
class Duplicate:
    """That a question asks the same as `kept`; disputed: with another answer."""

    kept: Question
    reason: str  # one line, with the id of `kept`
    disputed: bool = False


@dataclass(frozen=True, slots=True)
class _Text:
    """A question as it is compared."""

    question: Question
    gold: Set[str]
    plain: str  # without case and punctuation
    stems: Set[str]  # of its content words
    names: Set[str]
    values: Set[str]
    asking: Set[str]  # its question words
    denies: bool


def duplicates(questions: Sequence[Question], gold: Mapping[str, Set[str]]) -> dict[str, Duplicate]:
    """By id, the questions that ask what another one does that is kept, and disputed ones.

    `gold` has by question id the contents of its gold mails (any digest). The order of
    `questions` does not matter; their ids must differ.
    """
    found: dict[str, Duplicate] = {}
    index = MinHashLSH(num_perm=_PERMUTATIONS, params=_BANDS)
    empty = MinHash(num_perm=_PERMUTATIONS, seed=_SEED)
    texts: dict[str, _Text] = {}
    for question in sorted(questions, key=_preference):
        text = _text(question, gold.get(question.id, frozenset()))
        signature = _signature(text, empty)
        candidates = sorted((texts[each] for each in index.query(signature)), key=_order)
        twin = _twin(text, candidates)
        if twin is not None:
            found[question.id] = twin
        if twin is not None and twin.disputed:
            found.setdefault(twin.kept.id, _disputed(question))
        if (twin is None or twin.disputed) and len(candidates) < _CANDIDATES:
            texts[question.id] = text
            index.insert(question.id, signature)
    return found


def _preference(question: Question) -> tuple[float, bool, list[tuple[int, str]], str]:
    return (
        -(question.how_realistic or 0.0),
        question.answerable is False,
        natural(question.id),
        question.id,
    )


def _order(text: _Text) -> tuple[float, bool, list[tuple[int, str]], str]:
    return _preference(text.question)


def _text(question: Question, gold: Set[str]) -> _Text:
    claims = read_claims(question.question)
    words = _WORDS.findall(claims.text)
    lower = [word.lower() for word in words]
    # The first word has a capital whatever it is.
    capitals = " ".join(word for word in words[1:] if word[0].isupper())
    return _Text(
        question,
        gold,
        " ".join(lower),
        frozenset(content_stems(claims.text)),
        frozenset(content_stems(capitals)),
        frozenset(f"{value.kind} {value.key}" for value in (*claims.values, *claims.denied)),
        frozenset(_SAME_ASKING.get(word, word) for word in lower if word in _ASKING),
        negated(claims.text),
    )


def _is_common(question: Question) -> bool:
    """True for an answer that tells little: yes or no, or a bare number."""
    if is_abstention(question.answer) or asks_yes_no(question.question):
        return True
    gold = read_claims(question.answer or "")
    return not any(stem.isalpha() for stem in content_stems(gold.text)) and all(
        value.kind in ("number", "ordinal", "percent") for value in gold.values
    )


def _signature(text: _Text, empty: MinHash) -> MinHash:
    # Those with other values share nothing, so that they are no candidates for each other.
    values = "|".join(sorted(text.values))
    signature = empty.copy()
    shingles = [f"{values}|{stem}".encode() for stem in sorted(text.stems or {text.plain})]
    signature.update_batch(shingles)
    return signature


def _twin(text: _Text, candidates: Sequence[_Text]) -> Duplicate | None:
    """The first of the candidates that asks the same as `text`, or else one in dispute with it."""
    judged = 0
    dispute: Duplicate | None = None
    for kept in candidates:
        how = _alike(kept, text)
        if how is None:
            continue
        judged += 1
        if _same_answer(kept.question, text.question, both_ways=how == "near"):
            words = "nearly the same text" if how == "near" else "the same text"
            name = kept.question.id
            return Duplicate(kept.question, f"asks what {name} does: {words} and the same answer")
        if how == "copies" and dispute is None:
            dispute = _disputed(kept.question)
        if judged == _JUDGED:
            break
    return dispute


def _disputed(other: Question) -> Duplicate:
    return Duplicate(other, f"asked also as {other.id} with another answer", disputed=True)


def _alike(kept: _Text, text: _Text) -> Literal["copies", "same text", "near"] | None:
    """How the two texts compare; "copies" are the same text with a gold mail in common."""
    shared = not kept.gold.isdisjoint(text.gold)
    if not shared and kept.question.inbox_address != text.question.inbox_address:
        return None
    if kept.plain == text.plain:
        return "copies" if shared else "same text"
    return "near" if _near(kept, text) and (shared or _tells(kept, text)) else None


def _tells(kept: _Text, text: _Text) -> bool:
    """True if two near texts and an answer they share are enough, without a mail they share."""
    if kept.question.answerable is False:
        # That nothing answers them is true of many.
        return kept.stems == text.stems and kept.asking == text.asking
    replaced = bool(kept.stems - text.stems) and bool(text.stems - kept.stems)
    return not replaced and not _is_common(kept.question)


def _near(one: _Text, other: _Text) -> bool:
    if one.values != other.values or one.denies != other.denies:
        return False
    if one.names - other.stems and other.names - one.stems:
        return False
    return len(one.stems & other.stems) >= NEAR * len(one.stems | other.stems)


def _same_answer(one: Question, other: Question, *, both_ways: bool) -> bool:
    """True if the judge takes one's answer for the other's, or with `both_ways` each for each."""
    if (one.answerable is False) != (other.answerable is False):
        return False
    judge = OfflineJudge()
    verdicts = (
        judge.decide(asked, said.answer).correct for asked, said in ((one, other), (other, one))
    )
    return all(verdicts) if both_ways else any(verdicts)
