"""`art-e serve`: an OpenAI-compatible server for a checkpoint, as a child of this process.

The server is vLLM if it is installed, else transformers' own. This process waits until the server
answers, prints how to use it, and ends with it.
"""

import errno
import http.client
import importlib.util
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, NamedTuple, Self

import typer
from typer import Argument, Option

from art_e.cli.output import example, note, print_line
from art_e.errors import UserError
from art_e.models.checkpoint import (
    ADAPTER_CONFIG,
    adapter_folder,
    best_device,
    checkpoint_folder,
    of_training,
    require_train_extra,
    room_for,
)
from art_e.models.tool_formats import NOT_THINKING, RESPONSE_TEMPLATE, call_form
from art_e.parent import ends_with_parent
from art_e.storage import expanded

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Server(NamedTuple):
    """How a server is started."""

    command: list[str]
    folder: Path
    environment: dict[str, str]


class Child:
    """A process that receives the signals that would end this one, while the block runs."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._process: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []  # signals before the process exists

    def __enter__(self) -> Self:
        # A signal that was ignored from the start (nohup) stays ignored.
        heard = [each for each in ENDING if signal.getsignal(each) is not signal.SIG_IGN]
        self._before = {each: signal.signal(each, self._pass_on) for each in heard}
        self._process = subprocess.Popen(
            self._server.command,
            cwd=self._server.folder,
            env=self._server.environment,
            stdin=subprocess.DEVNULL,
            stdout=2,  # its log is not our data
            # Else Ctrl-C would reach it twice.
            start_new_session=True,
            preexec_fn=ends_with_parent(),  # noqa: PLW1509 - there is no other thread
        )
        for number in self._early:
            self._process.send_signal(number)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return self._process is not None and self._process.poll() is None

    def exit_code(self) -> int:
        """Wait for the end; 128 plus the signal's number if a signal ended it, as in shells."""
        assert self._process is not None
        code = self._process.wait()
        return code if code >= 0 else 128 - code

    def _pass_on(self, number: int, _: FrameType | None) -> None:
        if self._process is None:
            self._early.append(number)
        else:
            self._process.send_signal(number)


def transformers_can_serve() -> bool:
    """Whether transformers and what its server needs are installed."""
    needed = ("torch", "transformers", "peft", "fastapi", "uvicorn", "openai", "pydantic")
    return all(importlib.util.find_spec(each) is not None for each in needed)


def transformers_server(
    checkpoint: str, adapter: str | None, name: str, listen: list[str], folder: Path
) -> Server:
    """The server of transformers, which answers one request after another. Raises `UserError`.

    It uses the path that it loads as the model's name, and wants adapter and tokenizer beside the
    weights, so `folder` gets a subfolder of that form.
    """
    require_train_extra()
    from art_e.models.loading import load_tokenizer

    source = checkpoint_folder(checkpoint)
    tokenizer = load_tokenizer(source, checkpoint)
    if call_form(tokenizer) == "xml":
        raise UserError(f"{checkpoint} writes calls as <function=...>: serve it with vLLM")
    model = folder / name
    model.mkdir()
    _link(source, model, [each.name for each in source.iterdir() if each.is_file()])
    if adapter is not None:
        _link(adapter_folder(adapter), model, ["adapter_config.json", "adapter_model.safetensors"])
    for replaced in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (model / replaced).unlink(missing_ok=True)
    tokenizer.response_template = RESPONSE_TEMPLATE
    tokenizer.save_pretrained(model)
    check_tokenizer(model, tokenizer, checkpoint)
    _end_turns(model, tokenizer)
    device, dtype = best_device()
    command = [sys.executable, "-m", "art_e.cli.bounded", name, *listen]
    # Everything is in the folder; else it would ask PyPI for newer versions.
    offline = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_UPDATE_CHECK": "1"}
    return Server(
        [*command, "--device", device, "--dtype", dtype], folder, {**os.environ, **offline}
    )


def check_tokenizer(folder: Path, tokenizer: "PreTrainedTokenizerFast", checkpoint: str) -> None:
    """Raise `UserError` if transformers, and so vLLM, would load another one from `folder`."""
    from art_e.models.loading import reloads_the_same

    if not reloads_the_same(folder, tokenizer):
        raise UserError(
            f"servers would load another tokenizer than the one saved in {checkpoint};"
            f" use --model local:{checkpoint}, or train it with a Qwen2Tokenizer"
        )


def _link(source: Path, folder: Path, names: list[str]) -> None:
    for each in names:
        (folder / each).unlink(missing_ok=True)
        (folder / each).symlink_to((source / each).resolve())


def _end_turns(folder: Path, tokenizer: "PreTrainedTokenizerFast") -> None:
    """Have generation stop where `local:` stops, without a penalty for repetition."""
    from transformers import AutoConfig, GenerationConfig

    from art_e.models.loading import stop_ids

    path = folder / "generation_config.json"
    if path.is_file():
        config = json.loads(path.read_text(encoding="utf-8"))
    else:
        model_config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        config = GenerationConfig.from_model_config(model_config).to_diff_dict()
    config["eos_token_id"] = list(stop_ids(tokenizer, GenerationConfig.from_dict(config)))
    config["repetition_penalty"] = 1.0
    path.unlink(missing_ok=True)
    path.write_text(json.dumps(config, indent=2), encoding="utf-8")


