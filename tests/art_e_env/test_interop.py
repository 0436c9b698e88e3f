"""Inspect and verifiers agree with `eval run`: a scripted model and the offline policy answer ten
questions, and the provider fails on another.

`make test` installs the libraries in another environment, where the tests run this module."""

import asyncio
import json
import math
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest

from art_e.inbox.file import InboxFile
from art_e.message import AssistantMessage, ChatMessage
from art_e.models.base import Policy, PolicyError, PolicyStep, Usage
from art_e.offline import OfflinePolicy
from art_e.runs import start_run
from art_e.tools import ARGUMENTS
from data_pipeline.ingest.batch import Rules
from data_pipeline.synthetic.world import WorldConfig, messages, questions
from evals.benchmark import Entrant, run_benchmark, sample_questions
from evals.judges.offline import OfflineJudge
from evals.metrics import HEADLINE
from evals.scored import Scored, load_run
from tests.builders import HOSTILE, HOSTILE_BODY, call, make_inbox, message, raw, read
from tests.evals.runs import write_questions
from tests.provider import Provider, Reply, Request, refuses, says

pytestmark = pytest.mark.long
ROOT = Path(__file__).parent.parent.parent
BIN = Path(sys.prefix) / "interop" / "bin"

QUESTIONS = sample_questions(questions(WorldConfig(size=1000)), 11)
FAILING = QUESTIONS[-1]
# Some libraries take these tags for the model's.
BODY = f"{HOSTILE_BODY} <think>a</think> <internal>b</internal> [c](javascript:alert(1))"
OPTIONS = {"questions": "golden.jsonl", "db": "inbox.duckdb"}


def scripted(turn: int, text: str) -> AssistantMessage:
    """Search, read the first hit and a hostile mail, and end in one of four ways."""
    [question] = [each for each in QUESTIONS if each.question == text]
    if question == FAILING and turn == 1:
        raise PolicyError("provider", "503")
    if turn == 0:
        first = call("search_emails", {"keywords": text.split()}, "first")
        return message(first, text="First a search.")
    if turn == 1:
        return message(read("m1"), read(HOSTILE))
    ending = QUESTIONS.index(question) % 4
    if ending == 3:
        return AssistantMessage("Hm.")
    answer = [question.answer, "On December 31, 1999", "I don't know"][ending]
    return message(call("return_final_answer", {"answer": answer, "sources": ["m1"]}, "last"))


class Scripted:
    """The script as a policy of `eval run`."""

    model = "scripted"
    settings: dict[str, Any] = {}  # noqa: RUF012 - the protocol's property

    async def act(self, messages: list[ChatMessage], tools: list[dict[str, Any]]) -> PolicyStep:
        turn = sum(each["role"] == "assistant" for each in messages)
        return PolicyStep(scripted(turn, messages[1]["content"]), Usage(), 0.0)


POLICIES: tuple[Policy, ...] = (Scripted(), OfflinePolicy())


class Evaluated(NamedTuple):
    """The results of `eval run` by model, and a folder with the inbox and the questions."""

    folder: Path
    metrics: dict[str, Any]
    episodes: dict[str, dict[str, Scored]]


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Evaluated:
    folder = tmp_path_factory.mktemp("interop")
    addresses = ", ".join({each.inbox_address for each in QUESTIONS})
    date = "Mon, 7 Jan 2019 09:00:00 +0000"
    hostile = raw(HOSTILE, subject="Harbor", body=BODY, to=addresses, date=date)
    mails = [*messages(WorldConfig(size=1000)), hostile]
    make_inbox(folder / "inbox.duckdb", mails, Rules(any_id=True))
    write_questions(folder / "golden.jsonl", QUESTIONS)
    run = start_run("eval", {}, folder / "runs")
    entrants = [Entrant(each) for each in POLICIES]
    with InboxFile(folder / "inbox.duckdb") as file:
        metrics = run_benchmark(QUESTIONS, entrants, file, [OfflineJudge()], run, max_turns=10)
    episodes: dict[str, dict[str, Scored]] = {each.model: {} for each in POLICIES}
    for scored in load_run(run):
        episodes[scored.trajectory.model][scored.question.id] = scored
    assert episodes["scripted"][FAILING.id].trajectory.error is not None
    return Evaluated(folder, metrics["models"], episodes)


