"""Stands in for vLLM below TRL's own code: what TRL 1.16 calls of it, on a tiny Qwen2.

vLLM needs a GPU and was not run. What stands here is its documented interface as TRL uses it:
`LLM` with sleep and wake-up, whose weights are gone after a sleep of level 2, and the routes of
`vllm serve` that take and give tokens. Only how weights travel to the server differs: NCCL needs
GPUs, so that they go by a file.
"""

import importlib.machinery
import json
import math
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen2ForCausalLM

# What vLLM documents of SamplingParams, as far as TRL gives it.
_SAMPLING = {
    "n",
    "repetition_penalty",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "max_tokens",
    "logprobs",
}


class SamplingParams(SimpleNamespace):
    """`vllm.SamplingParams`."""

    def __init__(self, **given: Any) -> None:
        assert set(given) == _SAMPLING
        super().__init__(**given)


class Logprob(NamedTuple):
    """`vllm.logprobs.Logprob`."""

    logprob: float
    rank: int


class LLM:
    """`vllm.LLM`, which keeps what it was asked to do in `did`."""

    made: "LLM"

    def __init__(
        self,
        *,
        model: str,
        tensor_parallel_size: int,
        gpu_memory_utilization: float,
        max_model_len: int,
        max_num_seqs: int,
        enable_sleep_mode: bool,
        model_impl: str,
        distributed_executor_backend: str,
        seed: int,
        max_num_batched_tokens: int,
        logprobs_mode: str,
        quantization: str | None,
        trust_remote_code: bool,
    ) -> None:
        assert tensor_parallel_size == 1
        assert 0 < gpu_memory_utilization < 1
        assert logprobs_mode == "processed_logprobs"
        assert quantization is None
        self.share = gpu_memory_utilization
        self.sleeps = enable_sleep_mode
        self.did: list[str] = []
        self.awake = {"weights", "kv_cache"}
        self._model = Qwen2ForCausalLM.from_pretrained(model)
        self._names = dict(self._model.named_parameters())
        self._limit = max_model_len
        runner = SimpleNamespace(model=SimpleNamespace(load_weights=self._load))
        driver = SimpleNamespace(model_runner=runner)
        self.llm_engine = SimpleNamespace(
            model_executor=SimpleNamespace(driver_worker=driver),
            model_config=SimpleNamespace(max_model_len=max_model_len),
        )
        LLM.made = self

    def generate(
        self, prompts: Sequence[dict[str, list[int]]], *, sampling_params: Any, use_tqdm: bool
    ) -> list[Any]:
        """A completion for each prompt. Fails where it sleeps, or has no weights."""
        assert self.awake == {"weights", "kv_cache"}
        assert sampling_params.n == 1
        self.did.append("generate")
        outputs = []
        for each in prompts:
            ids = each["prompt_token_ids"]
            assert len(ids) + sampling_params.max_tokens <= self._limit
            said, told = sampled(
                self._model, ids, sampling_params.temperature, sampling_params.max_tokens
            )
            logprobs = [{one: Logprob(of, 1)} for one, of in zip(said, told, strict=True)]
            completion = SimpleNamespace(token_ids=said, logprobs=logprobs)
            outputs.append(SimpleNamespace(prompt_token_ids=ids, outputs=[completion]))
        return outputs

    def sleep(self, level: int) -> None:
        """Level 2 discards the weights."""
        assert self.sleeps
        assert level == 2
        self.did.append("sleep")
        self.awake = set()
        with torch.no_grad():
            for each in self._names.values():
                each.fill_(torch.nan)

    def wake_up(self, tags: list[str]) -> None:
        """Weights come back with whatever was in their memory."""
        assert self.sleeps
        self.did.append(f"wake {' '.join(tags)}")
        self.awake |= set(tags)

    def reset_prefix_cache(self) -> None:
        """Which TRL does at the end of each transfer of weights."""
        self.did.append("transferred")

    def _load(self, weights: Sequence[tuple[str, torch.Tensor]]) -> None:
        assert "weights" in self.awake
        with torch.no_grad():
            for name, value in weights:
                self._names[name].copy_(value)


def sampled(
    model: Qwen2ForCausalLM, prompt: Sequence[int], temperature: float, most: int
) -> tuple[list[int], list[float]]:
    """What the model says behind `prompt`, its end mark too, and the log-probability of each."""
    ends = _ends(model)
    ids = list(prompt)
    told: list[float] = []
    with torch.no_grad():
        while len(ids) < len(prompt) + most and (not told or ids[-1] not in ends):
            logits = model(input_ids=torch.tensor([ids])).logits[0, -1].float()
            assert not logits.isnan().any(), "it generates with weights that were discarded"
            scaled = torch.log_softmax(logits / (temperature or 1.0), -1)
            one = int(torch.multinomial(scaled.exp(), 1)) if temperature else int(scaled.argmax())
            ids.append(one)
            told.append(float(scaled[one]))
    return ids[len(prompt) :], told


