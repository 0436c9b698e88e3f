"""The benchmark as a task of Inspect: its model or a policy of art-e answers, `Episode` runs the
tools and decides the end, and the judge of `art-e eval run` gives the verdict.

    inspect eval art_e/inbox_questions --model anthropic/NAME -T questions=golden -T db=FILE

The model's provider receives mail text, and the log holds it; Inspect sends nothing elsewhere.
"""

import json
import math
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from inspect_ai import Task, model, task
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.dataset import Sample
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import ToolInfo
from inspect_ai.viewer import ViewerConfig
from pydantic import TypeAdapter

from art_e.agent import run_episode
from art_e.episode import DEFAULT_MAX_TURNS, Episode
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.message import AssistantMessage, ChatMessage, ToolCall, compact_json
from art_e.models.base import PolicyStep, Usage
from art_e.models.hosted import sendable
from art_e.models.model import Model, full_name
from art_e.question import Question, load_questions
from art_e.trajectory import Trajectory
from evals.judges import choose_judge
from evals.metrics import HEADLINE, STEPS, ended_at
from evals.scored import Scored, check_questions, judged

opened = cache(InboxFile)
_SHOWN: TypeAdapter[model.ChatMessage] = TypeAdapter(model.ChatMessage)


@task(name="art_e/inbox_questions")
def inbox_questions(
    questions: str,
    db: str,
    split: str | None = None,
    judge: str = "offline",
    policy: str | None = None,
    max_turns: int = DEFAULT_MAX_TURNS,
) -> Task:
    """A golden set's questions; the options are those of `art-e eval run`."""
    try:
        asked = load_questions(questions, split)
        check_questions(asked, opened(Path(db)))
        asks, scores = episode(db, policy, max_turns), verdict(db, judge)
    except UserError as error:
        raise PrerequisiteError(str(error)) from None
    return Task(
        [
            Sample(each.question, target=each.answer or "", id=each.id, metadata=each.to_row())
            for each in asked
        ],
        solver=asks,
        scorer=scores,
        config=model.GenerateConfig(temperature=0),
        # The viewer shows mail as plain text.
        viewer=ViewerConfig(trust_content=False),
    )


@solver
def episode(db: str, policy: str | None, max_turns: int) -> Solver:
    """Runs a question's episode and stores its trajectory."""
    chosen = None if policy is None else Model(full_name(policy)).policy()

    async def solve(state: TaskState, _: Generate) -> TaskState:
        question = Question.from_row(state.metadata)
        run = Episode(opened(Path(db)).inbox_of(question), question, max_turns=max_turns)
        state.messages = []
        trajectory = await run_episode(run, chosen or InspectPolicy(state), state.uuid)
        _show(trajectory.messages, state)
        if trajectory.error is not None:
            raise RuntimeError(trajectory.error["message"])
        state.store.set("trajectory", asdict(trajectory))
        return state

    return solve


class InspectPolicy:
    """Chooses the next message with Inspect's model; Inspect counts what its provider raises."""

    settings: dict[str, Any] = {}  # noqa: RUF012 - the protocol's property

    def __init__(self, state: TaskState) -> None:
        self.model = str(state.model)
        self._state = state

    async def act(self, messages: list[ChatMessage], tools: list[dict[str, Any]]) -> PolicyStep:
        """The next message, which joins the conversation as the provider sent it."""
        _show(messages, self._state)
        offered = [ToolInfo(**each["function"]) for each in tools]
        output = await model.get_model().generate(self._state.messages, offered)
        self._state.output = output
        self._state.messages.append(output.message)
        calls = (
            # Arguments that Inspect can't read are in its error.
            ToolCall(each.id, each.function, each.parse_error or compact_json(each.arguments))
            for each in output.message.tool_calls or ()
        )
        used = output.usage or model.ModelUsage()
        cached = used.input_tokens_cache_read or 0
        usage = Usage(used.input_tokens + cached, cached, used.output_tokens)
        answer = AssistantMessage(output.message.text or None, tuple(calls))
        return PolicyStep(answer, usage, used.total_cost, output.time)


def _show(messages: list[ChatMessage], state: TaskState) -> None:
    """Add the messages of an episode that Inspect's conversation lacks."""
    for each in sendable(messages[len(state.messages) :]):
        for call in each.get("tool_calls", ()):
            function = call.pop("function")
            call |= {"function": function["name"], "arguments": json.loads(function["arguments"])}
        state.messages.append(_SHOWN.validate_python({**each, "content": each["content"] or ""}))


@scorer(metrics={each: [mean(), stderr(cluster="inbox_address")] for each in HEADLINE})
def verdict(db: str, judge: str = "offline") -> Scorer:
    """Scores as `art-e eval run`: accuracy on answerable and on other questions, each without the
    other kind; hallucination and abstention over all."""
    chosen = choose_judge(judge)

    async def score(state: TaskState, _: Target) -> Score:
        question = Question.from_row(state.metadata)
        scored = Scored(question, Trajectory(**state.store.get("trajectory")))
        scored = await judged(scored, [chosen], opened(Path(db)).inbox_of(question))
        right = float(scored.correct)
        # Inspect leaves out NaN.
        accuracy = (right, math.nan) if question.answerable else (math.nan, right)
        values = (*accuracy, float(scored.wrong), float(scored.abstained))
        reasons = [f"{each['judge']}: {each['reason']}" for each in scored.verdicts]
        return Score(
            value=dict(zip(HEADLINE, values, strict=True)),
            answer=scored.trajectory.final_answer,
            explanation="; ".join([STEPS[ended_at(scored)], *reasons]),
        )

    return score
