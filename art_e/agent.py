"""The loop: policy -> message -> episode -> observation, until the episode ends."""

import dataclasses
import datetime as dt
import time
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

from art_e.episode import Episode
from art_e.models.base import Policy, PolicyError, PolicyStep, Usage
from art_e.offline import OfflinePolicy
from art_e.tools import schemas
from art_e.trajectory import Exchange, Trajectory, exchanges


async def run_episode(
    episode: Episode, policy: Policy, run_id: str, on_turn: Callable[[Exchange], None] | None = None
) -> Trajectory:
    """Run `episode` to its end and call `on_turn` after each turn. A `PolicyError` ends it with
    `error` set. The trajectory lacks only verdict and reward."""
    started_at = dt.datetime.now(dt.UTC)
    started = time.perf_counter()
    steps: list[PolicyStep] = []
    failure: PolicyError | None = None
    seconds = {"total": 0.0, "model": 0.0, "tools": 0.0}
    tools = schemas(episode.tools.view.offered, lean=episode.tools.view.lean)
    while not episode.done:
        before = time.perf_counter()
        try:
            step = await policy.act(episode.messages, tools)
        except PolicyError as error:
            failure = error
            break
        finally:
            seconds["model"] += time.perf_counter() - before
        steps.append(step)
        episode.count_tokens(step.usage.prompt_tokens, step.usage.completion_tokens)
        before = time.perf_counter()
        episode.step(step.message)
        seconds["tools"] += time.perf_counter() - before
        if on_turn is not None:
            on_turn(exchanges(episode.messages)[-1])
    seconds["total"] = time.perf_counter() - started
    calls: list[PolicyStep | PolicyError] = [*steps, *([failure] if failure else ())]
    costs = [each.cost_usd for each in calls]
    return dataclasses.replace(
        episode_record(episode, run_id, policy.model, policy.settings),
        usage=dataclasses.asdict(sum((step.usage for step in steps), Usage())),
        cost_usd=None if None in costs else float(sum(filter(None, costs))),
        seconds=seconds,
        call_seconds=[step.seconds for step in steps],
        served=list(dict.fromkeys(step.served for step in steps if step.served is not None)),
        finished=[step.finish for step in steps],
        retries=sum(each.retries for each in calls),
        score=steps[-1].score if steps else None,
        error=None if failure is None else {"kind": failure.kind, "message": str(failure)},
        started_at=started_at.isoformat(timespec="milliseconds"),
    )


def run_now(running: Coroutine[Any, None, Trajectory], policy: Policy) -> Trajectory:
    """Run an episode to its end. The offline policy never waits, so skip importing asyncio."""
    if not isinstance(policy, OfflinePolicy):
        import asyncio

        return asyncio.run(running)
    try:
        running.send(None)
    except StopIteration as end:
        trajectory: Trajectory = end.value
    return trajectory


def episode_record(episode: Episode, run_id: str, model: str, policy: dict[str, Any]) -> Trajectory:
    """Return the trajectory of `episode` without times and cost."""
    inbox = episode.tools.inbox
    tokens = Usage(episode.rubric.prompt_tokens, 0, episode.rubric.completion_tokens)
    return Trajectory(
        run_id=run_id,
        episode_id=uuid.uuid4().hex,
        question_id=episode.question.id,
        inbox_address=inbox.address,
        as_of=None if inbox.as_of is None else inbox.as_of.isoformat(),
        model=model,
        policy={**policy, "prompt_hash": episode.prompt_hash},
        messages=episode.messages,
        handles=dict(episode.tools.handles),
        final_answer=episode.final_answer,
        sources=list(episode.sources),
        rubric=dataclasses.asdict(episode.rubric),
        usage=dataclasses.asdict(tokens),
        cost_usd=None,
        seconds={"total": 0.0, "model": 0.0, "tools": 0.0},
        started_at=dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds"),
        events=episode.events,
    )
