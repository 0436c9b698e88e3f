"""Questions about real mail whose answers are true by construction, made without a model.

A question comes from a mail's header fields (who wrote it, when, to whom else), from its signature
(a number), from a statement that is turned around ("The review is on May 3" gives "When is the
review?"), or from a remark or short mail, the answer to "What did Ann say about ...?".

    made = questions_of(file, inboxes, per_inbox=..., without=[...], seed=...)

Many ask in other words than the mail's (`wordings.toml`), as people do: where all words of a
question stand in its mail, a model learns to look for them, and for nothing else.

Each is kept only if a search for its words finds the mail, and no other mail that was found answers
it otherwise. An unanswerable question is one about a mail that another inbox of the split holds,
where nothing that a search finds has the answer.
"""

import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from itertools import islice
from random import Random
from typing import NamedTuple

from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from art_e.inbox.mail import Email, Mailbox
from art_e.inbox.tokenizer import STOP_WORDS, stems, words
from art_e.models.fit import (
    MAX_SENTENCE_CHARS,
    ReadMail,
    best_sentences,
    informative_words,
    split_sentences,
)
from art_e.question import Kind, Question, Split
from art_e.text import digest

# ---- What patterns are made of.

_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?"
    r"|Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)\.?"
)
_DAY = (
    r"(?:(?:next |this )?(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
    rf"|{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?(?:,? (?:19|20)\d\d)?"
    rf"|\d{{1,2}}(?:st|nd|rd|th)? (?:of )?{_MONTH}(?: (?:19|20)\d\d)?|{_MONTH},? (?:19|20)\d\d"
    r"|(?:the )?(?:end|middle|beginning) of (?:the )?\w+|next (?:week|month|year)"
    r"|(?:0?[1-9]|1[0-2])/(?:0?[1-9]|[12]\d|3[01])(?:/\d{2,4})?"
    rf"|(?:late |early |mid-?){_MONTH})"
)
_TIME = (
    r"(?:\d{1,2}(?::\d\d)? ?(?:[ap]\.?m\b\.?|o'clock)|\d{1,2}:\d\d|noon)"
    r"(?: ?\(?[CEMP][SD]?T\)?)?"
)
_JOIN = r"(?:,? (?:at|from|to|until|and|through|on|-)? ?|,|-| ?- ?)"
_WHEN = rf"(?:{_DAY}|{_TIME})(?:{_JOIN}(?:{_DAY}|{_TIME}))*"
_MONEY = (
    r"(?:approximately |about |around )?(?:US)?\$ ?\d[\d,.]*\d?"
    r"(?: ?(?:million|billion|MM|M|K|k)\b)?(?: (?:per|an?|each) \w+)?"
)
_NAME = r"[A-Z][a-z]+(?: [A-Z]\.?)?(?: [A-Z][a-zA-Z'’-]+)?"
_THING = r"(?:The|Our|My|Your|This|[A-Z][\w'’.&-]+)(?: [\w'’&/.#-]+){0,8}?"
_PREPOSITION = r"(?:on|at|for|by|from|until|in|to|through|around|during)"
_BE = r"(?:is|are|was|were|will be|has been|have been)"

