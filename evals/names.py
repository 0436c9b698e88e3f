"""Names of people (and of other things with capitals) in free text, found and matched.

A name is a run of capitalised words; whether it is a person's is not known, so
words that tell otherwise (Group, University, Manager) are left out. Where a text
has one case only, every content word counts as capitalised. Expects text from
`evals.normalise.clean`. Knows nothing of questions or verdicts.
"""

import itertools
import re
from typing import NamedTuple

_TITLES = frozenset("mr mrs ms dr prof professor dean president miss sir".split())
_NOT_NAMES = frozenset(
    """a an and any are as at be but by can did do does for from had has have he her here him his
    how i if in is it its let may me my no not of on or our please she since so some that the their
    them then there these they this those to today we were what when where which who why will with
    yep yeah yup nope nah yes you your also either maybe perhaps possibly probably both according
    based answer name contact email mail call ask see send sent reply phone fax cc bcc re fw fwd
    subject attn
    regards thanks thank dear hi hello note sorry unfortunately however after before because while
    monday tuesday wednesday thursday friday saturday sunday january february march april june
    july august september october november december am pm group department dept team division inc
    corp corporation llc ltd company co bank university college school institute center centre
    hotel building room floor street avenue suite office committee board council association
    conference seminar newsletter project program director manager vice chairman chief officer ceo
    cfo coo cto head lead leader vp svp analyst associate assistant secretary engineer attorney
    counsel consultant coordinator administrator supervisor specialist executive senior sr junior
    jr managing general research trading risk energy power gas finance legal accounting hr human
    resources""".split()
)
_LEGAL_FORMS = frozenset("llp llc inc ltd plc gmbh ag corp".split())
_SHORTEST = 4  # letters of a word that is cut short
_FEMININE = frozenset("a e ia ie ina ine ette ella elle".split())  # Stefan is not Stefanie
_PARTICLES = "de la van von der den del di da bin al el"
_NAME = re.compile(
    r"(?<![\w@.])[A-Z][\w'-]{0,30}\.?(?: (?:(?:" + "|".join(_PARTICLES.split()) + r") ){0,2}"
    r"[A-Z][\w'-]{0,30}\.?(?!@)){0,4}(?![\w@])"
)
_JOIN = re.compile(
    r" ?(?:,|;|/|&|\+|\(|\band\b|\bor\b|\bnor\b|\bthen\b|,? (?:and|or|&)(?: also)?| - ) ?"
)
_SLOTS = frozenset(
    "to from with for of at in by via under near on about regarding through behind".split()
)
_NICKNAMES = {
    nick: full
    for full, nicks in (
        ("robert", "bob rob bobby"), ("william", "bill will billy"), ("james", "jim jimmy"),
        ("michael", "mike mick"), ("richard", "dick rick rich"), ("edward", "ted ed eddie"),
        ("margaret", "peggy maggie meg"), ("elizabeth", "liz beth betty"), ("john", "jack"),
        ("anthony", "tony"), ("charles", "chuck charlie"), ("katherine", "kate kathy katie"),
        ("thomas", "tom"), ("david", "dave"), ("steven", "steve"), ("joseph", "joe"),
        ("susan", "sue"), ("gregory", "greg"), ("jeffrey", "jeff"), ("andrew", "andy drew"),
        ("lawrence", "larry"), ("henry", "hank"), ("patricia", "pat patty"), ("theodore", "theo"),
    )
    for nick in nicks.split()
}  # fmt: skip

# What follows a capitalised first word that is a name ("Ann leads", "Ann, Bob"), not just a word.
_AFTER_SUBJECT = re.compile(
    r" (?:[a-z]+ed|(?!(?:this|his|its|as|us)\b)[a-z]+s|was|were|are|will|had|have|would|should|"
    r"can|could|may|might|did|said|told|sent|wrote|gave|made|took|went|got|came|knew|left|and|or|"
    r"&)\b| ?[,;/.()\"']|$"
)


class Name(NamedTuple):
    """A name's words in lower case, where it stands, and how the sentence uses it.

    `slot` is the preposition before it ("for Ann"), "" for none; names joined by
    commas, "and" or "or" share the slot of the first. `possessive`: "Ann's".
    """

    words: tuple[str, ...]
    start: int
    end: int
    slot: str
    possessive: bool


