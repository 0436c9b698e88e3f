"""`filter`: corrects fields that disagree, drops rows that fail a rule, and keeps one of several
questions that ask the same. It needs no model; the reason is the first of `RULES` that fails."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from importlib import resources
from typing import Any

from art_e.abstention import is_abstention
from art_e.inbox.file import InboxFile
from art_e.question import Kind, Question
from art_e.text import cut_line, toml_table
from data_pipeline.golden.golden_set import Check, GoldenSet, Outcome, by_rule, natural, with_checks
from data_pipeline.golden.inboxes import Cited, cited_mails
from evals.judges.claims import APPEAL, CHOICE, YES_NO, clean, content_stems, read_claims
from evals.judges.offline import OfflineJudge

MIN_REALISM = 0.7
NEAR = 0.5  # Jaccard index of content stems: |A & B| / |A | B|
MAX_WORDS = 50  # of a question or an answer; no correct one was longer
_QUOTED_CHARS = 80
_LANGUAGE_CHARS = 2000  # of a mail, enough to see its language
_TABLES = toml_table(__package__, "patterns.toml")


def filter_rows(file: InboxFile, golden: GoldenSet, *, min_realism: float = MIN_REALISM) -> None:
    """Drop rows that fail a rule or are rated below `min_realism`, and all but one duplicate."""
    all_cited = cited_mails(file, golden.questions)
    addresses = {each.inbox_address for each in golden.questions}
    owners = {address: owner_pattern(file, address) for address in addresses}
    rows: list[Outcome] = []
    contents: dict[str, Set[str]] = {}
    for question in golden.questions:
        cited = all_cited[question.id]
        row = normalized(question, cited)
        # The row may hold an id as cited or as stored.
        known = {**cited, **{each.stored: each for each in cited.values() if each.stored}}
        texts = [each.body[:_LANGUAGE_CHARS] for each in cited.values()]
        owner = owners[question.inbox_address]
        checks = check_all(row, Facts(min_realism, owner, known, texts))
        fault = next((each for each in checks if each.passed is False), None)
        rows.append((with_checks(row, checks), fault))
        contents[row.id] = {each for name in row.message_ids for each in known[name].contents}
    twins = duplicates([row for row, fault in rows if fault is None], contents)
    rows = [(row, fault or twins.get(row.id)) for row, fault in rows]
    golden.finish("filter", rows, {"min_realism": min_realism})


@cache
def _pattern(name: str) -> re.Pattern[str]:
    pattern = "|".join(_TABLES["patterns"][name])
    for piece, text in _TABLES["pieces"].items():
        pattern = pattern.replace(f"{{{piece}}}", text)
    return re.compile(pattern, re.IGNORECASE)


def _match(name: str, text: str) -> str | None:
    match = _pattern(name).search(text)
    return match and match[0]


# ---- Fields that disagree.


def normalized(question: Question, cited: Mapping[str, Cited]) -> Question:
    """Return the question with consistent fields: message ids as the inbox stores them (unknown ids
    stay; an unanswerable question has none), and a `kind` that fits the other fields."""
    answerable = question.answerable
    if question.kind == "unanswerable":
        # If the two fields disagree, the answer decides.
        answerable = answerable is True and not is_abstention(question.answer)
    stored = (cited[each].stored or each for each in question.message_ids)
    ids = () if answerable is False else tuple(dict.fromkeys(stored))
    equivalent = question.equivalent_ids if ids else ()
    question = replace(question, message_ids=ids, equivalent_ids=equivalent, answerable=answerable)
    return replace(question, kind=_kind(question))


def _kind(question: Question) -> Kind:
    if question.answerable is False:
        return "unanswerable"
    kind, several, answer = question.kind, len(question.message_ids) > 1, question.answer or ""
    if kind is None and not several and _pattern("how-many").search(question.question):
        kind = "count"
    fits = kind not in ("unanswerable", *(() if several else ("multi-mail",)))
    if kind == "count" and not is_abstention(answer):
        # Another check finds empty answers.
        fits = bool(_pattern("counted").search(answer) or read_claims(answer).values)
    return kind if fits and kind else "multi-mail" if several else "lookup"


# ---- The owner of an inbox, who would not ask "What did Vince Kaminski ask for?" of his own mail.

_TITLES = "mr|mrs|ms|miss|dr|prof|professor|sir"
_IGNORED = frozenset(f"jr|sr|ii|iii|iv|phd|md|esq|{_TITLES}".split("|"))
_WORD = re.compile(r"[^\W\d_](?:[\w'-]*\w)?")


def mention_pattern(address: str, names: Set[tuple[str, str]]) -> re.Pattern[str]:
    """Return a pattern for the owner's address, full or titled name; `names` are (first, last)."""
    forms = [rf"(?<![\w.+-]){re.escape(address)}(?![\w-])"]
    for first, last in sorted(names):
        forms.append(rf"\b(?:{first} (?:\w\.? )?{last}|{last}, {first})\b")
        forms.append(rf"\b(?:{_TITLES})\.? {last}\b")
    return re.compile("|".join(forms), re.IGNORECASE)