_STATED: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("When", re.compile(
        rf"(?P<subject>{_THING}|I) (?P<aux>{_BE}|will) (?P<middle>(?:[\w'’-]+ ){{0,7}}?)"
        rf"(?:(?P<preposition>{_PREPOSITION}) )?(?P<answer>{_WHEN})(?=[\s.,;:!)]|$)")),
    ("How much", re.compile(
        rf"(?P<subject>{_THING}) (?P<aux>{_BE}) (?P<middle>(?:[\w'’-]+ ){{0,5}}?)"
        rf"(?:(?P<preposition>{_PREPOSITION}) )?(?P<answer>{_MONEY})(?=[\s.,;:!)]|$)")),
)  # fmt: skip
_WHO = re.compile(
    rf"(?P<answer>{_NAME}) "
    r"(?P<rest>(?:will|is|are|was|has|would|can|should) (?!not\b)[^,;:!?]{15,110}?)"
    r"(?:[.;!]|, (?:but|so|and|which|who)\b.*)$"
)
_WHAT = re.compile(
    r"(?P<subject>(?:The|My|Our) (?:[\w-]+ ){0,3}(?:deadline|status|price|password|cost|fee|rate"
    r"|address|name|purpose|goal|problem|issue|reason|result|total|balance|title|topic|plan|agenda"
    r"|number|id|value|volume|strategy|idea|concern|question|proposal|position|next step|impact"
    r"|objective)(?: (?:of|for|with|to|in|on) [^,;:.]{3,60}?)?) (?P<aux>is|are|was|will be)"
    r" (?P<answer>[^;:?!]{3,140}?)\.?$"
)
_NUMBER = re.compile(
    r"(?P<before>[A-Za-z ./-]{0,18})[:\s]*(?P<answer>\(?\d{3}\)?[ ./-]{1,3}\d{3}[ .-]\d{4})"
    r"(?P<after>[ (]{0,2}[A-Za-z]{0,8})"
)
_NUMBER_KINDS = {
    **{"fax": "fax number", "home": "home phone number", "pager": "pager number"},
    **dict.fromkeys(("cell", "mobile"), "cell phone number"),
    **dict.fromkeys(("phone", "tel", "office", "work"), "phone number"),
}
# Subjects of whom or what the question would not say.
_VAGUE = frozenset(
    "it he she they this that these those there we you who which what here everyone anyone nothing"
    " all both one some any if when as in on at for and but or so then also please however since"
    " thanks attached below above no yes not only just today tomorrow monday tuesday wednesday"
    " thursday friday saturday sunday".split()
)
_INSIDE = re.compile(r"\b(?:that|which|who|I|we|he|she|they|it|you|because|if|when)\b")
_PREFIX = re.compile(r"^(?:(?:re|fw|fwd)(?:\[\d+\])?\s*:\s*)+", re.IGNORECASE)


# What a remark speaks of: words after an article up to one that ends them, or a name.
_TOPIC = re.compile(
    r"\b(?:(?P<article>the|our|this|your|a|an|any) |(?=[A-Z]))"
    r"(?P<topic>[\w'’&/-]+(?: [\w'’&/-]+){1,3})"
    r"(?= (?:of|for|to|in|on|at|by|with|from|and|or|is|are|was|were|will|has|have|had|that|which|as"
    r"|if|so|but|when|would|should|can|could|we|I|you|before|after|until|because)\b|[.,;!)])"
)
# Sentences that nobody looks for.
_POLITE = re.compile(
    r"\b(?:thanks?|please|attached|attachment|enclosed|sorry|let me know|call me|see below|fyi"
    r"|forwarded|regards|hope|look forward|feel free|questions|unsubscribe|click)\b",
    re.IGNORECASE,
)


class Made(NamedTuple):
    """A question in the words of its mail: `kind` says what made it, `sentence` is what answers it
    there, and `reworded` asks the same in other words."""

    kind: str
    question: str
    answer: str
    sentence: str = ""
    reworded: str = ""

    @property
    def asked(self) -> str:
        """The question as it is asked."""
        return self.reworded or self.question


# ---- The questions of one mail.


@dataclass(frozen=True)
class People:
    """How a person is called: the inbox's owner "I", others by their names."""

    owner: frozenset[str]  # addresses
    given: frozenset[str]  # given names in the file, lower case

    def name(self, mailbox: Mailbox) -> str | None:
        """A person's given and family name; None for who has none, or is no person."""
        name = re.sub(r"[\"'<>]|\(.*|@.*|/.*", "", mailbox.name).strip()
        if name.count(",") == 1:
            last, first = name.split(",")
            name = f"{first.strip()} {last.strip()}"
        parts = [each for each in name.split() if len(each.strip(".")) > 1]
        if not (
            2 <= len(parts) <= 3
            and all(re.fullmatch(r"[A-Z][a-zA-Z'’.-]+", each) for each in parts)
        ):
            return None
        return " ".join(parts) if parts[0].lower() in self.given else None

    def is_owner(self, mailbox: Mailbox) -> bool:
        """Whether it is one of the owner's addresses."""
        return mailbox.address in self.owner


def made_of(email: Email, people: People, rng: Random) -> Iterator[Made]:
    """The questions that a mail answers by itself."""
    sender = "I" if people.is_owner(email.sender) else people.name(email.sender)
    if sender is None:
        return
    others = [each for each in (*email.to, *email.cc) if not people.is_owner(each)]
    to = [people.name(each) for each in others]
    topic = _topic(email.subject)
    reader = to[0] if len(to) == 1 else None
    own = [each.text for each in split_sentences(email.body) if each.depth == 0]
    if topic is not None:
        yield from _of_headers(email, sender, to, topic, rng)
        yield from _of_a_short_mail(own, sender, reader, topic, rng)
    if sender != "I":
        yield from _of_a_signature(email.body, sender)
    for sentence in own:
        stated = list(_of_a_statement(sentence, sender, people))
        yield from stated or _of_a_remark(sentence, sender, reader, rng)


