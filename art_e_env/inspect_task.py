"""The benchmark as an Inspect task: Inspect's model or a policy of art-e answers, `Episode` runs
the tools and ends the episode, and the judge of `art-e eval run` gives the verdict.

    inspect eval art_e/inbox_questions --model anthropic/NAME -T questions=golden -T db=FILE

Mail text goes to the model's provider and into the log; Inspect sends it nowhere else.
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
from art_e.models.hosted import for_provider
from art_e.models.model import Model, full_name
from art_e.question import Question, load_questions
from art_e.trajectory import Trajectory
from evals.judges import choose_judge
from evals.metrics import HEADLINE, STEPS, ending_of
from evals.scored import Scored, check_questions, judge_episode

open_file = cache(InboxFile)
_MESSAGE: TypeAdapter[model.ChatMessage] = TypeAdapter(model.ChatMessage)


@task(name="art_e/inbox_questions")
def inbox_questions(
    questions: str,
    db: str,
    split: str | None = None,
    judge: str = "offline",
    policy: str | None = None,
    max_turns: int = DEFAULT_MAX_TURNS,
) -> Task:
    """Ask the questions of a golden set, with the options of `art-e eval run`."""
    try:
        items = load_questions(questions, split)
        check_questions(items, open_file(Path(db)))
        solve, score = episode(db, policy, max_turns), verdict(db, judge)
    except UserError as error:
        raise PrerequisiteError(str(error)) from None
    return Task(
        [
            Sample(item.question, target=item.answer or "", id=item.id, metadata=item.to_row())
            for item in items
        ],
        solver=solve,
        scorer=score,
        config=model.GenerateConfig(temperature=0),
        # Make the viewer show mail as plain text.
        viewer=ViewerConfig(trust_content=False),
    )


@solver
def episode(db: str, policy: str | None, max_turns: int) -> Solver:
    """Run a question's episode and store its trajectory."""
    chosen = None if policy is None else Model(full_name(policy)).policy()

    async def solve(state: TaskState, _: Generate) -> TaskState:
        question = Question.from_row(state.metadata)
        run = Episode(open_file(Path(db)).inbox_of(question), question, max_turns=max_turns)
        state.messages = []
        trajectory = await run_episode(run, chosen or InspectPolicy(state), state.uuid)
        _add_messages(trajectory.messages, state)
        if trajectory.error is not None:
            raise RuntimeError(trajectory.error["message"])
        state.store.set("trajectory", asdict(trajectory))
        return state

    return solve


class InspectPolicy:
    """Calls Inspect's model; Inspect handles the errors of its provider."""

    settings: dict[str, Any] = {}  # noqa: RUF012 - the protocol's property

    def __init__(self, state: TaskState) -> None:
        self.model = str(state.model)
        self._state = state

    async def act(self, messages: list[ChatMessage], tools: list[dict[str, Any]]) -> PolicyStep:
        """Return the next message, and append it to Inspect's conversation as received."""
        _add_messages(messages, self._state)
        infos = [ToolInfo(**each["function"]) for each in tools]
        output = await model.get_model().generate(self._state.messages, infos)
        self._state.output = output
        self._state.messages.append(output.message)
        calls = (
            # If Inspect can't parse the arguments, its error quotes them.
            ToolCall(call.id, call.function, call.parse_error or compact_json(call.arguments))
            for call in output.message.tool_calls or ()
        )
        used = output.usage or model.ModelUsage()
        cached = used.input_tokens_cache_read or 0
        usage = Usage(used.input_tokens + cached, cached, used.output_tokens)
        answer = AssistantMessage(output.message.text or None, tuple(calls))
        return PolicyStep(answer, usage, used.total_cost, output.time)


def _add_messages(messages: list[ChatMessage], state: TaskState) -> None:
    """Append the messages that Inspect's conversation lacks."""
    for row in for_provider(messages[len(state.messages) :]):
        for call in row.get("tool_calls", ()):
            function = call.pop("function")
            call |= {"function": function["name"], "arguments": json.loads(function["arguments"])}
        state.messages.append(_MESSAGE.validate_python({**row, "content": row["content"] or ""}))


@scorer(metrics={each: [mean(), stderr(cluster="inbox_address")] for each in HEADLINE})
def verdict(db: str, judge: str = "offline") -> Scorer:
    """Score as `art-e eval run`: accuracy on answerable questions, on unanswerable ones, and
    hallucination and abstention on all."""
    chosen = choose_judge(judge)

    async def score(state: TaskState, _: Target) -> Score:
        question = Question.from_row(state.metadata)
        scored = Scored(question, Trajectory(**state.store.get("trajectory")))
        scored = await judge_episode(scored, [chosen], open_file(Path(db)).inbox_of(question))
        right = float(scored.correct)
        # NaN, because Inspect leaves it out of means.
        accuracy = (right, math.nan) if question.answerable else (math.nan, right)
        values = (*accuracy, float(scored.wrong), float(scored.abstained))
        reasons = [f"{each['judge']}: {each['reason']}" for each in scored.verdicts]
        return Score(
            value=dict(zip(HEADLINE, values, strict=True)),
            answer=scored.trajectory.final_answer,
            explanation="; ".join([STEPS[ending_of(scored)], *reasons]),
        )

    return score
