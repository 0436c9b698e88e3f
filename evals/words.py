"""The words of a text that carry its content, its negations, and whether it says yes or no.

Words that everyday mail exchanges freely count as one: `synonyms.txt`, a group a line.
Expects text from `evals.normalise.clean`. Knows nothing of questions or verdicts.
"""

import re
from importlib.resources import files

import Stemmer

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
    think thinks feel feels believe believes find finds seem seems
    no not nor never none cannot without nothing nobody neither don doesn didn isn wasn aren weren
    won wouldn couldn shouldn hasn haven hadn ain ll re ve d s t m""".split()
)
_WORD = re.compile(r"[a-z0-9]+(?:[.&][a-z0-9]+)*")
_NEGATION = re.compile(
    r"\b(?:not|no|never|none|nobody|nothing|neither|nor|cannot|without|unable|\w{1,10}n't|"
    r"(?:don|doesn|didn|isn|wasn|aren|weren|won|wouldn|couldn|shouldn|hasn|haven|can)t|"
    r"(?:declin|reject|refus|den(?:y|ie)|fail|avoid|forbid|prohibit|dis(?:agree|approv))\w{0,5})\b",
    re.IGNORECASE,
)
_NOT_NEGATION = re.compile(
    r"\b(?:(?:no|not a) problem|(?:no|not) (?:longer|later|more|less|earlier) than|not only|"
    r"no doubt|if not|or not|why not|not just|not (?:until|before)|no\. ?\d|"
    r"(?:do not|don't) (?:forget|hesitate)|can't wait|not sure,? but)\b",
    re.IGNORECASE,
)
_YES = re.compile(
    r"(?:yes|yeah|yep|yup|affirmative|correct|indeed|absolutely|certainly|definitely|sure)\b",
    re.IGNORECASE,
)
_NO = re.compile(
    r"(?:no\b(?! (?:problem|one|longer|later|more|less|doubt)\b)|nope\b|nah\b|negative\b|"
    r"incorrect\b|not (?:really|at all|yet)\b)",
    re.IGNORECASE,
)
_AUXILIARY = (
    r"(?:(?:did|do|does|is|are|was|were|am|has|have|had|will|would|can|could|shall|should|may|"
    r"might)(?:n't|'t)?|won't)\b"
)
_HAS_AUXILIARY = re.compile(rf"\b{_AUXILIARY}", re.IGNORECASE)
_ASKS_YES_NO = re.compile(rf"\W*{_AUXILIARY}", re.IGNORECASE)
_ELLIPTIC = re.compile(rf"\W*(?:\w+ ){{0,2}}{_AUXILIARY}(?: not)?(?: so)?\W*", re.IGNORECASE)
_BARE_NO = re.compile(r"\bno\b(?= ?(?:[,.;!?)/]|$|(?:if|or|and|but|depending)\b))", re.IGNORECASE)
_OPPOSITES = {
    first: second
    for pair in (
        "increas decreas,rise fall,rose fell,higher lower,accept declin,approv reject,buy sell,"
        "bought sold,morn afternoon,earlier later,open close,postpon advanc,win lose,won lost,"
        "agre disagre,confirm cancel,north south,east west,includ exclud,gain loss,first last,"
        "senior junior,front rear,upper lower,summer winter,mother father,brother sister,"
        "son daughter,husband wife,hire fire,befor after,start end,aliv dead,buyer seller,"
        "minimum maximum"
    ).split(",")
    for first, second in (pair.split(), reversed(pair.split()))
}


def _read_synonyms() -> dict[str, str]:
    """The stem that stands for each stem of a group: that of the group's first word."""
    stem = Stemmer.Stemmer("english").stemWord
    lines = (files("evals") / "synonyms.txt").read_text(encoding="utf-8").splitlines()
    return {stem(word): stem(line.split()[0]) for line in lines for word in line.split()}


_SYNONYMS = _read_synonyms()


def content_stems(text: str) -> list[str]:
    """The stems of the words that carry content, in order, with repeats; synonyms have one."""
    words: list[str] = _WORD.findall(re.sub(r"'s?\b", " ", text.lower()))
    kept = [word for word in words if word not in _STOP_WORDS]
    # A stemmer is not safe to share between threads; making one costs a microsecond.
    stems: list[str] = Stemmer.Stemmer("english").stemWords(kept)
    return [_SYNONYMS.get(stem, stem) for stem in stems]


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


def has_auxiliary(text: str) -> bool:
    """True if the text has a verb such as "did", so that it can be a statement."""
    return bool(_HAS_AUXILIARY.search(text))


def is_elliptic(text: str) -> bool:
    """True if the text is a bare "It did." or "She hasn't."."""
    return bool(_ELLIPTIC.fullmatch(text))


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


def _without_un(stem: str) -> str | None:
    """The stem "worn" for "unworn", and the other way round."""
    if stem.startswith("un") and len(stem) > 5:
        return stem.removeprefix("un")
    return f"un{stem}" if len(stem) > 3 else None


def opposed(gold: str, answer: str) -> str | None:
    """A stem of `answer` that is the opposite of one of `gold` that `answer` lacks."""
    wanted, said = (
        set(Stemmer.Stemmer("english").stemWords(_WORD.findall(text.lower())))
        for text in (gold, answer)
    )
    for stem in sorted(wanted - said):
        other = _OPPOSITES.get(stem) or _without_un(stem)
        if other and other in said and other not in wanted:
            return other
    return None
