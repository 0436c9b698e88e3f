"""The loop: policy -> message -> episode -> observation, until the episode ends."""

import dataclasses
import datetime as dt
import time
import uuid
from collections.abc import Callable
from typing import Any

from art_e.episode import Episode
from art_e.models.base import Policy, PolicyError, Usage
from art_e.tools import schemas
from art_e.trajectory import Exchange, Trajectory

# Called after each turn.
OnTurn = Callable[[Exchange], None]


async def run_episode(
    episode: Episode, policy: Policy, run_id: str, on_turn: OnTurn | None = None
) -> Trajectory:
    """Run `episode` to its end; an outside failure of the policy ends it with `error` set. The
    trajectory lacks only verdict and reward."""
    started_at = dt.datetime.now(dt.UTC)
    started = time.perf_counter()
    usage = Usage()
    cost: float | None = 0.0
    model_seconds = tools_seconds = 0.0
    call_seconds: list[float | None] = []
    served: list[str] = []
    finished: list[str | None] = []
    retries = 0
    score = error = None
    tools = schemas(episode.tools.view.offered)
    while not episode.done:
        before = time.perf_counter()
        try:
            step = await policy.act(episode.messages, tools)
        except PolicyError as failure:
            error = {"kind": failure.kind, "message": str(failure)}
            retries += failure.retries
            lost = failure.cost_usd
            cost = None if cost is None or lost is None else cost + lost
            break
        finally:
            model_seconds += time.perf_counter() - before
        usage += step.usage
        call_seconds.append(step.seconds)
        finished.append(step.finish)
        if step.served is not None and step.served not in served:
            served.append(step.served)
        retries += step.retries
        score = step.score
        cost = None if cost is None or step.cost_usd is None else cost + step.cost_usd
        episode.count_tokens(step.usage.prompt_tokens, step.usage.completion_tokens)
        before = time.perf_counter()
        episode.step(step.message)
        tools_seconds += time.perf_counter() - before
        if on_turn is not None:
            on_turn(episode.exchanges[-1])
    trajectory = episode_record(episode, run_id, policy.model, policy.settings)
    return dataclasses.replace(
        trajectory,
        usage=dataclasses.asdict(usage),
        cost_usd=cost,
        seconds={
            "total": time.perf_counter() - started,
            "model": model_seconds,
            "tools": tools_seconds,
        },
        call_seconds=call_seconds,
        served=served,
        finished=finished,
        retries=retries,
        score=score,
        error=error,
        started_at=started_at.isoformat(timespec="milliseconds"),
    )


def episode_record(
    episode: Episode, run_id: str, model: str, settings: dict[str, Any]
) -> Trajectory:
    """The trajectory of `episode` without times and cost."""
    inbox = episode.tools.inbox
    tokens = Usage(episode.rubric.prompt_tokens, 0, episode.rubric.completion_tokens)
    return Trajectory(
        run_id=run_id,
        episode_id=uuid.uuid4().hex,
        question_id=episode.question.id,
        inbox_address=inbox.address,
        as_of=None if inbox.as_of is None else inbox.as_of.isoformat(),
        model=model,
        policy={**settings, "prompt_hash": episode.prompt_hash},
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