def find_names(text: str) -> list[Name]:
    """The names in `text`, in order, without titles and initials' full stops."""
    if text == text.lower() or text == text.upper():
        text = re.sub(r"[A-Za-z][\w']*", _capitalise, text)
    names: list[Name] = []
    for match in _NAME.finditer(text):
        if match[0].isupper() and len(match[0].strip(".")) <= 4 and " " not in match[0]:
            continue  # an acronym
        words = [
            (part.group().lower(), part.start(), part.end())
            for part in re.finditer(r"[\w-]+(?:'(?!s\b)\w+)*", match[0].removesuffix("'s"))
        ]
        while words and words[0][0] in _NOT_NAMES | _TITLES:
            words.pop(0)
        end = match.start() + words[-1][2] if words else match.end()
        while words and words[-1][0] in _LEGAL_FORMS:
            words.pop()  # they stay in the name's stretch of text
        if not words or any(word in _NOT_NAMES for word, _, _ in words):
            continue
        start = match.start() + words[0][1]
        gap = text[names[-1].end : start] if names else None
        if gap is not None and _JOIN.fullmatch(gap):
            slot = names[-1].slot
        else:
            slot = _slot(text[max(0, start - 40) : start])
        possessive = match[0].endswith("'s")
        names.append(Name(tuple(word for word, _, _ in words), start, end, slot, possessive))
    return names


def _capitalise(match: re.Match[str]) -> str:
    word = match[0].lower()
    return word if word in _NOT_NAMES or word in _SLOTS or word in _PARTICLES else word.capitalize()


def _slot(before: str) -> str:
    words = re.findall(r"[\w.]+|[^\w ]", before.lower())
    while words and words[-1].rstrip(".") in _TITLES | {"the", "a", "an", "."} and len(words) > 1:
        words.pop()
    return words[-1] if words and words[-1] in _SLOTS else ""


def same_first(one: str, other: str) -> bool:
    """True for one first name in two forms: an initial, a short form, a known nickname."""
    one, other = one.rstrip("."), other.rstrip(".")
    short, long = sorted((one, other), key=len)
    return (
        _NICKNAMES.get(one, one) == _NICKNAMES.get(other, other)
        or (len(short) == 1 and long.startswith(short))
        or (
            len(short) >= 3
            and long.startswith(short)
            and not (len(short) > 3 and long.removeprefix(short) in _FEMININE)
        )
    )


def names_match(gold: tuple[str, ...], answer: tuple[str, ...]) -> bool:
    """True if the words `answer` name the person (or thing) that `gold` names.

    A gold of one word must stand in the answer. Otherwise the last word must, and
    the word before it, if any, must be a form of the gold's first word. A first
    name alone is not enough.
    """
    if len(gold) == 1:
        return gold[0] in answer
    if gold[-1] not in answer:
        return False
    first = [word for word in answer if word != gold[-1]]
    return not first or any(same_first(gold[0], word) for word in first)


def names_thing(gold: tuple[str, ...], text: str) -> Name | None:
    """The words `gold` in `text`, in any case, or short: "organic chem" for the course."""
    found = list(re.finditer(r"[\w-]+", text.lower()))
    for at in range(len(found) - len(gold) + 1):
        part = found[at : at + len(gold)]
        if all(_short_form(word, match[0]) for word, match in zip(gold, part, strict=True)):
            return Name(gold, part[0].start(), part[-1].end(), "", False)
    return None


def _short_form(word: str, said: str) -> bool:
    """True for the word itself, or so much of it that it can be told ("chem")."""
    return word == said or (len(said) >= _SHORTEST and word.startswith(said))


def states_name(gold: tuple[str, ...], text: str, names: list[Name]) -> Name | None:
    """The name in `names` (those found in `text`) that is `gold`, also as "Last, First"."""
    for name, following in itertools.zip_longest(names, names[1:]):
        words = name.words
        if len(gold) > 1 and words == gold[-1:] and following is not None:
            between = text[name.end : following.start]
            if between.strip() == "," and same_first(gold[0], following.words[0]):
                return name
        if names_match(gold, words):
            return name
    return None


def is_part(name: Name, words: set[str], text: str) -> bool:
    """True if `name` is among `words`, possessive, or only the first word of a sentence."""
    if set(name.words) <= words or name.possessive:
        return True
    opens = name.start == 0 or text[: name.start].rstrip()[-1:] in (".", ";", "!", "?", ":")
    follows = _AFTER_SUBJECT.match(text, name.end)
    return opens and len(name.words) == 1 and follows is None
