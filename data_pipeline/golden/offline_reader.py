"""The checks of `verify` without a model: what word overlap can tell, and no more.

It reads as the offline policy does, by how well a sentence fits the question
(`art_e.models.fit`), and compares answers as the offline judge does. An opinion on text
that is no better than that drops nothing: where it does not pass, a check is unsure, and
its reason is what a person should look at. Knows nothing of sets and of models.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from art_e.inbox.mail import Email, format_date
from art_e.models.fit import Candidate, ReadMail, candidates
from art_e.models.offline import ABSTAIN_BELOW
from art_e.question import Question
from art_e.text import cut_line
from data_pipeline.golden.golden_set import Check, with_checks
from data_pipeline.golden.inboxes import inbox_of, mails_of
from data_pipeline.golden.model_checks import own_part, possible_answers, rivals, sent
from evals.judges.offline import OfflineJudge, grounded_in

BY = "search"
# A sentence of another mail is suspect if its score is at least the gold mails' best less this.
# Of the 635 answerable questions of synthetic:5000, all of which have one answer, 4 are
# suspect with 0 and 6 with 1; from a score of 5 on, not ABSTAIN_BELOW, 35 were. Of 73 real
# questions 2 are with either, and 6 from a score of 5 on, of which one more was worth a look.
MARGIN = 0.0
_SHOWN_CHARS = 200


class Suspect(NamedTuple):
    """A sentence that may be an answer, and the mail that it stands in."""

    message_id: str
    text: str

    def __str__(self) -> str:
        return f"{self.message_id}: {cut_line(self.text, _SHOWN_CHARS)!r}"


def examine_by_words(inbox: Inbox, question: Question) -> Question:
    """The question with the checks that apply to it; `inbox` is as of its date."""
    if question.answerable is False:
        return with_checks(question, [unanswerable_by_words(inbox, question)])
    checks = [answerable_by_words(inbox, question), unambiguous_by_words(inbox, question)]
    return with_checks(question, checks)


def answerable_by_words(inbox: Inbox, question: Question) -> Check:
    """Whether the gold mails have the answer's values, names and words."""
    gold, answer = mails_of(inbox, question.message_ids), question.answer or ""
    if question.kind == "count" and OfflineJudge().decide(question, str(len(gold))).correct:
        said = f"{len(gold)} mails are cited, as many as the answer says"
        return Check("answerable", "verify", True, said, BY)
    grounding = grounded_in(question.question, answer, gold)
    passed = True if grounding.grounded else None
    reason = "the gold mails have what the answer states" if passed else grounding.reason
    return Check("answerable", "verify", passed, reason or "nothing in it can be looked up", BY)


def ambiguity_by_search(file: InboxFile, question: Question) -> Check:
    """Whether a mail found with the question seems to give another answer than the gold one.

    Passed None: one does, and the reason names the mail and its sentence; never False.
    Raises `UserError` where the file lacks the inbox.
    """
    return unambiguous_by_words(inbox_of(file, question), question)


def unambiguous_by_words(inbox: Inbox, question: Question) -> Check:
    """`ambiguity_by_search` in an opened inbox."""
    gold = mails_of(inbox, question.message_ids)
    found = rivals(inbox, question, gold)
    suspect = _suspect(question, gold, found)
    if suspect is not None:
        return Check("unambiguous", "verify", None, f"suspect: {suspect}", BY)
    said = f"no other answer seen in {len(found)} mails found besides the gold ones"
    return Check("unambiguous", "verify", True, said, BY)


def unanswerable_by_words(inbox: Inbox, question: Question) -> Check:
    """Whether no sentence of the mails found seems to answer a question that has no answer."""
    found = possible_answers(inbox, question)
    scored = _scored(question, found)
    best = max(scored, key=_score, default=None)
    if best is not None and best.score >= ABSTAIN_BELOW:
        suspect = Suspect(best.handle, best.text)
        return Check("unanswerable", "verify", None, f"suspect: {suspect}", BY)
    said = f"nothing that fits in {len(found)} mails found"
    return Check("unanswerable", "verify", True, said, BY)


def _suspect(question: Question, gold: Sequence[Email], found: Sequence[Email]) -> Suspect | None:
    """The best sentence of the mails found that says something else than the gold answer.

    Its mail speaks of as many of the question's words as the gold mail, and its score is as
    high. What an older mail says is no suspect of a latest-update question.
    """
    ids = {each.message_id for each in gold}
    latest = max(map(sent, gold), default=None) if question.kind == "latest-update" else None
    later = [each for each in found if latest is None or sent(each) > latest]
    # Scored together: a mail's age counts beside that of the others.
    scored = _scored(question, [*gold, *(own_part(each, gold) for each in later)])
    of_gold = [each for each in scored if each.handle in ids]
    best = max(of_gold, key=_score, default=None)
    least = ABSTAIN_BELOW if best is None else max(ABSTAIN_BELOW, best.score - MARGIN)
    share = 0.0 if best is None else best.features["mail"]
    others = [
        each
        for each in scored
        if each.handle not in ids and each.score >= least and each.features["mail"] >= share
    ]
    judge = OfflineJudge()
    for each in sorted(others, key=_score, reverse=True):
        # The same either way round: a mail may tell less of it than the gold answer, or more.
        said = dataclasses.replace(question, answer=each.text)
        if not (
            judge.decide(question, each.text).correct or judge.decide(said, question.answer).correct
        ):
            return Suspect(each.handle, each.text)
    return None


def _score(candidate: Candidate) -> float:
    return candidate.score


def _scored(question: Question, mails: Sequence[Email]) -> list[Candidate]:
    read = [
        ReadMail(
            each.message_id,
            format_date(each.date),
            each.subject,
            str(each.sender),
            each.body,
            rank,
        )
        for rank, each in enumerate(mails)
    ]
    return candidates(question.question, read)
