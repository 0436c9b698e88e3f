"""What leaves for others: folders written whole, counts of what is in them, `--push`.

The commands write a folder first; a push sends exactly its files.
"""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from typer import Option

from art_e.cli.output import note, plural, print_line
from art_e.errors import UserError
from art_e.publish import RepoType, check_hub_id, push, upload_of
from evals.judges.values import EMAIL

# Fields that hold message ids, which look like addresses.
_IDS = frozenset({"message_id", "message_ids", "sources", "handles"})


class Contents(NamedTuple):
    """Counts of what somebody may mind to share; `notes` say in words what the counts do not.

    `answers`: questions with an answer.
    """

    questions: int = 0
    answers: int = 0
    inboxes: int = 0
    addresses: int = 0
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {**self._asdict(), "notes": list(self.notes)}

    def lines(self) -> list[str]:
        """The counts in words."""
        return [
            f"{plural(self.questions, 'question')}, {self.answers:,} with an answer",
            f"the names of {plural(self.inboxes, 'inbox')}",
            f"{plural(self.addresses, 'e-mail address')}",
        ]


def addresses_in(*values: Any) -> int:
    """How many e-mail addresses are in the texts of JSON values; message ids don't count."""
    found: set[str] = set()
    ids: set[str] = set()

    def look(value: Any, into: set[str]) -> None:
        if isinstance(value, str):
            into.update(each.lower().rstrip(".") for each in EMAIL.findall(value))
        elif isinstance(value, Mapping):
            for name, each in value.items():
                look(name, into)
                look(each, ids if name in _IDS else into)
        elif isinstance(value, Iterable):
            for each in value:
                look(each, into)

    look(values, found)
    return len(found - ids)


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


# ---- `--push` and `--dry-run`.

ToOption = Annotated[
    Path, Option("--to", metavar="OUT", help="Folder to write; an earlier export goes.")
]
PushOption = Annotated[
    str | None, Option("--push", metavar="HUB-ID", help="Upload it to the Hugging Face hub too.")
]
PrivateOption = Annotated[bool, Option("--private/--public", help="Who may see what is pushed.")]
DryRunOption = Annotated[
    bool, Option("--dry-run", help="Write the folder, show what --push would send, send nothing.")
]


class Destination(NamedTuple):
    """Where a push goes to; with `dry_run` it is only shown."""

    hub_id: str
    private: bool
    dry_run: bool


def destination(push: str | None, private: bool, dry_run: bool) -> Destination | None:
    """The destination of `--push`, if any.

    Raises `UserError` for an impossible id, and for `--dry-run` without one.
    """
    if push is None:
        if dry_run:
            raise UserError("--dry-run shows what a push would send: add --push OWNER/NAME")
        return None
    check_hub_id(push)
    return Destination(push, private, dry_run)


def send(
    folder: Path,
    to: Destination | None,
    repo_type: RepoType,
    contents: Contents,
    *,
    replaces: Sequence[str],
    message: str,
    as_json: bool,
) -> dict[str, Any]:
    """Push the folder, or show what that would send; return `push` and `url` for `--json`.

    `replaces` and `message` are those of `art_e.publish.push`. Both results are None without a
    destination; a dry run makes no request and has no `url`.
    """
    if to is None:
        return {"push": None, "url": None}
    upload = upload_of(folder, to.hub_id, repo_type, private=to.private)
    target = f"as the {repo_type} {upload.hub_id} ({upload.seen_by})"
    files = plural(len(upload.files), "file")
    url = None
    if not to.dry_run:
        sizes = f"{files} of {upload.size:,} bytes"
        note(f"{sizes} go {target} to the hub: {', '.join(contents.lines())}")
        url = push(upload, replaces=replaces, message=message)
        note(f"pushed to {url}")
    elif not as_json:
        print_line(f"would go to the hub {target}:")
        for each in upload.files:
            print_line(f"{each.size:>15,}  {each.path}")
        print_line(f"{upload.size:>15,}  bytes in {files}")
        print_line("in them:")
        for line in (*contents.lines(), *contents.notes):
            print_line(f"  {line}")
    if to.dry_run:
        note("nothing was sent; the same command without --dry-run sends these files")
    details = {"contents": contents.to_json(), "dry_run": to.dry_run, "url": url}
    return {"push": {**upload.to_json(), **details}, "url": url}
