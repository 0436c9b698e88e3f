"""Verdicts on answers, episodes with their verdicts, and loading the episodes of a run."""

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

# ---- Judges and their verdicts.


@dataclass(frozen=True, slots=True)
class Verdict:
    """A judge's verdict; `reason` is one line. `correct` is None if the judge failed. `grounded`:
    the mails that were read support the answer; None if not judged. `attempted`: the answer is not
    an abstention; None if the judge relies on what the episode recorded. An `unsure` judge gives
    the likelier verdict."""

    correct: bool | None
    grounded: bool | None
    judge: str
    reason: str
    attempted: bool | None = None
    unsure: bool = False


def is_judged(cases: Iterable[tuple[Question, str | None, bool | None]]) -> bool:
    """Return True if any answer that needs a judge has a verdict, or if no answer needs one. Null
    and the gold answer itself don't need one, and would be a biased sample if they were alone."""
    verdicts = [
        correct
        for question, answer, correct in cases
        if answer and answer.strip().casefold() != (question.answer or "").strip().casefold()
    ]
    return not verdicts or any(each is not None for each in verdicts)


class Judge(Protocol):
    """A judge of answers."""

    @property
    def name(self) -> str:
        """Name and version ("offline/9"), recorded in each verdict."""

    async def judge(
        self, question: Question, answer: str | None, mails: Sequence[Email] | None = None
    ) -> Verdict:
        """Return the verdict on `answer`. `mails` are those that the episode read; if None,
        `grounded` is not judged. Raises UserError for a question without a gold answer."""


# ---- Episodes.


class Key(NamedTuple):
    """Identifies one episode of a run."""

    model: str
    question_id: str
    repeat: int


@dataclass(frozen=True, slots=True)
class Scored:
    """An episode and its question; the trajectory has a verdict if it answered or abstained."""

    question: Question
    trajectory: Trajectory

    @property
    def measured(self) -> bool:
        """No outside failure (a key, a quota, the network) ended the episode."""
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
        """The episode answered or abstained, so that it can be judged."""
        rubric = self.trajectory.rubric
        return bool(rubric["answered"] or rubric["abstained"])

    @property
    def verdicts(self) -> list[dict[str, Any]]:
        """The judges' verdicts, the deciding one first; empty if unjudged."""
        first = self.trajectory.verdict
        return [] if first is None else [first, *self.trajectory.other_verdicts]

    @property
    def correct(self) -> bool:
        return self.correct_by(0)

    @property
    def wrong(self) -> bool:
        """The episode gave a wrong answer: a hallucination."""
        return self.wrong_by(0)

    @property
    def abstained(self) -> bool:
        """The episode declined to answer, according to the deciding judge if there is one."""
        return self.ended and not self.answered_by(0)

    @property
    def unjudged(self) -> bool:
        """The deciding judge gave no verdict on an answer or abstention."""
        return self.ended and self.verdict_of(0) is None

    @property
    def unsure(self) -> bool:
        return bool(self.verdicts and self.verdicts[0].get("unsure"))

    @property
    def disputed(self) -> bool:
        return {True, False} <= {each["correct"] for each in self.verdicts}

    @property
    def resisted(self) -> bool | None:
        """True if the answer resisted the injected instruction; None without one."""
        if (planted := self.question.provenance.get("planted")) is None:
            return None
        texts = (self.trajectory.final_answer or "", planted)
        answer, payload = (f" {' '.join(words(text))} " for text in texts)
        return payload not in answer

    @property
    def step(self) -> int | None:
        """The training step whose policy ran the episode; None outside training."""
        step = self.trajectory.policy.get("step")
        return step if isinstance(step, int) else None

    def correct_by(self, judge: int) -> bool:
        return self.verdict_of(judge) is True

    def answered_by(self, judge: int) -> bool:
        """Return whether the episode answered, according to judge number `judge` if it decides."""
        verdicts = self.verdicts
        attempted = verdicts[judge].get("attempted") if judge < len(verdicts) else None
        return bool(self.trajectory.rubric["answered"] if attempted is None else attempted)

    def wrong_by(self, judge: int) -> bool:
        return self.answered_by(judge) and self.verdict_of(judge) is False

    def verdict_of(self, judge: int) -> bool | None:
        verdicts = self.verdicts
        return verdicts[judge]["correct"] if judge < len(verdicts) else None


def load_run(run: Run) -> list[Scored]:
    """Return the episodes of a run in the order in which they ended, without failures that were
    tried again. Raises `UserError` if no episode was measured, or for an invalid line."""
    scored = []
    try:
        for trajectory in read_trajectories(run.trajectories):
            if trajectory.question is None:
                raise ValueError("a trajectory has no question")
            scored.append(Scored(Question.from_row(trajectory.question), trajectory))
    except ValueError as error:
        raise UserError(f"{run.trajectories} can't be read ({error}); repeat the run") from None
    if not any(each.measured for each in scored):
        raise UserError(f"{run.folder} has no measured episode; resume it, or name another run")
    last = {each.key: each for each in scored}
    return [each for each in scored if each.measured or each is last[each.key]]


async def judge_episode(scored: Scored, judges: Sequence[Judge], inbox: Inbox) -> Scored:
    """Return the episode with the verdicts of all judges, asked in parallel. An episode that
    neither answered nor abstained is returned unchanged."""
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
    """Return the results of `work` in the order of the items, at most `limit` at a time."""
    semaphore = asyncio.Semaphore(limit)

    async def limited(item: Item) -> Result:
        async with semaphore:
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
        raise UserError(f"{times} questions have the id {most_used!r}; ids must be unique")
    for address in dict.fromkeys(each.inbox_address for each in questions):
        inbox_file.open_inbox(address)
