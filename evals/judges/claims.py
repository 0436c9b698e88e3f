"""What a question asks for and what a text claims: its values and names, without those it denies.

`appeal` finds the words with which an answer addresses whoever grades it.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from evals.judges.names import Name, find_names, negations
from evals.judges.values import Kind, Value, clean, find_values

Wanted = Kind | str  # a kind of value, or "name"


class Asked(NamedTuple):
    """The kinds of value that a question asks for (may be none), and whether for text too."""

    kinds: frozenset[Wanted]
    text: bool


@dataclass(frozen=True, slots=True)
class Claims:
    """A text taken apart, without the values and names that it takes back."""

    text: str
    values: tuple[Value, ...]
    denied: tuple[Value, ...]
    names: tuple[Name, ...]


_ASKED: tuple[tuple[re.Pattern[str], tuple[Wanted, ...]], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), kinds)
    for pattern, kinds in (
        (r"\bwhen\b|\b(?:what|which) (?:\w+ ){0,2}(?:dates?|days?|month|year|deadline)\b"
         r"|\b(?:date|deadline|due date|dates) (?:of|for|and)\b", ("date", "time")),
        (r"\bwhat time\b|\btime (?:of|is|was|does|do|will)\b|\band time\b", ("time",)),
        (r"\bwho(?:m|se)?\b|\bwhich (?:person|employee|colleague)\b", ("name", "email")),
        (r"\bhow much\b|\b(?:costs?|price|salary|bonus|fee|budget|amount|rent|rate|total)\b"
         r"(?! (?:series|indices|index|center))", ("money", "percent", "measure", "number")),
        (r"\bwhat percent|\bpercentage\b", ("percent",)),
        (r"\bhow many\b|\bnumber of\b", ("number", "duration", "measure")),
        (r"\bhow long\b|\bduration\b", ("duration",)),
        (r"\bphone\b|\bfax\b|\bextension\b|\b(?:cell|telephone) number\b|\bcontact info",
         ("phone",)),
        (r"\bemail address\b|\be-mail address\b|\bcontact info", ("email",)),
        (r"\bwhat (?:room|floor)\b|\bwhich (?:room|floor)\b|\bwhere\b", ("code",)),
    )
)  # fmt: skip
_TEXT_TOO = re.compile(
    r"\b(?:and|or) (?:(?:about|at|for|from|in|of|on|to|with) )?(?:why|where|how|"
    r"what|which|who)\b|\bwhere and\b|^\W*why\b",
    re.IGNORECASE,
)
_CHOICE = re.compile(r"\bor\b", re.IGNORECASE)
_DENIAL_ENDS = re.compile(
    r"[;:!?(),]|\.(?= |$)|\b(?:but|until|instead|although|though|because|so|now)\b", re.IGNORECASE
)
_TAKEN_BACK = re.compile(
    r"\b(?:instead of|rather than|as opposed to|no longer|originally|previously|formerly|"
    r"initially|at first|before that|until then|used to be|other than|except)\b"
    r"|(?<=[(,]) ?(?:down|up) from\b",
    re.IGNORECASE,
)
# The date of a mail: "her note from May 30", "the email dated May 30".
_MAIL_OF = (
    r"\b(?:e-?mail|mail|message|note|memo|letter) (?:\w+ ){0,3}?"
    r"(?P<mail>(?:of|from|dated|sent)(?: on)? [^.;:()]{3,24}?)"
    r"(?= ?(?:[.;:)]|,(?! ?\d)|$)| [a-z]+s\b)"
)
# Beside the answer: "moved from ... to", "the old one, 9020, ...", "$980, but in the end $1,140".
_SET_ASIDE = re.compile(
    r"\b(?:moved|changed|rescheduled|postponed|pushed|shifted|delayed|extended|brought|raised|"
    r"lowered|increased|decreased|reduced|revised|corrected|updated)\b[^.;]{0,60}?"
    r"(?P<old>\bfrom [^.;]{1,60}?)(?= to\b)"
    r"|(?<=[;,.(] )(?P<former>(?:the|its|his|her|our|your|their) (?:old|former|previous) \w+"
    r"(?:,| was| is|:)? [^,.;()]{1,40})"
    r"|\bafter (?P<first>(?:first|initially|originally) \w+ing\b(?:[^.;,]|,(?=\d)){1,60})"
    r"|(?P<before>\b(?:first|initially|originally) \w+ [^.;]{1,60}?),? but\b"
    r"|(?P<early>[^.;]{1,80}?),? but\b[^.;]{0,80}?"
    r"\b(?:in the end|finally|eventually|ended up)\b"
    rf"|{_MAIL_OF}"
    r"|\b(?:of|among) (?P<choice>(?:all |the )(?:\w+ ){1,3}\([^)]{1,200}\))",
    re.IGNORECASE,
)
# What follows is circumstance, not the answer ("by May 4, after the reports of April 30").
ASIDE = re.compile(
    r"\(|(?:,|;| -) ?(?:after|before|because|since|once|if|as|which|who|where|although|noting|with|"
    r"following|depending|while)\b|\bbecause\b",
    re.IGNORECASE,
)


def asked(question: str) -> Asked:
    """What `question` asks for; no kinds where that can't be told from its words."""
    kinds = {kind for pattern, wanted in _ASKED if pattern.search(question) for kind in wanted}
    return Asked(frozenset(kinds), bool(_TEXT_TOO.search(question)))