def _topic(subject: str) -> str | None:
    topic = " ".join(_PREFIX.sub("", subject).split())
    telling = [each for each in words(topic) if each not in STOP_WORDS and len(each) > 2]
    fits = len(telling) >= 2 and len(topic) <= 60 and not re.search(r"[?!<>{}|\\]|\d{5}|@", topic)
    return topic.rstrip(".") if fits else None


def _of_headers(
    email: Email, sender: str, to: Sequence[str | None], topic: str, rng: Random
) -> Iterator[Made]:
    if sender != "I":
        asked = rng.choice(("Who wrote about", "Who sent the mail about", "Who wrote to me about"))
        yield Made("sender", f"{asked} {topic}?", sender)
    if email.date is not None:
        day = f"{email.date:%B} {email.date.day}, {email.date.year}"
        verb = rng.choice(("write about", "send the mail about"))
        yield Made("day", f"When did {sender} {verb} {topic}?", day)
    named = [each for each in to if each]
    if len(named) == len(to) and 1 <= len(named) <= 3:
        mail = "my mail" if sender == "I" else f"{sender}'s mail"
        asked = "Who got" if sender == "I" else "Who else got"
        yield Made("recipients", f"{asked} {mail} about {topic}?", _listed(named))


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _of_a_short_mail(
    own: Sequence[str], sender: str, reader: str | None, topic: str, rng: Random
) -> Iterator[Made]:
    said = [each for each in own if len(each) >= 25 and not each.startswith(("http", "["))]
    text = " ".join(said)
    if text.endswith(":"):
        return
    if not (1 <= len(said) <= 2 and 30 <= len(text) <= 260) or len(own) > 6 or "?" in text:
        return
    if sender != "I" or reader:
        yield Made("said", _what_was_said(sender, reader, topic, rng), text)


def _what_was_said(sender: str, reader: str | None, topic: str, rng: Random) -> str:
    if sender == "I" and reader:
        return f"What did I {rng.choice(('tell', 'write to', 'say to'))} {reader} about {topic}?"
    whose = "my" if sender == "I" else f"{sender}'s"
    return rng.choice(_SAID).format(sender=sender, whose=whose, topic=topic)


_SAID = (
    *["What did {sender} say about {topic}?"] * 4,
    *["What did {sender} write about {topic}?"] * 2,
    "What was {whose} comment on {topic}?",
    "What was {whose} opinion of {topic}?",
    "What information did {sender} give about {topic}?",
    "What did {sender} mention about {topic}?",
    "What is {whose} position on {topic}?",
)


def _of_a_signature(body: str, sender: str) -> Iterator[Made]:
    lines = body.split("\n")
    family = sender.rsplit(maxsplit=1)[-1].lower()
    place = next(
        (n for n, line in enumerate(lines) if family in line.lower() and len(line) < 60), None
    )
    if place is None or any(
        "-----" in line or line.startswith((">", "From:")) for line in lines[:place]
    ):
        return
    for line in lines[place : place + 9]:
        for found in _NUMBER.finditer(line):
            around = (found["before"] + " " + found["after"]).lower()
            kind = next((_NUMBER_KINDS[each] for each in _NUMBER_KINDS if each in around), None)
            if kind:
                yield Made("number", f"What is {sender}'s {kind}?", found["answer"])


