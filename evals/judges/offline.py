"""Judge an answer by the gold answer, without a model.

`OfflineJudge` strips openers, sources and politeness from an answer. An answer that addresses the
grader, retracts itself or lists candidates is wrong. The rest get a score from 0 to 1, by logistic
regression over faults (`WEIGHTS`, fitted by `python -m bench.fit_judge`); docs/journal has the
agreement with labels. `F1Judge` is a second judge without a model."""

import datetime as dt
import math
import re
import unicodedata
from abc import ABC, abstractmethod
from calendar import day_name, month_name
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from difflib import SequenceMatcher

from art_e.abstention import is_abstention
from art_e.errors import UserError
from art_e.inbox.mail import Email
from art_e.question import Question
from art_e.text import cut_line
from art_e.tools import MAX_BODY_CHARS
from evals.judges import claims
from evals.judges.claims import Value, content_stems, read_claims, same_value
from evals.scored import Verdict


def is_unanswerable(question: Question) -> bool:
    """Return whether no mail answers the question. Raises UserError without a gold answer."""
    if question.answerable is False:
        return True
    if question.answer is None:
        why = f"question {question.id} has no answer to judge against"
        raise UserError(f"{why}: give it `answer`, or set `answerable` to false")
    return question.answerable is None and is_abstention(question.answer)


class RuleJudge(ABC):
    """A deterministic judge without a model; subclasses differ in `_compare` only."""

    name: str

    async def judge(
        self, question: Question, answer: str | None, mails: Sequence[Email] | None = None
    ) -> Verdict:
        """Return the verdict of `decide`, with grounding unless the answer abstains."""
        verdict = self.decide(question, answer, mails or ())
        if answer is None or mails is None or _abstains(claims.clean(answer), question, mails):
            return verdict
        grounded, why = grounded_in(question.question, answer, mails)
        reason = f"{verdict.reason}; {why}" if why else verdict.reason
        return replace(verdict, grounded=grounded, reason=reason)

    def decide(
        self, question: Question, answer: str | None, mails: Sequence[Email] = ()
    ) -> Verdict:
        """Return the verdict on `answer`. Raises UserError for a question without gold answer."""
        text = claims.clean(answer or "")
        abstained = _abstains(text, question, mails)
        if is_unanswerable(question):
            reason = "abstained on" if abstained else "answered"
            return Verdict(abstained, None, self.name, f"{reason} an unanswerable question")
        gold, bare = question.answer or "", claims.strip_frame(text)
        if bare and bare.casefold() == claims.strip_frame(claims.clean(gold)).casefold():
            return Verdict(True, None, self.name, "is the gold answer")
        verdict = self._compare(question, gold, bare)
        # A right answer may look like an abstention.
        if abstained and (claims.YES_NO.match(question.question) or not verdict.correct):
            return Verdict(False, None, self.name, "abstained on an answerable question")
        return verdict

    @abstractmethod
    def _compare(self, question: Question, gold: str, answer: str) -> Verdict:
        """Return the verdict on an answer, without its frame, that differs from the gold answer."""


def _abstains(text: str, question: Question, mails: Sequence[Email]) -> bool:
    bodies, bare = (mail.body for mail in mails), claims.strip_frame(text)
    return is_abstention(bare, question.question, bodies) and not claims.APPEAL.search(text)


class OfflineJudge(RuleJudge):
    """The judge described at the top of this module."""

    name = "offline/9"

    def _compare(self, question: Question, gold: str, answer: str) -> Verdict:
        comparison = Comparison(question, gold, answer)
        if reason := comparison.disqualifying_reason():
            return Verdict(False, None, self.name, reason)
        penalties = {name: WEIGHTS[name] * x for name, x in comparison.features().items()}
        # Logistic regression: P(right) = 1 / (1 + exp(-(bias + sum of weight * feature))).
        score = 1 / (1 + math.exp(-WEIGHTS["bias"] - sum(penalties.values())))
        worst = min(penalties, key=penalties.__getitem__)
        reason = "says what the gold answer says" if score >= 0.5 else worst
        reason, unsure = f"{reason} (score {score:.2f})", UNSURE[0] < score < UNSURE[1]
        return Verdict(score >= 0.5, None, self.name, reason, unsure=unsure)


