"""Whether an answer talks to whoever grades it instead of answering.

Also finds orders to a model ("ignore previous instructions") and chat markup.
Knows nothing of questions, gold answers or verdicts.
"""

import re

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