def _of_a_statement(sentence: str, sender: str, people: People) -> Iterator[Made]:
    if not 25 <= len(sentence) <= 260 or "?" in sentence:
        return
    for asked, pattern in _STATED:
        found = pattern.match(sentence)
        if found and (subject := _subject(found["subject"], sender)) is not None:
            aux, _, rest = found["aux"].partition(" ")
            middle = found["middle"].strip()
            # Whom "you" is, the inbox's owner or another reader, is not known.
            if re.search(r"\b(?:not|that|which|who|as|your?|yours)\b", middle) or (
                aux == "will" and not rest + middle
            ):
                continue
            if subject == "I":
                aux = {"is": "am", "are": "am", "has": "have"}.get(aux, aux)
            kept = found["preposition"] or ""
            dropped = asked == "When" and kept in ("on", "at", "in", "during", "around")
            parts = [asked, aux, subject, rest, middle, "" if dropped else kept]
            question = f"{' '.join(each for each in parts if each)}?"
            yield Made(asked.lower(), question, found["answer"].strip(" ,"), sentence)
            return
    found = _WHO.match(sentence)
    if found and found["answer"].split()[0].lower() in people.given:
        rest = _from_outside(found["rest"], sender)
        if rest and not _INSIDE.search(rest):
            yield Made("who", f"Who {rest}?", found["answer"], sentence)
            return
    found = _WHAT.match(sentence)
    if found and (subject := _subject(found["subject"], sender)) is not None:
        aux, _, rest = found["aux"].partition(" ")
        answer = found["answer"]
        if len(answer.split()) > 1 and not answer.startswith(
            ("not ", "listed", "as follows", "now ")
        ):
            asked = f"What {aux} {subject}{' ' * bool(rest)}{rest}?"
            yield Made("what", asked, answer, sentence)


def _of_a_remark(sentence: str, sender: str, reader: str | None, rng: Random) -> Iterator[Made]:
    if not 50 <= len(sentence) <= 220 or "?" in sentence or _POLITE.search(sentence):
        return
    if not sentence[0].isupper() or sentence[-1] not in ".!":
        return
    topics = []
    for found in _TOPIC.finditer(sentence):
        parts = found["topic"].split()
        named = all(each[0].isupper() for each in parts) and found.start() > 0
        telling = all(
            len(each) > 2
            and each.lower() not in STOP_WORDS | _VAGUE
            and not each.endswith(("ly", "ed"))
            for each in parts
        )
        if telling and (found["article"] or named):
            article = {"a": "a ", "an": "an ", None: ""}.get(found["article"], "the ")
            topics.append(article + found["topic"])
    if topics:
        topic = max(topics, key=len)
        yield Made("about", _what_was_said(sender, reader, topic, rng), sentence)


def _subject(text: str, sender: str) -> str | None:
    """The subject of a question; None where the question would not say of what it speaks."""
    if text == "I":
        return sender
    first, _, rest = text.partition(" ")
    if (
        " - " in text
        or first.lower() in _VAGUE
        or _INSIDE.search(rest)
        or (not rest and first.lower() in STOP_WORDS)
    ):
        return None
    telling = [each for each in words(text) if each not in STOP_WORDS]
    if len(telling) < (2 if first in ("The", "A", "An", "Our", "My", "Your") else 1):
        return None
    if first in ("My", "Our"):
        whose = "my" if sender == "I" else f"{sender}'s"
        return f"{whose} {rest}"
    if first == "Your":
        return None
    # A word that begins the sentence, and not a name.
    is_common = first in ("The", "A", "An", "Each", "This") or (
        first[1:].islower() and rest[:1].islower()
    )
    return f"{first.lower()} {rest}" if is_common else text


def _from_outside(text: str, sender: str) -> str | None:
    """The text as somebody else says it; None if it speaks to its reader."""
    if re.search(r"\b(?:you|your|yours|him|her|them|here|there|us|below|above|attached)\b", text):
        return None
    whose, whom = ("my", "me") if sender == "I" else (f"{sender}'s", sender)
    text = re.sub(r"\b(?:my|our)\b", whose, text)
    return re.sub(r"\bme\b", whom, text)


# ---- In other words.

_REWORDED = 0.7  # of the questions, as far as there are other words for theirs
_REPLACED = 0.6  # of the words of such a question


def _reworded(made: Made, rng: Random) -> Made:
    """The question with some of its words replaced by others."""
    question = made.question
    if rng.random() < _REWORDED:
        for pattern, others in _wordings():
            if rng.random() < _REPLACED:
                question = pattern.sub(rng.choice(others), question, count=1)
    return made._replace(reworded=question)


@cache
def _wordings() -> list[tuple[re.Pattern[str], list[str]]]:
    content = resources.files(__package__).joinpath("wordings.toml").read_text("utf-8")
    tables: dict[str, dict[str, list[str]]] = tomllib.loads(content)
    return [
        (re.compile(rf"\b{re.escape(phrase)}\b"), others)
        for table in tables.values()
        for phrase, others in table.items()
    ]


# ---- The questions of inboxes.

