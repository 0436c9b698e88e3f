"""Generation of turns: transformers on a loaded model, TRL's trainer (transformers or vLLM), or
llama.cpp.

All take prompts as tokens and give a `Turn` for each. Everything private to TRL (pinned to
1.16) is used here and held by contract tests: `Dispatch` calls `_generate_single_turn`, and sends
new weights to vLLM once a step.
"""

import contextlib
import importlib.util
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import is_peft_model
from peft import PeftModel
from peft.tuners.lora import LoraLayer
from torch import Tensor
from transformers import PreTrainedModel
from trl.generation.vllm_client import VLLMClient
from trl.trainer.grpo_trainer import GRPOTrainer

from art_e.errors import UserError
from art_e.models.checkpoint import gguf_file
from art_e.models.smol import Llama, lacking_runtime, merge
from art_e.text import digest
from training.processes import sharded
from training.recipe import BATCH, EpisodeForm, Vllm
from training.rollout import ChatTokens, Generate, Turn

# vLLM's server loads a large model for minutes.
SERVER_TIMEOUT_S = 600.0

# Gives what generates at a temperature (0: greedily).
GenerateAt = Callable[[float], Generate]


@dataclass(frozen=True, slots=True)
class Sampler:
    """Samples from `model` at `temperature` (0: greedily), `batch` prompts at a time.

    The same `seed` gives the same turns, and leaves the random numbers of others alone.
    """

    model: PreTrainedModel
    end_id: int
    pad_id: int
    turn_tokens: int
    temperature: float
    seed: int
    batch: int = BATCH

    def __call__(self, prompts: list[list[int]]) -> list[Turn]:
        """A turn for each prompt, in their order."""
        # Prompts of similar length together, to save padding.
        order = sorted(range(len(prompts)), key=lambda place: len(prompts[place]))
        turns: dict[int, Turn] = {}
        with _evaluated(self.model), torch.random.fork_rng(), torch.inference_mode():
            torch.manual_seed(self.seed + sum(map(len, prompts)))
            for start in range(0, len(order), self.batch):
                places = order[start : start + self.batch]
                ids = self._generate([prompts[place] for place in places])
                turns |= {place: Turn(each, None) for place, each in zip(places, ids, strict=True)}
        return [turns[place] for place in range(len(prompts))]

    def _generate(self, prompts: list[list[int]]) -> list[list[int]]:
        longest = max(map(len, prompts))
        pads = [longest - len(each) for each in prompts]
        ids = [[self.pad_id] * pad + each for pad, each in zip(pads, prompts, strict=True)]
        mask = [[0] * pad + [1] * len(each) for pad, each in zip(pads, prompts, strict=True)]
        how: dict[str, Any] = {"do_sample": False}
        if self.temperature > 0:
            how = {"do_sample": True, "temperature": self.temperature, "top_k": 0, "top_p": 1.0}
        model: Any = self.model
        generated = model.generate(
            input_ids=torch.tensor(ids, device=model.device),
            attention_mask=torch.tensor(mask, device=model.device),
            max_new_tokens=self.turn_tokens,
            eos_token_id=self.end_id,
            pad_token_id=self.pad_id,
            # Trainers that recompute activations turn it off in the model's configuration.
            use_cache=True,
            **how,
        )
        turns = generated[:, longest:].tolist()
        # Padding follows the end token.
        return [each[: [*each, self.end_id].index(self.end_id) + 1] for each in turns]


