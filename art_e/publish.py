"""Folders for the Hugging Face hub: cards, names without local paths, and the push itself.

`upload_of` lists what a push would send without any request; `push` sends exactly that.
`huggingface_hub` finds the token (HF_TOKEN, or `hf auth login`); no message contains it.
"""

import html
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

import httpx
from huggingface_hub import HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]
from jinja2 import Environment, StrictUndefined, Template

from art_e.errors import UserError
from art_e.models.base import LOCAL_PREFIX
from art_e.models.checkpoint import split_adapter
from art_e.models.model import Model
from art_e.privacy import load_env, redact
from art_e.text import cut_line

_SHOWN_CHARS = 200
_MARKDOWN = re.compile(r"([\\`*_\[\]|#~$!:@])|(?<=www)(\.)", re.IGNORECASE)


class Own(str):
    """Markdown that we wrote, which is not escaped."""

    __slots__ = ()


def escaped(value: object) -> str:
    """A value as `{{ }}` shows it: one line without markup, links or HTML."""
    if isinstance(value, Own):
        return value
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    # Control characters end with the spaces: none is printable.
    line = "".join(c if c.isprintable() else " " for c in str(value))
    return html.escape(_MARKDOWN.sub(r"\\\1\2", cut_line(line, _SHOWN_CHARS)), quote=False)


@cache
def template(package: str, name: str) -> Template:
    """The template in the file `name` of a package; its filter `own` marks text as ours."""
    text = (resources.files(package) / name).read_text("utf-8")
    environment = Environment(
        undefined=StrictUndefined,
        finalize=escaped,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["own"] = Own
    return environment.from_string(text)


# Names and settings as others may see them: hub ids as they are, the last part of paths.

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
# A model or data set in the hub's cache, as `huggingface_hub` names its folders.
_CACHED = re.compile(r"(?:models|datasets)--([\w.-]+?)--([\w.-]+)")
# A text that is only a path, and a path within a text; neither is part of a URL.
_PATH = re.compile(r"(?:~\w*|\.{1,2}|[A-Za-z]:)?[\\/].*|~\w*", re.DOTALL)
_PATH_WITHIN = re.compile(
    r"(?<![\w/\\:.~])(?:~\w*|[A-Za-z]:)?[\\/](?:[^\s\\/'\":,;()<>]+[\\/])+[^\s\\/'\":,;()<>]*"
)


def is_hub_id(name: str) -> bool:
    """Whether `name` is a hub id, and no file on this machine."""
    return _HUB_ID.fullmatch(name) is not None and not Path(name).exists()


def public_name(name: str) -> str:
    """A hub id, also for a folder in the hub's cache; the last part of any other path."""
    if is_hub_id(name):
        return name
    parts = [each for each in re.split(r"[\\/]", name) if each]
    for part in parts:
        if cached := _CACHED.fullmatch(part):
            return f"{cached[1]}/{cached[2]}"
    if not parts:
        return name
    is_home = name.rstrip("\\/") == str(Path.home()) or re.fullmatch(r"~\w*", parts[-1])
    return "~" if is_home else parts[-1]


def public_model(name: str) -> str:
    """The name of a model or judge, without the paths of this machine."""
    model = Model(name)
    if model.kind != "local":
        return public_name(name) if _PATH.fullmatch(name) else name
    try:
        base, adapter = split_adapter(model.path)
    except UserError:  # "~nobody", whose home does not exist
        base, adapter = model.path, None
    shown = [public_name(each) for each in (base, adapter) if each is not None]
    return LOCAL_PREFIX + "+".join(shown)


def public_text(text: str) -> str:
    """A program's message without the paths in it."""
    return _PATH_WITHIN.sub(lambda found: public_name(found[0]), text)


def public_settings(value: Any) -> Any:
    """JSON without paths of this machine, in its strings and in names of models."""
    if isinstance(value, str):
        shown = public_model(value)
        return public_text(value) if shown == value else shown
    if isinstance(value, list):
        return [public_settings(each) for each in value]
    if isinstance(value, dict):
        return {name: public_settings(each) for name, each in value.items()}
    return value


RepoType = Literal["model", "dataset"]

_LOG_IN = "log in with: hf auth login, or set HF_TOKEN to a token that may write"
_REASON_CHARS = 200


class UploadedFile(NamedTuple):
    """A file's path in the repository, and its size in bytes."""

    path: str
    size: int


class Upload(NamedTuple):
    """What a push sends: the `files` of `folder` to `hub_id`."""

    folder: Path
    hub_id: str
    repo_type: RepoType
    private: bool
    files: tuple[UploadedFile, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(each.size for each in self.files)

    @property
    def seen_by(self) -> str:
        """Who may see it: private or public."""
        return "private" if self.private else "public"

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "hub_id": self.hub_id,
            "repo_type": self.repo_type,
            "private": self.private,
            "files": [{"path": each.path, "bytes": each.size} for each in self.files],
            "bytes": self.size,
        }


def check_hub_id(hub_id: str) -> None:
    """Raise `UserError` for an impossible hub id, without a request."""
    try:
        validate_repo_id(hub_id)
    except HFValidationError as error:
        _fail(hub_id, error)


def upload_of(folder: Path, hub_id: str, repo_type: RepoType, *, private: bool) -> Upload:
    """The upload of all files of `folder`, listed without a request.

    Raises `UserError` for an impossible hub id.
    """
    check_hub_id(hub_id)
    found = sorted(each for each in folder.rglob("*") if each.is_file())
    files = [
        UploadedFile(each.relative_to(folder).as_posix(), each.stat().st_size) for each in found
    ]
    return Upload(folder, hub_id, repo_type, private, tuple(files))


def push(upload: Upload, *, replaces: Sequence[str], message: str) -> str:
    """Send the files; returns their URL.

    Creates the repository, or a new version of it without earlier files that match `replaces`.
    `message` is the commit's. Raises `UserError` if the hub refuses, and before anything is sent
    if an existing repository is public but should be private, or the other way round.
    """
    load_env()
    hub_id, repo_type = upload.hub_id, upload.repo_type
    token = get_token()
    if token is None:
        raise UserError(f"the hub asks who pushes {hub_id}: {_LOG_IN}")
    api = HfApi(token=token)
    try:
        made = api.create_repo(hub_id, repo_type=repo_type, private=upload.private, exist_ok=True)
        is_private = bool(api.repo_info(made.repo_id, repo_type=repo_type).private)
        if is_private != upload.private:
            is_, option = ("private", "--private") if is_private else ("public", "--public")
            raise UserError(
                f"{made.repo_id} is {is_} on the hub already: push with {option},"
                " or name another id"
            )
        api.upload_folder(
            repo_id=made.repo_id,
            repo_type=repo_type,
            folder_path=upload.folder,
            allow_patterns=[each.path for each in upload.files],
            delete_patterns=list(replaces),
            commit_message=message,
        )
    except HfHubHTTPError as error:
        if error.response.status_code in (401, 403):
            raise UserError(f"the hub does not let you write {hub_id}: {_LOG_IN}") from None
        _fail(hub_id, error)
    except (HFValidationError, httpx.HTTPError, OfflineModeIsEnabled, OSError) as error:
        _fail(hub_id, error)
    return str(made)


def _fail(hub_id: str, error: Exception) -> NoReturn:
    reason = redact(" ".join(str(error).split()) or type(error).__name__)[:_REASON_CHARS]
    raise UserError(
        f"can't push {hub_id} ({reason}); check the id (OWNER/NAME) and the network, then run the"
        " same command again"
    ) from None
