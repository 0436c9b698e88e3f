"""A stand-in for vLLM: the interface that TRL 1.16 calls, on a tiny Qwen2.

It has `LLM` with sleep and wake-up, which loses its weights in a sleep of level 2, its engine with
requests and adapters, and the routes of `vllm serve` for tokens and adapters. It has no batches, no
prefix cache and no rounding to 16 bits."""

import copy
import importlib.machinery
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from safetensors.torch import load_file
from transformers import Qwen2ForCausalLM

from tests.provider import json_server

SamplingParams = SimpleNamespace


class LoRARequest(NamedTuple):
    """`vllm.lora.request.LoRARequest`."""

    lora_name: str
    lora_int_id: int
    lora_path: str
    load_inplace: bool = False


class LLM:
    """`vllm.LLM`, which records its calls in `did`."""

    latest: "LLM"

    def __init__(self, **options: Any) -> None:
        assert options["tensor_parallel_size"] == 1
        assert 0 < options["gpu_memory_utilization"] < 1
        assert options["logprobs_mode"] == "processed_logprobs"
        assert options["quantization"] is None
        self.sleeps = options["enable_sleep_mode"]
        self.did: list[str] = []
        self.awake = {"weights", "kv_cache"}
        self.takes = options["max_lora_rank"] if options.get("enable_lora") else None
        self._model = Qwen2ForCausalLM.from_pretrained(options["model"])
        self._names = dict(self._model.named_parameters())
        self._adapted: Qwen2ForCausalLM | None = None
        self._limit = options["max_model_len"]
        self._asked: list[tuple[str, list[int], Any]] = []
        runner = SimpleNamespace(model=SimpleNamespace(load_weights=self._load))
        driver = SimpleNamespace(model_runner=runner)
        self.llm_engine = SimpleNamespace(
            model_executor=SimpleNamespace(driver_worker=driver),
            model_config=SimpleNamespace(max_model_len=self._limit),
            add_lora=self._add_lora, add_request=self._add_request, step=self._step,
            has_unfinished_requests=lambda: bool(self._asked),
        )  # fmt: skip
        LLM.latest = self

    def _add_lora(self, request: LoRARequest) -> None:
        assert self.takes is not None
        assert "weights" in self.awake
        assert request.load_inplace
        self._adapted = adapted(self._model, request.lora_path, self.takes)

    def _add_request(
        self, name: str, prompt: dict[str, list[int]], params: Any, *, lora_request: Any
    ) -> None:
        assert (lora_request is None) == (self._adapted is None)
        assert name not in {each for each, *_ in self._asked}
        ids = prompt["prompt_token_ids"]
        assert len(ids) + params.max_tokens <= self._limit
        self._asked.append((name, ids, params))

    def _step(self) -> list[Any]:
        """Complete the shortest request. Fails while it sleeps or has no weights."""
        assert self.awake == {"weights", "kv_cache"}
        self.did.append("step")
        self._asked.sort(key=lambda each: -len(each[1]))
        name, ids, params = self._asked.pop()
        model = self._model if self._adapted is None else self._adapted
        written, values = sampled(model, ids, params.temperature, params.max_tokens, params.seed)
        pairs = zip(written, values, strict=True)
        logprobs = [{one: SimpleNamespace(logprob=of)} for one, of in pairs]
        completion = SimpleNamespace(token_ids=written, logprobs=logprobs)
        return [SimpleNamespace(request_id=name, outputs=[completion])]

    def sleep(self, level: int) -> None:
        """Discard the weights (level 2), or keep them in other memory (level 1)."""
        assert self.sleeps
        assert level == (2 if self.takes is None else 1)
        self.did.append("sleep")
        self.awake = set()
        if level == 2:
            with torch.no_grad():
                for weights in self._names.values():
                    weights.fill_(torch.nan)

    def wake_up(self, tags: list[str]) -> None:
        """Allocate memory; discarded weights stay discarded."""
        assert self.sleeps
        self.did.append(f"wake {' '.join(tags)}")
        self.awake |= set(tags)

    def reset_prefix_cache(self) -> None:
        """Note a transfer of weights: TRL calls this at its end."""
        self.did.append("transferred")

    def _load(self, weights: Sequence[tuple[str, torch.Tensor]]) -> None:
        assert "weights" in self.awake
        with torch.no_grad():
            for name, value in weights:
                self._names[name].copy_(value)


def adapted(model: Qwen2ForCausalLM, folder: str, max_rank: int) -> Qwen2ForCausalLM:
    """Return the model with the adapter in `folder`, whose rank is at most `max_rank`."""
    config = json.loads(Path(folder, "adapter_config.json").read_text("utf-8"))
    assert config["r"] <= max_rank
    matrices = load_file(Path(folder, "adapter_model.safetensors"))
    merged = copy.deepcopy(model)
    layers = dict(merged.named_modules())
    with torch.no_grad():
        for name, first in matrices.items():
            if "lora_A" in name:
                second = matrices[name.replace("lora_A", "lora_B")]
                layer: Any = layers[name.removeprefix("base_model.model.").split(".lora_A")[0]]
                layer.weight += config["lora_alpha"] / config["r"] * (second @ first)
    return merged