# Faults of an answer and their weights; "bias" is the log-odds of an answer without faults.
_LINES = (line.split(" ", 1) for line in claims.phrases("weight"))
WEIGHTS = {fault: float(weight) for weight, fault in _LINES}
UNSURE = (0.13, 0.87)  # the judge is unsure between these scores, log-odds of +-1.9

_PARTS, _PREPOSITION, _OR, _BRACKETS = map(
    claims.pattern, ("divider", "preposition", "alternative", "brackets")
)
_TOKEN = re.compile(r"\w+(?:[-'.:&]\w+)*")
_LISTED, _ARTICLE = map(claims.pattern, ("list", "article"))


class Comparison:
    """Compares an answer, without its frame, with the gold answer."""

    def __init__(self, question: Question, gold: str, answer: str) -> None:
        self.question, self.gold, self.answer = map(read_claims, (question.question, gold, answer))
        self.near = question.query_date
        self.plain = read_claims(_BRACKETS.sub("", self.answer.text))
        asking, asked_kinds = self.question.text, claims.asked_kinds(self.question.text)
        is_choice = claims.CHOICE.search(asking)
        self.is_yes_no = bool(claims.YES_NO.match(asking)) and not is_choice
        # The answer need not repeat what the question has, except the values of a choice.
        self.asked_stems = set() if is_choice else set(content_stems(asking))
        self.free = () if is_choice else self.question.values
        asked_words, kinds = _plain_words(asking), {value.kind for value in self.gold.values}
        keys = [
            key
            for key in (*self.gold.values, *self.gold.names)
            if not any(same_value(key, other) for other in self.free)
            and not (key.kind == "name" and asked_words.issuperset(key.key))
            # The weekday of a date or zone of a time may be missing, but not wrong.
            and not (key.kind in ("weekday", "zone") and kinds & {"date", "time"})
        ]
        values = [key for key in keys if key.kind != "name"]
        # Needed: values of the kinds asked for, or all values and names if gold has nothing else.
        needed = [key for key in keys if key.kind in asked_kinds]
        if not needed and not self._new_stems(_remove(self.gold.text, values)):
            needed = values
        if not content_stems(_remove(self.gold.text, self.gold.names)):
            needed = keys
        self.needed = [] if self.is_yes_no else needed
        # Values of other kinds are details.
        self.details = [] if needed or self.is_yes_no else values
        self.is_text = "text" in asked_kinds or not (self.needed or self.is_yes_no)

    def _new_stems(self, text: str) -> set[str]:
        return set(content_stems(text)) - self.asked_stems

    def disqualifying_reason(self) -> str | None:
        """Return why the answer is wrong, whatever else it says; None if it may be right."""
        text, known = self.answer.text, f"{self.gold.text} {self.question.text}"
        words, back = claims.APPEAL.search(text), claims.RETRACTION.search(text)
        if words and words[0].strip().lower() not in known.lower():
            return f"addresses the judge: {words[0]!r}"
        if back and not set(content_stems(back[0])) <= set(content_stems(known)):
            return f"retracts it: {cut_line(back[0], SHOWN_CHARS)!r}"
        return "lists candidates" if self._lists_candidates() else None

    def _lists_candidates(self) -> bool:
        """Return True for a bare list of parts as short as the gold answer, two of which (or one,
        next to the gold answer) say something else. Gold answers with values don't count."""
        first, *more = _list_items(self.gold.text)
        parts, known = _list_items(self.plain.text), set(content_stems(self.gold.text))
        others = [
            part
            for part in parts
            if (stems := {each for each in content_stems(" ".join(part)) if not each.isdigit()})
            and not (stems & known if more else stems <= known | self.asked_stems)
        ]
        if self.gold.values or not all(
            len(part) <= len(first) + 1 and all(map(content_stems, part)) for part in parts
        ):
            return False
        is_text = first in parts and not (more or self.gold.names)
        return len(others) > 1 or (is_text and any(len(each) > 1 for each in others))

    def features(self) -> dict[str, float]:
        """Return the degree of each fault of `WEIGHTS`, from 0 to 1."""
        gold, answer, plain = self.gold.text, self.answer.text, self.plain.text
        keys = self.needed or self.details
        missing = [key for key in keys if not self._states(key)]
        share, is_missing = len(missing) / max(1, len(keys)), bool(missing and self.needed)
        rest, stems = _remove(gold, keys), set(content_stems(_remove(answer, self.answer.values)))
        expected = self._new_stems(rest)
        lacking = len(expected - stems) / max(1, len(expected) + len(keys) * (not is_missing))
        if not expected and not keys:  # "A-", "all of us"
            lacking = float(gold.lower() not in answer.lower())
        choices = [] if _OR.search(gold) else _OR.findall(plain)
        gold_stems = self._new_stems(gold)
        # "Not worn" is "unworn": a denial and an opposite cancel out.
        is_denied = self.is_text and self.gold.negated != self.answer.negated
        contrary = (1 - lacking) * (is_denied != claims.has_opposite(rest, answer))
        return {
            "lacks a value or name": is_missing * (2 + share) / 3,
            "lacks a detail": 0.0 if self.needed else share,
            "lists another value or name": float(not is_missing and self._lists_another()),
            "names alternatives": float(any(gold_stems & {*content_stems(p)} for p in choices)),
            "lacks words of the gold answer": lacking * self.is_text,
            "has another word": _changed_share(gold, plain, self.asked_stems),
            "says the opposite": float(self._is_contrary() if self.is_yes_no else contrary),
            "mixes up what belongs to what": float(_is_swapped(gold, answer)),
        }

    def _states(self, key: Value) -> bool:
        values = (*self.answer.values, *self.answer.names)
        # A code, phone number or address may be punctuated differently.
        signs = r"[\W_]{0,3}".join(map(re.escape, str(key.key[0])[:200]))
        code = rf"(?i)(?<![^\W_])(?:00|0|v)?{signs}(?![^\W_])"
        is_code = key.kind in ("code", "phone", "web") and re.search(code, self.answer.text)
        return bool(is_code) or any(same_value(key, value, self.near) for value in values)

    def _lists_another(self) -> bool:
        """Return whether the answer lists a known value or name together with an unknown one."""
        kinds = {key.kind for key in (*self.gold.values, *self.needed)}
        known = (*self.gold.values, *self.gold.denied, *self.gold.names, *self.free)
        values = (*self.plain.values, *self.plain.names)
        hits = [each for each in values if any(same_value(key, each, self.near) for key in known)]
        others = [each for each in values if each.kind in kinds and each not in hits]
        between = (
            self.plain.text[min(hit.end, other.end) : max(hit.start, other.start)]
            for hit in hits
            for other in others
        )
        return bool(self.is_yes_no and others) or not all(
            self._new_stems(part) or _PREPOSITION.search(part) for part in between
        )

    def _is_contrary(self) -> bool:
        """Return whether only one of gold and answer affirms the question. The other says no,
        denies something, or has the opposite of a word of the question."""
        gold, answer = (
            claims.polarity(side.text) is not False
            and side.negated == claims.has_opposite(self.question.text, side.text)
            for side in (self.gold, self.answer)
        )
        return gold != answer


