"""An exported golden set put on the Hugging Face hub, private unless asked otherwise.

Knows nothing of what the set says. The token is `huggingface_hub`'s to find (HF_TOKEN, or
`hf auth login`) and is in no message.
"""

from pathlib import Path
from typing import NoReturn

import httpx
from huggingface_hub import HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

from art_e.errors import UserError
from art_e.policies.secrets import load_env, redact
from data_pipeline.golden.export import QUESTION_FILES

_LOG_IN = "log in with: hf auth login, or set HF_TOKEN to a token that may write"
_REASON_CHARS = 200


def push(folder: Path, hub_id: str, *, private: bool) -> str:
    """Upload the exported set in `folder`; where it is then.

    The data set of that id is made, or gets a new version, in which nothing of an earlier
    export is left. Raises `UserError` where the hub does not take it, and before anything is
    sent where there is a data set of that id that is public and should be private, or the
    other way round.
    """
    load_env()
    token = get_token()
    if token is None:
        raise UserError(f"the hub asks who pushes {hub_id}: {_LOG_IN}")
    api = HfApi(token=token)
    try:
        made = api.create_repo(hub_id, repo_type="dataset", private=private, exist_ok=True)
        is_private = bool(api.dataset_info(made.repo_id).private)
        if is_private != private:
            is_, option = ("private", "--private") if is_private else ("public", "--public")
            raise UserError(
                f"{made.repo_id} is {is_} on the hub already: push with {option},"
                " or name another id"
            )
        api.upload_folder(
            repo_id=made.repo_id,
            repo_type="dataset",
            folder_path=folder,
            delete_patterns=list(QUESTION_FILES),
            commit_message="Golden set",
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
        f"can't push {hub_id} ({reason}); check the id (NAME/SET) and the network, then run the"
        " same command again"
    ) from None
