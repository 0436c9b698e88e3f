"""`art-e serve`: vLLM's OpenAI-compatible server for a checkpoint, which replaces this process."""

import json
import os
import re
import shutil
import sys
from typing import Annotated

from typer import Argument, Option, Typer

from art_e.cli.output import note, print_line
from art_e.errors import UserError
from art_e.models import checkpoint as checkpoints
from art_e.models.tool_formats import NOT_THINKING, call_form
from art_e.storage import expanded, home, write_whole

LOOPBACK = "127.0.0.1"
BASE_VARIABLE = "HOSTED_VLLM_API_BASE"  # where litellm looks for the server of hosted_vllm/NAME

app = Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def serve(
    checkpoint: Annotated[
        str,
        Argument(
            metavar="CHECKPOINT",
            help="Folder or hub id of a Qwen model, or a training run's folder (its best one).",
        ),
    ],
    adapter: Annotated[
        str | None, Option(metavar="ADAPTER", help="Folder or hub id of a peft adapter.")
    ] = None,
    host: Annotated[
        str, Option(metavar="HOST", help="Address to listen on; 0.0.0.0 serves other machines too.")
    ] = LOOPBACK,
    port: Annotated[
        int, Option(metavar="PORT", min=1, max=65_535, help="Port to listen on.")
    ] = 8000,
    name: Annotated[
        str | None, Option(metavar="NAME", help="Name of the model [default: the folder's].")
    ] = None,
    options: Annotated[
        list[str] | None,
        Argument(metavar="OPTION", help="After --: options of vLLM itself.", show_default=False),
    ] = None,
) -> None:
    """Serve a checkpoint to any OpenAI client with vLLM, until Ctrl-C."""
    model_name = f"{checkpoint}+{adapter}" if adapter else checkpoint
    if (vllm := shutil.which("vllm")) is None:
        why = "art-e serve needs vLLM (make gpu, or pip install vllm)"
        raise UserError(f"{why}; without a server: art-e ask --model local:{model_name}")
    served = re.sub(r"[^A-Za-z0-9._-]+", "-", name or expanded(checkpoint).resolve().name)
    command = vllm_command(vllm, *checkpoints.resolve_checkpoint(checkpoint, adapter), served)
    # By default vLLM accepts requests from web pages of any origin.
    command += ["--host", host, "--port", str(port), "--allowed-origins", "[]", *(options or [])]
    has_form = expanded(model_name).is_dir() and checkpoints.episode_form(model_name)
    note(f"loading {checkpoint} with vLLM; ask it when its log says that it is ready")
    reachable = LOOPBACK if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    base = f"{BASE_VARIABLE}=http://{reachable}:{port}/v1"
    recipe = f" --recipe {model_name}" if has_form else ""
    print_line(f"{base} art-e ask QUESTION --model hosted_vllm/{served}{recipe}")
    sys.stdout.flush()
    os.dup2(2, 1)  # vLLM logs to stdout, which is for data
    os.execv(vllm, command)


def vllm_command(vllm: str, checkpoint: str, adapter: str | None, name: str) -> list[str]:
    """Return vLLM's command for a checkpoint. Raises `UserError`."""
    checkpoints.require_train_extra()
    from transformers import GenerationConfig

    from art_e.models.loading import autotokenizer_matches, load_tokenizer, stop_ids

    model = checkpoints.checkpoint_folder(checkpoint)
    tokenizer = load_tokenizer(model, checkpoint)
    if not autotokenizer_matches(model, tokenizer):
        why = f"vLLM would load a different tokenizer from the one saved in {checkpoint}"
        raise UserError(f"{why}; use --model local:{checkpoint}, or train it with a Qwen2Tokenizer")
    parser = {"json": "hermes", "xml": "qwen3_xml"}[call_form(tokenizer)]
    command = [vllm, "serve", str(model), "--dtype", "bfloat16"]
    command += ["--enable-auto-tool-choice", "--tool-call-parser", parser]
    command += ["--default-chat-template-kwargs", json.dumps(NOT_THINKING)]
    # Stop and sample as `local:` and training do, without the model's own repetition penalty.
    published = model / "generation_config.json"
    config = json.loads(published.read_text("utf-8")) if published.is_file() else {}
    config["eos_token_id"] = list(stop_ids(tokenizer, GenerationConfig.from_dict(config)))
    folder = home() / "served" / name
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / published.name, json.dumps({**config, "repetition_penalty": 1.0}))
    command += ["--generation-config", str(folder)]
    if adapter is None:
        return [*command, "--served-model-name", name]
    lora = checkpoints.checkpoint_folder(adapter, "adapter")
    config = json.loads((lora / checkpoints.ADAPTER_CONFIG).read_text("utf-8"))
    rank = str(checkpoints.vllm_rank(config.get("r")))
    command += ["--served-model-name", f"{name}-base", "--max-lora-rank", rank]
    return [*command, "--enable-lora", "--lora-modules", f"{name}={lora}"]
