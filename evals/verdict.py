"""What every judge gives: a verdict on an answer; and what several judges decide together."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from art_e.inbox.mail import Email
from art_e.question import Question


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judgement; `reason` is one line.

    `correct` is None if the judge failed or its reply can't be read: unjudged, never guessed.
    `grounded` says whether the mails that were read support the answer; an answer given without
    reading is not grounded. None if that was not judged: the judge failed or was given no mails, an
    abstention, or nothing in the answer to look up. `attempted` says whether it tries to answer at
    all; None where the judge takes the episode's word for it. A judge that is `unsure` gives the
    likelier verdict, and the run counts and shows how many of these there are.
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
        """The verdict on `answer`; `mails` are those that were read, and only ground it.

        None leaves `grounded` unjudged, as of an answer outside an episode.

        Raises UserError for a question without a gold answer.
        """


def names_of(judges: Sequence[Judge]) -> list[str]:
    """The names of the verdicts of these judges; the first one decides."""
    names = [judge.name for judge in judges]
    return names if len(names) < _PANEL else [_panel_name(len(names)), *names]


def with_majority(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """The verdicts, that which decides first: of one or two the first judge's, else the majority's.

    Judges without a verdict have no vote. A tie is decided as by the first judge, and unsure.
    """
    if len(verdicts) < _PANEL:
        return list(verdicts)
    correct, votes = _majority(each.correct for each in verdicts)
    voters = sum(each.correct is not None for each in verdicts)
    reason = "no judge gave a verdict"
    if correct is not None:
        reason = f"{votes} of {voters} judges say {'right' if correct else 'wrong'}"
    grounded, _ = _majority(each.grounded for each in verdicts)
    attempted, _ = _majority(each.attempted for each in verdicts)
    unsure = 2 * votes == voters > 0
    name = _panel_name(len(verdicts))
    return [Verdict(correct, grounded, name, reason, attempted, unsure), *verdicts]


# So many judges form a panel.
_PANEL = 3


def _panel_name(judges: int) -> str:
    return f"majority of {judges}"


def _majority(values: Iterable[bool | None]) -> tuple[bool | None, int]:
    """The most frequent value, of a tie the first, and how often it is there."""
    counted = Counter(each for each in values if each is not None)
    return next(iter(counted.most_common()), (None, 0))
