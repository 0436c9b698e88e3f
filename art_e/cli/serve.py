"""`serve`: an OpenAI-compatible server for a checkpoint, as a child of this process.

vLLM where it is installed, else transformers' own server: this module waits until it
answers, says how to use it, and ends with it. Knows nothing of requests, which are the
server's, and of either server's options.
"""

import errno
import http.client
import re
import shutil
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from art_e.cli.options import example
from art_e.cli.output import note, print_line
from art_e.cli.serve_process import Child, Server
from art_e.errors import UserError
from art_e.home import expanded

LOOPBACK = "127.0.0.1"
BASE_VARIABLE = "HOSTED_VLLM_API_BASE"  # where litellm looks for the server of hosted_vllm/NAME
POLL_S = 0.1

app = typer.Typer()


@app.command(
    epilog=example(
        "art-e serve Qwen/Qwen2.5-14B-Instruct --adapter runs/talk/adapter --name talk",
        f"{BASE_VARIABLE}=http://{LOOPBACK}:8000/v1 \\",
        '    art-e ask "When does the lease end?" --model hosted_vllm/talk',
        "art-e serve merged --speculative ngram",
        "art-e serve merged -- --max-model-len 16384 --tensor-parallel-size 2",
    )
)
def serve(
    checkpoint: Annotated[
        str,
        typer.Argument(
            metavar="CHECKPOINT",
            help="Folder or hub id of a Qwen model; of a training run's folder the best one.",
        ),
    ],
    adapter: Annotated[
        str | None,
        typer.Option("--adapter", metavar="ADAPTER", help="Folder or hub id of a peft adapter."),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", metavar="HOST", help="Others than this machine: 0.0.0.0.")
    ] = LOOPBACK,
    port: Annotated[int, typer.Option("--port", metavar="PORT", min=1, max=65_535)] = 8000,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Of the model [default: the folder's name]."),
    ] = None,
    speculative: Annotated[
        str | None,
        typer.Option(
            "--speculative",
            metavar="ngram|MODEL",
            help="What proposes tokens for the model to check: repeated words, or a draft model.",
        ),
    ] = None,
    speculative_tokens: Annotated[
        int | None,
        typer.Option(
            "--speculative-tokens", metavar="N", min=1, help="Proposed at a time [default: 5]."
        ),
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="OPTION",
            help="After --: options of the server, as it has them.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Serve a checkpoint to any OpenAI client, until Ctrl-C."""
    from art_e.cli.serve_transformers import transformers_can_serve, transformers_server
    from art_e.cli.serve_vllm import chosen_speculation, vllm_server

    served = chosen_name(checkpoint, name)
    speculation = chosen_speculation(speculative, speculative_tokens)
    checkpoint, adapter = of_training(checkpoint, adapter)
    vllm = shutil.which("vllm")
    if vllm is None and not transformers_can_serve():
        raise UserError("no server is installed: pip install 'art-e[train]' (or vllm, on a GPU)")
    if vllm is None and speculation is not None:
        raise UserError(
            "--speculative needs vLLM, which is not installed (pip install vllm, on a GPU);"
            " leave it out"
        )
    check_free(host, port)
    with tempfile.TemporaryDirectory(prefix="art-e-serve-") as folder:
        listen = ["--host", host, "--port", str(port)]
        if vllm is None:
            server = transformers_server(checkpoint, adapter, served, listen, Path(folder))
        else:
            server = vllm_server(vllm, checkpoint, adapter, served, listen, speculation)
        server = with_options(server, options or [])
        note(f"loading {checkpoint} with {'transformers' if vllm is None else 'vLLM'}")
        with Child(server) as child:
            if wait_until_it_answers(child, host, port):
                tell(served, host, port)
            code = child.exit_code()
    raise typer.Exit(code)


def chosen_name(checkpoint: str, name: str | None) -> str:
    """The name of `--name`, or the last part of the checkpoint's. Raises `UserError`."""
    last = expanded(checkpoint).resolve().name
    chosen = re.sub(r"[^A-Za-z0-9._-]+", "-", last) if name is None else name
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", chosen):
        raise UserError(f"--name {chosen!r}: use letters, digits, dots, dashes and underscores")
    return chosen


def of_training(checkpoint: str, adapter: str | None) -> tuple[str, str | None]:
    """A training run's best checkpoint for its folder, and for an adapter what it belongs on.

    Others are as they are. Raises `UserError` for a run without one, for an adapter that
    names no model, and for two adapters.
    """
    folder = expanded(checkpoint)
    if not folder.is_dir():
        return checkpoint, adapter
    from training.checkpoints import base_of, meant_checkpoint

    best = meant_checkpoint(folder)
    base = base_of(best)
    if base is None:
        return (checkpoint if best == folder else str(best)), adapter
    if adapter is not None:
        raise UserError(f"{checkpoint} is an adapter already; leave --adapter out")
    return base, str(best)


def with_options(server: Server, options: list[str]) -> Server:
    """The server with further options of its own. Raises `UserError` for what is set already."""
    if options and not options[0].startswith("-"):
        raise UserError(f"what is {options[0]!r}? options of the server follow --, as --NAME VALUE")
    # vLLM takes --max_model_len for --max-model-len.
    given = [each.partition("=")[0].replace("_", "-") for each in options]
    taken = next((each for each in given if each.startswith("--") and each in server.command), None)
    if taken is not None:
        raise UserError(f"{taken} is set by art-e serve itself; leave it out after --")
    return server._replace(command=[*server.command, *options])


def check_free(host: str, port: int) -> None:
    """Raise `UserError` where a server could not listen there."""
    try:
        socket.create_server((host, port), family=_family(host)).close()
    except socket.gaierror:
        raise UserError(f"--host {host!r} is no address of this machine; use {LOOPBACK}") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UserError(f"port {port} is taken; choose another with --port") from None
        raise UserError(
            f"can't listen on {host}:{port}: {error.strerror}; choose others with --host, --port"
        ) from None


def wait_until_it_answers(child: Child, host: str, port: int) -> bool:
    """Wait for the server to be ready, as long as it takes; whether it is, or has ended."""
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
        time.sleep(POLL_S)
    note("Error: the server ended before it answered; what it said stands above")
    return False


def tell(name: str, host: str, port: int) -> None:
    """Print the one line that says how to use the server."""
    shown = _reachable(host)
    base = f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/v1"
    whom = "this machine only" if _is_loopback(host) else "whoever reaches it, without a key"
    print_line(f"{base} serves {whom}: {BASE_VARIABLE}={base} --model hosted_vllm/{name}")
    sys.stdout.flush()


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _reachable(host: str) -> str:
    """An address at which a server on `host` answers on this machine."""
    return {"0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host)
