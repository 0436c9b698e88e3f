"""Whether an answer is right, given the gold answer.

`Judge` is what a judge offers; `OfflineJudge` is the one without a model. Its
rules, in order:

1. On an unanswerable question (`answerable` false, or a gold answer that itself
   abstains) abstention is correct and any answer is wrong; otherwise abstention is
   not correct.
   The gold answer itself, word for word, is correct.
2. An answer that speaks of its grading, or gives orders to its reader, is wrong.
   Only its first 4,000 characters are read.
3. Yes or no: the answer must have the gold's polarity and not both, as yes or no, as a
   statement or as the gold's reason; its values must not contradict the gold's.
4. Key values: the gold's dates, times, amounts, phone numbers, addresses and codes
   of the kinds that the question asks for (all of them where its words don't tell)
   must be stated, in any spelling. Dates match in all that the gold says and say
   nothing narrower; a year or weekday that does not fit is wrong.
5. No contradiction: a value of a kind that the gold has must agree with one of the
   gold's or stand in the question. So lists of candidates are wrong, and so is a
   right value joined by "or" to something else. Values of other kinds are free.
   Values taken back ("not May 3", "instead of", "moved from ... to") don't count; a
   gold that has no others ("not above $90k") needs an answer that takes back the same.
6. Names: for "who", and where the gold is only names, each must be stated, by full
   name in any order, initial or nickname with last name, or last name; a first name
   alone only if the gold has no more. Another name in the same position in the
   sentence (subject, or after the same preposition) contradicts.
7. Text: where a gold has no key values or names, or the question asks for more (why,
   where, how), the answer must contain half of the gold's content stems that the
   question does not give away, and some of each item of a list; deny what the gold
   denies and nothing else; have no opposite word, no "or" that a short gold lacks,
   and not be many times longer (`evals.overlap`). Synonyms of `synonyms.txt` are one word.
8. Mix-ups: the gold's parts must not be put together otherwise, nor one word stand where
   the gold has another (`evals.mixups`).

Whether an answer stands in the mails that were read is `evals.grounded`'s rule. Knows
nothing of models or inboxes.
"""

import datetime as dt
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from art_e.abstention import is_abstention
from art_e.errors import UserError
from art_e.inbox.mail import Email
from art_e.question import Question
from evals.appeal import appeal
from evals.claims import Claims, asked, is_choice, key_names, key_values, read_claims
from evals.grounded import grounded_in
from evals.mixups import mixup
from evals.names import Name, is_part, names_match, names_thing, states_name
from evals.normalise import Value, clean, compatible, same_value
from evals.overlap import FEW, FEW_RECALL, text_fault
from evals.words import (
    asks_yes_no,
    content_stems,
    has_auxiliary,
    is_elliptic,
    negated,
    polarity,
    says_both,
)

