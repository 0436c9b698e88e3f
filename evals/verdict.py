"""What every judge gives: a verdict on an answer."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from art_e.inbox.mail import Email
from art_e.question import Question


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judgement; `reason` is one line.

    `correct` is None if the judge failed: unjudged, never guessed. `grounded` says whether the
    mails that were read support the answer; None if that was not judged. `attempted` says whether
    it tries to answer at all; None where the judge takes the episode's word for it. A judge that is
    `unsure` gives the likelier verdict.
    """

    correct: bool | None
    grounded: bool | None
    judge: str
    reason: str
    attempted: bool | None = None
    unsure: bool = False


def is_judged(cases: Iterable[tuple[Question, str | None, bool | None]]) -> bool:
    """Whether the judge gave a verdict on an answer that needs one, or none does. Null and the gold
    answer word for word need none: alone they would be a biased sample."""
    needing = [
        correct
        for question, answer, correct in cases
        if answer and answer.strip().casefold() != (question.answer or "").strip().casefold()
    ]
    return not needing or any(each is not None for each in needing)


class Judge(Protocol):
    """Anything that judges answers."""

    @property
    def name(self) -> str:
        """Name and version ("offline/7"), recorded in each verdict."""

    async def judge(
        self, question: Question, answer: str | None, mails: Sequence[Email] | None = None
    ) -> Verdict:
        """The verdict on `answer`; `mails` are those that were read (None: don't judge `grounded`).

        Raises UserError for a question without a gold answer.
        """