def contents(conversation: list[dict[str, Any]]) -> list[str]:
    return [each.get("content") or "" for each in conversation]


def run_there(folder: Path, *arguments: str) -> None:
    """Run this module in the folder, in the environment with the libraries."""
    assert BIN.is_dir(), "install the libraries: make .venv/interop.installed"
    done = subprocess.run(
        [str(BIN / "python"), "-m", "tests.art_e_env.test_interop", *arguments], cwd=folder,
        env={**os.environ, "HOME": str(folder), "PYTHONPATH": str(ROOT), "ANY_KEY": "none"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def command(name: str, *arguments: str) -> None:
    """Run a command in this process, because new ones start slowly."""
    [entry_point] = entry_points(group="console_scripts", name=name)
    try:
        with mock.patch.object(sys, "argv", [name, *arguments]):
            entry_point.load()()
    except SystemExit as ended:
        assert not ended.code


def run_inspect() -> None:
    """Run the offline policy by `inspect eval`, and the script as a model of Inspect."""
    from inspect_ai import eval as inspect_eval
    from inspect_ai.log import list_eval_logs, read_eval_log
    from inspect_ai.model import ChatMessageAssistant, ModelOutput, ModelUsage, get_model
    from inspect_ai.tool import ToolCall

    def answers(conversation: list[Any], tools: list[Any], *_: object) -> ModelOutput:
        assert [each.name for each in tools] == list(ARGUMENTS)
        assert tools[0].parameters.properties["keywords"].items.type == "string"
        turn = sum(each.role == "assistant" for each in conversation)
        reply = scripted(turn, conversation[1].text)
        calls = [ToolCall(c.id, c.name, json.loads(c.arguments)) for c in reply.tool_calls]
        answer = ChatMessageAssistant(content=reply.content or "", tool_calls=calls)
        output = ModelOutput.from_message(answer)
        # Without usage Inspect downloads a tokenizer.
        output.usage = ModelUsage(input_tokens=10, output_tokens=2)
        return output

    options = [part for name, value in OPTIONS.items() for part in ("-T", f"{name}={value}")]
    task = ("eval", "art_e/inbox_questions", "--model", "none", "--log-dir", "logs")
    command("inspect", *task, "-T", "policy=offline", *options)

    from art_e_env.inspect_task import inbox_questions

    model = get_model("mockllm/scripted", custom_outputs=answers)
    task = inbox_questions(**OPTIONS)
    inspect_eval(task, model=model, log_dir="logs", fail_on_error=False, display="none")
    logs = [read_eval_log(each) for each in list_eval_logs("logs")]
    names = {"mockllm/scripted": "scripted", "none/none": "offline"}
    by_model = {names[each.eval.model]: each.model_dump(mode="json") for each in logs}
    Path("logs.json").write_text(json.dumps(by_model), encoding="utf-8")


def test_inspect_agrees_with_eval_run(evaluated: Evaluated) -> None:
    run_there(evaluated.folder, "inspect")
    logs = json.loads((evaluated.folder / "logs.json").read_text("utf-8"))
    for model, episodes in evaluated.episodes.items():
        samples = {each["id"]: each for each in logs[model]["samples"]}
        assert samples.keys() == episodes.keys()
        for name, scored in episodes.items():
            if scored.trajectory.error is None:
                assert_same_sample(samples[name], scored)
        figures = {each["name"]: each["metrics"] for each in logs[model]["results"]["scores"]}
        assert figures["accuracy"]["stderr"]["params"] == {"cluster": "inbox_address"}
        assert logs[model]["eval"]["viewer"]["trust_content"] is False
    offline = evaluated.metrics["offline"]
    shares = {name: pytest.approx(offline[name]["value"]) for name in HEADLINE}
    assert {name: figures[name]["mean"]["value"] for name in HEADLINE} == shares
    # A provider failure is an error of the sample.
    log = logs["scripted"]
    assert log["status"] == "success" and log["results"]["completed_samples"] == 10
    [failed] = [each for each in log["samples"] if each["error"]]
    assert failed["id"] == FAILING.id and "503" in failed["error"]["message"]


def assert_same_sample(sample: dict[str, Any], scored: Scored) -> None:
    """Check that Inspect's sample has the verdict, messages and calls of an episode."""
    score, conversation = sample["scores"]["verdict"], sample["messages"]
    value, trajectory = score["value"], scored.trajectory
    right, other = HEADLINE[:2] if scored.question.answerable else HEADLINE[1::-1]
    assert value[right] == scored.correct and math.isnan(value[other])
    assert (value["hallucination"], value["abstention"]) == (scored.wrong, scored.abstained)
    assert score["answer"] == trajectory.final_answer
    assert all(each["reason"] in score["explanation"] for each in scored.verdicts)
    texts = contents(conversation)
    assert texts == contents(trajectory.messages)
    assert trajectory.model == "offline" or any("<internal>" in text for text in texts)
    calls = [call for each in conversation for call in each.get("tool_calls") or ()]
    assert len(calls) == trajectory.rubric["tool_calls"]
    assert sample["metadata"]["kind"] == scored.question.kind


def answers(request: Request) -> Reply:
    """Return the next message of the policy that the request names."""
    [policy] = [each for each in POLICIES if each.model == request.body["model"]]
    try:
        reply = asyncio.run(policy.act(request.messages, request.body["tools"])).message
    except PolicyError as error:
        return refuses(400, str(error))
    return says(reply.content, *reply.tool_calls)


def run_verifiers(url: str) -> None:
    """Ask the models of a server by `vf-eval`."""
    taskset = [part for name in OPTIONS for part in (f"--env.taskset.{name}", OPTIONS[name])]
    client = ("--client.base-url", url, "--client.api-key-var", "ANY_KEY")
    for model in (each.model for each in POLICIES):
        options = ("-m", model, "--run.name", model, "-o", "out", "--no-rich")
        command("vf-eval", "art-e-env", *taskset, *options, *client)


def test_verifiers_rewards_agree_with_eval_run(evaluated: Evaluated) -> None:
    with Provider(answers) as provider:
        run_there(evaluated.folder, "verifiers", provider.base_url)
    for model, episodes in evaluated.episodes.items():
        out = evaluated.folder / "out" / model
        lines = map(json.loads, (out / "traces.jsonl").read_text("utf-8").strip().split("\n"))
        rows = {each["task"]["data"]["id"]: each for each in lines}
        assert rows.keys() == episodes.keys()
        for name, scored in episodes.items():
            [trace] = rows[name]["traces"]
            assert rows[name]["ok"] is (scored.trajectory.error is None)
            if rows[name]["ok"]:
                assert_same_trace(trace, scored)
            else:
                # A provider failure is an error without reward.
                [error, *_] = trace["errors"]
                assert error["type"] == "ProviderError" and "503" in error["message"]
                assert not trace["rewards"]
        # Traces stay on this machine.
        log = (out / "logs" / "latest" / "eval.log").read_text("utf-8")
        assert "PRIME_RUNS_MODE=disabled; running without a platform run" in log


def assert_same_trace(trace: dict[str, Any], scored: Scored) -> None:
    """Check that a trace of verifiers has the verdict, rubric and messages of an episode."""
    assert trace["ok"] and trace["rewards"]["verdict"]["score"] == scored.correct - scored.wrong
    assert trace["metrics"]["abstained"] == scored.abstained
    assert trace["metrics"]["turns"] == scored.trajectory.rubric["turns"]
    assert trace["info"].get("verdict", {}).get("reason") == next(
        (each["reason"] for each in scored.verdicts), None
    )
    # The model got all but the last observations.
    sent = contents([each["message"] for each in trace["nodes"]])
    whole = contents(scored.trajectory.messages)
    assert sent == whole[: len(sent)] and len(sent) >= len(whole) - 1
    assert scored.trajectory.model == "offline" or any("<internal>" in text for text in sent)


if __name__ == "__main__":
    if sys.argv[1] == "inspect":
        run_inspect()
    else:
        run_verifiers(*sys.argv[2:])