MAX_VALUES = 40  # an answer with so many more values than its gold is a list of candidates
YES_NO_RECALL = 0.3  # of the gold's and question's stems, for a yes or no given as a statement


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judgement; `reason` is one line.

    `correct` is None where the judge failed or its reply can't be read: unjudged, never
    guessed. `grounded`, whether the mails that were read say so, is None where that was
    not judged: an abstention, no mail, or nothing in the answer that could be looked up.
    """

    correct: bool | None
    grounded: bool | None
    judge: str
    reason: str


class Judge(Protocol):
    """Anything that judges answers."""

    @property
    def name(self) -> str:
        """Name and version ("offline/2"), recorded in each verdict."""

    async def judge(
        self, question: Question, answer: str | None, mails: Sequence[Email] = ()
    ) -> Verdict:
        """The verdict on `answer`, given after reading `mails`, which ground it and no more.

        Raises UserError for a question without a gold answer.
        """


def ruled(question: Question, answer: str | None, judge: str) -> Verdict | None:
    """The verdict of `judge` by rule 1, which all judges share; None where it does not settle it.

    Raises UserError for a question without a gold answer.
    """
    gold, abstained = question.answer, is_abstention(answer)
    if question.answerable is False or (gold is not None and is_abstention(gold)):
        reason = "abstained on" if abstained else "answered"
        return Verdict(abstained, None, judge, f"{reason} an unanswerable question")
    if gold is None:
        raise UserError(
            f"question {question.id} has no answer to judge against: "
            "give it `answer`, or set `answerable` to false"
        )
    if answer is None or abstained:
        return Verdict(False, None, judge, "abstained on an answerable question")
    if _plain(answer).casefold() == clean(gold).casefold():
        return Verdict(True, None, judge, "is the gold answer")
    return None


def with_grounding(
    verdict: Verdict, question: Question, answer: str | None, mails: Sequence[Email]
) -> Verdict:
    """The verdict, and whether the answer stands in `mails`; not asked of an abstention."""
    if answer is None or not mails or is_abstention(answer):
        return verdict
    grounding = grounded_in(question.question, answer, mails)
    return replace(verdict, grounded=grounding.grounded, reason=grounding.added_to(verdict.reason))


_YES_NO_GOLD = re.compile(r"\W*(?:yes|no)\b *(?:$|[,.;:!-])", re.IGNORECASE)
_WRAPPING = re.compile(
    r"^[\s\"'*_]*(?:(?:final )?answer ?: ?)?[\s\"'*_]*|[\s\"'*_]+$", re.IGNORECASE
)
_FAMILIES = (
    ("date", "time"),
    ("money", "percent", "duration", "measure", "number"),
    ("name", "email"),
)
# What must not follow a stated value: "or" and another value, or "or" and something vague.
_OR = re.compile(
    r"[ ,;()\"']{0,3}(?:or|and/or|alternatively|maybe|perhaps|possibly|otherwise|if not|/|vs\.?|"
    r"versus)(?!\w)(?: (?:on|at|by|in|even|maybe|perhaps|possibly|to|for|it|is|was|from|around|"
    r"about|the|else|\w{2,6}day)\b){0,4} ?,? ?",
    re.IGNORECASE,
)
_VAGUE = re.compile(
    r"(?:later|earlier|another|others?|some(?:one|body|thing)|thereabouts|sooner|any\w*|next|"
    r"(?:day|week|month|one|following|previous) (?:after|before|day|week|month|one))\b",
    re.IGNORECASE,
)


class OfflineJudge:
    """The judge without a model; deterministic. Its rules stand at the top of this module."""

    name = "offline/2"

    async def judge(
        self, question: Question, answer: str | None, mails: Sequence[Email] = ()
    ) -> Verdict:
        """`decide`, and whether the answer stands in `mails`."""
        return with_grounding(self.decide(question, answer), question, answer, mails)

    def decide(self, question: Question, answer: str | None) -> Verdict:
        """The verdict on `answer`. Raises UserError for a question without a gold answer."""
        settled = ruled(question, answer, self.name)
        if settled is not None:
            return settled
        assert question.answer is not None and answer is not None
        fault = next(
            filter(None, _faults(question, read_claims(question.answer), _plain(answer))), None
        )
        return Verdict(
            fault is None, None, self.name, fault or "states what the gold answer states"
        )


def _plain(answer: str) -> str:
    return _WRAPPING.sub("", clean(answer))


def _faults(question: Question, gold: Claims, text: str) -> Iterator[str | None]:
    """Why the answer `text` is wrong, a line each; None from a check that it passes."""
    asking, near = read_claims(question.question), question.query_date
    words = appeal(text)
    if words and words.lower() not in f"{gold.text} {asking.text}".lower():
        yield f"addresses the judge: {words!r}"
    answer = read_claims(text)
    yield _contradiction(asking, gold, answer, near)
    is_yes_no = asks_yes_no(asking.text) and not is_choice(asking.text)
    if is_yes_no or _YES_NO_GOLD.match(gold.text):
        yield _polarity_fault(asking, gold, answer)
        return
    yield mixup(asking.text, gold.text, answer.text)
    wanted = asked(asking.text)
    values, names = key_values(gold, asking, wanted), key_names(gold, asking.text, wanted)
    if "name" in wanted.kinds and any(value.kind == "email" for value in values):
        yield _contact_fault(values, names, answer)
        return
    for value in values:
        if not any(same_value(value, other, near) for other in answer.values):
            yield f"lacks the {value.kind} {gold.text[value.start : value.end]!r}"
    denied = () if gold.values else gold.denied
    for value in denied:
        if not any(same_value(value, other, near) for other in answer.denied):
            yield f"does not deny {gold.text[value.start : value.end]!r}"
    yield _names_fault(names, asking, gold, answer)
    kinds = wanted.kinds | {"number"} if "price" in wanted.kinds else wanted.kinds
    if wanted.text or not (names or any(value.kind in kinds for value in values)):
        yield text_fault(
            asking.text, _without(gold, [*values, *denied]), answer.text, bool(values or denied)
        )


def _without(gold: Claims, values: list[Value]) -> str:
    """The gold's text without those of its values that have been compared already."""
    text = gold.text
    for value in sorted(values, key=lambda value: -value.start):
        text = f"{text[: value.start]} {text[value.end :]}"
    return text


def _contact_fault(values: list[Value], names: list[Name], answer: Claims) -> str | None:
    """For "who": the gold's address or its name will do, and the address's owner by name."""
    for value in values:
        if value.kind != "email":
            continue
        owner = tuple(re.findall(r"[a-z]+", str(value.key).split("@", maxsplit=1)[0]))
        if any(other.key == value.key for other in answer.values):
            return None
        if len(owner) > 1 and states_name(owner, answer.text, list(answer.names)):
            return None
    if names and all(states_name(n.words, answer.text, list(answer.names)) for n in names):
        return None
    return "names neither the person nor the address"


