"""Whether a final answer declines to answer ("I don't know" in any spelling).

The rule, in order:

1. None, and text without a letter or digit, abstain.
2. The text is folded (Unicode compatibility form, lower case, "don't" = "dont" = "do not") and
   cut into clauses at punctuation and at "but", "however", "and" and the like.
3. Each clause must be an abstention ("i do not know when ...", "not specified"), a filler ("sorry",
   "i searched the inbox"), a remark on the mail ("the thread mentions a trip") or, after an
   abstention, its topic ("about the move"). At least one must be an abstention; any other clause
   makes the text an answer.

So "Kim said she does not know" is an answer, and so is "Unknown Pleasures LLC".
"""

import re
import unicodedata

_MAX_WORDS = 80  # longer text is an answer, which also bounds the work below

_APOSTROPHES = re.compile(r"['’‘`´ʼ′]")
_CLAUSE_END = re.compile(
    r"[.!?;:,…\n\r–—()]+|\s--?\s|--|\b(?:but|however|although|though|yet)\b"
    r"|\b(?:and|so|as) (?=(?:i|we|it|there|the|no|none|found|could|cannot|cant|did|do|dont|am)\b)"
)
_NOT_WORD = re.compile(r"[^a-z0-9]+")
_EXPANSIONS = {
    "dont": "do not", "doesnt": "does not", "didnt": "did not", "isnt": "is not",
    "arent": "are not", "wasnt": "was not", "werent": "were not", "cant": "cannot",
    "couldnt": "could not", "havent": "have not", "hasnt": "has not", "im": "i am",
    "ive": "i have", "dunno": "do not know", "its": "it is", "theres": "there is",
    "idk": "do not know", "wouldnt": "would not", "wont": "will not",
}  # fmt: skip