def _remove(text: str, values: Sequence[Value]) -> str:
    for value in sorted(values, key=lambda value: -value.start):
        text = f"{text[: value.start]} {text[value.end :]}"
    return text


def _list_items(text: str) -> list[list[str]]:
    parts = (_TOKEN.findall(_ARTICLE.sub("", part)) for part in _LISTED.split(text.lower()))
    return [part for part in parts if part] or [[]]


def _changed_share(gold: str, answer: str, asked_stems: set[str]) -> float:
    """Return the share of gold words that the answer copies, if it alters another one; else 0."""
    expected, actual = _TOKEN.findall(gold.lower()), _TOKEN.findall(answer.lower())[:400]
    # Edits from gold[start:end] to answer[first:last], in words.
    codes = SequenceMatcher(None, expected, actual, autojunk=False).get_opcodes()
    copied = sum(end - start for tag, start, end, _, _ in codes if tag == "equal")
    if len(expected) < 3 or 2 * copied < len(expected):
        return 0.0
    for place, (tag, start, end, first, last) in enumerate(codes):
        at_edge = place == len(codes) - 1 or (place == 0 and last - first > 1)
        texts = map(" ".join, (expected[start:end], actual[first:last]))
        old, new = (set(content_stems(text)) for text in texts)
        is_other = (tag == "replace" and bool(old - new)) or (tag == "insert" and not at_edge)
        if is_other and 0 < len(new - old - asked_stems) <= 2:
            return copied / len(expected)
    return 0.0


