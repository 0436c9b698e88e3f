"""Keeps replies of models on disk, so that no request of a judge or a writer is paid for twice.

The folder has one file for each reply, named by the SHA-256 of the whole request. A file holds
the reply's text and its usage, but not the request, which might contain keys.
"""

import contextlib
import hashlib
import json
import logging
import uuid
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from art_e.errors import UserError
from art_e.message import compact_json
from art_e.models.base import Usage

_SCHEMA = "art-e/response/1"
_log = logging.getLogger(__name__)


class Response(NamedTuple):
    """A model's text; `usage` is None if the provider did not report it."""

    text: str
    usage: Usage | None


def request_key(request: Mapping[str, Any]) -> str:
    """The name of a request; it does not depend on the order of its keys."""
    text = json.dumps(request, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class Responses:
    """The responses in `folder`. Raises `UserError` if the folder can't be made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"can't keep responses in {folder}: {error.strerror}; choose another folder"
            ) from None

    def get(self, key: str) -> Response | None:
        """The response to that request; None if it is missing or its file is torn."""
        try:
            row = json.loads(self._path(key).read_bytes())
            if row["schema"] != _SCHEMA:
                return None
            usage = None if row["usage"] is None else Usage(**row["usage"])
            return Response(row["message"]["content"] or "", usage)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("response %s can't be read and is requested again: %s", key, error)
            return None

    def put(self, key: str, response: Response) -> None:
        """Keep a response. If the disk refuses, only the cache misses it."""
        usage = None if response.usage is None else asdict(response.usage)
        row = {"schema": _SCHEMA, "message": {"content": response.text}, "usage": usage}
        path = self._path(key)
        line = compact_json(row).encode("utf-8", "backslashreplace")  # lone surrogates
        torn = path.with_name(f"{uuid.uuid4().hex}.tmp")
        try:
            path.parent.mkdir(exist_ok=True)
            torn.write_bytes(line)
            torn.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                torn.unlink()
            _log.warning("response %s can't be kept: %s", key, error)

    def usages(self) -> list[Usage | None]:
        """The usage of every kept response, in no order."""
        keys = [each.stem for each in self._folder.glob("??/*.json")]
        kept = [response for key in keys if (response := self.get(key)) is not None]
        return [each.usage for each in kept]

    def _path(self, key: str) -> Path:
        # Subfolders, because a run has tens of thousands of responses.
        return self._folder / key[:2] / f"{key}.json"