class Dispatch:
    """Generates by `trainer`, with its sampling settings and at most `turn_tokens` a turn.

    By transformers, `batch` prompts at a time (None: all), or by vLLM. Call it inside `awake`.
    Each process asks vLLM's server itself: TRL would collect the prompts of all processes, and so
    wait for ever for one whose episodes have ended, and return wrong parts if processes have
    different numbers of prompts. Raises `UserError` if no server answers.
    """

    def __init__(self, trainer: GRPOTrainer, turn_tokens: int, *, batch: int | None = None) -> None:
        self._trainer: Any = trainer
        self._turn_tokens = turn_tokens
        self._batch = batch
        self._client: Any = None
        if not self._trainer.use_vllm:
            # TRL gives each generation the whole episode's budget.
            self._trainer.generation_config.max_new_tokens = turn_tokens
            return
        vllm: Any = self._trainer.vllm_generation
        vllm.max_completion_length = turn_tokens
        if is_peft_model(vllm.model) and not sharded():
            vllm._iter_named_params = lambda: merged_weights(vllm.model)
        if vllm.mode == "server":
            # Only the leading process has TRL's client.
            self._client = getattr(vllm, "vllm_client", None) or _client(str(vllm.server_base_url))

    def at(self, temperature: float) -> "Dispatch":
        """The same from now on at that temperature (0: greedily); for vLLM only."""
        self._trainer.vllm_generation.temperature = temperature
        return self

    @contextlib.contextmanager
    def awake(self) -> Iterator[None]:
        """Keep vLLM awake, with the newest weights, for the turns of many episodes.

        TRL would let it sleep after each turn, and send all weights again before the next. All
        processes have to enter together: they send weights together.
        """
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
        vllm.enable_sleep_mode = False
        try:
            yield
        finally:
            vllm.enable_sleep_mode = True
            vllm.llm.sleep(level=2)
            vllm._llm_weights_sleeping = True

    def __call__(self, prompts: list[list[int]]) -> list[Turn]:
        """A turn for each prompt, in their order."""
        if self._client is not None:
            return self._from_server(prompts)
        size = self._batch or len(prompts)
        turns: list[Turn] = []
        with _evaluated(self._trainer.model):
            for start in range(0, len(prompts), size):
                part = prompts[start : start + size]
                turns += _turns(*self._trainer._generate_single_turn(part, None, {}, 1))
        return turns

    def _from_server(self, prompts: list[list[int]]) -> list[Turn]:
        vllm = self._trainer.vllm_generation
        try:
            reply = self._client.generate(
                prompts,
                temperature=vllm.temperature,
                top_p=vllm.top_p,
                top_k=vllm.top_k,
                min_p=vllm.min_p or 0.0,
                repetition_penalty=vllm.repetition_penalty,
                max_tokens=self._turn_tokens,
                logprobs=0,
            )
        except OSError as error:  # requests' errors are OSErrors
            raise UserError(
                f"vLLM's server at {vllm.server_base_url} does not answer any more"
                f" ({type(error).__name__}): start it again, and go on with --resume"
            ) from None
        logprobs = [[each[0] for each in turn] for turn in reply["logprobs"]]
        return _turns(reply["completion_ids"], logprobs)


class LlamaCpp:
    """Generates by llama.cpp, with weights of 8 bits, for `slots` prompts at a time, whose
    conversations it keeps over their turns. Call it inside `awake`.

    The same `seed` gives the same turns but for rounding, which depends on what else is generated
    at the time. Raises `UserError` without llama.cpp or the weights.
    """

    def __init__(
        self, base: str, model: Any, tokens: ChatTokens, form: EpisodeForm, seed: int, slots: int
    ) -> None:
        if (lack := lacking_runtime()) is not None:
            raise UserError(f"the recipe generates with llama.cpp, {lack.what}: {lack.fix}")
        self._base, self._model, self._tokens, self._form = gguf_file(base), model, tokens, form
        self._seed, self._slots = seed, slots
        self._temperature = 1.0
        self._llama: Llama | None = None

    def at(self, temperature: float) -> "LlamaCpp":
        """The same from now on at that temperature (0: greedily)."""
        self._temperature = temperature
        return self

    @contextlib.contextmanager
    def awake(self) -> Iterator[None]:
        """Hold the newest weights, for the turns of many episodes."""
        with tempfile.TemporaryDirectory() as folder:
            merged = Path(folder, "merged.gguf")
            # Else peft asks the hub about the base.
            self._model.save_pretrained(folder, save_embedding_layers=False)
            try:
                merge(self._base, Path(folder), merged)
            except (ValueError, KeyError, TypeError):
                raise UserError(
                    "llama.cpp generates for SmolLM2-135M with a plain adapter only; let"
                    " transformers do it: --set model.llama_cpp=false"
                ) from None
            self._llama = Llama(merged, self._form.episode_tokens, self._slots)
            try:
                yield
            finally:
                self._llama = None

    def __call__(self, prompts: list[list[int]]) -> list[Turn]:
        """A turn for each prompt, in their order."""
        with ThreadPoolExecutor(self._slots) as pool:
            return list(pool.map(self._turn, range(len(prompts)), prompts))

    def _turn(self, place: int, ids: list[int]) -> Turn:
        assert self._llama is not None
        seed = int(digest(f"{self._seed}/{place}/{ids}")[:8], 16)
        made = self._llama.turn(
            ids, self._form.turn_tokens, self._temperature, goes_on=True, seed=seed
        )
        if made.ids:
            return Turn(made.ids, made.logprobs if self._temperature == 1 else None)
        # Sure of each, as far as the trainer knows: that bounds what they weigh.
        likely = self._tokens.ids_of(made.text)
        return Turn(likely, [0.0] * len(likely) if self._temperature == 1 else None)


