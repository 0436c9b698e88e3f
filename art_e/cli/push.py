"""`--push` and `--dry-run`: what leaves for the hub, shown and then sent.

The commands write a folder first; a push sends that, file by file, and nothing besides. Knows
nothing of what is in it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from art_e.cli.output import note, plural, print_line
from art_e.errors import UserError

if TYPE_CHECKING:
    from art_e.hub import RepoType, Upload
    from data_pipeline.contents import Contents

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
    from art_e.hub import check_hub_id

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

    `replaces` and `message` are those of `art_e.hub.push`, which says what is raised. In a dry
    run nobody is contacted, and `url` is None. Without a destination both are.
    """
    if to is None:
        return {"push": None, "url": None}
    from art_e.hub import push, upload_of

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