def owner_pattern(file: InboxFile, address: str) -> re.Pattern[str] | None:
    """Return a pattern for mentions of the inbox's owner; None if the file has no such inbox."""
    address = address.strip().lower()
    row = file.execute("SELECT names FROM addresses WHERE address = ?", [address]).fetchone()
    if row is None:
        return None
    local = address.partition("@")[0]
    names = [name for each in row[0].split(" | ") for name in _full_name(each)]
    # Some names of an address belong to people who write for its owner, such as assistants.
    fitting = [name for name in names if name[0] in local or name[1] in local]
    for spelled in _full_name(re.sub(r"[._-]+", " ", local)):
        # Accept vince.kaminski for "vincent kaminski", but not all.employees.
        fitting += [spelled] * (not names or any(spelled[1] == last for _, last in names))
    return mention_pattern(address, {*(fitting or names)})


def _full_name(text: str) -> list[tuple[str, str]]:
    """Return first and last name of "vince j kaminski" or "kaminski, vince j."; [] if neither."""
    if "@" in text or any(char.isdigit() for char in text):
        return []
    last, _, first = text.lower().partition(",")
    words = [w for w in _WORD.findall(f"{first} {last}") if len(w) > 1 and w not in _IGNORED]
    return [(words[0], words[-1])] if len(words) > 1 else []


# ---- The language of a text.


_LINES = resources.files(__package__).joinpath("languages.txt").read_text("utf-8").splitlines()
_FUNCTION_WORDS = {code: frozenset(words) for code, *words in map(str.split, _LINES)}


