"""Folders put on the Hugging Face hub, private unless asked otherwise, and what would leave.

`upload_of` says what a push would send, file by file, without a word to anybody; `push` sends
that and no more. Knows nothing of what the files say. The token is `huggingface_hub`'s to find
(HF_TOKEN, or `hf auth login`) and is in no message.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

import httpx
from huggingface_hub import HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from art_e.errors import UserError
from art_e.policies.secrets import load_env, redact

RepoType = Literal["model", "dataset"]

_LOG_IN = "log in with: hf auth login, or set HF_TOKEN to a token that may write"
_REASON_CHARS = 200


class File(NamedTuple):
    """A file by its path in the repository, and its size in bytes."""

    path: str
    size: int


class Upload(NamedTuple):
    """What a push sends: the `files` of `folder`, to `hub_id`."""

    folder: Path
    hub_id: str
    repo_type: RepoType
    private: bool
    files: tuple[File, ...]

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
    """Raise `UserError` for what can be no id on the hub. Nobody is asked."""
    try:
        validate_repo_id(hub_id)
    except HFValidationError as error:
        _fail(hub_id, error)


def upload_of(folder: Path, hub_id: str, repo_type: RepoType, *, private: bool) -> Upload:
    """All that `folder` holds, to be pushed as `hub_id`. Nobody is asked.

    Raises `UserError` for what can be no id on the hub.
    """
    check_hub_id(hub_id)
    found = sorted(each for each in folder.rglob("*") if each.is_file())
    files = [File(each.relative_to(folder).as_posix(), each.stat().st_size) for each in found]
    return Upload(folder, hub_id, repo_type, private, tuple(files))


def push(upload: Upload, *, replaces: Sequence[str], message: str) -> str:
    """Send the files; where they are then.

    The repository of that id is made, or gets a new version, in which no file is left that
    matches a pattern of `replaces` and is not sent now. `message` is the commit's. Raises
    `UserError` where the hub does not take it, and before anything is sent where there is
    a repository of that id that is public and should be private, or the other way round.
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