def merged_weights(model: PeftModel) -> Iterator[tuple[str, Tensor]]:
    """The weights with the adapter folded in, by their names without one.

    TRL folds the adapter into the model itself and takes it out again, which bfloat16 does not
    undo: in hundreds of steps the weights under the adapter drift as far as the adapter moves
    them (TRL's issue 6688), and the adapter is served on other weights later.
    """
    folded: dict[str, Any] = {
        f"{name}.base_layer.weight": module
        for name, module in model.named_modules()
        if isinstance(module, LoraLayer)
    }
    for name, weight in model.named_parameters():
        if model.prefix in name:
            continue
        value = weight.data
        if name in folded:
            with torch.no_grad():
                layer = folded[name]
                deltas = [layer.get_delta_weight(each) for each in layer.active_adapters]
                value = (value.float() + sum(each.float() for each in deltas)).to(value.dtype)
        yield name.removeprefix("base_model.model.").replace(".base_layer", ""), value


def restore(trainer: Any, checkpoint: Path) -> None:
    """Load the weights of a checkpoint into the model of `trainer`, in all processes."""
    trainer._load_from_checkpoint(str(checkpoint))
    # vLLM holds other weights of the same step.
    trainer._last_loaded_step = -1


def check_generation(table: Vllm | None) -> None:
    """Raise `UserError` if generation can't work, before any weights are loaded."""
    if sharded() and (table is None or table.mode != "server"):
        raise UserError(
            "weights that are spread over processes (FSDP, ZeRO-3) can't generate episodes of many"
            " lengths: --set grpo.vllm.mode=server, or train with ddp.yaml"
        )
    if table is None:
        return
    if importlib.util.find_spec("vllm") is None:
        raise UserError(
            "the recipe generates with vLLM, which is not installed: requirements/gpu.txt has it;"
            " or let transformers generate, slowly: --set grpo.vllm.mode=off"
        )
    if table.mode == "server":
        _client(table.server)


@contextlib.contextmanager
def _evaluated(model: Any) -> Iterator[None]:
    """Without dropout, as long as the block runs."""
    training = model.training
    model.train(False)
    try:
        yield
    finally:
        model.train(training)


def _client(address: str) -> Any:
    """A client of vLLM's server that sends it no weights."""
    try:
        return VLLMClient(base_url=address, connection_timeout=SERVER_TIMEOUT_S)
    except OSError:  # requests' errors are OSErrors
        raise UserError(
            f"no vLLM server answers at {address}: start training/launch/vllm_server.sh, and name"
            " its address with --set grpo.vllm.server=URL"
        ) from None


def _turns(ids: Sequence[Sequence[int]], logprobs: Sequence[list[float]] | None) -> list[Turn]:
    of_turns: Sequence[list[float] | None] = logprobs or [None] * len(ids)
    return [Turn(list(turn), values) for turn, values in zip(ids, of_turns, strict=True)]