def _is_swapped(gold: str, answer: str) -> bool:
    """Return whether the answer mixes up which words of the gold answer belong together."""
    texts = map(_PARTS.split, (gold, answer))
    parts, answered = ([set(content_stems(part)) for part in text] for text in texts)
    # Stems of one part only identify it: "Ann: 3, Bob: 5" has become "Ann: 5, Bob: 3" if two parts
    # of the answer mix the same two parts of the gold answer.
    counts = Counter(stem for part in parts for stem in part)
    unique = [{stem for stem in part if counts[stem] == 1} for part in parts]
    mixed = Counter(frozenset(n for n, stems in enumerate(unique) if stems & p) for p in answered)
    return any(len(both) > 1 and times > 1 for both, times in mixed.items())


# ---- A second judge: the words that an answer and the gold answer share.

F1_THRESHOLD = 0.8  # 0.6 and 0.7 accept more lists, on synthetic worlds of other seeds
SHOWN_CHARS = 60  # of a word of the answer, in the reason

_WEEKDAYS, _MONTHS = (set(map(str.lower, names)) for names in (day_name, month_name[1:]))
# Apostrophes, thousands separators, ".00", and the suffix of "4th".
_DROPPED = re.compile(r"['’]|(?<=\d)(?:,(?=\d{3})|\.00\b|(?:st|nd|rd|th)\b)")
_F1_WORD = re.compile(r"(?!(?:an?|the)\b)(?:\d+(?:[.:/-]\d+)*[^\W_]*|[^\W_]+)")


class F1Judge(RuleJudge):
    """Judges short answers by word F1 against the gold answer, in lower case, without punctuation
    and articles (SQuAD v1.1, Rajpurkar et al. 2016), or against only the gold words that the
    question lacks: asked for a room, "74" matches "Room 74". Unlike in SQuAD, punctuation separates
    words. All its numbers and months must be in the gold answer, and it needs one if gold has any
    (as in DROP, Dua et al. 2019). Weekdays are ignored if the gold answer has none."""

    name = "f1/1"

    def _compare(self, question: Question, gold: str, answer: str) -> Verdict:
        asking, words, gold_words = (
            _F1_WORD.findall(_DROPPED.sub("", text.lower()))
            for text in (question.question, answer, gold)
        )
        if not _WEEKDAYS.intersection(gold_words):
            words = [word for word in words if word not in _WEEKDAYS]
        figures, known = (
            [word for word in side if word in _MONTHS or not word.isalpha()]
            for side in (words, gold_words)
        )
        new = [word for word in gold_words if word not in asking]
        score = max(f1(words, gold_words), f1(words, new))
        reason = f"F1 {score:.2f}"
        if unknown := [word for word in figures if word not in known]:
            reason = f"has {cut_line(unknown[0], SHOWN_CHARS)!r}, which the gold answer lacks"
        elif known and not figures:
            reason = "has no number or month of the gold answer"
        return Verdict(score >= F1_THRESHOLD and reason[:2] == "F1", None, self.name, reason)


def f1(answer: Sequence[str], gold: Sequence[str]) -> float:
    """Return F1, the harmonic mean 2 P R / (P + R) of precision and recall, over words."""
    hits = (Counter(answer) & Counter(gold)).total()  # repeats count
    return 2 * hits / (len(answer) + len(gold)) if hits else 0.0


