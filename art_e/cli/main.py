"""The `art-e` command: its subcommands, exit codes and errors.

    art-e COMMAND [OPTIONS]        python -m art_e COMMAND [OPTIONS]

Exit codes: 0 success, 1 internal error, 2 user error, 75 training paused, 130 interrupted, 141
stdout closed by its reader. An error is one line on stderr. A command's module is imported when the
command runs, so that `art-e --help` is as fast as typer itself."""

import atexit
import errno
import gc
import importlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer import Option
from typer._coercion import RuntimeParam, build_runtime_param
from typer._param_types import coerce_cli_path
from typer.core import TyperGroup
from typer.exceptions import TyperException

from art_e import __version__
from art_e.children import exclude_working_directory
from art_e.cli.output import interrupted, note, one_line, print_line, recording_interrupts
from art_e.errors import EVAL_EXTRA, UserError, install_command
from art_e.privacy import loopback_directly, redact

INTERNAL_ERROR, USER_ERROR, INTERRUPTED, STDOUT_CLOSED = 1, 2, 130, 141


def _rows(table: str) -> list[list[str]]:
    text = Path(__file__).with_name(f"{table}.tsv").read_text("utf-8")
    return [line.split("\t") for line in text.splitlines()]


# How to fix an error of the operating system (by its name), or of DuckDB (by its class).
_FIXES = {getattr(errno, name, name): fix for name, fix in _rows("errors")}

# Added to the note on an interrupt of these commands.
_AFTER_INTERRUPT = {
    "ingest": "; the inbox is unchanged",
    "sync": "; the inbox is unchanged, and the next sync continues from here",
}

# Commands in help-page order: the module whose `app` is or contains the command, and its summary.
COMMANDS = {name: (module, line) for name, module, line in _rows("commands")}

EXAMPLES = _rows("examples")  # a command, such as "golden split", and an example of it


def _examples(command: str) -> str:
    return "\n".join(("\b\nExample:", *(f"  {ex}" for name, ex in EXAMPLES if name == command)))


def _add_examples(command: Any, name: str) -> None:
    inner = getattr(command, "commands", {})
    command.epilog = None if inner else _examples(name)
    for subname, subcommand in inner.items():
        _add_examples(subcommand, f"{name} {subname}")


class _PlainValue(RuntimeParam):
    """Converts plain values without pydantic, whose import takes as long as a search."""

    def _coerce_value(self, value: Any, param: Any, ctx: Any) -> Any:
        kind, info = self.annotation, self.parameter_info
        if kind is Path:
            coerce_cli_path(value, info, path_type=None, param=param, ctx=ctx)  # may raise
        whole = kind is int and str(value).isdecimal() and int(value) >= (info.min or 0)
        if whole or (info.parser is None and kind in (str, Path, list[str])):
            return kind(value)
        return build_runtime_param(param.type_descriptor).coerce(value, param, ctx)


def _convert_plainly(command: Any, context: Any) -> None:
    for param in command.get_params(context):
        descriptor = param.type_descriptor
        # typer builds its own converter later, if this is None.
        param._runtime_param = _PlainValue(descriptor.parameter_info, descriptor.annotation)


