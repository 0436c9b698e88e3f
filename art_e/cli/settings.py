"""`config` and `models`: what to use without being told each time, and what there is to use."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from art_e.cli.doctor import model_checks
from art_e.cli.options import JsonOption
from art_e.cli.output import example, note, print_json, print_line, print_lines, print_table
from art_e.config import SETTINGS, change, config_file, settings
from art_e.errors import UserError
from art_e.inbox.file import InboxFile
from art_e.models.model import Model, full_name
from art_e.models.nearby import nearby
from art_e.privacy import load_env

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(epilog=example("art-e config", "art-e config model o3", "art-e config inbox --unset"))
def config(
    name: Annotated[str | None, Argument(metavar="NAME", help=f"{', '.join(SETTINGS)}.")] = None,
    value: Annotated[str | None, Argument(metavar="VALUE", help="What to use from now on.")] = None,
    unset: Annotated[bool, Option("--unset", help="Remove the setting.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show what commands use by default, or change it."""
    if name is not None and name not in SETTINGS:
        raise UserError(f"there is no setting {name!r}; there are {', '.join(SETTINGS)}")
    if unset and (name is None or value is not None):
        raise UserError("--unset takes the name of a setting alone: art-e config NAME --unset")
    if name is not None and (unset or value is not None):
        change(name, None if unset or value is None else _checked(name, value))
    found = settings()
    if as_json:
        print_json(dict(found))
        return
    for each in SETTINGS if name is None else [name]:
        print_lines(f"{each}: {found.get(each, '(not set)')} ({SETTINGS[each]})")
    note(str(config_file()))


def _checked(name: str, value: str) -> str:
    """The value as it is kept. Raises `UserError` for one that can't be used."""
    if name in ("model", "judge"):
        model = full_name(value)
        if name == "model" or model not in ("offline", "f1"):
            _ = Model(model).host
        return model
    if name == "db":
        path = Path(value).expanduser().resolve()
        InboxFile(path).close()
        return str(path)
    if "@" not in value:
        raise UserError(f"{value!r} is no address; write it as name@example.com")
    return value.strip().lower()


@app.command(epilog=example("art-e models", "art-e models --json"))
def models(as_json: JsonOption = False) -> None:
    """List the models that can be asked, what the others need, and those found on this machine."""
    load_env()
    near = nearby()
    checks = [(each.name.removeprefix("model "), each) for each in model_checks(online=False)]
    if as_json:
        rows = [{**each._asdict(), "name": name} for name, each in checks]
        print_json({"nearby": [each._asdict() for each in near], "models": rows})
        return
    at_hand = [(each.model, each.why, each.export) for each in near]
    if at_hand:
        print_table(("at hand", "why", "first"), at_hand, left=(0, 1, 2))
    table = [(name, each.state, each.fix or each.detail) for name, each in checks]
    print_table(("model", "state", "what it needs"), table, left=(0, 1, 2))
    print_line("the default of art-e ask: art-e config model MODEL")