# ---- Grounding: do the mails that were read support the answer?

UNREAD = "no mail was read"  # an answer given without reading has no support

_DAYS = {-1: "yesterday", 1: "tomorrow"}
_OPENING = re.compile(r"(?:^|[.!?:;]) ?$")


def grounded_in(question: str, answer: str, mails: Sequence[Email]) -> tuple[bool | None, str]:
    """Return whether `mails` support `answer` (None: unknown), and the reason if they don't."""
    if not mails:
        return False, UNREAD
    asking, claimed = read_claims(question), read_claims(answer)
    read = [_mail_claims(mail) for mail in mails]
    kinds, known = claims.asked_kinds(asking.text), _plain_words(asking.text)
    is_count = "number" in kinds and "money" not in kinds
    # A word at the beginning of a sentence need not be a name.
    opening = [each for each in claimed.names if _OPENING.search(claimed.text[: each.start])]
    # A date implies its weekday.
    free = {"number": is_count, "weekday": any(each.kind == "date" for each in claimed.values)}
    new_values = [
        value
        for value in (*claimed.values, *claimed.names)
        if not (free.get(value.kind) or (value in opening and len(value.key) == 1))
        and not any(_covers(other, value, None) for other in asking.values)
        and not (value.kind == "name" and known.issuperset(_plain_words(*value.key)))
    ]
    for value in new_values:
        excerpt = claimed.text[value.start : value.end]
        if not any(
            any(_covers(other, value, mail.date) for other in values)
            or (value.kind == "name" and _plain_words(*value.key) <= _plain_words(text) | known)
            for mail, (text, values) in zip(mails, read, strict=True)
        ):
            return False, f"no mail read has the {value.kind} {excerpt!r}"
    new = set(content_stems(claimed.text)) - set(content_stems(asking.text))
    if new_values or not new or (is_count and claimed.values):
        return bool(new_values) or None, ""
    shared = new.intersection(content_stems(" ".join(text for text, _ in read)))
    reason = f"the mails read have {len(shared)} of {len(new)} new words"
    return (True, "") if 2 * len(shared) >= len(new) else (False, reason)


def _mail_claims(mail: Email) -> tuple[str, list[Value]]:
    """Return a mail's text and its values, with its date and the days that it mentions."""
    people = ", ".join(str(each) for each in (mail.sender, *mail.to, *mail.cc, *mail.bcc))
    text = f"{mail.subject}\n{mail.body[:MAX_BODY_CHARS]}\n{people}"
    stated = read_claims(text, limit=2 * MAX_BODY_CHARS)
    # Values that a mail takes back count, too: grounding does not ask which one holds.
    values, words = [*stated.values, *stated.denied, *stated.names], _plain_words(stated.text)
    if mail.date is None:
        return stated.text, values
    weekdays = {value.key[0] for value in values if value.kind == "weekday"}
    for days in range(-1, 14):  # "Friday" may be in the next week
        day = mail.date.date() + dt.timedelta(days)
        weekday = f"{day:%a}".lower()
        if not days or _DAYS.get(days) in words or weekday in weekdays:
            key = day.year, day.month, day.day, None
            values += [Value("date", key, 0, 0), Value("weekday", (weekday,), 0, 0)]
    return stated.text, values


def _covers(stated: Value, claimed: Value, near: dt.date | None) -> bool:
    """Return whether `stated`, in a mail of the day `near`, says all that `claimed` says."""
    if not stated.kind == claimed.kind == "date":
        return same_value(stated, claimed)
    is_full = stated.key[2] or all(
        a is not None or b is None for a, b in zip(stated.key[1:], claimed.key[1:], strict=True)
    )
    return bool(is_full) and not claims.conflict(stated, claimed, near)


def _plain_words(*texts: str) -> frozenset[str]:
    plain = unicodedata.normalize("NFKD", " ".join(texts).lower())
    return frozenset(re.findall(r"\w+", re.sub(r"[\u0300-\u036f]", "", plain)))
