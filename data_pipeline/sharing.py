"""`--to`: a folder for others, which takes the place of an earlier one whole or not at all."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from art_e.errors import UserError

ToOption = Annotated[
    Path, Option("--to", metavar="OUT", help="Folder to write; an earlier export goes.")
]


@contextmanager
def replacing(
    to: Path, manifest: str, schema: str, is_file: Callable[[str], bool]
) -> Iterator[Path]:
    """Give an empty folder to write an export into, which then takes the place of `to`.

    An earlier export there is replaced, whole or not at all; one that a killed export moved to
    `.OUT.earlier` is put back first. A folder is an export if its file `manifest` is JSON with
    this "schema" and all its names satisfy `is_file`. Raises `UserError` for a folder with
    anything else and for one that can't be written.
    """
    target = to.resolve()
    partial, earlier = (target.with_name(f".{target.name}.{end}") for end in ("partial", "earlier"))
    try:
        if earlier.exists() and not target.exists():
            earlier.rename(target)
        if target.exists():
            names = {each.name for each in target.iterdir()}
            found: Any = None
            with suppress(OSError, ValueError, KeyError, TypeError):
                found = json.loads((target / manifest).read_bytes())["schema"]
            if names and not (all(map(is_file, names)) and found == schema):
                raise UserError(f"{to} holds something else than an export; name another --to")
        _remove(partial)
        partial.mkdir(parents=True)
        try:
            yield partial
        except UserError:
            _remove(partial)
            raise
        _remove(earlier)
        if target.exists():
            target.rename(earlier)
        partial.rename(target)
        _remove(earlier)
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split())
        raise UserError(f"can't write to {to}: {reason}; name another --to") from None


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