def sampled(
    model: Qwen2ForCausalLM, prompt: Sequence[int], temperature: float, max_tokens: int, seed: int
) -> tuple[list[int], list[float]]:
    """Return the completion of `prompt` with its end token, and each token's log-probability."""
    ends, draws = _ends(model), torch.Generator().manual_seed(seed)
    ids = list(prompt)
    values: list[float] = []
    with torch.no_grad():
        while len(ids) < len(prompt) + max_tokens and (not values or ids[-1] not in ends):
            logits = model(input_ids=torch.tensor([ids])).logits[0, -1].float()
            assert not logits.isnan().any(), "it generates with discarded weights"
            scaled = torch.log_softmax(logits / (temperature or 1.0), -1)
            drawn = torch.multinomial(scaled.exp(), 1, generator=draws)
            one = int(drawn) if temperature else int(scaled.argmax())
            ids.append(one)
            values.append(float(scaled[one]))
    return ids[len(prompt) :], values


def _ends(model: Qwen2ForCausalLM) -> list[int]:
    """Return the end tokens of the generation config: vLLM stops at each of them."""
    assert model.generation_config is not None
    ends = model.generation_config.eos_token_id
    return list(ends) if isinstance(ends, list) else [int(ends)]


@dataclass
class Server:
    """`vllm serve` for TRL's client; `batches` are the numbers of prompts in each request."""

    model: Qwen2ForCausalLM
    address: str = ""
    # Gives the completion of a prompt in place of the model.
    say: Callable[[Sequence[int]], list[int]] | None = None
    batches: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # of adapters
    adapted: Qwen2ForCausalLM | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def end_id(self) -> int:
        return _ends(self.model)[0]

    def answer(self, _: str, path: str, __: Mapping[str, str], body: bytes) -> tuple[int, Any]:
        if path == "/v1/completions":
            return 200, self.completions(json.loads(body))
        if path == "/v1/load_lora_adapter":
            request = json.loads(body)
            # Else vLLM reads the file again for each token, and keeps the cached prefixes.
            assert not request.get("load_inplace") and request["lora_name"] not in self.names
            self.names.append(request["lora_name"])
            with self.lock:
                self.adapted = adapted(self.model, request["lora_path"], 64)
            return 200, f"Success: LoRA adapter '{request['lora_name']}' added successfully."
        return 200, _ROUTES[path]

    def completions(self, request: dict[str, Any]) -> dict[str, Any]:
        assert request["n"] == 1
        assert request["return_token_ids"] and request["return_tokens_as_token_ids"]
        assert request["prompt"]
        assert request["model"] == (self.names or ["tiny"])[-1]
        choices = []
        options = [request[each] for each in ("temperature", "max_tokens", "seed")]
        for prompt in request["prompt"]:
            with self.lock:
                if self.say is None:
                    ids, values = sampled(self.adapted or self.model, prompt, *options)
                else:
                    ids = self.say(prompt)
                    values = [-0.1] * len(ids)
            names = [f"token_id:{each}" for each in ids]
            top = [{name: of} for name, of in zip(names, values, strict=True)]
            logprobs = {"tokens": names, "token_logprobs": values, "top_logprobs": top}
            choices.append({"prompt_token_ids": prompt, "token_ids": ids, "logprobs": logprobs})
        self.batches.append(len(choices))
        return {"choices": choices}


_INFO = {"model_config": {"logprobs_mode": "processed_logprobs"}}
_ROUTES: dict[str, Any] = {
    "/health": {},
    "/v1/models": {"data": [{"id": "tiny"}]},
    "/server_info?config_format=json": {"vllm_config": _INFO},
}


@contextmanager
def served(folder: Path) -> Iterator[Server]:
    server = Server(Qwen2ForCausalLM.from_pretrained(folder))
    with json_server(server.answer) as server.address:
        yield server


def install(patch: pytest.MonkeyPatch) -> None:
    """Have TRL import this in place of vLLM."""
    from trl.generation import vllm_client, vllm_generation

    modules: dict[str, dict[str, Any]] = {
        "vllm": {"SamplingParams": SamplingParams},
        "vllm.lora": {},
        "vllm.lora.request": {"LoRARequest": LoRARequest},
        "vllm.sampling_params": {"RequestOutputKind": SimpleNamespace(FINAL_ONLY=2)},
    }
    for name, content in modules.items():
        module = ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        vars(module).update(content)
        patch.setitem(sys.modules, name, module)
    patch.setattr(vllm_generation, "is_vllm_available", lambda: True)
    patch.setattr(vllm_generation, "LLM", LLM, raising=False)
    patch.setattr(vllm_generation, "SamplingParams", SamplingParams, raising=False)
    patch.setattr(vllm_client, "is_vllm_available", lambda: True)
    # As on a GPU, where vLLM sleeps while weights are trained.
    patch.setattr("training.grpo.best_device", lambda: ("cuda", "bfloat16"))
    # TRL sets them for vLLM in this process; they must not outlive the test.
    for name in {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} - {*os.environ}:
        patch.setenv(name, "")
        del os.environ[name]
