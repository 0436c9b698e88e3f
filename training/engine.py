"""Engines that generate turns: transformers on a loaded model, or TRL's trainer (with vLLM).

Both are a `training.rollout.Generate`. Private names of TRL (1.16) and vLLM are used only here."""

import contextlib
import importlib.util
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list, is_peft_model
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn.utils.rnn import pad_sequence
from trl.generation import vllm_generation
from trl.generation.vllm_client import VLLMClient
from trl.trainer.grpo_trainer import GRPOTrainer

from art_e.errors import UserError
from art_e.models.checkpoint import vllm_rank
from art_e.text import digest, printable
from training.processes import sharded
from training.recipe import BATCH, Vllm
from training.rollout import Follow, Generate, Turn, in_groups, in_rounds, side_by_side
from training.start import Start

SERVER_TIMEOUT_S = 600.0  # vLLM's server loads a large model for minutes

GenerateAt = Callable[[float], Generate]  # returns the engine for a temperature (0: greedy)
_ADAPTER = "adapter"  # folder of vLLM's adapter, and its name in this process


@dataclass(frozen=True, slots=True)
class Sampler:
    """Samples from a model at `temperature` (0: greedy), `batch` prompts at a time. The same `seed`
    gives the same turns, and torch's global random state does not change."""

    start: Start
    turn_tokens: int
    temperature: float
    seed: int
    batch: int = BATCH

    def __call__(self, prompts: list[list[int]], follow: Follow) -> None:
        in_rounds(self.turns, prompts, follow)

    def turns(self, prompts: list[list[int]]) -> list[Turn]:
        # Batch prompts of similar length, to save padding.
        order = sorted(range(len(prompts)), key=lambda place: len(prompts[place]))
        ids: list[list[int]] = []
        with _evaluated(self.start.model), torch.random.fork_rng(), torch.inference_mode():
            torch.manual_seed(self.seed + sum(map(len, prompts)))  # differs by turn: prompts grow
            for places in in_groups(order, self.batch):
                ids += self._generate([prompts[place] for place in places])
        return [Turn(each, None) for _, each in sorted(zip(order, ids, strict=True))]

    def _generate(self, prompts: list[list[int]]) -> list[list[int]]:
        model: Any = self.start.model
        end_id, pad_id = self.start.end_id, self.start.pad_id
        rows = list(map(torch.tensor, prompts))
        ids = pad_sequence(rows, True, pad_id, "left")  # (prompts, longest), with aligned ends
        mask = pad_sequence(list(map(torch.ones_like, rows)), True, 0, "left")
        sampling: dict[str, Any] = {"do_sample": self.temperature > 0}
        if sampling["do_sample"]:
            sampling |= {"temperature": self.temperature, "top_k": 0, "top_p": 1.0}
        generated = model.generate(
            input_ids=ids.to(model.device), attention_mask=mask.to(model.device),
            max_new_tokens=self.turn_tokens, eos_token_id=end_id, pad_token_id=pad_id,
            # Trainers that recompute activations turn it off in the model's configuration.
            use_cache=True, **sampling,
        )  # fmt: skip
        turns = generated[:, ids.size(1) :].tolist()
        # Padding follows the end token.
        return [each[: [*each, end_id].index(end_id) + 1] for each in turns]


