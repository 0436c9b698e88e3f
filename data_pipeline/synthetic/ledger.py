"""What a world knows of its questions: gold mails, what stands in them, how hard they are.

Knows drafts of mails; knows nothing of how stories are told.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from art_e.question import Difficulty, Kind, Question
from data_pipeline.synthetic.letters import Draft, capital
from data_pipeline.synthetic.wording import words_of

REALISM: dict[Kind, float] = {
    "lookup": 0.9,
    "latest-update": 0.85,
    "unanswerable": 0.8,
    "multi-mail": 0.7,
    "count": 0.7,
}
"""How likely a person is to ask such a question of their own mail; our estimate."""

_STOP = frozenset(
    "a an and at be by did do does for from had has have how i in is it many much of on or our the"
    " this to was we what when where which who whose will with us s".split()
)


@dataclass(frozen=True, slots=True)
class Planted:
    """A question and what the world's ledger knows of it.

    `evidence`: (message id, text that stands in that mail) for each gold mail.
    `detail`: for unanswerable questions, words that no mail about `subjects` has.
    `subjects`: what the question is about, by name. `until`: the id of the mail
    that changes the answer, sent after the query date; empty if none does.
    """

    question: Question
    evidence: tuple[tuple[str, str], ...]
    detail: str
    subjects: tuple[str, ...]
    until: str


def as_written(draft: Draft, said: str) -> str:
    """`said` as the mail has it: a sentence may begin with it."""
    here = f"{draft.subject}\n{' '.join(draft.text.split())}"
    found = said if said in here else capital(said)
    if found not in here:
        raise ValueError(f"{said!r} does not stand in {draft.subject!r}")
    return found


def difficulty(kind: Kind, question: str, mails: Sequence[Draft]) -> Difficulty:
    """Points: few of the question's words in the mails (1), very few (1), two or more
    gold mails (1), four or more (1), an answer that changed (1), no answer (1).
    No point: easy; one: medium; more: hard.

    `mails` are the gold mails; for an unanswerable question, the mail that it grew from.
    """
    asked = words_of(question) - _STOP
    there = words_of(" ".join(f"{mail.subject} {mail.text}" for mail in mails))
    share = len(asked & there) / max(1, len(asked))
    points = (share < 0.6) + (share < 0.4) + (len(mails) >= 2) + (len(mails) >= 4)
    points += kind in ("latest-update", "unanswerable")
    return "easy" if points == 0 else "medium" if points == 1 else "hard"
