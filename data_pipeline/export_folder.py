"""A folder that is made to be shared: written whole or not at all, in place of an earlier one.

A file of it, the manifest, has the schema by which an earlier export is known from what
somebody else has put there. Knows nothing of what is exported.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from art_e.errors import UserError


@contextmanager
def replacing(
    to: Path, manifest: str, schema: str, is_file: Callable[[str], bool]
) -> Iterator[Path]:
    """Give an empty folder to write an export into, which then takes the place of `to`.

    An earlier export there is replaced, whole or not at all; one that a kill left moved
    aside, in `.OUT.earlier`, is put back first. It is one where its file `manifest` is JSON
    with that "schema" and each of its names is a file's of an export (`is_file`). Raises
    `UserError` where the folder holds something else or can't be written.
    """
    target = to.resolve()
    partial, earlier = (target.with_name(f".{target.name}.{end}") for end in ("partial", "earlier"))
    try:
        if earlier.exists() and not target.exists():
            earlier.rename(target)
        if target.exists():
            held = {each.name for each in target.iterdir()}
            is_export = all(map(is_file, held)) and _schema(target / manifest) == schema
            if held and not is_export:
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


def _schema(manifest: Path) -> Any:
    try:
        return json.loads(manifest.read_bytes())["schema"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