@lru_cache(maxsize=4096)
def language_of(text: str) -> str | None:
    """Return the code of a text's language, or the name of a non-Latin script; None if unsure."""
    letters = [char for char in text if char.isalpha()]
    others = [char for char in letters if char > "\u024f"]  # the last Latin letter
    if 2 * len(others) > len(letters):
        return unicodedata.name(others[0], "unnamed").split()[0].lower()
    words = [word.lower() for word in re.findall(r"\w+", text)]
    hits = {code: sum(word in known for word in words) for code, known in _FUNCTION_WORDS.items()}
    second, first = sorted(hits, key=lambda code: hits[code])[-2:]
    # A name or two may look like another language.
    return first if hits[first] >= max(2, 2 * hits[second], len(words) // 10) else None


# ---- The rules: functions that return the fault or None.


@dataclass(frozen=True, slots=True)
class Facts:
    """Inputs of the rules besides the row: a pattern for mentions of the owner (None without such
    an inbox), the mails by cited id and by stored id, and the beginnings of their texts."""

    min_realism: float
    owner: re.Pattern[str] | None
    cited: Mapping[str, Cited]
    bodies: Sequence[str] = ()


def instructions(question: Question, facts: Facts) -> str | None:
    """Reject orders to a model in question or answer, and orders to a judge in the answer."""
    words = APPEAL.search(clean(question.answer or ""))
    # A mail about a verdict or a grader may have these words.
    if words and not any(words[0] in clean(each) for each in facts.bodies):
        return f"the answer has {_quoted(words[0])}"
    return _in_texts(question, partial(_match, "orders"))


def answer(question: Question, facts: Facts) -> str | None:
    """Reject an answerable question without an answer, and an unanswerable one that has one."""
    empty = is_abstention(question.answer) or _pattern("no-answer").match(question.answer or "")
    if question.answerable is False:
        return None if empty else "has an answer, though unanswerable"
    return "has none" if empty else None


def sources(question: Question, facts: Facts) -> str | None:
    """Reject cited mails that are not in the inbox on the query date."""
    if question.answerable is False:
        return None
    if facts.owner is None:
        return f"the file has no inbox {_quoted(question.inbox_address)}"
    for name in question.message_ids:
        cited = facts.cited[name]
        if cited.stored is None:
            return f"cites {_quoted(name)}, which {cited.fault}"
    return None if question.message_ids else "cites no mail"


def ids(question: Question, facts: Facts) -> str | None:
    """Reject ids of mails in question or answer: users don't write them."""
    return _in_texts(question, lambda text: next(_ids_in(text, question, facts), None))


def leak(question: Question, facts: Facts) -> str | None:
    """Reject a question that has all content words of the answer, unless it offers a choice."""
    asking, gold = read_claims(question.question), read_claims(question.answer or "")
    if is_abstention(question.answer) or YES_NO.match(asking.text):
        return None
    if CHOICE.search(asking.text) or _pattern("among").search(asking.text):
        return None
    if gold.negated and not asking.negated:
        return None
    # A bare number may count anything: "3" to "How many of the 3 plants ...?".
    if gold.values and all(value.kind == "number" for value in gold.values):
        return None
    stems = set(content_stems(gold.text))
    leaks = bool(stems) and stems <= set(content_stems(asking.text))
    return f"has all words of {_quoted(gold.text)}" if leaks else None


def yes_no(question: Question, facts: Facts) -> str | None:
    """Reject yes-or-no questions, because half of all guesses at them are right."""
    text, gold = clean(question.question), clean(question.answer or "")
    is_english = language_of(text) in (None, "en")  # "Was" is "what" in German
    polar = is_english and YES_NO.match(_pattern("after-comma").sub("", text))
    open_ended = CHOICE.search(text) or _pattern("asks-what").search(text)
    # "Do you have Ann's number?" asks for the number.
    open_ended = open_ended or _pattern("asks-for").match(f"{text} {gold}")
    bare = _pattern("bare").fullmatch(gold)
    return "yes or no answers it" if bare or (polar and not open_ended) else None


def one_fact(question: Question, facts: Facts) -> str | None:
    """Reject questions that ask for more than one short fact, and answers that leave a choice."""
    if fault := _in_texts(question, lambda text: text if text.count(" ") >= MAX_WORDS else None):
        return f"{fault}, more than {MAX_WORDS} words"
    text = clean(question.question)
    fault = _match("open-ended", text)
    if len(question.message_ids) < 2:
        # A question about several mails may ask for a fact from each.
        fault = fault or _match("two-questions", text)
    fault = fault or _match("two-values", f"{text} {clean(question.answer or '')}")
    return fault and f"asks for more than one fact, or leaves a choice: {_quoted(fault)}"


def referent(question: Question, facts: Facts) -> str | None:
    """Reject questions that don't say whom or what they mean: "When is the meeting?"."""
    words = _match("no-referent", clean(question.question))
    return words and f"doesn't say what {_quoted(words)} is about"


def private(question: Question, facts: Facts) -> str | None:
    """Reject requests for a password, and numbers that identify a person or a credit card."""
    return _in_texts(question, partial(_match, "private"))


def day_asked(question: Question, facts: Facts) -> str | None:
    """Reject dates that depend on the day of the question or of the mail, such as "tomorrow"."""

    def relative(text: str) -> str | None:
        matches = _pattern("day-asked").finditer(text)  # "USA Today" is a name
        return next((m[0] for m in matches if m.start() == 0 or not m[0][0].isupper()), None)

    return _in_texts(question, relative)


def language(question: Question, facts: Facts) -> str | None:
    """Reject a question in another language than its mails, if both are known."""
    code = language_of(question.question)
    mails = {known for each in facts.bodies if (known := language_of(each))}
    if code is None or not mails or code in mails:
        return None
    return f"in {code}, its mail in {', '.join(sorted(mails))}"


def wording(question: Question, facts: Facts) -> str | None:
    """Reject questions that owners don't ask: they name the owner, or speak of "this email"."""
    if fault := _in_texts(question, partial(_match, "talk-of-mail")):
        return fault
    mention = facts.owner and facts.owner.search(clean(question.question))
    return mention and f"mentions the owner by name: {_quoted(mention[0])}"


def realism(question: Question, facts: Facts) -> str | None:
    """Reject questions that were rated too low."""
    rated, least = question.how_realistic, facts.min_realism
    return f"rated {rated:g}, below {least:g}" if rated is not None and rated < least else None


# Errors of the row come before matters of taste.
_RULES = (
    instructions, answer, sources, ids, private, leak, yes_no, one_fact, day_asked, referent,
    language, wording, realism,
)  # fmt: skip
RULES = {rule.__name__.replace("_", "-"): rule for rule in _RULES}


def check_all(question: Question, facts: Facts) -> list[Check]:
    """Return the check of each rule; without a rating, realism is unsure."""
    checks = [by_rule(name, "filter", rule(question, facts)) for name, rule in RULES.items()]
    if question.how_realistic is None:
        checks[-1] = Check("realism", "filter", None, "not rated", "rule")
    return checks


def answer_fault(question: Question) -> str | None:
    """Return the first rule about the answer that the question fails, and its fault."""
    facts = Facts(0.0, None, {})
    names = ("instructions", "answer", "ids", "leak", "one-fact", "day-asked")
    faults = ((name, RULES[name](question, facts)) for name in names)
    return next((f"{name}: {fault}" for name, fault in faults if fault), None)


def _in_texts(question: Question, find: Callable[[str], str | None]) -> str | None:
    for where, text in (("question", question.question), ("answer", question.answer or "")):
        if (words := find(clean(text))) is not None:
            return f"the {where} has {_quoted(words)}"
    return None


def _quoted(text: str) -> str:
    return repr(cut_line(text, _QUOTED_CHARS))


_IN_BRACKETS = re.compile(r"<[^<>\s]{1,200}@[^<>\s]{1,200}>")
_DIGITS_OF_ID = 8  # ids hold a time or a counter, so they have more digits than addresses
# A handle (m1 to m20) of the generator's prompt, but not cubic metres: "how many m3", "40 m3".
_HANDLE = re.compile(r"(?<![\w.$/-])(?<!\d )(?<!many )(?<!per )m(?:1?[1-9]|[12]0)\b(?![/-])")


def _ids_in(text: str, question: Question, facts: Facts) -> Iterator[str]:
    known = {*facts.cited, *question.message_ids}
    for match in _IN_BRACKETS.finditer(text):
        inner = match[0]
        digits = sum(char.isdigit() for char in inner.partition("@")[0])
        if inner in known or digits >= _DIGITS_OF_ID:
            yield inner
    # An id may have lost its brackets.
    yield from (each for each in sorted(known) if len(each) > 4 and each.strip("<>") in text)
    yield from (match[0] for match in _pattern("numbered").finditer(text))
    if "batch" in question.provenance:
        mails = set(_HANDLE.findall("\n".join(facts.bodies)))  # m8 may be a bolt
        yield from (each for each in _HANDLE.findall(text) if each not in mails)


# ---- Duplicate questions.

_ASKING = {word: word for word in "who what when where why how whose".split()}
_ASKING |= {"whom": "who", "which": "what"}


class _Text:
    """The features of a question that are compared: gold mails, words and claims."""

    def __init__(self, question: Question, gold: Set[str]) -> None:
        claims = read_claims(question.question)
        words = re.findall(r"\w+", claims.text)
        # The first word always has a capital.
        capitals = " ".join(word for word in words[1:] if word[0].isupper())
        self.question, self.gold, self.denies = question, gold, claims.negated
        self.plain = " ".join(words).lower()
        self.stems, self.names = {*content_stems(claims.text)}, {*content_stems(capitals)}
        values = (*claims.values, *claims.denied)
        self.values = frozenset(f"{value.kind} {value.key}" for value in values)
        self.asking = {_ASKING[word] for word in self.plain.split() if word in _ASKING}


def duplicates(questions: Sequence[Question], gold: Mapping[str, Set[str]]) -> dict[str, Check]:
    """Return the failed check of each duplicate question, by id.

    Duplicates have the same values, the same answer (by the offline judge), and the same text up to
    case and punctuation, or the same content stems in any order, or a common gold mail and `NEAR`
    stems. They differ if each text has a name that the other lacks. Across inboxes, duplicates
    need a common gold mail. The most realistic question is kept, then an answerable one, then the
    smallest id. Questions are compared with kept ones only, so that a chain of near texts doesn't
    collapse into one. `gold` has the contents of gold mails by question id."""
    faults: dict[str, Check] = {}
    # Duplicates share an inbox or a gold mail, and also values and denial.
    originals: defaultdict[tuple[Any, ...], list[_Text]] = defaultdict(list)
    best_first = sorted(questions, key=lambda each: (each.answerable is False, natural(each.id)))
    best_first.sort(key=lambda each: each.how_realistic or 0.0, reverse=True)  # stable for ties
    for question in best_first:
        text = _Text(question, gold.get(question.id, frozenset()))
        shared = (question.inbox_address, *sorted(text.gold))
        groups = [originals[each, text.values, text.denies] for each in shared]
        twins = (each for group in groups for each in group if _is_twin(each, text))
        if twin := next(twins, None):
            words = "the same text" if twin.plain == text.plain else "nearly the same text"
            fault = f"asks what {twin.question.id} does: {words} and the same answer"
            faults[question.id] = by_rule("duplicate", "filter", fault)
            continue
        for group in groups:
            group.append(text)
    return faults


def _is_twin(original: _Text, text: _Text) -> bool:
    one, other = original.question, text.question
    if (one.answerable is False) != (other.answerable is False):
        return False
    pairs, judge = ((one, other), (other, one)), OfflineJudge()
    same = (judge.decide(gold, rival.answer).correct for gold, rival in pairs)
    if original.plain == text.plain:
        return any(same)
    if original.names - text.stems and text.names - original.stems:
        return False
    same_words = original.stems == text.stems and original.asking == text.asking
    is_near = len(original.stems & text.stems) >= NEAR * len(original.stems | text.stems)
    shares_mail = not original.gold.isdisjoint(text.gold)
    return (same_words or (is_near and shares_mail)) and all(same)
