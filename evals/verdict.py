"""What every judge gives: a verdict on an answer."""

from collections.abc import Sequence
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
