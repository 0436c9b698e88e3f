"""Names in a text, the stems that carry its content, its denials, and whether it says yes or no.

Words that everyday mail exchanges freely have one stem: `synonyms.txt`, a group a line.
Expects text from `evals.judges.values.clean`.
"""

import re
from importlib.resources import files
from typing import NamedTuple

import Stemmer

# ---- Names of people, and of other things with capitals.

_TITLES = frozenset("mr mrs ms dr prof professor dean president miss sir".split())
_NOT_NAMES = frozenset(
    """a an and any are as at be but by can could did do does for from had has have he her here him
    his how i if in is it its let may me my no not of on or our please she since so some that the
    their them then there these they this those to today we were what when where which who why will
    with yep yeah yup nope nah yes you your also either maybe perhaps possibly probably both
    according based answer name contact email mail call ask see send sent reply phone fax cc bcc re
    fw fwd subject attn
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
_FEMININE = frozenset("a e ia ie ina ine ette ella elle".split())  # Stefan is not Stefanie
_PARTICLES = "de la van von der den del di da bin al el"
_NAME = re.compile(
    r"(?<![\w@.])[A-Z][\w'-]{0,30}\.?(?: (?:(?:" + "|".join(_PARTICLES.split()) + r") ){0,2}"
    r"[A-Z][\w'-]{0,30}\.?(?!@)){0,4}(?![\w@])"
)
_JOIN = re.compile(r" ?(?:[,;/&+(]|\b(?:and|or|nor|then)\b|,? (?:and|or|&)(?: also)?| - ) ?")
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


class Name(NamedTuple):
    """A name's words in lower case, where it stands, and how the sentence uses it.

    `slot` is the preposition before it ("for Ann"), "" for none; names joined by commas, "and" or
    "or" share the slot of the first. `possessive`: "Ann's".
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
        joined = names and _JOIN.fullmatch(text[names[-1].end : start])
        slot = names[-1].slot if joined else _slot(text[max(0, start - 40) : start])
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
    short, long = sorted((one.rstrip("."), other.rstrip(".")), key=len)
    if _NICKNAMES.get(short, short) == _NICKNAMES.get(long, long):
        return True
    is_start = len(short) != 2 and long.startswith(short)
    return is_start and not (len(short) > 3 and long.removeprefix(short) in _FEMININE)


def names_match(gold: tuple[str, ...], answer: tuple[str, ...]) -> bool:
    """True if the words `answer` name the person (or thing) that `gold` names.

    A gold of one word must stand in the answer. Otherwise the last word must, and the word before
    it, if any, must be a form of the gold's first word. A first name alone is not enough.
    """
    if len(gold) == 1:
        return gold[0] in answer
    if gold[-1] not in answer:
        return False
    first = [word for word in answer if word != gold[-1]]
    return not first or any(same_first(gold[0], word) for word in first)


def states_name(gold: tuple[str, ...], text: str, names: list[Name]) -> Name | None:
    """The name in `names` (those found in `text`) that is `gold`, also as "Last, First"."""
    for name, following in zip(names, [*names, None][1:], strict=True):
        words = name.words
        if len(gold) > 1 and words == gold[-1:] and following is not None:
            between = text[name.end : following.start]
            if between.strip() == "," and same_first(gold[0], following.words[0]):
                return name
        if names_match(gold, words):
            return name
    return None


# ---- The words that carry a text's content.

# Function words, and the verbs of reporting, which paraphrases exchange freely.
_STOP_WORDS = frozenset(
    """a about above after again all also am an and any anything are as at be because been before
    being below between both but by can could did do does doing done down during each either else
    few for from further get gets getting go goes going got had has have having he her here hers
    herself him himself his how i if in into is it its itself just let may me might more most much
    must my myself of off on once only onto or other our ours out over own please same shall she
    should so some such than that the their theirs them themselves then there these they thing
    this those through to too under until up upon us very was we were what when where which while
    who whom whose why will with would yes you your yours yourself
    said say says saying told tell tells telling asked ask asks asking stated state states mentioned
    mention mentions noted note notes replied reply replies wrote write writes answered answer
    answers according email emails mail mails message messages
    think thinks feel feels believe believes find finds found seem seems seemed thought felt
    become becomes became
    no not nor never none cannot without nothing nobody neither don doesn didn isn wasn aren weren
    won wouldn couldn shouldn hasn haven hadn ain ll re ve d s t m""".split()
)
_WORD = re.compile(r"[a-z0-9]+(?:[.&][a-z0-9]+)*")


def _read_synonyms() -> dict[str, str]:
    """The stem that stands for each stem of a group: that of the group's first word."""
    stem = Stemmer.Stemmer("english").stemWord
    lines = (files("evals.judges") / "synonyms.txt").read_text(encoding="utf-8").splitlines()
    return {stem(word): stem(line.split()[0]) for line in lines for word in line.split()}


_SYNONYMS = _read_synonyms()


def content_stems(text: str) -> list[str]:
    """The stems of the words that carry content, in order, with repeats; synonyms have one."""
    words: list[str] = _WORD.findall(re.sub(r"'s?\b", " ", text.lower()))
    kept = [word for word in words if word not in _STOP_WORDS]
    # A stemmer is not safe to share between threads; making one costs a microsecond.
    stems: list[str] = Stemmer.Stemmer("english").stemWords(kept)
    return [_SYNONYMS.get(stem, stem) for stem in stems]


# ---- Denials, opposites, yes and no.

_NEGATION = re.compile(
    r"\b(?:not|no|never|none|nobody|nothing|neither|nor|cannot|without|unable|\w{1,10}n't|"
    r"(?:don|doesn|didn|isn|wasn|aren|weren|won|wouldn|couldn|shouldn|hasn|haven|can)t|"
    r"(?:declin|reject|refus|den(?:y|ie)|fail|avoid|forbid|prohibit|dis(?:agree|approv))\w{0,5})\b",
    re.IGNORECASE,
)
_NOT_NEGATION = re.compile(
    r"\b(?:(?:no|not a) problem|(?:no|not) (?:longer|later|more|less|earlier) than|not only|"
    r"no doubt|if not|or not|why not|not just|not (?:until|before)|no\. ?(?=\d)|"
    r"(?:do not|don't) (?:forget|hesitate)|can't wait|not sure,? but)\b",
    re.IGNORECASE,
)
_YES = re.compile(
    r"(?:yes|yeah|yep|yup|affirmative|correct|indeed|absolutely|certainly|definitely|sure)\b",
    re.IGNORECASE,
)
_NO = re.compile(
    r"(?:no\b(?! (?:problem|one|longer|later|more|less|doubt)\b)|nope\b|nah\b|negative\b|"
    r"incorrect\b|not (?:really|at all|yet|any ?more|so far)\b)",
    re.IGNORECASE,
)
_ASKS_YES_NO = re.compile(
    r"\W*(?:(?:did|do|does|is|are|was|were|am|has|have|had|will|would|can|could|shall|should|may|"
    r"might)(?:n't|'t)?|won't)\b",
    re.IGNORECASE,
)
_BARE_NO = re.compile(r"\bno\b(?= ?(?:[,.;!?)/]|$|(?:if|or|and|but|depending)\b))", re.IGNORECASE)
_OPPOSITES = {
    first: second
    for pair in (
        "increas decreas,rise fall,rose fell,higher lower,buy sell,"
        "bought sold,morn afternoon,earlier later,open close,postpon advanc,win lose,won lost,"
        "confirm cancel,north south,east west,includ exclud,gain loss,first last,"
        "senior junior,front rear,upper lower,summer winter,mother father,brother sister,"
        "son daughter,husband wife,hire fire,befor after,start end,aliv dead,buyer seller,"
        "minimum maximum,least most,rare often,loud quiet,earli late,longer shorter,long short,older younger,old new,safe risky,left right,"
        "more less,best worst,top bottom,inside outsid,weekday weekend,singl doubl"
    ).split(",")
    for first, second in (pair.split(), reversed(pair.split()))
}


def negated(text: str) -> bool:
    """True if the text denies something (set phrases such as "no problem" don't)."""
    return bool(negations(text))


def negations(text: str) -> list[int]:
    """Where in `text` each denial begins (character offsets)."""
    masked = _NOT_NEGATION.sub(lambda match: "\0" * len(match[0]), text)
    return [match.start() for match in _NEGATION.finditer(masked)]


def asks_yes_no(text: str) -> bool:
    """True if the text opens as a question for yes or no does ("Did", "Is")."""
    return bool(_ASKS_YES_NO.match(text))


def polarity(text: str) -> bool | None:
    """True if the text opens a sentence with yes, False with no, None with neither or both."""
    said = set()
    for sentence in re.split(r"[.;:!?]+ ?|, ?(?=(?:yes|no)\b)", text):
        opening = sentence.strip(" \"'*-:([,")
        if _YES.match(opening):
            said.add(True)
        elif _NO.match(opening):
            said.add(False)
    return said.pop() if len(said) == 1 else None


def says_both(text: str) -> bool:
    """True if the text says yes and says no."""
    return bool(re.search(r"\byes\b", text, re.IGNORECASE) and _BARE_NO.search(text))


def opposed(gold: str, answer: str) -> str | None:
    """A stem of `answer` that is the opposite of one of `gold` that `answer` lacks."""
    wanted, given = (
        set(Stemmer.Stemmer("english").stemWords(_WORD.findall(text.lower())))
        for text in (gold, answer)
    )
    for stem in sorted(wanted - given):
        opposites = {_OPPOSITES.get(stem), f"un{stem}" if len(stem) > 3 else None}
        if stem.startswith("un") and len(stem) > 5:
            opposites.add(stem.removeprefix("un"))
        found = [each for each in opposites if each in given and each not in wanted]
        if found:
            return found[0]
    return None
