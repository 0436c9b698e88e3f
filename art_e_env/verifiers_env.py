"""The episode as an environment of verifiers (interface v1): a model answers through its relay,
`Episode` runs the tools and ends the episode, and the judge of `art-e eval run` gives the reward.

    vf-eval art-e-env --env.taskset.questions golden --env.taskset.db FILE \
        -m MODEL --client.base-url URL --client.api-key-var NAME

Mail text goes to the model's provider and into traces. verifiers uploads traces to Prime Intellect;
here it does so only if PRIME_RUNS_MODE is "online".
"""

import os
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from openai import AsyncOpenAI, OpenAIError

from art_e.agent import run_episode
from art_e.episode import DEFAULT_MAX_TURNS, Episode
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.message import ChatMessage
from art_e.models.base import PolicyError, PolicyStep, Usage
from art_e.models.calls import usage_of
from art_e.models.hosted import for_provider, from_provider
from art_e.privacy import redact
from art_e.question import Question, load_questions
from art_e.trajectory import Trajectory
from evals.judges import choose_judge
from evals.scored import Scored, check_questions, judge_episode

os.environ.setdefault("PRIME_RUNS_MODE", "disabled")
open_file = cache(InboxFile)
judge_named = cache(choose_judge)


class ClientPolicy:
    """Calls `model` through the caller's OpenAI client, with its settings and retries."""

    settings: dict[str, Any] = {}  # noqa: RUF012 - the protocol's property

    def __init__(self, client: AsyncOpenAI, model: str) -> None:
        self.model = model
        self._client = client

    async def act(self, messages: list[ChatMessage], tools: list[dict[str, Any]]) -> PolicyStep:
        """Return the model's next message. Raises `PolicyError` for the client's errors."""
        request: Any = {"messages": for_provider(messages), "tools": tools}
        try:
            answer = await self._client.chat.completions.create(model=self.model, **request)
        except OpenAIError as error:
            raise PolicyError("provider", redact(" ".join(str(error).split()))) from None
        message = from_provider(answer.choices[0].message, messages)
        return PolicyStep(message, usage_of(answer) or Usage(), None)


class InboxConfig(vf.TasksetConfig):
    """The questions and options, as in `art-e eval run`."""

    questions: str = "golden"
    db: Path = Path("inbox.duckdb")
    split: str | None = None
    judge: str = "offline"
    max_turns: int = DEFAULT_MAX_TURNS


class InboxData(vf.TaskData):
    """A row of the golden set, with the options."""

    question: dict[str, Any]
    asked: InboxConfig


class InboxTask(vf.Task[InboxData]):
    """A question, scored by the verdict on its episode."""

    @vf.reward
    async def verdict(self, task: InboxData, trace: vf.Trace) -> float:
        """Return 1 if right, -1 if wrong, and 0 for a wrong abstention or no answer."""
        question = Question.from_row(task.question)
        scored = Scored(question, Trajectory(**trace.info["trajectory"]))
        inbox = open_file(task.asked.db).inbox_of(question)
        scored = await judge_episode(scored, [judge_named(task.asked.judge)], inbox)
        if scored.ended:
            trace.info["verdict"] = scored.trajectory.verdict
        if scored.unjudged:
            raise RuntimeError(f"no verdict: {scored.verdicts[0]['reason']}")
        facts = {**scored.trajectory.rubric, "abstained": scored.abstained, "wrong": scored.wrong}
        known = {name: float(value) for name, value in facts.items() if value is not None}
        trace.record_metrics(known)
        return float(scored.correct) - float(scored.wrong)


class InboxTaskset(vf.Taskset[InboxTask, InboxConfig]):
    """The questions of a golden set."""

    def load(self) -> list[InboxTask]:
        """Return a task per question."""
        try:
            items = load_questions(self.config.questions, self.config.split)
            check_questions(items, open_file(self.config.db))
        except UserError as error:
            raise SystemExit(str(error)) from None
        rows = (
            {"id": item.id, "prompt": item.question, "question": item.to_row()} for item in items
        )
        return [InboxTask(InboxData(**each, asked=self.config)) for each in rows]


class EpisodeHarness(vf.Harness[vf.HarnessConfig]):
    """Runs the episode in this process; it executes no code of the model."""

    EXECUTES_CODE = NEEDS_CONTAINER = False

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp: Any, data: Any
    ) -> vf.ProgramResult:
        """Run the episode to its end, and store its trajectory in the trace."""
        question = Question.from_row(data.question)
        inbox = open_file(data.asked.db).inbox_of(question)
        prompt, max_turns = data.system_prompt, data.asked.max_turns
        episode = Episode(inbox, question, max_turns=max_turns, system_prompt=prompt)
        async with AsyncOpenAI(base_url=endpoint, api_key=secret) as client:
            ended = await run_episode(episode, ClientPolicy(client, ctx.model), trace.id)
        trace.info["trajectory"] = asdict(replace(ended, messages=[]))
        error = None if ended.error is None else ended.error["message"]
        return vf.ProgramResult(int(error is not None), "", error or "")


class InboxEnvConfig(vf.SingleAgentEnvConfig):
    """One agent, on this machine."""

    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())


class InboxEnv(vf.SingleAgentEnv, vf.Env[InboxEnvConfig]):
    """One agent answers one question."""