def _ends(model: Qwen2ForCausalLM) -> list[int]:
    """vLLM stops at every end token of the model's generation config."""
    assert model.generation_config is not None
    ends = model.generation_config.eos_token_id
    return list(ends) if isinstance(ends, list) else [int(ends)]


@dataclass
class Server:
    """`vllm serve` as TRL's client asks it; `batches` are the numbers of prompts that came."""

    model: Qwen2ForCausalLM
    address: str = ""
    # What is said behind a prompt, in place of the model.
    say: Callable[[Sequence[int]], list[int]] | None = None
    batches: list[int] = field(default_factory=list)
    transfers: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def end_id(self) -> int:
        """What ends a turn."""
        return _ends(self.model)[0]

    def completions(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The answer of /v1/completions."""
        assert asked["n"] == 1
        assert asked["return_token_ids"]
        assert asked["return_tokens_as_token_ids"]
        assert asked["prompt"]
        choices = []
        for prompt in asked["prompt"]:
            with self.lock:
                if self.say is not None:
                    ids = self.say(prompt)
                    told = [-0.1] * len(ids)
                else:
                    ids, told = sampled(
                        self.model, prompt, asked["temperature"], asked["max_tokens"]
                    )
            names = [f"token_id:{each}" for each in ids]
            logprobs = {
                "tokens": names,
                "token_logprobs": told,
                "top_logprobs": [{name: of} for name, of in zip(names, told, strict=True)],
            }
            choices.append({"prompt_token_ids": prompt, "token_ids": ids, "logprobs": logprobs})
        self.batches.append(len(choices))
        return {"choices": choices}

    def load(self, file: str) -> None:
        """Take on the weights of a file, as by NCCL."""
        with self.lock:
            missing, unknown = self.model.load_state_dict(load_file(file), strict=False)
        assert not unknown
        # Tied weights have one name.
        assert set(missing) <= {"lm_head.weight"}
        self.transfers += 1


_INFO = {
    "weight_transfer_config": {"backend": "nccl"},
    "model_config": {"logprobs_mode": "processed_logprobs"},
}


@contextmanager
def served(folder: Path) -> Iterator[Server]:
    """A server of the checkpoint in `folder`."""
    server = Server(Qwen2ForCausalLM.from_pretrained(folder))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told: dict[str, Any] = {
                "/health": {},
                "/v1/models": {"data": [{"id": "tiny"}]},
                "/server_info?config_format=json": {"vllm_config": _INFO},
                "/get_world_size": {"world_size": 1},
            }
            self._send(told[self.path])

        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            given = json.loads(self.rfile.read(length) or b"{}")
            if self.path == "/v1/completions":
                self._send(server.completions(given))
            elif self.path == "/weights":
                server.load(given["file"])
                self._send({})
            else:
                assert self.path == "/reset_prefix_cache"
                self._send({"success": True})

        def log_message(self, *_: Any) -> None:
            pass

        def _send(self, told: dict[str, Any]) -> None:
            body = json.dumps(told).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.address = f"http://127.0.0.1:{listening.server_port}"
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()


def install(patch: pytest.MonkeyPatch) -> None:
    """Have TRL find this where it would import vLLM."""
    from trl.generation import vllm_client, vllm_generation

    module = ModuleType("vllm")
    module.__spec__ = importlib.machinery.ModuleSpec("vllm", None)
    patch.setitem(sys.modules, "vllm", module)
    patch.setattr(vllm_generation, "is_vllm_available", lambda: True)
    patch.setattr(vllm_generation, "LLM", LLM, raising=False)
    patch.setattr(vllm_generation, "SamplingParams", SamplingParams, raising=False)
    patch.setattr(vllm_client, "is_vllm_available", lambda: True)
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        # TRL sets them for vLLM in its own process, where they would make one of many of it.
        held = os.environ.get(name)
        patch.setenv(name, held or "")
        if held is None:
            del os.environ[name]
    client = vllm_client.VLLMClient
    patch.setattr(client, "init_communicator", lambda self, device: self.get_server_info())
    patch.setattr(client, "update_named_params", _send_by_file)


def _send_by_file(
    client: Any, metadata: Sequence[Any], named_params: Iterator[tuple[str, torch.Tensor]]
) -> None:
    weights = {name: value.detach().clone() for name, value in named_params}
    assert [each[0] for each in metadata] == list(weights)
    assert not any(math.isnan(float(each.sum())) for each in weights.values())
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
        save_file(weights, file.name)
        client._post(f"{client.base_url}/weights", json={"file": file.name})
