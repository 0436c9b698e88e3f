"""What can be told of a row without a model and without reading mail: one function a rule.

Each takes the row and the `Facts` that are known of it besides, changes nothing, and gives
a `Check`. `RULES` has them in the order in which a row's first fault is named. Knows nothing
of sets, and of what becomes of a row that fails.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from art_e.abstention import is_abstention
from art_e.inbox.mail import Email
from art_e.question import Question
from art_e.text import cut_line
from data_pipeline.golden.checks import Check
from data_pipeline.golden.cited import Cited
from data_pipeline.golden.golden_set import Batch
from data_pipeline.golden.owner import Owner
from evals.claims import Claims, asked, is_choice, read_claims
from evals.normalise import clean, same_value
from evals.words import asks_yes_no, content_stems

BY = "rule"
_SHOWN_CHARS = 80


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a row besides itself, and the least realism that is asked of it.

    `batch` is None where the row came from none that is known, `owner` where the file has
    no such inbox. `cited` has what the row's message ids stand for, also those before they
    were mended. `read` gives the cited mails.
    """

    min_realism: float
    owner: Owner | None
    batch: Batch | None
    cited: Mapping[str, Cited]
    read: Callable[[], Sequence[Email]]


def answer(question: Question, facts: Facts) -> Check:
    """An answerable question has an answer, an unanswerable one has none."""
    empty = is_abstention(question.answer)
    if question.answerable is False:
        reason = "none, as it should be" if empty else "has an answer, though unanswerable"
        return _check("answer", empty, reason)
    return _check("answer", not empty, "has none" if empty else "has one")


def sources(question: Question, facts: Facts) -> Check:
    """Cited mails were before the generator, and in the inbox when the question is asked."""
    if question.answerable is False:
        return _check("sources", not question.message_ids, "none are needed")
    fault = next(_source_faults(question, facts), None)
    return _check("sources", fault is None, fault or "all are in the inbox")


def ids(question: Question, facts: Facts) -> Check:
    """Neither question nor answer names a mail by its id, as no user would."""
    for where, text in (("question", question.question), ("answer", question.answer or "")):
        if (found := next(_ids_in(text, question, facts), None)) is not None:
            return _check("ids", False, f"the {where} has {_shown(found)}")
    return _check("ids", True, "names no mail by its id")


def leak(question: Question, facts: Facts) -> Check:
    """The answer does not stand in the question.

    A yes or no can't, and a choice ("May 3 or May 4?") must.
    """
    asking, gold = read_claims(question.question), read_claims(question.answer or "")
    chooses = is_choice(asking.text) or _AMONG.search(asking.text)
    if is_abstention(question.answer) or asks_yes_no(asking.text) or chooses:
        return _check("leak", True, "nothing that could stand in the question")
    said = _given_away(asking, gold, question)
    return _check("leak", said is None, said or "the question does not give it away")


def wording(question: Question, facts: Facts) -> Check:
    """The owner asks, of their inbox: not of themselves by name, and not of "this email"."""
    text = clean(question.question)
    if (found := _TALK_OF_MAIL.search(text)) is not None:
        return _check("wording", False, f"speaks of {_shown(found[0])}")
    mention = None if facts.owner is None else facts.owner.mention(text, facts.read)
    if mention is None:
        return _check("wording", True, "speaks as a user does")
    if mention.sure:
        return _check("wording", False, f"speaks of the owner, {_shown(mention.said)}, by name")
    return _check("wording", None, f"{_shown(mention.said)} may be the owner or another")


def realism(question: Question, facts: Facts) -> Check:
    """Rated at least so realistic; one that is not rated passes as not sure."""
    rated, least = question.how_realistic, facts.min_realism
    if rated is None:
        return _check("realism", None, "not rated")
    enough = rated >= least
    return _check("realism", enough, f"rated {rated:g}" + ("" if enough else f", below {least:g}"))


# What is wrong with the row itself comes before what is a matter of taste.
RULES: tuple[Callable[[Question, Facts], Check], ...] = (
    answer,
    sources,
    ids,
    leak,
    wording,
    realism,
)


def _check(name: str, passed: bool | None, reason: str) -> Check:
    return Check(name, "filter", passed, reason, BY)


def _shown(text: str) -> str:
    return repr(cut_line(text, _SHOWN_CHARS))


# --- sources --------------------------------------------------------------------------------


def _source_faults(question: Question, facts: Facts) -> Iterator[str]:
    if facts.owner is None:
        yield f"the file has no inbox {_shown(question.inbox_address)}"
        return
    if not question.message_ids:
        yield "cites no mail"
    for each in question.message_ids:
        cited = facts.cited[each]
        if facts.batch is not None and each not in facts.batch.message_ids:
            yield f"cites {_shown(each)}, which is not in its batch"
        elif cited.later and cited.sent is None:
            yield f"cites {_shown(each)}, which has no date, so that it is there on no day"
        elif cited.later:
            yield f"cites {_shown(each)}, sent after {question.query_date}, when it is asked"
        elif cited.stored is None:
            yield f"cites {_shown(each)}, which is not in the inbox"


