"""A set of questions put to a model, judged, and measured.

One episode a question over the inbox file's mail up to the question's
`query_date`. Workers take the questions in turn; each trajectory is on disk,
with its verdict, before its worker takes the next question.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from art_e.agent import run_episode
from art_e.episode import Episode
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.policies.base import Policy
from art_e.question import Question
from art_e.runs import Run
from art_e.trajectory import TrajectoryLog
from evals.judge import Judge
from evals.metrics import Scored, model_metrics


def check_questions(questions: Sequence[Question], inbox_file: InboxFile) -> None:
    """Raise `UserError` where a question has no gold answer, or an inbox that the file lacks."""
    unlabelled = [
        each.id
        for each in questions
        if each.answerable is None or (each.answerable and each.answer is None)
    ]
    if unlabelled:
        raise UserError(f"{len(unlabelled)} questions have no answer, such as {unlabelled[0]!r}")
    for address in dict.fromkeys(each.inbox_address for each in questions):
        inbox_file.open_inbox(address)


def run_benchmark(
    questions: Sequence[Question],
    policies: Sequence[Policy],
    inbox_file: InboxFile,
    judge: Judge,
    run: Run,
    *,
    max_turns: int,
    concurrency: int = 1,
    timed: bool = True,
    on_scored: Callable[[Scored], None] = lambda _: None,
) -> dict[str, Any]:
    """Ask every policy every question; the metrics, which `run` then holds too.

    The form is `{"judge", "concurrency", "models": {name: figures}}`. The questions are
    those that `check_questions` lets pass; `concurrency` of them are worked on at a time,
    and end in any order. With `timed` false no latency is reported: a cache may have
    answered.
    """

    async def ask(policy: Policy, question: Question) -> Scored:
        inbox = inbox_file.open_inbox(question.inbox_address, question.query_date)
        episode = Episode(inbox, question, max_turns=max_turns)
        trajectory = await run_episode(episode, policy, run.id)
        # Out of turns or lost, an episode has neither answered nor abstained.
        if episode.rubric.answered or episode.rubric.abstained:
            verdict = judge.judge(question, trajectory.final_answer)
            trajectory = dataclasses.replace(trajectory, verdict=dataclasses.asdict(verdict))
        return Scored(question, trajectory)

    async def ask_all(policy: Policy, log: TrajectoryLog) -> list[Scored]:
        waiting = enumerate(questions)
        scored: dict[int, Scored] = {}

        async def work() -> None:
            for number, question in waiting:
                scored[number] = await ask(policy, question)
                log.append(scored[number].trajectory)
                on_scored(scored[number])

        await asyncio.gather(*(work() for _ in range(concurrency)))
        return [scored[number] for number in sorted(scored)]

    with run.log() as log:
        models = {
            policy.model: model_metrics(asyncio.run(ask_all(policy, log)), timed=timed)
            for policy in policies
        }
    metrics = {"judge": judge.name, "concurrency": concurrency, "models": models}
    run.write_json("metrics.json", metrics)
    run.finish()
    return metrics