def vllm_server(
    vllm: str, checkpoint: str, adapter: str | None, name: str, listen: list[str]
) -> Server:
    """vLLM's server; `vllm` is the path of its command. Raises `UserError`."""
    from art_e.models.loading import load_tokenizer

    model = checkpoint_folder(checkpoint)
    tokenizer = load_tokenizer(model, checkpoint)
    check_tokenizer(model, tokenizer, checkpoint)
    command = [vllm, "serve", str(model), *listen, "--dtype", "bfloat16"]
    parser = {"json": "hermes", "xml": "qwen3_xml"}[call_form(tokenizer)]
    command += ["--enable-auto-tool-choice", "--tool-call-parser", parser]
    # As in training.
    command += ["--default-chat-template-kwargs", json.dumps(NOT_THINKING)]
    # Sample as `local:` and training do; vLLM's default would be the published penalty.
    command += ["--override-generation-config", json.dumps({"repetition_penalty": 1.0})]
    if adapter is None:
        command += ["--served-model-name", name]
    else:
        folder = adapter_folder(adapter)
        command += ["--served-model-name", f"{name}-base"]
        command += ["--enable-lora", "--lora-modules", f"{name}={folder}"]
        config = json.loads((folder / ADAPTER_CONFIG).read_text(encoding="utf-8"))
        command += ["--max-lora-rank", str(room_for(config.get("r")))]
    return Server(command, Path.cwd(), dict(os.environ))


LOOPBACK = "127.0.0.1"
BASE_VARIABLE = "HOSTED_VLLM_API_BASE"  # where litellm looks for the server of hosted_vllm/NAME

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(
    epilog=example(
        "art-e serve Qwen/Qwen2.5-14B-Instruct --adapter runs/talk/adapter --name talk",
        f"{BASE_VARIABLE}=http://{LOOPBACK}:8000/v1 \\",
        '    art-e ask "When does the lease end?" --model hosted_vllm/talk',
        "art-e serve merged -- --max-model-len 16384 --tensor-parallel-size 2",
    )
)
def serve(
    checkpoint: Annotated[
        str,
        Argument(
            metavar="CHECKPOINT",
            help="Folder or hub id of a Qwen model, or a training run's folder for its best one.",
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
        Argument(
            metavar="OPTION", help="After --: options of the server itself.", show_default=False
        ),
    ] = None,
) -> None:
    """Serve a checkpoint to any OpenAI client, until Ctrl-C."""
    served = chosen_name(checkpoint, name)
    checkpoint, adapter = of_training(checkpoint, adapter)
    vllm = shutil.which("vllm")
    if vllm is None and not transformers_can_serve():
        raise UserError("no server is installed: pip install 'art-e[train]' (or vllm, on a GPU)")
    check_free(host, port)
    with tempfile.TemporaryDirectory(prefix="art-e-serve-") as folder:
        listen = ["--host", host, "--port", str(port)]
        if vllm is None:
            server = transformers_server(checkpoint, adapter, served, listen, Path(folder))
        else:
            server = vllm_server(vllm, checkpoint, adapter, served, listen)
        server = with_options(server, options or [])
        note(f"loading {checkpoint} with {'transformers' if vllm is None else 'vLLM'}")
        with Child(server) as child:
            if wait_until_it_answers(child, host, port):
                print_address(served, host, port)
            code = child.exit_code()
    raise typer.Exit(code)


def chosen_name(checkpoint: str, name: str | None) -> str:
    """The name of `--name`, or the last part of the checkpoint's. Raises `UserError`."""
    last = expanded(checkpoint).resolve().name
    chosen = re.sub(r"[^A-Za-z0-9._-]+", "-", last) if name is None else name
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", chosen):
        raise UserError(f"--name {chosen!r}: use letters, digits, dots, dashes and underscores")
    return chosen


def with_options(server: Server, options: list[str]) -> Server:
    """The server with more options. Raises `UserError` for an option that is already set."""
    if options and not options[0].startswith("-"):
        raise UserError(f"what is {options[0]!r}? options of the server follow --, as --NAME VALUE")
    # vLLM accepts --max_model_len for --max-model-len.
    given = [each.partition("=")[0].replace("_", "-") for each in options]
    taken = next((each for each in given if each.startswith("--") and each in server.command), None)
    if taken is not None:
        raise UserError(f"{taken} is set by art-e serve itself; leave it out after --")
    return server._replace(command=[*server.command, *options])


def check_free(host: str, port: int) -> None:
    """Raise `UserError` if a server can't listen there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except socket.gaierror:
        raise UserError(f"--host {host!r} is no address of this machine; use {LOOPBACK}") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UserError(f"port {port} is taken; choose another with --port") from None
        raise UserError(
            f"can't listen on {host}:{port}: {error.strerror}; choose others with --host, --port"
        ) from None


def wait_until_it_answers(child: Child, host: str, port: int) -> bool:
    """Wait until the server answers (True) or has ended (False)."""
    while child.running:
        connection = http.client.HTTPConnection(_reachable(host), port, timeout=5)
        try:
            connection.request("GET", "/health")
            if connection.getresponse().status == http.HTTPStatus.OK:
                return True
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()
        time.sleep(0.1)
    note("Error: the server ended before it answered; see its log above")
    return False


def print_address(name: str, host: str, port: int) -> None:
    """Print the one line that says how to use the server."""
    shown = _reachable(host)
    base = f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/v1"
    is_loopback = host in ("localhost", "::1") or host.startswith("127.")
    whom = "this machine only" if is_loopback else "whoever reaches it, without a key"
    print_line(f"{base} serves {whom}: {BASE_VARIABLE}={base} --model hosted_vllm/{name}")
    sys.stdout.flush()


def _reachable(host: str) -> str:
    """An address at which a server on `host` answers on this machine."""
    return {"0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host)
