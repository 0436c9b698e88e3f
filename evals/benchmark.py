"""A set of questions put to a model, judged, and measured.

One episode a question over the inbox file's mail up to the question's
`query_date`; each trajectory is on disk, with its verdict, before the next
question starts.
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
    on_scored: Callable[[Scored], None] = lambda _: None,
) -> dict[str, Any]:
    """Ask every policy every question; the metrics, which `run` then holds too.

    The form is `{"judge", "models": {name: figures}}`. The questions are those that
    `check_questions` lets pass.
    """
    models: dict[str, Any] = {}
    with run.log() as log:
        for policy in policies:
            scored = []
            for question in questions:
                inbox = inbox_file.open_inbox(question.inbox_address, question.query_date)
                episode = Episode(inbox, question, max_turns=max_turns)
                trajectory = asyncio.run(run_episode(episode, policy, run.id))
                # Out of turns or lost, an episode has neither answered nor abstained.
                if episode.rubric.answered or episode.rubric.abstained:
                    verdict = judge.judge(question, trajectory.final_answer)
                    trajectory = dataclasses.replace(
                        trajectory, verdict=dataclasses.asdict(verdict)
                    )
                log.append(trajectory)
                scored.append(Scored(question, trajectory))
                on_scored(scored[-1])
            models[policy.model] = model_metrics(scored)
    metrics = {"judge": judge.name, "models": models}
    run.write_json("metrics.json", metrics)
    run.finish()
    return metrics
