"""verifiers gives the verdicts of `eval run` as rewards, and its traces stay on this machine."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from art_e.models.base import PolicyError
from evals.scored import Scored
from tests.art_e_env.interop import FAILING, POLICIES, command, contents, eval_run, run
from tests.provider import Provider, Reply, Request, refuses, says

Episodes = dict[str, dict[str, Any]]
Runs = tuple[dict[str, dict[str, Scored]], dict[str, Episodes], Path]


def answers(request: Request) -> Reply:
    """The next message of the policy that the request names."""
    [policy] = [each for each in POLICIES if each.model == request.body["model"]]
    try:
        said = asyncio.run(policy.act(request.messages, request.body["tools"])).message
    except PolicyError as error:
        return refuses(400, str(error))
    return says(said.content, *said.tool_calls)


pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The episodes of `eval run` and those of verifiers, by model and question."""
    folder = tmp_path_factory.mktemp("verifiers")
    _, episodes = eval_run(folder)
    found: dict[str, Episodes] = {}
    with Provider(answers) as provider:
        run(folder, "tests.art_e_env.test_verifiers", provider.base_url)
        for model in episodes:
            lines = (folder / "out" / model / "traces.jsonl").read_text("utf-8").strip().split("\n")
            rows = map(json.loads, lines)
            found[model] = {each["task"]["data"]["id"]: each for each in rows}
    return episodes, found, folder / "out"


def main(url: str) -> None:
    """Have `vf-eval` ask the models of a server."""
    taskset = ("--env.taskset.questions", "golden.jsonl", "--env.taskset.db", "inbox.duckdb")
    client = ("--client.base-url", url, "--client.api-key-var", "ANY_KEY")
    for model in (each.model for each in POLICIES):
        named = ("-m", model, "--run.name", model, "-o", "out", "--no-rich")
        command("vf-eval", "art-e-env", *taskset, *named, *client)


def test_rewards_are_the_verdicts_of_eval_run(runs: Runs) -> None:
    episodes, found, _ = runs
    for model, asked in episodes.items():
        assert found[model].keys() == asked.keys()
        for name, scored in asked.items():
            if scored.trajectory.error is None:
                [trace] = found[model][name]["traces"]
                assert_same(trace, scored)


def assert_same(trace: dict[str, Any], scored: Scored) -> None:
    """verifiers' trace has the verdict, rubric and messages of an episode."""
    assert trace["ok"] and trace["rewards"]["verdict"]["score"] == scored.correct - scored.wrong
    assert trace["metrics"]["abstained"] == scored.abstained
    assert trace["metrics"]["turns"] == scored.trajectory.rubric["turns"]
    assert trace["info"].get("verdict", {}).get("reason") == next(
        (each["reason"] for each in scored.verdicts), None
    )
    # The model was sent all but the last observations.
    sent = contents([each["message"] for each in trace["nodes"]])
    whole = contents(scored.trajectory.messages)
    assert sent == whole[: len(sent)] and len(sent) >= len(whole) - 1
    assert scored.trajectory.model == "offline" or any("<internal>" in text for text in sent)


def test_a_failing_provider_is_an_error_without_reward(runs: Runs) -> None:
    _, found, _ = runs
    failed = {name for name, each in found["scripted"].items() if not each["ok"]}
    [trace] = found["scripted"][FAILING.id]["traces"]
    assert failed == {FAILING.id}
    assert trace["errors"][0]["type"] == "ProviderError" and "503" in trace["errors"][0]["message"]
    assert not trace["rewards"]


def test_traces_stay_on_this_machine(runs: Runs) -> None:
    log = (runs[2] / "offline" / "logs" / "latest" / "eval.log").read_text("utf-8")
    assert "PRIME_RUNS_MODE=disabled; running without a platform run" in log


if __name__ == "__main__":
    main(sys.argv[1])
