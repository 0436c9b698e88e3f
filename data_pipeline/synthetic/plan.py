"""What a world is made of, before any mail: owners, their shares and splits, its stories."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from art_e.question import Difficulty, Kind, Question, Split
from data_pipeline.synthetic.letters import Draft, capital
from data_pipeline.synthetic.wording import DAYS, STORY_KINDS, words_of

CAST = 6
"""People reserved for each story."""
COINED = 8
"""Coined names reserved for each story."""
OFFICE_NAMES = 60
"""Coined names that chatter uses, before those of the stories."""
LAST_START = 430
"""The last day on which a story may begin, so that it ends within the world."""

_PATTERN: tuple[Split, ...] = ("train", "validation", "test", "train", "train")


@dataclass(frozen=True, slots=True)
class StoryPlan:
    """One story to be told: its owner's number, kind and first day (days after the epoch)."""

    number: int
    kind: str
    owner: int
    split: Split
    start: int
    first_names_clear: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """Owners are people 0 .. owners-1; staff (owners among them) 0 .. staff-1."""

    owners: int
    staff: int
    weights: tuple[float, ...]
    splits: tuple[Split, ...]
    stories: int


def make_plan(size: int, *, short: bool) -> Plan:
    """The plan for a world of `size` mails."""
    owners = min(40, max(8, int(10 * (size / 5000) ** 0.3)))
    # Stories grow slower than mail: a big company has more noise, not only more facts.
    stories = round(140 * (size / 5000) ** (1.0 if size <= 5000 else 0.75))
    if short:
        stories = stories * 3 // 2
    return Plan(
        owners=owners,
        staff=40 + int(4 * size**0.5),
        weights=tuple((rank + 1) ** -0.8 for rank in range(owners)),
        splits=tuple(_PATTERN[rank % len(_PATTERN)] for rank in range(owners)),
        stories=stories,
    )


def plan_stories(plan: Plan, seed: int, given_names: int) -> list[StoryPlan]:
    """All stories in the order of their first day, 60/20/20 over the splits.

    Story numbers run on within an owner: people with neighbouring numbers have
    different given names, so a first name alone is clear in an inbox whose
    stories need no more people than there are given names.
    """
    rng = Random(f"{seed}/plan")
    per_owner = [0] * plan.owners
    shares: dict[Split, float] = {"train": 0.6, "validation": 0.2, "test": 0.2}
    for split, share in shares.items():
        mine = [owner for owner in range(plan.owners) if plan.splits[owner] == split]
        weight = sum(plan.weights[owner] for owner in mine)
        bounds = [
            round(plan.stories * share * total / weight)
            for total in itertools.accumulate(plan.weights[owner] for owner in mine)
        ]
        for owner, low, high in zip(mine, [0, *bounds], bounds, strict=False):
            per_owner[owner] = high - low
    stories = []
    number = 0
    for owner, count in enumerate(per_owner):
        kinds = list(itertools.islice(itertools.cycle(STORY_KINDS), owner, owner + count))
        for kind in kinds:
            stories.append(
                StoryPlan(
                    number=number,
                    kind=kind,
                    owner=owner,
                    split=plan.splits[owner],
                    start=int(rng.random() * min(LAST_START, DAYS)),
                    first_names_clear=count * CAST <= given_names,
                )
            )
            number += 1
    stories.sort(key=lambda story: (story.start, story.number))
    return stories


# ---- What a world knows of its questions: gold mails, what stands in them, how hard they are.

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