# How many of each kind there are among those of an inbox, as far as its mail gives them.
_SHARES = {"when": 0.25, "who": 0.16, "what": 0.1, "how much": 0.08, "number": 0.05,
           "sender": 0.01, "day": 0.01, "recipients": 0.01, "said": 0.1, "about": 0.42}  # fmt: skip
_FIRST_NAME = 0.4  # of the questions that name the sender
_UNANSWERABLE = 0.2  # of all
# At most so many have for their answer a header field, or the sentence of the first hit that fits
# best: two in three do by themselves. A model that learns from those looks no further, and takes a
# mail's sender for every "who". Remarks are left out first.
_EASY = 0.5
_FEW = 20  # so many an inbox may have whatever else it gives
_HITS = 10
_SAME = 0.75  # of a question's words: another sentence that has so many may answer it as well
# Their answers are no text of the mail.
_IN_HEADERS = ("sender", "day", "recipients")


def questions_of(
    file: InboxFile, inboxes: Mapping[str, Split], per_inbox: int, without: Sequence[str], seed: int
) -> list[Question]:
    """Up to `per_inbox` questions about each inbox, some of them unanswerable.

    No question is about a mail that an inbox of `without` holds, nor about one that an inbox of a
    later split holds (test before validation before training).
    """
    given = _given_names(file)
    taken = {each for address in without for each in _ids_of(file, address)}
    order = sorted(inboxes, key=lambda each: ("test", "validation", "train").index(inboxes[each]))
    made: list[Question] = []
    made_in: defaultdict[Split, list[tuple[str, Made]]] = defaultdict(list)
    for address in order:
        split, rng = inboxes[address], Random(f"{seed}/{address}")
        inbox = file.open_inbox(address)
        own = {each for listed in file.people().values() for each in listed if address in listed}
        people = People(frozenset(own | {address}), given)
        ids = [each for each in _ids_of(file, address) if each not in taken]
        most = int(per_inbox * (1 - _UNANSWERABLE))
        for each in _of_an_inbox(inbox, ids, people, most, rng):
            made.append(_row(address, split, each.made, each.message_id))
            made_in[split].append((address, each.made))
        if split != "train":
            taken |= set(ids)
    for address in order:
        split, rng = inboxes[address], Random(f"{seed}/{address}/unanswerable")
        others = [each for where, each in made_in[split] if where != address]
        rng.shuffle(others)
        inbox = file.open_inbox(address)
        answered = sum(where == address for where, _ in made_in[split])
        wanted = int(answered * _UNANSWERABLE / (1 - _UNANSWERABLE))
        asked = (each for each in others if each.kind not in _IN_HEADERS)
        lacking = (each for each in asked if _lacks(inbox, each))
        made += [_row(address, split, each, None) for each in islice(lacking, wanted)]
    return made


def _given_names(file: InboxFile) -> frozenset[str]:
    """The given names that several people of the file have, in lower case."""
    counts: Counter[str] = Counter()
    for (names,) in file.execute("SELECT names FROM addresses").fetchall():
        firsts = set()
        for name in names.replace('"', "").split(" | "):
            last, comma, first = name.partition(",")
            parts = (first if comma else last).split()
            if len(parts) >= (1 if comma else 2) and parts[0].isalpha() and len(parts[0]) > 2:
                firsts.add(parts[0])
        counts.update(firsts)
    return frozenset(name for name, count in counts.items() if count > 1)


def _ids_of(file: InboxFile, address: str) -> list[str]:
    inbox = file.open_inbox(address)
    return [each.message_id for each in inbox.search([], max_results=len(inbox))]


class _Placed(NamedTuple):
    made: Made
    message_id: str
    is_easy: bool = False


