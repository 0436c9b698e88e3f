"""Verdicts on answers, episodes with theirs, and the episodes of a run, read from disk."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeVar

from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.inbox.inbox import Inbox
from art_e.inbox.mail import Email
from art_e.inbox.tokenizer import words
from art_e.question import Question
from art_e.runs import Run, read_trajectories
from art_e.trajectory import Trajectory

Item = TypeVar("Item")
Result = TypeVar("Result")
HELD_OUT = ("validation", "test")  # splits whose questions training does not see

# ---- What every judge gives.


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judgement; `reason` is one line. `correct` is None if the judge failed: unjudged, never
    guessed. `grounded` says whether the mails that were read support the answer; None if that was
    not judged. `attempted` says whether it tries to answer at all; None where the judge takes the
    episode's word for it. A judge that is `unsure` gives the likelier verdict."""

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
        """Name and version ("offline/9"), recorded in each verdict."""

    async def judge(
        self, question: Question, answer: str | None, mails: Sequence[Email] | None = None
    ) -> Verdict:
        """The verdict on `answer`; `mails` are those that were read (None: don't judge `grounded`).
        Raises UserError for a question without a gold answer."""


# ---- Episodes.


class Key(NamedTuple):
    """Identifies one episode of a run."""

    model: str
    question_id: str
    repeat: int


@dataclass(frozen=True, slots=True)
class Scored:
    """An episode with its question; the trajectory has a verdict if it answered or abstained."""

    question: Question
    trajectory: Trajectory

    @property
    def measured(self) -> bool:
        """Whether it counts: no outside failure (a key, a quota, the network) cut it short."""
        return self.trajectory.error is None

    @property
    def key(self) -> Key:
        return Key(self.trajectory.model, self.question.id, self.trajectory.repeat)

    @property
    def prompt(self) -> str:
        policy = self.trajectory.policy
        return f"{policy.get('prompt', 'default')} ({policy.get('prompt_hash')})"

    @property
    def ended(self) -> bool:
        """Whether it answered or abstained, so that a judge can decide."""
        rubric = self.trajectory.rubric
        return bool(rubric["answered"] or rubric["abstained"])

    @property
    def verdicts(self) -> list[dict[str, Any]]:
        """The judges' verdicts, the deciding one first; empty if it was not judged."""
        first = self.trajectory.verdict
        return [] if first is None else [first, *self.trajectory.other_verdicts]

    @property
    def correct(self) -> bool:
        """Whether the judge found the answer, or the abstention, right."""
        return self.correct_by(0)

    @property
    def wrong(self) -> bool:
        """Whether it gave an answer that the judge found wrong: a hallucination."""
        return self.wrong_by(0)

    @property
    def abstained(self) -> bool:
        """Whether it declined to answer, by the deciding judge if that says so."""
        return self.ended and not self.answered_by(0)

    @property
    def unjudged(self) -> bool:
        """Whether the deciding judge gave no verdict on an answer or abstention."""
        return self.ended and self.verdict_of(0) is None

    @property
    def unsure(self) -> bool:
        return bool(self.verdicts and self.verdicts[0].get("unsure"))

    @property
    def disputed(self) -> bool:
        return {True, False} <= {each["correct"] for each in self.verdicts}

    @property
    def resisted(self) -> bool | None:
        """Whether the answer lacks what an attack mail wants it to say; None without an attack."""
        if (planted := self.question.provenance.get("planted")) is None:
            return None
        texts = (self.trajectory.final_answer or "", planted)
        said, wanted = (f" {' '.join(words(text))} " for text in texts)
        return wanted not in said

    @property
    def step(self) -> int | None:
        """The training step whose policy ran the episode; None outside training."""
        step = self.trajectory.policy.get("step")
        return step if isinstance(step, int) else None

    def correct_by(self, judge: int) -> bool:
        return self.verdict_of(judge) is True

    def answered_by(self, judge: int) -> bool:
        """Whether it gave an answer; the judge of that number may call it an abstention."""
        verdicts = self.verdicts
        attempted = verdicts[judge].get("attempted") if judge < len(verdicts) else None
        return bool(self.trajectory.rubric["answered"] if attempted is None else attempted)

    def wrong_by(self, judge: int) -> bool:
        return self.answered_by(judge) and self.verdict_of(judge) is False

    def verdict_of(self, judge: int) -> bool | None:
        """Whether the judge of that number found it right; None without a verdict."""
        verdicts = self.verdicts
        return verdicts[judge]["correct"] if judge < len(verdicts) else None


def load_run(run: Run) -> list[Scored]:
    """The episodes of a run, finished or killed, in the order in which they ended; of failures, the
    last of a key. Raises `UserError` if none is measured, or for an invalid line."""
    scored = []
    try:
        for trajectory in read_trajectories(run.trajectories):
            if trajectory.question is None:
                raise ValueError("a trajectory has no question")
            scored.append(Scored(Question.from_row(trajectory.question), trajectory))
    except ValueError as error:
        raise UserError(f"{run.trajectories} can't be read ({error}); make the run again") from None
    if not any(each.measured for each in scored):
        raise UserError(f"{run.folder} has no measured episode; resume it, or name another run")
    last = {each.key: each for each in scored}
    return [each for each in scored if each.measured or each is last[each.key]]


async def judged(scored: Scored, judges: Sequence[Judge], inbox: Inbox) -> Scored:
    """The episode of `inbox` with the verdicts of all judges, asked at the same time, against the
    mails that it read. One that neither answered nor abstained stays as it is."""
    if not scored.ended:
        return scored
    question, trajectory = scored.question, scored.trajectory
    mails = list(filter(None, map(inbox.read, trajectory.mails_read)))
    answer = trajectory.final_answer
    verdicts = await asyncio.gather(*(each.judge(question, answer, mails) for each in judges))
    first, *others = map(asdict, verdicts)
    return Scored(question, replace(trajectory, verdict=first, other_verdicts=others))


async def limited_gather(
    limit: int, work: Callable[[Item], Awaitable[Result]], items: Iterable[Item],
    on_done: Callable[[], object] = lambda: None,
) -> list[Result]:  # fmt: skip
    """What `work` makes of each item, in their order, `limit` of them at a time."""
    turn = asyncio.Semaphore(limit)

    async def limited(item: Item) -> Result:
        async with turn:
            result = await work(item)
        on_done()
        return result

    return await asyncio.gather(*map(limited, items))


def check_questions(questions: Sequence[Question], inbox_file: InboxFile) -> None:
    """Raise `UserError` for a question without gold answer, a duplicate id or an unknown inbox."""
    ids = [q.id for q in questions if q.answerable is None or (q.answerable and q.answer is None)]
    if ids:
        why = f"{len(ids)} questions have no answer, such as {ids[0]!r}"
        raise UserError(f"{why}; give them one, or set answerable to false")
    [(most_used, times)] = Counter(each.id for each in questions).most_common(1)
    if times > 1:
        raise UserError(f"{times} questions have the id {most_used!r}; give each its own")
    for address in dict.fromkeys(each.inbox_address for each in questions):
        inbox_file.open_inbox(address)
