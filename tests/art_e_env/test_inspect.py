"""Inspect gives the verdicts of `eval run`, and its logs show every message."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from art_e.tools import ARGUMENTS
from evals.metrics import HEADLINE
from evals.scored import Scored
from tests.art_e_env.interop import FAILING, command, contents, eval_run, run, scripted

Logs = dict[str, dict[str, Any]]
Runs = tuple[dict[str, Any], dict[str, dict[str, Scored]], Logs]
OPTIONS = {"questions": "golden.jsonl", "db": "inbox.duckdb"}
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The metrics and episodes of `eval run`, and Inspect's logs, by model."""
    folder = tmp_path_factory.mktemp("inspect")
    metrics, episodes = eval_run(folder)
    run(folder, "tests.art_e_env.test_inspect")
    return metrics, episodes, json.loads((folder / "logs.json").read_text("utf-8"))


def main() -> None:
    """Have `inspect eval` run the offline policy, and a model of Inspect's the script."""
    from inspect_ai import eval as inspect_eval
    from inspect_ai.log import list_eval_logs, read_eval_log
    from inspect_ai.model import ChatMessageAssistant, ModelOutput, ModelUsage, get_model
    from inspect_ai.tool import ToolCall

    def answers(conversation: list[Any], tools: list[Any], *_: object) -> ModelOutput:
        assert [each.name for each in tools] == list(ARGUMENTS)
        assert tools[0].parameters.properties["keywords"].items.type == "string"
        turn = sum(each.role == "assistant" for each in conversation)
        said = scripted(turn, conversation[1].text)
        calls = [ToolCall(c.id, c.name, json.loads(c.arguments)) for c in said.tool_calls]
        answer = ChatMessageAssistant(content=said.content or "", tool_calls=calls)
        output = ModelOutput.from_message(answer)
        # Without it Inspect downloads a tokenizer.
        output.usage = ModelUsage(input_tokens=10, output_tokens=2)
        return output

    given = [part for name, value in OPTIONS.items() for part in ("-T", f"{name}={value}")]
    task = ("eval", "art_e/inbox_questions", "--model", "none", "--log-dir", "logs")
    command("inspect", *task, "-T", "policy=offline", *given)

    from art_e_env.inspect_task import inbox_questions

    model = get_model("mockllm/scripted", custom_outputs=answers)
    task = inbox_questions(**OPTIONS)
    inspect_eval(task, model=model, log_dir="logs", fail_on_error=False, display="none")
    read = [read_eval_log(each) for each in list_eval_logs("logs")]
    names = {"mockllm/scripted": "scripted", "none/none": "offline"}
    found = {names[each.eval.model]: each.model_dump(mode="json") for each in read}
    Path("logs.json").write_text(json.dumps(found), encoding="utf-8")


def test_verdicts_and_figures_are_those_of_eval_run(runs: Runs) -> None:
    metrics, episodes, logs = runs
    for model, asked in episodes.items():
        samples = {each["id"]: each for each in logs[model]["samples"]}
        assert samples.keys() == asked.keys()
        for name, scored in asked.items():
            if scored.trajectory.error is None:
                assert_same(samples[name], scored)
        figures = {each["name"]: each["metrics"] for each in logs[model]["results"]["scores"]}
        assert figures["accuracy"]["stderr"]["params"] == {"cluster": "inbox_address"}
        assert logs[model]["eval"]["viewer"]["trust_content"] is False
    shares = {name: pytest.approx(metrics["offline"][name]["value"]) for name in HEADLINE}
    assert {name: figures[name]["mean"]["value"] for name in HEADLINE} == shares


def assert_same(sample: dict[str, Any], scored: Scored) -> None:
    """Inspect's sample has the verdict, messages and calls of an episode."""
    score, shown = sample["scores"]["verdict"], sample["messages"]
    value, trajectory = score["value"], scored.trajectory
    right, other = HEADLINE[:2] if scored.question.answerable else HEADLINE[1::-1]
    assert value[right] == scored.correct and math.isnan(value[other])
    assert (value["hallucination"], value["abstention"]) == (scored.wrong, scored.abstained)
    assert score["answer"] == trajectory.final_answer
    assert all(each["reason"] in score["explanation"] for each in scored.verdicts)
    assert contents(shown) == contents(trajectory.messages)
    assert trajectory.model == "offline" or any("<internal>" in text for text in contents(shown))
    calls = [call for each in shown for call in each.get("tool_calls") or ()]
    assert len(calls) == trajectory.rubric["tool_calls"]
    assert sample["metadata"]["kind"] == scored.question.kind


def test_a_failing_provider_is_an_error_of_its_sample(runs: Runs) -> None:
    _, episodes, logs = runs
    log = logs["scripted"]
    assert log["status"] == "success" and log["results"]["completed_samples"] == 10
    [failed] = [each for each in log["samples"] if each["error"]]
    assert failed["id"] == FAILING.id and "503" in failed["error"]["message"]
    assert episodes["scripted"][FAILING.id].trajectory.error is not None


if __name__ == "__main__":
    main()
