"""The `art-e` command: its groups, and how it ends.

    art-e COMMAND [OPTIONS]        python -m art_e COMMAND [OPTIONS]

Exit codes: 0 done, 1 our fault, 2 a user's error, 75 a training paused, 130 interrupted, 141 the
reader of our output went away. An error is one line on stderr. A command's module is imported when
it is called, so that `art-e --help` is as fast as typer itself."""

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
from art_e.children import import_nothing_here
from art_e.cli.output import interrupted, listening, note, one_line, print_line
from art_e.errors import EVAL_EXTRA, UserError, install_command
from art_e.privacy import loopback_directly, redact

OUR_FAULT, USER_ERROR, INTERRUPTED, READER_GONE = 1, 2, 130, 141


def _rows(table: str) -> list[list[str]]:
    text = Path(__file__).with_name(f"{table}.tsv").read_text("utf-8")
    return [line.split("\t") for line in text.splitlines()]


# How a user can fix a refusal of the operating system, or an error of DuckDB (by its class).
_FIXES = {getattr(errno, name, name): fix for name, fix in _rows("errors")}

# What holds after an interrupted command, whenever that was.
_KEPT = {
    "ingest": "; the inbox is as it was",
    "sync": "; the inbox is as it was, and the next sync goes on from here",
}

# The commands in the help page's order: their modules, whose `app` is or holds them, and lines.
COMMANDS = {name: (module, line) for name, module, line in _rows("commands")}

EXAMPLES = _rows("examples")  # the command of a help page, such as "golden split", and an example


def _examples(name: str) -> str:
    """The end of a help page."""
    return "\n".join(("\b\nExample:", *(f"  {line}" for of, line in EXAMPLES if of == name)))


def _add_examples(command: Any, name: str) -> None:
    inner = getattr(command, "commands", {})
    command.epilog = None if inner else _examples(name)
    for each, below in inner.items():
        _add_examples(below, f"{name} {each}")


class _PlainValue(RuntimeParam):
    """Converts what needs no check, without pydantic, whose import takes as long as a search."""

    def _coerce_value(self, value: Any, param: Any, ctx: Any) -> Any:
        kind, info = self.annotation, self.parameter_info
        if kind is Path:
            coerce_cli_path(value, info, path_type=None, param=param, ctx=ctx)  # may raise
        whole = kind is int and str(value).isdecimal() and int(value) >= (info.min or 0)
        if whole or (info.parser is None and kind in (str, Path, list[str])):
            return kind(value)
        return build_runtime_param(param.type_descriptor).coerce(value, param, ctx)


def _convert_plainly(command: Any, context: Any) -> None:
    for each in command.get_params(context):
        described = each.type_descriptor
        # typer fills it in later if it is None.
        each._runtime_param = _PlainValue(described.parameter_info, described.annotation)


class Commands(TyperGroup):
    """The commands, with the exit codes and errors that this module's docstring names."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS and cmd_name not in self.commands:
            module_name, line = COMMANDS[cmd_name]
            gc.disable()  # what is imported stays
            try:
                module = importlib.import_module(module_name)
            except ModuleNotFoundError:
                if ctx.resilient_parsing:  # a shell completes; its user sees no traceback
                    return None
                raise
            gc.freeze()
            gc.enable()
            found = typer.main.get_command(module.app)
            command = getattr(found, "commands", {}).get(cmd_name, found)
            command.help = command.help or line  # a group's
            _add_examples(command, cmd_name)
            _convert_plainly(command, ctx)
            self.commands[cmd_name] = command
        return super().get_command(ctx, cmd_name)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _convert_plainly(self, ctx)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that `args` begin with; an error suggests the nearest name."""
        near = get_close_matches(args[0], COMMANDS) if args else []
        if near and near[0] != args[0]:
            names = ", ".join(map(repr, near))
            ctx.fail(f"No such command {args[0]!r}. Did you mean {names}?")
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the help page's list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def main(  # type: ignore[override]  # the rest is click's
        self, args: Sequence[str] | None = None, prog_name: str = "art-e", **extra: Any
    ) -> Any:
        """Run the command line `args` and leave the process with its exit code."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                # A character that the encoding lacks is escaped.
                stream.reconfigure(errors="backslashreplace")
        os.umask(0o077)  # new files are for this user alone: 0600, folders 0700
        loopback_directly()
        given = list(sys.argv[1:] if args is None else args)
        try:
            with listening():
                code = super().main(given, "art-e", **{**extra, "standalone_mode": False})
            if code == INTERRUPTED and interrupted():
                note("interrupted" + _KEPT.get("".join(given[:1]), ""))
        except TyperException as error:
            code = USER_ERROR
            message = error.format_message()
            stop = "" if message.endswith((".", "?", ")")) else "."
            named = "".join(f"{arg} " for arg in given[:1] if arg in self.commands)
            note(f"Error: {message}{stop} See: art-e {named}--help")
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        try:
            super().invoke(ctx)
            sys.stdout.flush()
        except UserError as error:
            _fail(f"Error: {error}", USER_ERROR)
        except BrokenPipeError:
            # The interpreter flushes at its end what is still buffered.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(READER_GONE) from None
        except (typer.Exit, TyperException):
            raise
        except ModuleNotFoundError as error:
            if (name := f"{error.name}".partition(".")[0]) not in EVAL_EXTRA:
                _our_fault(error)
            _fail(f"Error: this needs {name}: {install_command('eval')}", USER_ERROR)
        except OSError as error:
            if error.errno in _FIXES:
                what = f"{error.filename or 'the file'}: {error.strerror}"
                _fail(f"Error: {what}; {_FIXES[error.errno]}", USER_ERROR)
            _our_fault(error)
        except RecursionError:
            _fail("Error: a JSON or TOML file nests too deep to be read; correct it", USER_ERROR)
        except Exception as error:  # noqa: BLE001 - the last line of defence
            if interrupted():
                raise typer.Exit(INTERRUPTED) from None
            kind = type(error)
            if kind.__module__ == "_duckdb" and kind.__name__ in _FIXES:
                what = one_line(str(error))[:300]
                _fail(f"Error: {what}; {_FIXES[kind.__name__]}", USER_ERROR)
            _our_fault(error)


def _fail(line: str, code: int) -> NoReturn:
    note(line)
    raise typer.Exit(code)


def _our_fault(error: Exception) -> NoReturn:
    if os.environ.get("ART_E_DEBUG"):
        traceback.print_exception(error)
    how = "ART_E_DEBUG=1 shows the traceback; please report it"
    what = redact(f"{type(error).__name__}: {error}")  # a client library may quote a key
    _fail(f"Error: internal error: {what} ({how})", OUR_FAULT)


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
    """The entry point of the `art-e` script."""
    import_nothing_here()
    codes = list[Any]()
    atexit.register(_leave, codes)  # registered first, so that it runs after other handlers
    try:
        app()
    except SystemExit as end:
        codes.append(end.code)
        raise


def _leave(codes: Sequence[int]) -> None:
    """Skip the teardown of the interpreter: it takes a tenth of a second, and gloo's threads may
    abort in it (exit code -6), so that a launcher would call its run failed."""
    if codes:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(codes[0])
