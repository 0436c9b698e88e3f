"""`filter`: drops the rows whose fault can be told without a model.

Mends what can be mended (`mending.py`), runs every rule on every row (`rules.py`), drops
the rows that fail one, and then, of those that ask the same (`duplicates.py`), all but one;
where these have different answers, none is dropped and the check of each is unsure.
A row keeps all its checks, and is dropped for the first of `RULES` that it fails.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from art_e.abstention import is_abstention
from art_e.inbox.file import InboxFile
from art_e.inbox.mail import Email
from art_e.question import Kind, Question
from art_e.text import cut_line
from data_pipeline.golden import golden_set as checks
from data_pipeline.golden.duplicates import duplicates
from data_pipeline.golden.golden_set import Batch, Check, GoldenSet, Rejected, Step, with_checks
from data_pipeline.golden.inboxes import Cited, CitedMails, inbox_of, mails_of
from data_pipeline.golden.owner import Owner, owner_of
from data_pipeline.golden.split import gold_mails
from evals.judges.names import asks_yes_no, content_stems
from evals.judges.offline import Claims, asked, is_choice, read_claims
from evals.judges.values import clean, same_value

# ---- Puts right what is plainly wrong in a row's fields, and marks what a user should know of.

# Words of an answer that is still a short fact, a long sentence: of the 73 public questions
# at hand 65 have no longer one; the rest are lists, reports and quotations.
MAX_SHORT_WORDS = 25
LONG = "long-answer"

_COUNTED = re.compile(
    r"\b(?:none|no|zero|once|twice|thrice|both|a couple|several)\b", re.IGNORECASE
)


def mended(question: Question, batch: Batch | None, cited: Mapping[str, Cited]) -> Question:
    """The question with fields that agree; what they were is in its provenance.

    `cited` has what its message ids stand for. They become those under which the inbox
    stores the mails, each once (those that it lacks stay as they are), and an unanswerable
    question cites none. `kind` and `answerable` agree with each other; a "multi-mail"
    question has several mails and a "count" has a number for an answer, else they are what
    their number of mails says.
    """
    answerable = _answerable(question)
    ids = () if answerable is False else _stored_ids(question.message_ids, batch, cited)
    if ids != question.message_ids:
        question = checks.mended(question, "filter", "sources", message_ids=ids)
    wanted: dict[str, Any] = {"answerable": answerable, "kind": _kind(question, answerable)}
    changes = {name: value for name, value in wanted.items() if getattr(question, name) != value}
    return checks.mended(question, "filter", "kind", **changes) if changes else question


def with_marks(question: Question) -> Question:
    """The question, marked "long-answer" where its answer is no short fact."""
    return checks.marked(question, LONG) if is_long(question.answer) else question


def is_long(answer: str | None) -> bool:
    """True for an answer that is no short fact, and so marked `LONG`."""
    return len((answer or "").split()) > MAX_SHORT_WORDS


def _answerable(question: Question) -> bool | None:
    if question.kind != "unanswerable":
        return question.answerable
    # Where the two fields are at odds the answer tells.
    return question.answerable is True and not is_abstention(question.answer)


def _kind(question: Question, answerable: bool | None) -> Kind | None:
    if answerable is False:
        return "unanswerable"
    several = len(question.message_ids) > 1
    wrong = (
        question.kind == "unanswerable"
        or (question.kind == "multi-mail" and not several)
        or (question.kind == "count" and not _has_number(question.answer))
    )
    return ("multi-mail" if several else "lookup") if wrong else question.kind


def _has_number(answer: str | None) -> bool:
    # An empty answer is another check's matter.
    if is_abstention(answer) or answer is None:
        return True
    return bool(_COUNTED.search(answer) or read_claims(answer).values)


def _stored_ids(
    message_ids: Sequence[str], batch: Batch | None, cited: Mapping[str, Cited]
) -> tuple[str, ...]:
    own = () if batch is None else batch.message_ids
    ids = (each if each in own else cited[each].stored or each for each in message_ids)
    return tuple(dict.fromkeys(ids))


# ---- What can be told of a row without a model and without reading mail: one function a rule.

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


# ---- `filter`: drops the rows whose fault can be told without a model.

STEP: Step = "filter"
MIN_REALISM = 0.7


class Checked(NamedTuple):
    """A row, mended and marked, and what the rules say of it, in the order of `RULES`."""

    question: Question
    checks: tuple[Check, ...]

    @property
    def fault(self) -> Check | None:
        """What the row is to be dropped for."""
        return next((each for each in self.checks if each.passed is False), None)


def filter_rows(file: InboxFile, golden: GoldenSet, *, min_realism: float = MIN_REALISM) -> None:
    """Drop from the set, with the reason, the rows that a rule finds fault with.

    `min_realism` is the least `how_realistic`, in 0..1. What `filter` and later steps did
    before is taken back first.
    """
    golden.undo(STEP)
    rows = checked(file, golden, min_realism=min_realism)
    golden.questions = []
    for row in rows:
        question = with_checks(row.question, row.checks)
        if row.fault is None:
            golden.questions.append(question)
        else:
            golden.rejected.append(Rejected.of(question, row.fault))
    golden.sort()
    golden.record(STEP, len(rows), {"min_realism": min_realism})


def checked(file: InboxFile, golden: GoldenSet, *, min_realism: float) -> list[Checked]:
    """What the rules say of each row of the set, in its order; the set stays as it is.

    Only rows that pass all other rules are compared with each other, and have a check
    "duplicate".
    """
    desk = _Desk(file, golden, min_realism)
    rows = [desk.checked(question) for question in golden.questions]
    sound = [row.question for row in rows if row.fault is None]
    mails = gold_mails(file, sound, ())
    contents = {each.id: {gold.content for gold in mails.of(each)} for each in sound}
    found = duplicates(sound, contents)

    def compared(row: Checked) -> Checked:
        if row.fault is not None:
            return row
        twin = found.get(row.question.id)
        if twin is None:
            check = Check("duplicate", STEP, True, "no other asks the same", BY)
        else:
            check = Check("duplicate", STEP, None if twin.disputed else False, twin.reason, BY)
        return row._replace(checks=(*row.checks, check))

    return [compared(row) for row in rows]


class _Desk:
    """Where the rows of one set are looked at, with what is known of them."""

    def __init__(self, file: InboxFile, golden: GoldenSet, min_realism: float) -> None:
        self._file, self._min_realism = file, min_realism
        self._batches = {each.id: each for each in golden.batches}
        self._cited = CitedMails(file, golden.questions)
        self._owners: dict[str, Owner | None] = {}

    def checked(self, question: Question) -> Checked:
        """The row, mended and marked, and what each rule says of it."""
        batch = self._batches.get(str(question.provenance.get("batch")))
        cited = self._cited.of(question)
        row = with_marks(mended(question, batch, cited))
        # The row may have either form of an id now.
        stored = {each.stored: each for each in cited.values() if each.stored is not None}

        def read() -> Sequence[Email]:
            return mails_of(inbox_of(self._file, row), row.message_ids)

        owner = self._owner(question.inbox_address)
        facts = Facts(self._min_realism, owner, batch, {**cited, **stored}, read)
        return Checked(row, tuple(rule(row, facts) for rule in RULES))

    def _owner(self, address: str) -> Owner | None:
        if address not in self._owners:
            self._owners[address] = owner_of(self._file, address)
        return self._owners[address]