def _of_an_inbox(
    inbox: Inbox, ids: Sequence[str], people: People, most: int, rng: Random
) -> list[_Placed]:
    """Questions that the inbox answers in one way, of all kinds in about their shares."""
    by_kind: defaultdict[str, list[_Placed]] = defaultdict(list)
    allowed = frozenset(ids)
    answers: defaultdict[str, set[str]] = defaultdict(set)
    for email in inbox.read_many(ids):
        assert email is not None
        name = people.name(email.sender) or ""
        for whole in made_of(email, people, rng):
            short = whole.question.replace(name, name.partition(" ")[0])
            made = whole._replace(question=short) if rng.random() < _FIRST_NAME else whole
            by_kind[made.kind].append(_Placed(made, email.message_id))
            answers[made.question].add("".join(words(made.answer)))
    chosen: dict[str, _Placed] = {}
    asked: set[str] = set()
    mails: Counter[str] = Counter()
    for kind, share in _SHARES.items():
        wanted = min(most, len(chosen) + round(share * most))
        candidates = by_kind[kind]
        rng.shuffle(candidates)
        for each in candidates:
            if len(chosen) >= wanted:
                break
            if len(answers[each.made.question]) > 1 or each.made.question in chosen:
                continue
            made = _reworded(each.made, rng)
            if mails[each.message_id] == 2 or made.asked in asked:
                continue
            placed = _only(inbox, each._replace(made=made))
            if placed is not None and placed.message_id in allowed:
                chosen[made.question] = placed
                asked.add(made.asked)
                mails[placed.message_id] += 1
    hard = [each for each in chosen.values() if not each.is_easy]
    easy = [each for each in chosen.values() if each.is_easy]
    return hard + easy[: max(_FEW, int(len(hard) * _EASY / (1 - _EASY)))]


def _only(inbox: Inbox, placed: _Placed) -> _Placed | None:
    """The question with the first mail found that answers it; None if another answers otherwise, or
    its own is not found."""
    made, gold = placed.made, None
    found = _found(inbox, made.asked)
    if placed.message_id not in [each.message_id for each in found]:
        return None
    for email in found:
        if email.message_id == placed.message_id or _holds(email, made):
            gold = gold or email
        elif _may_answer(email, made):
            return None
    assert gold is not None
    best = best_sentences(made.asked, ReadMail.alone(gold), MAX_SENTENCE_CHARS).split("\n")[0]
    at_once = gold is found[0] and best in _evidence(made)
    return _Placed(made, gold.message_id, at_once or made.kind in _IN_HEADERS)


def _evidence(made: Made) -> str:
    """The text of the mail that answers."""
    return made.sentence or made.answer


def _holds(email: Email, made: Made) -> bool:
    return made.kind not in _IN_HEADERS and _plain(made.answer) in _plain(email.body)


def _may_answer(email: Email, made: Made) -> bool:
    """Whether a mail that lacks the answer says something else of what is asked."""
    telling = _telling(made.question)
    if made.kind in _IN_HEADERS:
        of_answer = set(stems(words(made.answer))) if made.kind == "sender" else set()
        return telling - of_answer <= set(stems(words(f"{email.subject} {email.sender}")))
    # Of what somebody said only the same person can say something else.
    by = f" {email.sender.name}" if made.kind in ("said", "about") else ""
    return any(_share(telling, each.text + by) >= _SAME for each in split_sentences(email.body))


def _lacks(inbox: Inbox, made: Made) -> bool:
    """Whether nothing that the inbox has on the question answers it."""
    found = _found(inbox, made.asked)
    return bool(found) and not any(_holds(each, made) or _may_answer(each, made) for each in found)


def _found(inbox: Inbox, question: str) -> list[Email]:
    hits = inbox.search(informative_words(question), max_results=_HITS)
    return [_mail(inbox, hit.message_id) for hit in hits]


@lru_cache(maxsize=10_000)
def _mail(inbox: Inbox, message_id: str) -> Email:
    """The mail: many are found again and again."""
    email = inbox.read(message_id)
    assert email is not None
    return email


def _telling(question: str) -> set[str]:
    asked = [each for each in words(question) if each not in STOP_WORDS and each not in _ASKING]
    return set(stems(asked))


_ASKING = frozenset(
    "who what when where why how much did write wrote sent send say tell mail got".split()
)


def _share(telling: set[str], sentence: str) -> float:
    return len(telling & set(stems(words(sentence)))) / max(1, len(telling))


def _plain(text: str) -> str:
    return " ".join(text.lower().split())


def _row(address: str, split: Split, made: Made, message_id: str | None) -> Question:
    kind: Kind = "lookup" if message_id else "unanswerable"
    provenance = {"made": made.kind}
    if message_id and made.kind not in _IN_HEADERS:
        provenance["sentence"] = _evidence(made)
    return Question(
        id=f"headers-{digest(f'{address} {kind} {made.asked}')[:12]}",
        question=made.asked,
        inbox_address=address,
        answer=made.answer if message_id else None,
        message_ids=(message_id,) if message_id else (),
        kind=kind,
        answerable=message_id is not None,
        split=split,
        provenance=provenance,
    )