# The grammar of an abstaining clause, over folded words. Free words stand only at the end of a
# pattern, and are bounded, so that matching stays linear.
_TAIL = r"(?: \w+){0,25}"
_MAIL = (
    r"(?:(?:any of the|the|these|those|this|any|your|my|all|available|provided|retrieved|given|"
    r"search|found) ){0,3}(?:emails?|mails?|messages?|inbox|mailbox|threads?|correspondence|"
    r"sources?|results?|documents?|context|texts?|information|records?)"
)
_IN_MAIL = rf"(?:(?:in|from|within|by|of|on|based on|according to|given|using) {_MAIL}{_TAIL})"
_OBJECT = (
    r"(?:(?:the|an|any|a|this|that|your|such|enough|sufficient|relevant|specific|definite|clear|"
    r"direct|matching|more|further|correct|exact) ){0,3}"
    r"(?:answers?|information|info|details?|mentions?|references?|records?|evidence|results?|"
    r"data|emails?|mails?|messages?|anything|it|that|this|one|indication|match|matches)"
)
_WH = r"(?:when|who|whom|whose|what|where|which|why|how|whether|if)"
_ABOUT = (
    rf"(?:(?:{_WH}|about|on|regarding|for|of|to|concerning|with|mentioning|stating|answering|"
    rf"related|from|based|in|within|that|here|nor|any){_TAIL})"
)
_END = rf"(?: (?:sorry|yet|either|at all|really))?(?: {_IN_MAIL}| {_ABOUT})?"
_UNSAID = (
    r"(?:unknown|unclear|undetermined|unspecified|unstated|uncertain|unavailable|"
    r"(?:not|never) (?:explicitly |clearly |actually |yet |anywhere )?"
    r"(?:specified|mentioned|stated|indicated|known|disclosed|found|clear|said|provided|given|"
    r"listed|named|revealed))"
)
_ABSENT = r"not (?:given|provided|available|present|included|there|contained)"
_SAYING = (
    r"(?:say|mention|specify|state|indicate|contain|provide|include|give|answer|reveal|show|tell|"
    r"have|disclose|discuss|address|refer|cover|list)"
)
# A mail in the singular or plural, and what it never says.
_NOUN = (
    r"(?:emails?|mails?|messages?|inbox|mailbox|threads?|correspondence|invitation|attachments?|"
    r"reply|replies|document|one)"
)
_NEVER = (
    r"(?:(?:do|does|did|is|are|was|were) not(?: (?:explicitly|actually|seem to|appear to))?|never)"
)
_SAYS = (
    r"(?:(?:say|mention|specify|state|indicate|contain|provide|give|answer|reveal|show|tell|disclose|"
    r"discuss|cover|list|refer|include)(?:s|ed)?|specifies|gave|said|told|have (?:the|an?|any))"
)
_LACKS = (
    r"(?:lacks?|(?:contains?|gives?|has|have|provides?) no|says? nothing|(?:is|are) silent|"
    r"seems? to be missing|is not (?:here|there|in|included|present))"
)
_NOBODY = r"(?:none|neither|nobody|no one|nothing)"
_OF_THEM, _READ = rf"of (?:them|which|these|{_MAIL})", r"(?: (?:i|we) (?:read|found|saw))?"
_NOT_KNOW = (
    r"(?:do (?:(?:really|actually|currently|simply|just|honestly) )?not (?:(?:really|actually) )?"
    r"(?:know|have)|have no (?:idea|clue)|would not know|"
    r"am (?:(?:really|still) )?(?:unsure|not (?:(?:really|entirely|quite|completely) )?"
    r"(?:sure|certain|aware))|cannot (?:tell|say|know|be (?:sure|certain)))"
)
_NOT_FIND = (
    r"(?:(?:(?:could|can|did|do|was|am|were|have) not|cannot|(?:am |was |were )?unable|"
    r"failed)(?: been)?(?: able)?(?: to)?(?: be able to)? (?:find|found|locate|located|determine|"
    r"determined|answer|identify|see|verify|confirm|figure out|establish|tell|say))"
)
_ADVERB = (
    r"(?:unfortunately|sadly|regrettably|honestly|currently|still|simply|hmm|well|ok|okay|um|"
    r"sorry|apologies|oh)"
)
# Strings, which `re` compiles at first use, so that other commands start without that work.
_ABSTENTIONS = tuple(
    rf"(?:{_ADVERB} ){{0,3}}(?:(?:the )?(?:final )?answer (?:is )?)?{pattern}"
    for pattern in (
        # First person. "Have" and "find" need an object that is information, because
        # "I do not have a car" and "I could not find a hotel" are answers.
        rf"(?:(?:i|we) )?(?:(?:really|honestly|just) )?(?!do not have){_NOT_KNOW}"
        rf"(?: {_OBJECT})?{_END}",
        rf"(?:(?:i|we) )?{_NOT_KNOW} {_OBJECT}{_END}",
        rf"(?:i|we) do not know (?:the|your|his|her|their|its) \w+{_TAIL}",
        rf"(?:(?:i|we) )?{_NOT_FIND}(?: {_OBJECT})?(?: {_IN_MAIL}| {_WH}{_TAIL})?",
        rf"(?:(?:i|we) )?{_NOT_FIND} {_OBJECT}{_END}",
        rf"(?:i|we) {_NOT_FIND} (?:\w+ ){{1,8}}?{_IN_MAIL}",
        rf"(?:(?:i|we) )?(?:found|have|see|saw) (?:nothing|no {_OBJECT}){_END}",
        # No subject.
        rf"(?:not (?:sure|certain)|unsure|no (?:idea|clue)|null|n a|{_UNSAID}){_END}",
        rf"{_ABSENT} {_IN_MAIL}",
        rf"(?:there (?:is|are|was|were) )?(?:no|insufficient|not enough) {_OBJECT}"
        rf"(?: (?:was|were|is|are|could be|can be|has been))?"
        rf"(?: (?:found|available|given|provided|located|mentioned|returned|exists?)){{0,1}}{_END}",
        # The thing is unknown, or the mail is silent.
        rf"(?:it|that|this|the(?: \w+){{1,8}}?) (?:is|are|was|were|remains|has been) {_UNSAID}"
        rf"(?: to me)?(?: {_IN_MAIL}| {_WH}{_TAIL})?",
        rf"(?:it|that|this|the(?: \w+){{1,8}}?) (?:is|are|was|were) {_ABSENT} {_IN_MAIL}",
        r"(?:(?:it|that|this|the(?: \w+){1,8}?) )?(?:cannot|could not|can not) be "
        rf"(?:determined|found|answered|confirmed|known|established){_END}",
        rf"(?:{_OBJECT} (?:is|was|are) )(?:{_UNSAID}|{_ABSENT}){_END}",
        rf"{_MAIL}(?: (?:i|we) (?:found|read|could find|have|saw|searched))? "
        rf"(?:do|does|did) not (?:explicitly |actually |seem to )?{_SAYING}{_TAIL}",
        rf"(?:none of|no|nothing in) {_MAIL} (?:{_SAYING}s?|specifies){_TAIL}",
        rf"(?:\w+ ){{0,5}}{_NOUN}(?: \w+){{0,6}}? (?:{_NEVER} {_SAYS}|{_LACKS}){_TAIL}",
        rf"(?:it|they|{_NOBODY})(?: (?:{_OF_THEM}|in {_MAIL}))?{_READ} (?:{_NEVER} )?{_SAYS}"
        rf"(?: the question| {_OBJECT})?{_END}",
        rf"{_NOBODY} {_OF_THEM}{_READ} {_SAYS}{_TAIL}",
        rf"(?:there is |i found )?nothing(?: here)?{_END}",
        rf"there (?:does|do) not (?:seem|appear) to be {_OBJECT}{_TAIL}",
        rf"(?:(?:i|we) )?{_NOT_FIND} the{_TAIL}",
        r"no (?:\w+ ){1,4}(?:is|are|was|were) (?:given|mentioned|stated|specified|provided|found|"
        rf"indicated|disclosed|present|named){_TAIL}",
        r"(?:it is )?(?:not possible|impossible) to (?:determine|say|tell|answer|know|identify)"
        rf"{_TAIL}",
        rf"(?:i|we) do not (?:think|believe) (?:any of )?{_MAIL} {_SAYING}{_TAIL}",
        r"(?:(?:i would|id) rather not|i (?:will not|do not want to|would not)) guess",
        r"i (?:must|have to|need to)? ?(?:abstain|decline)(?: from answering)?",
        rf"i (?:lack|would need) (?:the |more |further )?information{_TAIL}",
        rf"(?:{_OBJECT}|{_WH}(?: \w+){{1,8}}?) (?:is|are|was|were|does|do) "
        rf"(?:{_UNSAID}|{_ABSENT}|not in|not appear(?: to be)? in){_TAIL}",
        r"(?:none |data |information |results? )?not (?:found|available)|none found|"
        r"could not be determined",
    )
)
_FILLER = (
    rf"(?:{_ADVERB} ?){{1,3}}|i am (?:(?:very|so|really) )?(?:sorry|afraid)(?: that)?|"
    r"(?:i |my |please accept my )?(?:sincere )?apolog(?:ize|ise|ies)|"
    r"(?:very |so )?sorry(?: about that)?|"
    r"(?:i|we) (?:have )?(?:looked|searched|checked|tried|read)(?: \w+){0,8}|"
    r"after (?:searching|looking|checking|reading|reviewing)(?: \w+){0,8}|"
    rf"{_IN_MAIL}|(?:no )?thanks?(?: you)?|(?:the )?(?:final )?answer|"
    r"please (?:check|try|let me know|provide)(?: \w+){0,12}|"
    r"(?:you (?:may|might|could|can)|if you|try|such as|i can|i cannot (?:open|read))"
    r"(?: \w+){0,15}|"
    rf"(?:despite|having|as of|based on)(?: \w+){{0,12}}|"
    # What mail there is.
    rf"(?:i|we) (?:have )?(?:found|see|saw|reviewed|read)(?: \w+){{0,3}} {_NOUN}{_TAIL}|"
    rf"(?:there (?:is|are) )?(?:\w+ ){{0,5}}{_NOUN}(?: \w+){{0,4}} "
    rf"(?:is|are|about|from|only|mentions?|discuss(?:es)?|covers?|has|have|was|were){_TAIL}|"
    rf"(?:\w+ ){{1,3}}(?:wrote|asked|emailed)(?: \w+){{0,3}} (?:about|for|whether|if|on){_TAIL}|"
    rf"(?:\w+ ){{1,5}}(?:is|are|was|were) (?:discussed|mentioned|asked|raised){_TAIL}"
)
_OPENING = (
    r"(?:i am (?:(?:very|so) )?(?:sorry|afraid)(?: that| to say)?|"
    rf"(?:based on|from|given|according to|after (?:searching|reading|checking|reviewing)) {_MAIL}"
    r"(?: (?:i|we) (?:(?:could|can|have) )?(?:find|found|read|see|seen|saw))?) (?=\w)"
)
_CONTINUED = rf"{_ABOUT}|\d{{1,4}}"
# After a word on what mail there is.
_OF_THAT_MAIL = (
    rf"(?:it|they|he|she) {_NEVER} {_SAYS}{_TAIL}|(?:no|not)(?: \w+){{1,4}}|nothing{_ABOUT}"
)


