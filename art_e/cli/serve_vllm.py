"""vLLM's server: the options with which it calls tools, has an adapter, and speculates.

Held to what vLLM documents for 0.22 to 0.31. Speculative decoding lets something cheap
propose tokens that the model only has to check: words of the prompt that follow the same
words again (`ngram`), or a small model of the same vocabulary. Knows nothing of requests,
and of how the server is run. Heavy imports are made inside the functions.
"""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from art_e.cli.serve_process import Server
from art_e.errors import UserError

# Of an adapter: vLLM takes these as the largest that it makes room for.
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
NGRAM = "ngram"
# What vLLM's documentation has in its examples of both methods; tuned by nobody here.
PROPOSED_TOKENS = 5
LONGEST_NGRAM = 4


class Speculation(NamedTuple):
    """What proposes tokens, `NGRAM` or a draft model's folder or id, and how many at a time."""

    by: str
    tokens: int


def chosen_speculation(by: str | None, tokens: int | None) -> Speculation | None:
    """What `--speculative` and `--speculative-tokens` say. Raises `UserError`."""
    if by is None:
        if tokens is not None:
            raise UserError("--speculative-tokens says how many; add --speculative ngram or MODEL")
        return None
    return Speculation(by, PROPOSED_TOKENS if tokens is None else tokens)


def vllm_server(
    vllm: str,
    checkpoint: str,
    adapter: str | None,
    name: str,
    listen: list[str],
    speculation: Speculation | None = None,
) -> Server:
    """vLLM's server; `vllm` is its command's path. Raises `UserError`."""
    from art_e.cli.serve_transformers import check_tokenizer
    from art_e.policies.checkpoint import adapter_folder, checkpoint_folder, load_tokenizer

    if adapter is not None and speculation is not None:
        # Listed as not compatible; n-grams crashed with two requests at a time
        # (vllm-project/vllm 20284), another draft changed what was said (26679).
        raise UserError(
            "vLLM does not speculate with a LoRA adapter; fold it into the weights first"
            f" (art-e train merge {adapter} --out DIR) and serve DIR, or leave --speculative out"
        )
    model = checkpoint_folder(checkpoint)
    check_tokenizer(model, load_tokenizer(model, checkpoint), checkpoint)
    command = [vllm, "serve", str(model), *listen, "--dtype", "bfloat16"]
    command += ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
    # As `local:` and training sample; vLLM would take a published penalty for its default.
    command += ["--override-generation-config", json.dumps({"repetition_penalty": 1.0})]
    if adapter is None:
        command += ["--served-model-name", name]
    else:
        folder = adapter_folder(adapter)
        command += ["--served-model-name", f"{name}-base"]
        command += ["--enable-lora", "--lora-modules", f"{name}={folder}"]
        command += ["--max-lora-rank", str(_room_for(folder, adapter))]
    if speculation is not None:
        command += ["--speculative-config", json.dumps(_config_of(speculation, model, checkpoint))]
    return Server(command, Path.cwd(), dict(os.environ))


def _config_of(speculation: Speculation, model: Path, checkpoint: str) -> dict[str, Any]:
    """The JSON of `--speculative-config`. Raises `UserError` for a draft that does not fit."""
    from art_e.policies.checkpoint import checkpoint_folder

    if speculation.by == NGRAM:
        return {
            "method": "ngram",
            "num_speculative_tokens": speculation.tokens,
            "prompt_lookup_max": LONGEST_NGRAM,
        }
    draft = checkpoint_folder(speculation.by)
    _check_vocabulary(draft, speculation.by, model, checkpoint)
    return {
        "method": "draft_model",
        "model": str(draft),
        "num_speculative_tokens": speculation.tokens,
    }


def _check_vocabulary(draft: Path, named: str, model: Path, checkpoint: str) -> None:
    """Raise `UserError` unless both models mean the same token by the same number."""
    from art_e.policies.checkpoint import load_tokenizer

    ours, wanted = load_tokenizer(draft, named), load_tokenizer(model, checkpoint)
    if ours.get_vocab() != wanted.get_vocab():
        raise UserError(
            f"{named} has another vocabulary than {checkpoint}; draft with a smaller model of the"
            " same family, or use --speculative ngram"
        )
    rows, needed = _rows(draft), _rows(model)
    if rows != needed:
        # As Qwen2.5 has them: the same tokens, and more unused rows in the larger models.
        raise UserError(
            f"{named} has {rows:,} rows of embeddings and {checkpoint} {needed:,}, and vLLM takes"
            f" equal ones only; give the draft as many (resize_token_embeddings({needed}) of"
            " transformers), or use --speculative ngram"
        )


def _rows(model: Path) -> int:
    """The rows of a model's embeddings, of which there may be more than tokens."""
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    return int(config["vocab_size"])


def _room_for(folder: Path, adapter: str) -> int:
    rank = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8")).get("r")
    room = next((each for each in RANKS if isinstance(rank, int) and rank <= each), None)
    if room is None:
        raise UserError(f"vLLM serves no adapter of rank {rank}, as {adapter} is; merge it first")
    return room