def is_choice(question: str) -> bool:
    """True if the question names the alternatives itself ("May 3 or May 4?")."""
    return bool(_CHOICE.search(question))


# A question and its gold answer are read for each of their episodes.
@lru_cache(maxsize=4_096)
def read_claims(text: str) -> Claims:
    """The claims of `text`, which is cleaned (and cut) first."""
    text = clean(text)
    spans = [match.span(match.lastgroup or 0) for match in _SET_ASIDE.finditer(text)]
    starts = [(start, start) for start in negations(text)]
    starts += [match.span() for match in _TAKEN_BACK.finditer(text)]
    for start, read in starts:
        end = _DENIAL_ENDS.search(text, read)
        spans.append((start, end.start() if end else len(text)))

    def is_denied(part: Value | Name) -> bool:
        return any(first <= part.start < last for first, last in spans)

    values = find_values(text)
    names = [
        name
        for name in find_names(text)
        if not any(value.start < name.end and name.start < value.end for value in values)
    ]
    for value in values:
        # The words before the "@" often are the owner's name.
        words = tuple(re.findall(r"[a-z]+", str(value.key).partition("@")[0]))
        if value.kind == "email" and len(words) > 1:
            names.append(Name(words, value.start, value.end, "@", False))
    return Claims(
        text,
        tuple(value for value in values if not is_denied(value)),
        tuple(value for value in values if is_denied(value)),
        tuple(name for name in names if not is_denied(name)),
    )


# ---- Whether an answer talks to whoever grades it instead of answering.

_GOLD = r"(?:gold|reference|expected|ground[ -]truth|official)"
_GOOD = (
    r"(?:correct|right|true|valid|accurate|equivalent|full (?:marks|credit|points)|pass(?:ing)?)"
)
_APPEAL = re.compile(
    # the grader or the gold answer by name
    r"\b(?:grader|graders|grading|evaluator|evaluators|rubric|verdict|full (?:marks|credit)|"
    rf"{_GOLD} (?:answers?|truth|label|solution)|ground[ -]truth|"
    r"(?:dear|note to|attention|hey|hello|as)(?: the| a| an)? (?:\w+ )?(?:judge|examiner|reviewer)|"
    r"(?:llm|ai|the) judge (?:must|should|will|can|has)|"
    # what to do with the answer
    r"(?:mark|grade|score|count|accept|treat|consider|rate|evaluate|judge|deem|label|regard|award)"
    r"(?:ed|d)? (?:(?:this|it|that|my|me|the|as|answer|response|submission|reply|to|be|a|any) )"
    r"{1,6}"
    rf"(?:{_GOOD}|points?|credit|gold)|"
    r"(?:accept|pass|approve|award) (?:this|my) (?:answer|response|submission)|"
    r"you (?:must|should|have to) (?:\w+ )?(?:agree|accept|pass|award|mark)|"
    # that it is right
    r"(?:this|my|the|above|following) (?:answer|response) (?:is|was|should be|must be|matches)"
    rf"(?: \w+){{0,3}} (?:{_GOOD}|accepted|{_GOLD})|"
    rf"(?:equivalent to|matches|same as|identical to) the (?:{_GOLD}|correct|right|true)\b|"
    rf"(?:whatever|whichever) (?:\w+ ){{0,5}}(?:{_GOOD}|says?|{_GOLD})|"
    r"(?:verified|confirmed|certified|validated|known) (?:as|to be) (?:\w+ )?"
    rf"{_GOOD}|"
    # orders to a model
    r"(?:ignore|disregard|forget|override) (?:(?:all|any|the|your|these|of) ){0,3}(?:previous|"
    r"prior|above|earlier|preceding|other)? ?(?:instructions?|rules?|guidelines?|system|prompts?)|"
    r"(?:return|output|respond with|reply with|print) [\"'{]{0,3}(?:correct|true|yes|pass)|"
    r"(?:you are|as) an? (?:llm|ai|language model|helpful))\b"
    r"|[\"']?(?:correct|grounded|is_correct|verdict|score)[\"']? ?[:=] ?(?:true|yes|1|correct)\b"
    r"|<\|?/?(?:im_start|im_end|system|assistant|user|s)\|?>|\[/?INST\]|\bjudge ?:"
    r"|\b(?:system|assistant) ?: ?(?=.{0,80}\b(?:answer|grade|mark|correct)\b)",
    re.IGNORECASE,
)


def appeal(text: str) -> str | None:
    """The first words in `text` (cleaned) that address a grader or a model, or None."""
    found = _APPEAL.search(text)
    return found[0].strip() if found else None