def _clauses(answer: str) -> list[str]:
    text = unicodedata.normalize("NFKC", _APOSTROPHES.sub("", answer)).lower()
    text = re.sub(r"\be-mail", "email", re.sub(r"\bn ?[/.] ?a\b", "n a", text))
    clauses = []
    for piece in _CLAUSE_END.split(_APOSTROPHES.sub("", text)):
        words = _NOT_WORD.sub(" ", piece).split()
        if words:
            clauses.append(" ".join(_EXPANSIONS.get(word, word) for word in words))
    return clauses


def _abstains(clause: str) -> bool:
    return any(
        re.fullmatch(pattern, rest)
        for rest in {clause, re.sub(_OPENING, "", clause, count=1)}
        for pattern in _ABSTENTIONS
    )


def is_abstention(answer: str | None) -> bool:
    """True if `answer` declines to answer: None, empty, or "I don't know" in any spelling."""
    if answer is None:
        return True
    clauses = _clauses(answer)
    if not clauses:
        return not re.search(r"\w", answer)
    if sum(clause.count(" ") + 1 for clause in clauses) > _MAX_WORDS:
        return False
    declined = of_mail = False
    for clause in clauses:
        if _abstains(clause) or (of_mail and re.fullmatch(_OF_THAT_MAIL, clause)):
            declined = True
        elif not (re.fullmatch(_FILLER, clause) or (declined and re.fullmatch(_CONTINUED, clause))):
            return False
        of_mail = of_mail or re.search(rf"\b{_NOUN}\b", clause) is not None
    return declined
