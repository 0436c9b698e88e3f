"""The checks of `verify` without a model, by word overlap.

It scores sentences as the offline policy does (`art_e.models.fit`) and compares answers as the
offline judge does. That is too weak to drop a row: a check that does not pass is unsure, and its
reason shows what a person should look at.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from art_e.inbox.inbox import Inbox
from art_e.inbox.mail import Email, format_date
from art_e.models.fit import AnswerCandidate, ReadMail, candidates
from art_e.models.offline import ABSTAIN_BELOW
from art_e.question import Question
from art_e.text import cut_line
from data_pipeline.golden.golden_set import Check, with_checks
from data_pipeline.golden.inboxes import mails_of
from data_pipeline.golden.model_checks import own_part, possible_answers, rivals, sent
from data_pipeline.golden.verify import Examined
from evals.judges.grounding import grounded_in
from evals.judges.offline import OfflineJudge

_SHOWN_CHARS = 200


class WordChecks:
    """Checks rows by words alone."""

    def settings(self) -> dict[str, Any]:
        """Model and judge, for the manifest."""
        return {"model": "offline", "judge": OfflineJudge().name}

    async def examine(self, inbox: Inbox, question: Question) -> Examined:
        """The row after its checks; `inbox` is as of the question's date."""
        if question.answerable is False:
            checks = [_unanswerable(inbox, question)]
        else:
            checks = [_answerable(inbox, question), _unambiguous(inbox, question)]
        return Examined(with_checks(question, checks))


def _answerable(inbox: Inbox, question: Question) -> Check:
    """Whether the gold mails have the answer's values, names and words."""
    gold = mails_of(inbox, question.message_ids)
    if question.kind == "count" and OfflineJudge().decide(question, str(len(gold))).correct:
        reason = f"{len(gold)} mails are cited, as many as the answer says"
        return _check("answerable", True, reason)
    grounding = grounded_in(question.question, question.answer or "", gold)
    if grounding.grounded:
        return _check("answerable", True, "the gold mails have what the answer states")
    return _check("answerable", None, grounding.reason or "nothing in it can be looked up")


def _unambiguous(inbox: Inbox, question: Question) -> Check:
    """Whether no other mail has a sentence that fits as well and says something else."""
    gold = mails_of(inbox, question.message_ids)
    found = rivals(inbox, question, gold)
    suspect = _rival_sentence(question, gold, found)
    if suspect is not None:
        return _suspect("unambiguous", suspect)
    reason = f"no other answer seen in {len(found)} mails found besides the gold ones"
    return _check("unambiguous", True, reason)


def _unanswerable(inbox: Inbox, question: Question) -> Check:
    """Whether no sentence of the found mails seems to answer the question."""
    found = possible_answers(inbox, question)
    best = max(_scored(question, found), key=_score, default=None)
    if best is not None and best.score >= ABSTAIN_BELOW:
        return _suspect("unanswerable", best)
    return _check("unanswerable", True, f"nothing that fits in {len(found)} mails found")


def _rival_sentence(
    question: Question, gold: Sequence[Email], found: Sequence[Email]
) -> AnswerCandidate | None:
    """The best sentence of the found mails that says something else than the gold answer.

    It scores at least as high as the gold mails' best, and its mail has as many of the question's
    words. Mails older than the gold don't count for a latest-update question.
    """
    ids = {each.message_id for each in gold}
    latest = max(map(sent, gold), default=None) if question.kind == "latest-update" else None
    later = [each for each in found if latest is None or sent(each) > latest]
    # Scored together, because a mail's age counts relative to the others.
    scored = _scored(question, [*gold, *(own_part(each, gold) for each in later)])
    best = max((each for each in scored if each.handle in ids), key=_score, default=None)
    least = ABSTAIN_BELOW if best is None else max(ABSTAIN_BELOW, best.score)
    share = 0.0 if best is None else best.features["mail"]
    judge = OfflineJudge()
    for each in sorted(scored, key=_score, reverse=True):
        if each.handle in ids or each.score < least or each.features["mail"] < share:
            continue
        # In both directions, because the sentence may say more than the gold answer, or less.
        turned = dataclasses.replace(question, answer=each.text)
        if not (
            judge.decide(question, each.text).correct
            or judge.decide(turned, question.answer).correct
        ):
            return each
    return None


def _scored(question: Question, mails: Sequence[Email]) -> list[AnswerCandidate]:
    read = [
        ReadMail(
            mail.message_id, format_date(mail.date), mail.subject, str(mail.sender), mail.body, rank
        )
        for rank, mail in enumerate(mails)
    ]
    return candidates(question.question, read)


def _score(candidate: AnswerCandidate) -> float:
    return candidate.score


def _suspect(name: str, sentence: AnswerCandidate) -> Check:
    quoted = repr(cut_line(sentence.text, _SHOWN_CHARS))
    return _check(name, None, f"suspect: {sentence.handle}: {quoted}")


def _check(name: str, passed: bool | None, reason: str) -> Check:
    return Check(name, "verify", passed, reason, "search")
