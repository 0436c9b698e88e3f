"""The mails besides the gold ones that might answer a question, found by searching.

Dropped are copies of the gold mails: mails that have no line that is not in these. A reply
or forward that adds something is found, and `own_part` tells what it adds. Knows nothing of
readers and of how answers are compared.
"""

import dataclasses
import datetime as dt
from collections.abc import Iterable, Sequence
from functools import lru_cache

from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from art_e.inbox.mail import Email
from art_e.inbox.tokenizer import stems, words
from art_e.policies.fit import informative_words, name_stems
from art_e.policies.sentences import split_sentences
from art_e.question import Question

# Mails that are read for a question, best first.
MAX_RIVALS = 10
# Copies are not counted among these, as far as a search gives so many.
_MAX_COPIES = 20


def inbox_of(file: InboxFile, question: Question) -> Inbox:
    """The inbox as it was when the question was asked. Raises `UserError` for an unknown one."""
    return file.open_inbox(question.inbox_address, question.query_date)


def mails_of(inbox: Inbox, message_ids: Iterable[str]) -> list[Email]:
    """Those of the mails that the inbox has, each once, in the order given."""
    found = inbox.read_many(list(message_ids))
    by_id = {each.message_id: each for each in found if each is not None}
    return list(by_id.values())


def by_date(mails: Iterable[Email]) -> list[Email]:
    """The mails, oldest first; those without a date are the oldest."""
    return sorted(mails, key=lambda each: (sent(each), each.message_id))


def sent(mail: Email) -> dt.datetime:
    """When the mail was sent; one without a date is older than any other."""
    return mail.date or dt.datetime.min


def rivals(inbox: Inbox, question: Question, gold: Sequence[Email]) -> list[Email]:
    """What the question's informative words find besides `gold`, best first."""
    return _found(inbox, informative_words(question.question), gold)


def possible_answers(inbox: Inbox, question: Question) -> list[Email]:
    """What the question's words find, and its names and numbers alone, each mail once."""
    names = name_stems(question.question)
    asked = informative_words(question.question)
    named = [each for each in asked if stems([each])[0] in names]
    found = (*_found(inbox, asked, ()), *_found(inbox, named, ()))
    return list({each.message_id: each for each in found}.values())


def _found(inbox: Inbox, keywords: list[str], gold: Sequence[Email]) -> list[Email]:
    if not keywords:
        # A search for nothing finds everything.
        return []
    known = {each.message_id for each in gold}
    said = lines_of(gold)
    hits = inbox.search(keywords, max_results=MAX_RIVALS + len(gold) + _MAX_COPIES)
    others = [each.message_id for each in hits if each.message_id not in known]
    found: list[Email] = []
    # A search's mails are read together; only copies call for the next ones.
    while others and len(found) < MAX_RIVALS:
        mails, others = mails_of(inbox, others[:MAX_RIVALS]), others[MAX_RIVALS:]
        found.extend(each for each in mails if not gold or not lines_of([each]) <= said)
    return found[:MAX_RIVALS]


def lines_of(mails: Iterable[Email]) -> frozenset[str]:
    """The sentences of the mails' bodies as their words: spacing, case and quoting are gone."""
    return frozenset(line for mail in mails for _, line in _spoken(mail.body) if line)


def own_part(mail: Email, gold: Sequence[Email]) -> Email:
    """The mail with only those sentences in its body that stand in no gold mail."""
    said = lines_of(gold)
    own = [text for text, line in _spoken(mail.body) if line not in said]
    return dataclasses.replace(mail, body="\n".join(own))


# A question's mails are compared several times each, with those of no other question.
@lru_cache(maxsize=64)
def _spoken(body: str) -> tuple[tuple[str, str], ...]:
    """The sentences of a body, and each as its words."""
    return tuple((each.text, " ".join(words(each.text))) for each in split_sentences(body))