class Commands(TyperGroup):
    """All commands, with the exit codes and errors of this module's docstring."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            module_name, line = COMMANDS[cmd_name]
            gc.disable()  # imported modules are never garbage
            try:
                module = importlib.import_module(module_name)
            except ModuleNotFoundError:
                if ctx.resilient_parsing:  # completion in a shell must not print a traceback
                    return None
                raise
            gc.freeze()
            gc.enable()
            group = typer.main.get_command(module.app)
            command = getattr(group, "commands", {}).get(cmd_name, group)
            command.help = command.help or line  # groups have no docstring
            _add_examples(command, cmd_name)
            _convert_plainly(command, ctx)
            self.commands[cmd_name] = command
        return super().get_command(ctx, cmd_name)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _convert_plainly(self, ctx)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Resolve the command in `args`; an error suggests similar names."""
        near = get_close_matches(args[0], COMMANDS) if args else []
        if near and near[0] != args[0]:
            names = ", ".join(map(repr, near))
            ctx.fail(f"No such command {args[0]!r}. Did you mean {names}?")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the help page's list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def main(  # type: ignore[override]  # the rest is click's
        self, args: Sequence[str] | None = None, prog_name: str = "art-e", **extra: Any
    ) -> Any:
        """Run the command line `args` and exit with its exit code."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                # Escape characters that the encoding lacks.
                stream.reconfigure(errors="backslashreplace")
        os.umask(0o077)  # only this user may read new files (0600) and folders (0700)
        loopback_directly()
        arguments = list(sys.argv[1:] if args is None else args)
        try:
            with recording_interrupts():
                code = super().main(arguments, "art-e", **{**extra, "standalone_mode": False})
            if code == INTERRUPTED and interrupted():
                note("interrupted" + _AFTER_INTERRUPT.get("".join(arguments[:1]), ""))
        except TyperException as error:
            code = USER_ERROR
            message = error.format_message()
            stop = "" if message.endswith((".", "?", ")")) else "."
            command = "".join(f"{arg} " for arg in arguments[:1] if arg in self.commands)
            note(f"Error: {message}{stop} See: art-e {command}--help")
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        try:
            super().invoke(ctx)
            sys.stdout.flush()
        except UserError as error:
            _fail(f"Error: {error}", USER_ERROR)
        except BrokenPipeError:
            # At exit the interpreter flushes the rest of the buffer, which must not fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(STDOUT_CLOSED) from None
        except (typer.Exit, TyperException):
            raise
        except ModuleNotFoundError as error:
            if (name := f"{error.name}".partition(".")[0]) not in EVAL_EXTRA:
                _internal_error(error)
            _fail(f"Error: this needs {name}: {install_command('eval')}", USER_ERROR)
        except OSError as error:
            if error.errno in _FIXES:
                fault = f"{error.filename or 'the file'}: {error.strerror}"
                _fail(f"Error: {fault}; {_FIXES[error.errno]}", USER_ERROR)
            _internal_error(error)
        except RecursionError:
            _fail("Error: a JSON or TOML file is nested too deeply; correct it", USER_ERROR)
        except Exception as error:  # noqa: BLE001 - reported as an internal error
            if interrupted():
                raise typer.Exit(INTERRUPTED) from None
            kind = type(error)
            if kind.__module__ == "_duckdb" and kind.__name__ in _FIXES:
                fault = one_line(str(error))[:300]
                _fail(f"Error: {fault}; {_FIXES[kind.__name__]}", USER_ERROR)
            _internal_error(error)


def _fail(line: str, code: int) -> NoReturn:
    note(line)
    raise typer.Exit(code)


def _internal_error(error: Exception) -> NoReturn:
    if os.environ.get("ART_E_DEBUG"):
        traceback.print_exception(error)
    hint = "ART_E_DEBUG=1 shows the traceback; please report it"
    fault = redact(f"{type(error).__name__}: {error}")  # a client library may quote a key
    _fail(f"Error: internal error: {fault} ({hint})", INTERNAL_ERROR)


app = typer.Typer(
    name="art-e",
    cls=Commands,
    epilog=_examples("art-e"),
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    invoke_without_command=True,
)


@app.callback()
def start(
    context: typer.Context,
    version: Annotated[bool, Option("--version", help="Print the version.")] = False,
) -> None:
    """Ask an inbox a question: search it, read it, answer with sources."""
    if version:
        print_line(f"art-e {__version__}")
    elif context.invoked_subcommand is None:
        print_line(context.get_help())


def run() -> None:
    """Run the `art-e` script."""
    exclude_working_directory()
    codes = list[Any]()
    atexit.register(_exit_at_once, codes)  # registered first, so that it runs last
    try:
        app()
    except SystemExit as end:
        codes.append(end.code)
        raise


def _exit_at_once(codes: Sequence[int]) -> None:
    """Exit without tearing down the interpreter: that takes 0.1 s, and gloo's threads may abort
    during it (exit code -6), which a launcher would report as a failed run."""
    if codes:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(codes[0])
