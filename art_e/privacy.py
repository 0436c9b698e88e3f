"""What keeps mail with its owner: files that nobody else may read, and no proxy on the way to a
model on this machine.
"""

import os
import re
from functools import cache
from pathlib import Path

from art_e.errors import UserError

# ---- API keys: taken from the environment or a `.env` file, kept out of all that is shown.

REDACTED = "[redacted]"
# A shorter value is no key, and would be found in innocent text.
_LEAST_CHARS = 8
# What of a key must be there for a cut-off echo of it ("my-secr...") to be known as one.
_PREFIX_CHARS = 5
_SECRET_NAME = re.compile(
    r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL)S?(?:_|$)", re.IGNORECASE
)
_KEYS = (
    # Keys by their first letters; providers echo them with asterisks or dots in the middle.
    r"(?<![A-Za-z0-9])(?:sk|pk|rk)[-_][\w*•…-]{5,}(?:\.{2,}[\w-]*)?"
    r"|(?<![A-Za-z0-9])(?:AIza|hf_|gsk_|xai-|ghp_|github_pat_|AKIA|eyJ)[\w*•…-]{8,}(?:\.+[\w-]+)*"
    # A header, or a URL with a key or a password in it.
    r"|(?i:(?<=\bbearer\s)\s*[\w.~+/=*•…-]{8,})"
    r"|(?i:(?<=[?&]key=)|(?<=api[-_]key=)|(?<=token=))[^&\s\"']+"
    r"|(?<=://)[^/\s@]+(?=@)"
)
# Any word whose middle or end is hidden.
_HIDDEN = r"(?<![\w-])[\w-]++[*•]{3,}[\w-]*|(?<![*•])[*•]{3,}+[\w-]{2,}"
_SHAPES = re.compile(f"{_KEYS}|{_HIDDEN}")


@cache
def load_env() -> None:
    """Add what the `.env` of the working directory sets to the environment, once a process.

    What is set there already stays. Raises `UserError` where the file can't be read.
    """
    path = Path.cwd() / ".env"
    if not path.is_file():
        return
    from dotenv import load_dotenv

    try:
        load_dotenv(path, override=False, encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise UserError(f"can't read {path}: {reason}; mend or remove it") from None


def redact(text: str) -> str:
    """`text` without keys.

    Gone are the values of environment variables that are named like a key, and whatever
    has the shape of one, hidden in part or not.
    """
    values = sorted(_secret_values(), key=len, reverse=True)
    if values:
        known = "|".join(re.escape(value) for value in values)
        cut = "|".join(re.escape(value[:_PREFIX_CHARS]) for value in values)
        echo = rf"(?:{cut})[\w-]{{0,200}}(?:[*•]{{2,}}|\.{{2,}}|…)[\w*•-]*"
        text = re.sub(echo, REDACTED, re.sub(known, REDACTED, text))
    return _SHAPES.sub(REDACTED, text)


def keys_in_mail() -> re.Pattern[str]:
    """What finds keys in text of any origin: the values of environment variables that are named
    like a key, and what has the shape of one. A word with asterisks is none: mail has those."""
    values = sorted(_secret_values(), key=len, reverse=True)
    return re.compile("|".join([*map(re.escape, values), _KEYS]))


def _secret_values() -> set[str]:
    return {
        value.strip()
        for name, value in os.environ.items()
        if _SECRET_NAME.search(name) and len(value.strip()) >= _LEAST_CHARS
    }


# ---- What keeps mail with its owner: files that nobody else may read, and no proxy on the way to a

# As clients write the loopback interface; what else a model's address says is added when it is
# known (`art_e.models.providers`).
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def files_for_owner_alone() -> None:
    """Have all files that this process makes readable by its user alone: 0600, folders 0700."""
    os.umask(0o077)


def loopback_directly(*hosts: str) -> None:
    """Have clients reach this machine, and `hosts` of it, by no proxy.

    `HTTP_PROXY` and `ALL_PROXY` would send a question, and the mail with it, to another machine
    although the model runs here.
    """
    listed = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    known = [each.strip() for each in listed.split(",") if each.strip()]
    # Clients differ in which of the two they read.
    value = ",".join(dict.fromkeys([*known, *_LOOPBACK, *hosts]))
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = value
