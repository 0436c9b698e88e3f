"""`--push` and `--dry-run`: what leaves for the hub, shown and then sent.

The commands write a folder first; a push sends that, file by file, and nothing besides. Knows
nothing of what is in it.
"""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from art_e.cli.output import note, plural, print_line
from art_e.errors import UserError
from art_e.publish import RepoType, Upload, check_hub_id, push, upload_of
from evals.judges.values import EMAIL

# ---- What is in a thing that leaves for the hub that somebody may mind, counted.

# What has these names holds message ids, which look like addresses.
_IDS = frozenset({"message_id", "message_ids", "sources", "handles"})


class Contents(NamedTuple):
    """Counts of what differs: questions, those with an answer, mails whose text is in it
    (as a whole or as a snippet), inboxes that are named, e-mail addresses that occur. `notes`
    say in words what the counts do not."""

    questions: int = 0
    answers: int = 0
    mails: int = 0
    inboxes: int = 0
    addresses: int = 0
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {**self._asdict(), "notes": list(self.notes)}


class Addresses:
    """The e-mail addresses that occur in what is added; ids of mails are none."""

    def __init__(self) -> None:
        self._found: set[str] = set()
        self._ids: set[str] = set()

    def __len__(self) -> int:
        return len(self._found - self._ids)

    def add(self, value: Any) -> None:
        """Look through all texts of `value` (what JSON can hold), names of fields too.

        A text that is itself JSON is taken apart.
        """
        self._look(value, self._found)

    def _look(self, value: Any, into: set[str]) -> None:
        if isinstance(value, str):
            objects = list(json_lines(value))
            if objects:
                self._look(objects, into)
            elif "@" in value:
                into.update(each.lower().rstrip(".") for each in EMAIL.findall(value))
        elif isinstance(value, Mapping):
            for name, each in value.items():
                self._look(name, into)
                self._look(each, self._ids if name in _IDS else into)
        elif isinstance(value, Iterable):
            for each in value:
                self._look(each, into)


def json_lines(text: str) -> Iterator[Any]:
    """The objects or lists that stand in `text` line by line; nothing where it is no JSON.

    Tools' answers are such texts: a note on the turns that are left has a line of its own.
    """
    if text[:1] not in ("{", "["):
        return
    try:
        yield from [json.loads(line) for line in text.split("\n")]
    except (ValueError, RecursionError):
        return


# ---- A folder that is made to be shared: written whole or not at all, in place of an earlier one.


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


# ---- `--push` and `--dry-run`: what leaves for the hub, shown and then sent.

ToOption = Annotated[
    Path, typer.Option("--to", metavar="OUT", help="Folder to write; an earlier export goes.")
]
PushOption = Annotated[
    str | None,
    typer.Option("--push", metavar="HUB-ID", help="Upload it to the Hugging Face hub too."),
]
PrivateOption = Annotated[
    bool, typer.Option("--private/--public", help="Who may see what is pushed.")
]
DryRunOption = Annotated[
    bool,
    typer.Option("--dry-run", help="Write the folder, show what --push would send, send nothing."),
]


class Destination(NamedTuple):
    """Where a push goes to; with `dry_run` it only says what it would send."""

    hub_id: str
    private: bool
    dry_run: bool


def destination(push: str | None, private: bool, dry_run: bool) -> Destination | None:
    """What `--push` and its fellows ask for; None: nothing leaves.

    Raises `UserError` for an id that can be none, and for `--dry-run` without one.
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
    repo_type: "RepoType",
    contents: "Contents",
    *,
    replaces: Sequence[str],
    message: str,
    as_json: bool,
) -> dict[str, Any]:
    """Push the folder, or show what that would send; as data, what was sent as `push` and where
    it is as `url`.

    `replaces` and `message` are those of `art_e.publish.push`, which says what is raised. In a dry
    run nobody is contacted, and `url` is None. Without a destination both are.
    """
    if to is None:
        return {"push": None, "url": None}

    upload = upload_of(folder, to.hub_id, repo_type, private=to.private)
    url = None
    if not to.dry_run:
        note(f"{_summary(upload)} to the hub: {', '.join(_counted(contents))}")
        url = push(upload, replaces=replaces, message=message)
        note(f"pushed to {url}")
    elif not as_json:
        _show(upload, contents)
    if to.dry_run:
        note("nothing was sent; the same command without --dry-run sends these files")
    told = {"contents": contents.to_json(), "dry_run": to.dry_run, "url": url}
    return {"push": {**upload.to_json(), **told}, "url": url}


def _show(upload: "Upload", contents: "Contents") -> None:
    print_line(f"would go to the hub as the {upload.repo_type} {upload.hub_id} ({upload.seen_by}):")
    for each in upload.files:
        print_line(f"{each.size:>15,}  {each.path}")
    print_line(f"{upload.size:>15,}  bytes in {plural(len(upload.files), 'file')}")
    print_line("in them:")
    for line in (*_counted(contents), *contents.notes):
        print_line(f"  {line}")


def _summary(upload: "Upload") -> str:
    files = f"{plural(len(upload.files), 'file')} of {upload.size:,} bytes"
    return f"{files} go as the {upload.repo_type} {upload.hub_id} ({upload.seen_by})"


def _counted(contents: "Contents") -> list[str]:
    return [
        f"{plural(contents.questions, 'question')}, {contents.answers:,} with an answer",
        f"the text of {plural(contents.mails, 'mail')}, whole or in part",
        f"the names of {plural(contents.inboxes, 'inbox')}",
        f"{plural(contents.addresses, 'e-mail address')}",
    ]
