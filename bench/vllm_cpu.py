"""Test the code that uses vLLM with a real vLLM on a CPU: `make vllm-cpu`.

Sleeping and weights sent over NCCL need a GPU; `tests/fake_vllm.py` stands in for these. The model
is a tiny Qwen2 of two heads.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from safetensors.torch import load_file

from art_e.runs import read_trajectories
from art_e.trajectory import Trajectory
from tests.processes import free_port
from tests.provider import Provider, Reply, Request, refuses, says
from tests.training import full
from training.run import Step, read_steps

if not metadata.version("vllm").endswith("+cpu"):
    pytest.fail("this is for vLLM on a CPU: make vllm-cpu", pytrace=False)

ROOT = Path(__file__).parents[1]
# One thread, because waiting threads spin; 1 GB for the KV cache.
CPU = {
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
}


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = full.make_base(tmp_path_factory.mktemp("base") / "tiny", hidden=128)
    file = folder / "config.json"
    config = json.loads(file.read_text("utf-8")) | {"max_position_embeddings": 32_768}  # Qwen2.5's
    file.write_text(json.dumps(config), "utf-8")
    return folder


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


class Training:
    """A run of `art-e train grpo` in a process of its own."""

    def __init__(self, recipe: str, base: Path, home: Path, out: Path, *changes: str) -> None:
        settings = [f"model.base={base}", *full.CHANGES, "grpo.rollouts=4", *changes]
        chosen = [each for change in settings for each in ("--set", change)]
        self.command = [
            sys.executable, "-m", "art_e", "train", "grpo", "--recipe", recipe, "--out", str(out),
            *chosen,
        ]  # fmt: skip
        # TRL would take the first free port of four, for which other processes compete.
        home_and_port = {"ART_E_HOME": str(home), "MASTER_PORT": str(free_port())}
        self.out, self.environment = out, {**os.environ, **CPU, **home_and_port}

    def run(self, *options: str, more: Mapping[str, str] | None = None, code: int = 0) -> str:
        """Run to the end; check the exit code and return stderr."""
        result = subprocess.run(
            [*self.command, *options], env={**self.environment, **(more or {})},
            capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert result.returncode == code, result.stderr[-3_000:]
        return result.stderr

    def kill_after(self, step: int) -> None:
        """Kill the process as soon as that step is stored."""
        with subprocess.Popen(self.command, env=self.environment, stderr=subprocess.DEVNULL) as run:
            while len(steps_of(self.out)) < step:
                assert run.poll() is None
                time.sleep(0.1)
            run.send_signal(signal.SIGKILL)

    @property
    def adapter(self) -> dict[str, torch.Tensor]:
        last = max((self.out / "checkpoints").glob("checkpoint-*"), key=lambda path: path.name)
        return load_file(last / "adapter_model.safetensors")

    @property
    def episodes(self) -> list[Trajectory]:
        return list(read_trajectories(self.out / "trajectories.jsonl"))


def steps_of(folder: Path) -> list[Step]:
    return read_steps(folder) if (folder / "steps.jsonl").is_file() else []


IN_PROCESS = ("grpo.vllm.memory=0.2",)


@pytest.fixture(scope="session")
def in_process(base: Path, home: Path, tmp_path_factory: pytest.TempPathFactory) -> Training:
    """`talk`, two steps, with vLLM in the process."""
    out = tmp_path_factory.mktemp("talk") / "run"
    training = Training("talk", base, home, out, *IN_PROCESS)
    training.run()
    return training


def vllm_server(base: Path, replicas: int = 1) -> AbstractContextManager[str]:
    """Start `training/launch/vllm_server.sh talk-multi`, and wait for its first server."""
    port = free_port()
    environment = {
        "MODEL": str(base), "MEMORY": "0.2", "PORT": str(port), "REPLICAS": str(replicas),
    }  # fmt: skip
    script = ROOT / "training" / "launch" / "vllm_server.sh"
    return running_server(
        # Only whole blocks are cached: by default of 128 tokens on a CPU, of 16 on a GPU.
        ["bash", str(script), "talk-multi", "--max-model-len", "400", "--block-size", "32"],
        port, environment,
    )  # fmt: skip


@contextmanager
def running_server(command: list[str], port: int, environment: Mapping[str, str]) -> Iterator[str]:
    """Start a server, wait until it answers, and yield its address."""
    whole = {**os.environ, **CPU, **environment}
    with subprocess.Popen(command, env=whole, start_new_session=True) as server:
        try:
            address = f"http://127.0.0.1:{port}"
            for _ in range(600):
                assert server.poll() is None
                try:
                    if httpx.get(f"{address}/health", trust_env=False).status_code == 200:
                        break
                except httpx.HTTPError:
                    time.sleep(0.5)
            yield address
        finally:
            os.killpg(server.pid, signal.SIGTERM)


def is_close(ratio: float | None) -> bool:
    """Return whether trainer and vLLM agree, up to the rounding of 16 bits."""
    return ratio is not None and abs(ratio - 1) < 0.1


def test_talk_recipe_runs_with_vllm_in_the_process(in_process: Training) -> None:
    steps = read_steps(in_process.out)
    assert [each.step for each in steps] == [1, 2]
    for step in steps:
        assert is_close(step.ratio_mean)
    assert any(bool(each.any()) for name, each in in_process.adapter.items() if "lora_B" in name)
    metrics = json.loads((in_process.out / "metrics.json").read_text("utf-8"))
    assert metrics["test"]["greedy"]["n"] == 2


def test_server_samples_the_same_as_vllm_in_the_process(
    in_process: Training, base: Path, home: Path, tmp_path: Path
) -> None:
    """The server reads the adapter from the run's folder, gets the same seeds and caches prefixes
    of prompts."""
    with vllm_server(base) as address:
        server = ("grpo.vllm.mode=server", f"grpo.vllm.server={address}")
        training = Training("talk", base, home, tmp_path / "run", *server)
        training.run()
        metrics = httpx.get(f"{address}/metrics", trust_env=False).text
    counters = re.findall(r"(?m)^vllm:prefix_cache_(queries|hits)_total\{.*\} (.+)$", metrics)
    tokens = {name: float(value) for name, value in counters}
    print(f"prefix cache: {tokens['hits']:g} of {tokens['queries']:g} tokens of prompts")
    assert tokens["hits"] > 0
    messages = [[each.messages for each in run.episodes] for run in (in_process, training)]
    assert messages[0] == messages[1]
    for name, weights in training.adapter.items():
        assert torch.allclose(weights, in_process.adapter[name], atol=1e-5)


def test_two_servers_sample_the_next_batch_during_a_step(
    base: Path, home: Path, tmp_path: Path
) -> None:
    with vllm_server(base, replicas=2) as address:
        port = int(address.rpartition(":")[2])
        server = f"grpo.vllm.server={address},http://127.0.0.1:{port + 1}"
        training = Training("talk-multi", base, home, tmp_path / "run", server, "grpo.steps=4")
        training.run()
    steps = read_steps(training.out)
    assert [each.step for each in steps] == [1, 2, 3, 4]
    assert all(is_close(each.ratio_mean) for each in steps)


def test_another_seed_gives_other_samples(base: Path, home: Path, tmp_path: Path) -> None:
    """In the first validation, the questions and weights are the same, and both answers equally
    likely."""
    first = []
    for seed in ("0", "7"):
        changes = (*IN_PROCESS, "grpo.steps=1", "judging.questions=16")
        training = Training("talk", base, home, tmp_path / seed, *changes)
        training.run("--seed", seed)
        validated = [each for each in training.episodes if each.policy.get("sampled")]
        first.append([each.final_answer for each in validated[:16]])
    assert first[0] != first[1]


def test_killed_run_resumes_with_the_same_results(
    in_process: Training, base: Path, home: Path, tmp_path: Path
) -> None:
    training = Training("talk", base, home, tmp_path / "run", *IN_PROCESS)
    training.kill_after(1)
    training.run("--resume")
    expected = [each.messages for each in in_process.episodes]
    assert [each.messages for each in training.episodes] == expected
    for name, weights in training.adapter.items():
        assert torch.equal(weights, in_process.adapter[name])


def test_run_pauses_while_its_judge_fails(base: Path, home: Path, tmp_path: Path) -> None:
    failing = True

    def judge(_: Request) -> Reply:
        if failing and (training.out / "trajectories.jsonl").stat().st_size:  # not the validation
            return refuses(401, "Incorrect API key provided.")
        return says(json.dumps({"reason": "so", "verdict": "incorrect"}))

    # At least one of sixteen rollouts has an answer for the judge to fail on.
    parts = ("grpo.rollouts=16", "grpo.minibatches=4", "grpo.steps=8", "grpo.validate_every=4")
    changes = ("judging.reward=openai/gpt-4.1-mini", "data.kinds=['lookup']", *parts)
    training = Training("talk", base, home, tmp_path / "run", *IN_PROCESS, *changes)
    with Provider(judge) as provider:
        key = {"OPENAI_API_KEY": "sk-test", "OPENAI_BASE_URL": provider.base_url}
        assert "could not be judged" in training.run(more=key, code=2)
        # The run pauses after the last step of the batch.
        steps = read_steps(training.out)
        assert [bool(each.unjudged) for each in steps] == [True] * 4
        assert [each.ratio_mean for each in steps] == [None] * 4
        failing = False
        assert "done: " in training.run("--resume", more=key)
    steps = read_steps(training.out)
    assert [each.step for each in steps] == list(range(1, 9))
    assert all(is_close(each.ratio_mean) for each in steps[4:])


def test_serve_answers_sixteen_requests_at_a_time(base: Path, home: Path, tmp_path: Path) -> None:
    environment = {**os.environ, **CPU, "ART_E_HOME": str(home)}

    def art_e(*arguments: str) -> Any:
        command = [sys.executable, "-m", "art_e", *arguments, "--json"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2_000:]
        return json.loads(done.stdout)

    db = str(tmp_path / "firm.duckdb")
    art_e("ingest", "synthetic:1000", "--db", db)
    questions = str(tmp_path / "firm.questions.jsonl")
    port = free_port()
    serve = [
        sys.executable,
        "-m",
        "art_e",
        "serve",
        str(base),
        "--name",
        "tiny",
        "--port",
        str(port),
    ]
    with running_server(serve, port, {"ART_E_HOME": str(home)}) as address:
        environment["HOSTED_VLLM_API_BASE"] = f"{address}/v1"
        model = ("--model", "hosted_vllm/tiny")
        first = json.loads(Path(questions).read_text("utf-8").splitlines()[0])
        result = art_e("ask", "Who pays?", "--inbox", first["inbox_address"], "--db", db, *model)
        assert result["model"] == "hosted_vllm/tiny" and result["turns"] >= 1
        assert result["cost_usd"] is None  # its price is unknown
        limits = ("--limit", "32", "--concurrency", "16", "--max-turns", "2", "--judge", "offline")
        out = str(tmp_path / "run")
        art_e("eval", "run", *model, "--questions", questions, "--db", db, "--out", out, *limits)
    stored = list(read_trajectories(tmp_path / "run" / "trajectories.jsonl"))
    assert len(stored) == 32
    assert not [each.error for each in stored if each.error]


@pytest.mark.parametrize(("dtype", "limit"), [("float32", 1e-4), ("bfloat16", 0.2)])
def test_log_probabilities_match_transformers(
    dtype: str, limit: float, base: Path, tmp_path: Path
) -> None:
    """Run in a process of its own, which prints the mean and the largest difference."""
    program = tmp_path / "compare.py"
    program.write_text(COMPARE, "utf-8")
    done = subprocess.run(
        [sys.executable, str(program), str(base), dtype], env={**os.environ, **CPU},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2_000:]
    mean, largest = map(float, done.stdout.split()[-2:])
    print(f"log-probabilities in {dtype}: mean difference {mean:.2g}, largest {largest:.2g}")
    assert largest < limit


COMPARE = """
import sys, torch
from transformers import AutoModelForCausalLM
from vllm import LLM, SamplingParams
base, dtype = sys.argv[1:]
llm = LLM(base, dtype=dtype, gpu_memory_utilization=0.2, max_model_len=400,
          logprobs_mode="processed_logprobs")
prompts = [[token % 200 + 5 for token in range(start, start + 40)] for start in range(0, 160, 10)]
params = SamplingParams(temperature=1.0, max_tokens=64, logprobs=0, seed=1, ignore_eos=True)
outputs = llm.generate([{"prompt_token_ids": each} for each in prompts], params, use_tqdm=False)
model = AutoModelForCausalLM.from_pretrained(base, dtype=getattr(torch, dtype))
differences = []
for prompt, output in zip(prompts, outputs):
    ids = list(output.outputs[0].token_ids)
    vllm = torch.tensor([row[token].logprob for token, row in zip(ids, output.outputs[0].logprobs)])
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1]
    exact = logits.float().log_softmax(-1).gather(1, torch.tensor(ids)[:, None])[:, 0]
    differences.append((exact - vllm).abs())
whole = torch.cat(differences)
print(float(whole.mean()), float(whole.max()))
"""