class Dispatch:
    """Generates with `trainer`'s model, inside `awake`: by transformers, `batch` prompts at a time
    (None: all), or by vLLM, seeded by `seed`. Each process calls vLLM itself: TRL would wait for
    ever for a process whose episodes have ended. Raises `UserError` if no server answers."""

    def __init__(
        self, trainer: GRPOTrainer, turn_tokens: int, seed: int, *, batch: int | None = None,
        servers: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._trainer: Any = trainer
        self._turn_tokens, self._seed, self._batch = turn_tokens, seed, batch
        self._clients: list[Any] = []
        self._adapter: Path | None = None
        self._name = ""  # the newest adapter's name at a server
        if not self._trainer.use_vllm:
            # TRL would give each turn the whole episode's budget.
            self._trainer.generation_config.max_new_tokens = turn_tokens
            return
        vllm: Any = self._trainer.vllm_generation
        if is_peft_model(vllm.model):
            self._adapter = Path(str(self._trainer.args.output_dir), _ADAPTER)
            vllm.sync_weights = partial(self._send, self._adapter)
        if vllm.mode == "server":
            # Only the leading process has TRL's client, of the first server.
            self._clients = list(map(_client, servers))
            if self._adapter is None and len(servers) > 1:
                raise UserError(
                    "whole weights can go to only one vLLM server: name one, or set model.lora"
                )

    def at(self, temperature: float) -> "Dispatch":
        """Set vLLM's temperature (0: greedy), and return self."""
        self._trainer.vllm_generation.temperature = temperature
        return self

    @contextlib.contextmanager
    def awake(self) -> Iterator[None]:
        """Keep vLLM awake, with the newest weights, over many turns: TRL would let it sleep after
        each turn and send all weights again. All processes must enter together."""
        if not self._trainer.use_vllm:
            yield
            return
        vllm = self._trainer.vllm_generation
        step = self._trainer.state.global_step
        asleep = vllm.mode == "colocate" and vllm._llm_weights_sleeping
        if asleep or step != self._trainer._last_loaded_step:
            vllm.sync_weights()
            self._trainer._last_loaded_step = step
        if vllm.mode == "server" or not vllm.enable_sleep_mode:
            yield
            return
        vllm.llm.wake_up(tags=["kv_cache"])
        try:
            yield
        finally:
            vllm.llm.sleep(level=2)
            vllm._llm_weights_sleeping = True

    def __call__(self, prompts: list[list[int]], follow: Follow) -> None:
        if self._clients:
            side_by_side(self._from_server, prompts, follow, slots=64 * len(self._clients))
        elif self._trainer.use_vllm:
            self._in_process(prompts, follow)
        else:
            in_rounds(self._by_transformers, prompts, follow)

    def _by_transformers(self, prompts: list[list[int]]) -> list[Turn]:
        turns: list[Turn] = []
        with _evaluated(self._trainer.model):
            for part in in_groups(prompts, self._batch or len(prompts)):
                ids, _ = self._trainer._generate_single_turn(part, None, {}, 1)
                turns += [Turn(list(each), None) for each in ids]
        return turns

    def _sampling(self, place: int, ids: list[int]) -> dict[str, Any]:
        vllm = self._trainer.vllm_generation
        # A seed for each prompt: a turn does not depend on the others in the batch.
        seed = int(digest(f"{self._seed}/{place}/{ids}")[:8], 16)
        settings = {name: getattr(vllm, name) for name in ("temperature", "top_p", "top_k")}
        return {**settings, "max_tokens": self._turn_tokens, "logprobs": 0, "seed": seed}

    def _in_process(self, prompts: list[list[int]], follow: Follow) -> None:
        """Generate with vLLM's engine in this process; episodes don't wait for each other."""
        from vllm.sampling_params import RequestOutputKind

        module: Any = vllm_generation
        engine = self._trainer.vllm_generation.llm.llm_engine
        adapter = None if self._adapter is None else _adapter_request(self._adapter)
        places: dict[str, int] = {}

        def ask(place: int, ids: list[int] | None) -> None:
            if ids is not None:
                name = f"{place}/{len(ids)}"
                places[name] = place
                sampling = module.SamplingParams(
                    **self._sampling(place, ids), output_kind=RequestOutputKind.FINAL_ONLY
                )
                prompt = {"prompt_token_ids": ids}
                engine.add_request(name, prompt, sampling, lora_request=adapter)

        for place, prompt in enumerate(prompts):
            ask(place, prompt)
        while engine.has_unfinished_requests():
            for output in engine.step():
                [reply] = output.outputs
                values = zip(reply.token_ids, reply.logprobs, strict=True)
                turn = Turn(list(reply.token_ids), [row[token].logprob for token, row in values])
                place = places.pop(output.request_id)
                ask(place, follow(place, turn))

    def _from_server(self, place: int, ids: list[int]) -> Turn:
        options = self._sampling(place, ids)
        # An episode stays on the server that has cached its earlier turns.
        client = self._clients[place % len(self._clients)]
        if self._adapter is not None:
            options["model"] = self._name
        reply = client.generate([ids], generation_kwargs=options)
        [ids], [logprobs] = reply["completion_ids"], reply["logprobs"]
        # TRL's client returns None for tokens that vLLM could not score.
        return Turn(list(ids), [each[0] or 0.0 for each in logprobs])

    def _send(self, folder: Path) -> None:
        """Send vLLM the adapter through `folder`, which all processes and the server must see. TRL
        would merge it into 16-bit weights, which rounds away most of its first steps."""
        vllm = self._trainer.vllm_generation
        weights = adapter_weights(vllm.model, vllm._dist.gather_params)
        if vllm.accelerator.is_main_process:
            vllm.model.peft_config["default"].save_pretrained(folder)
            save_file(weights, folder / "adapter_model.safetensors")
        vllm.accelerator.wait_for_everyone()
        if vllm.mode == "server":
            # Use a new name each time: for every token vLLM would reread an adapter that was
            # loaded in place, and its prefix cache is keyed by the name.
            [self._name] = broadcast_object_list([f"{_ADAPTER}-{uuid.uuid4().hex}"])
            where = {"lora_name": self._name, "lora_path": str(folder.resolve())}
            for client in self._clients if vllm.accelerator.is_main_process else ():
                # The reply is plain text, which TRL's client rejects.
                reply = client.session.post(f"{client.base_url}/v1/load_lora_adapter", json=where)
                if reply.status_code != 200:
                    raise UserError(
                        f"vLLM's server at {client.base_url} rejects the adapter"
                        f" ({printable(reply.text)[:200]}): start it by training/launch/"
                        "vllm_server.sh with this recipe, on a machine that sees the run's folder"
                    )
            vllm.accelerator.wait_for_everyone()
            return
        if vllm.enable_sleep_mode:
            vllm_generation.empty_cache()
            vllm.llm.wake_up(tags=["weights"])
            vllm._llm_weights_sleeping = False
        vllm.llm.llm_engine.add_lora(_adapter_request(folder, load_inplace=True))
        vllm.llm.reset_prefix_cache()


def _adapter_request(folder: Path, *, load_inplace: bool = False) -> Any:
    from vllm.lora.request import LoRARequest

    return LoRARequest(_ADAPTER, 1, str(folder), load_inplace=load_inplace)


def adapter_weights(
    model: Any, gathered: Callable[[list[Tensor]], AbstractContextManager[Any]]
) -> dict[str, Tensor]:
    """Return an adapter's matrices on the CPU, by peft's names in its file. `gathered` assembles
    weights that are sharded over processes; all processes must enter it."""
    weights = {}
    for name, weight in model.named_parameters():
        if model.prefix in name:
            with gathered([weight]):
                whole = weight.full_tensor() if isinstance(weight, DTensor) else weight
                weights[name.replace(".default", "")] = whole.detach().cpu().clone()
    return weights


@contextlib.contextmanager
def taking_adapters(rank: int) -> Iterator[None]:
    """Make TRL start vLLM with LoRA of `rank`, and skip the NCCL link to servers."""
    module: Any = vllm_generation
    client: Any = VLLMClient
    usual, join = getattr(module, "LLM", None), client.init_communicator
    module.LLM = partial(_engine_with_lora, usual, vllm_rank(rank))
    client.init_communicator = lambda *_, **__: None
    try:
        yield
    finally:
        module.LLM, client.init_communicator = usual, join


def _engine_with_lora(make: Any, rank: int, **options: Any) -> Any:
    """Make vLLM's engine with LoRA. While asleep it keeps its weights in host memory (level 1): TRL
    would discard them (level 2), because it assumes that it will send all weights again."""
    engine = make(enable_lora=True, max_lora_rank=rank, enable_prefix_caching=True, **options)
    sleep = engine.sleep
    engine.sleep = lambda level: sleep(level=1)
    return engine


def check_generation(table: Vllm | None) -> None:
    """Raise `UserError` if generation can't work, before any weights are loaded."""
    if sharded() and (table is None or table.mode != "server"):
        lack = "weights sharded by FSDP or ZeRO-3 can't generate episodes of different lengths"
        raise UserError(f"{lack}: --set grpo.vllm.mode=server, or train with ddp.yaml")
    if table is None:
        return
    if importlib.util.find_spec("vllm") is None:
        lack = "the recipe generates with vLLM, which is not installed: requirements/gpu.txt has it"
        raise UserError(f"{lack}; or let transformers generate, slowly: --set grpo.vllm.mode=off")
    for address in table.servers:
        _client(address)


@contextlib.contextmanager
def _evaluated(model: Any) -> Iterator[None]:
    training = model.training
    model.train(False)
    try:
        yield
    finally:
        model.train(training)


def _client(address: str) -> Any:
    try:
        return VLLMClient(base_url=address, connection_timeout=SERVER_TIMEOUT_S)
    except OSError:  # requests' errors are OSErrors
        remedy = "start training/launch/vllm_server.sh, and name it with --set grpo.vllm.server=URL"
        raise UserError(f"no vLLM server answers at {address}: {remedy}") from None