# --- ids ------------------------------------------------------------------------------------

_IN_BRACKETS = re.compile(r"<[^<>\s]{1,200}@[^<>\s]{1,200}>")
_DIGITS_OF_ID = 8  # more than an address has: ids hold a time or a counter
_NUMBERED = re.compile(
    r"\b(?:e-?mails?|mails?|messages?) ?(?:#|no\.|number|id|\(?m) ?\d{1,3}\b|"
    r"\b(?:e-?mail|mail|message) \d{1,3}\b(?! ?(?:[ap]\.?m|%|\w+s\b|times?|mb|kb|gb))|"
    r"\bmessage[ -]ids?\b",
    re.IGNORECASE,
)
# Cubic metres are m3 too: "how many m3", "40 m3".
_HANDLE = re.compile(r"(?<![\w.$/-])(?<!\d )(?<!many )(?<!per )m\d{1,3}\b(?![/-])")


def _ids_in(text: str, question: Question, facts: Facts) -> Iterator[str]:
    text = clean(text)
    handles = {} if facts.batch is None else facts.batch.handles()
    known = {*facts.cited, *question.message_ids, *handles.values()}
    for match in _IN_BRACKETS.finditer(text):
        inner = match[0]
        digits = sum(char.isdigit() for char in inner.partition("@")[0])
        if inner in known or digits >= _DIGITS_OF_ID:
            yield inner
    # An id may have lost its brackets.
    yield from (each for each in sorted(known) if len(each) > 4 and each.strip("<>") in text)
    yield from (match[0] for match in _NUMBERED.finditer(text))
    yield from (match[0] for match in _HANDLE.finditer(text) if match[0] in handles)


# --- leak -----------------------------------------------------------------------------------

_AMONG = re.compile(r"\b(?:which of|between)\b", re.IGNORECASE)


def _given_away(asking: Claims, gold: Claims, question: Question) -> str | None:
    """What of the answer the question has: all the values or names asked for, or all words."""
    wanted = asked(asking.text).kinds
    if any(value.kind in wanted for value in gold.values):
        # With what the question lacks, the answer says more: "May 3, 3 pm" to "on May 3".
        # A bare number may count anything: "3" to "How many of the 3 plants ...?".
        given = all(
            value.kind != "number"
            and any(same_value(value, other, question.query_date) for other in asking.values)
            for value in gold.values
        )
        said = ", ".join(gold.text[value.start : value.end] for value in gold.values)
        return f"has its {_shown(said)}" if given else None
    if "name" in wanted and gold.names:
        words = set(re.findall(r"\w+", asking.text.lower()))
        given = all(set(name.words) <= words for name in gold.names)
        said = ", ".join(gold.text[name.start : name.end] for name in gold.names)
        return f"has its {_shown(said)}" if given else None
    stems = set(content_stems(gold.text))
    if gold.values and all(value.kind == "number" for value in gold.values):
        return None
    given = bool(stems) and stems <= set(content_stems(asking.text))
    return f"has all words of {_shown(gold.text)}" if given else None


# --- wording --------------------------------------------------------------------------------

_MESSAGE = r"(?:e-?mails?|messages?|threads?|(?:e-?mail|mail|message) (?:chain|exchange)s?)"
# "The email from Ann", told from others, is one that a user may mean.
_TALK_OF_MAIL = re.compile(
    rf"\b(?:this|these) (?:mails?|{_MESSAGE})\b(?! (?:address|list|account|group|system|server))"
    rf"|\bthe (?:above|following|provided|given|preceding) (?:mails?|{_MESSAGE})\b"
    rf"|\bthe (?:mails?|{_MESSAGE}) above\b"
    rf"|\b(?:in|of|from|to|by|per) the {_MESSAGE}(?= ?(?:[?.,;!]|$))"
    rf"|\bthe (?:sender|recipients?|author|writer) of (?:the|this) (?:mail|{_MESSAGE})\b"
    r"|\bthe (?:sender|recipient)s?\b(?! of\b)"
    r"|\bthe (?:inbox|mailbox)(?:'s)? owner\b|\bthe owner of (?:the|this) (?:inbox|mailbox)\b"
    r"|\bthe user(?:'s)?(?= (?:ask|say|said|want|need|request|receiv|sen[dt]|repl|plan|agree|"
    r"ha[ds]|have|g[eo]t|be|is|was|do|does|did|will|would|should|tell|told|mention|writ|wrote)"
    r"\w*\b)",
    re.IGNORECASE,
)