def _polarity_fault(asking: Claims, gold: Claims, answer: Claims) -> str | None:
    wanted = polarity(gold.text)
    if wanted is None:
        wanted = not negated(gold.text)
    if says_both(answer.text):
        return "says yes and no"
    known = set(content_stems(f"{gold.text} {asking.text}"))
    stems = set(content_stems(answer.text))
    hits = len(known & stems)
    said = polarity(answer.text)
    beyond = set(content_stems(gold.text)) - set(content_stems(asking.text))
    if said is None and not stems and is_elliptic(answer.text):
        said = not negated(answer.text)
    elif said is None and beyond and len(beyond & stems) >= FEW_RECALL * len(beyond):
        rest = _YES_NO_GOLD.sub("", gold.text)  # the gold's reason, given alone
        said = wanted if negated(answer.text) == negated(rest) else not negated(answer.text)
    elif said is None:
        needed = 1 if stems <= known and has_auxiliary(answer.text) else YES_NO_RECALL * len(known)
        if hits < max(needed, len(stems) / 2):
            return "says neither yes nor no"
        said = not negated(answer.text)
    elif said and negated(answer.text) and not negated(gold.text):
        return "says yes, and denies it"
    elif not hits and len(stems) > FEW:
        return "says yes or no to something else"
    words = set(re.findall(r"\w+", f"{gold.text} {asking.text}".lower()))
    subject = next((name for name in answer.names if not name.slot), None)
    if subject and not is_part(subject, words, answer.text):
        return f"speaks of another: {' '.join(subject.words)!r}"
    return None if said == wanted else "says yes for no, or no for yes"


def _contradiction(
    asking: Claims, gold: Claims, answer: Claims, near: dt.date | None
) -> str | None:
    """The first value of the answer that is at odds with the gold's values of its kind."""
    known = [*gold.values, *gold.denied]
    if not is_choice(asking.text):
        known += asking.values
    kinds = {value.kind for value in gold.values}
    candidates = [value for value in answer.values if value.kind in kinds]
    if len(candidates) > len(gold.values) + MAX_VALUES:
        return f"lists {len(candidates)} values"
    stated: list[Value] = []
    for value in candidates:
        shown = answer.text[value.start : value.end]
        if not any(compatible(other, value, near) for other in known):
            return f"has another {value.kind}: {shown!r}"
        if any(_clash(other, value, near, known) for other in stated):
            return f"has alternatives of one {value.kind}: {shown!r}"
        has_or = is_choice(shown) or _followed_by_or(answer, value.end, value.kind)
        if has_or and not is_choice(gold.text):
            return f"offers an alternative to {shown!r}"
        stated.append(value)
    return None


def _clash(one: Value, other: Value, near: dt.date | None, known: list[Value]) -> bool:
    """True if two dates or times say different things of one known value."""
    if one.kind != other.kind or one.kind not in ("date", "time"):
        return False
    return not compatible(one, other, near) and any(
        same_value(value, one, near) and same_value(value, other, near) for value in known
    )


def _followed_by_or(answer: Claims, end: int, kind: str) -> bool:
    """True if "or" follows at `end` with another value of the kind, or with something vague."""
    match = _OR.match(answer.text, end)
    if match is None:
        return False
    family = next((kinds for kinds in _FAMILIES if kind in kinds), (kind,))
    starts = {value.start for value in answer.values if value.kind in family}
    if "name" in family:
        starts |= {name.start for name in answer.names}
    return match.end() in starts or bool(_VAGUE.match(answer.text, match.end()))


def _names_fault(needed: list[Name], asking: Claims, gold: Claims, answer: Claims) -> str | None:
    """A name that the answer lacks, or one that stands where the gold's should."""
    if not needed:
        return None
    stated: list[Name] = []
    for name in needed:
        found = states_name(name.words, answer.text, list(answer.names))
        is_thing = "name" not in asked(asking.text).kinds and not negated(answer.text)
        if found is None and is_thing:
            found = names_thing(name.words, answer.text)
        if found is None:
            return f"lacks the name {' '.join(name.words)!r}"
        stated.append(found)
    named = {stem for name in answer.names for stem in content_stems(" ".join(name.words))}
    stems = set(content_stems(answer.text)) - named
    if len(stems) > 2 * FEW and not stems & set(content_stems(f"{gold.text} {asking.text}")):
        return "names the person in another matter"
    slots = {name.slot for name in stated} | {"", "@"}
    words = set(re.findall(r"\w+", gold.text.lower()))
    if not is_choice(asking.text):
        words |= set(re.findall(r"\w+", asking.text.lower()))
    for name in answer.names:
        has_or = name.slot in slots and _followed_by_or(answer, name.end, "name")
        if has_or and not is_choice(gold.text):
            return f"offers an alternative to {' '.join(name.words)!r}"
        is_known = any(names_match(other.words, name.words) for other in (*gold.names, *needed))
        if name.slot in slots and not is_known and not is_part(name, words, answer.text):
            return f"names another: {' '.join(name.words)!r}"
    return None
