"""Keeps mail and keys with their owner: private files, no proxies, redacted keys."""

import os
import re
import sys
from functools import cache
from pathlib import Path

from art_e.errors import explained
from art_e.text import printable

REDACTED = "[redacted]"
_LEAST_CHARS = 8  # shorter values would match ordinary text
_PREFIX_CHARS = 5  # length of a key's start that identifies a shortened echo ("my-secr...")
_SECRET_NAME = re.compile(r"(?i)(KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL)S?(?:_|$)")
# The names under which litellm and the openai client look for keys: `.env` may set only these.
# Libraries read other names as addresses, files, or commands to run.
_ENV_KEYS = set(Path(__file__).with_name("key_names.txt").read_text("utf-8").split())
# Neither an address nor a path, nor anything that a program might expand: "." or "/", not both.
_KEY_VALUE = re.compile(r"[\w+](?:[\w.=~-]*|[\w+/=~-]*)")
_KEYS = (
    # Keys by their first letters; providers mask the middle with asterisks or dots.
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
    """Add the keys of the working directory's `.env` to the environment, once a process. Existing
    variables win. Only keys of known providers are taken: in an untrusted folder an address, a
    proxy or a path could redirect mail or run a program. Ignored names go to stderr. Raises
    `UserError` if the file can't be read."""
    path = Path.cwd() / ".env"
    if not path.is_file():
        return
    from dotenv import dotenv_values

    with explained(f"can't read {path}", "fix or delete it"):
        variables = dotenv_values(path, interpolate=False, encoding="utf-8")
    new = {name: value for name, value in variables.items() if value and name not in os.environ}
    keys = {n: v for n, v in new.items() if n in _ENV_KEYS and _KEY_VALUE.fullmatch(v)}
    os.environ.update(keys)
    if left := sorted(new.keys() - keys.keys()):
        named = printable(", ".join(left))[:300]
        line = ".env may set only keys of model providers; if you need them, export"
        sys.stderr.write(f"{line}: {named}\n")


def redact(text: str) -> str:
    """Redact values of variables named like a key, and text that looks like a key."""
    named = (value.strip() for name, value in os.environ.items() if _SECRET_NAME.search(name))
    keys = {value for value in named if len(value) >= _LEAST_CHARS}
    values = sorted(keys, key=len, reverse=True)
    if values:
        whole = "|".join(re.escape(value) for value in values)
        cut = "|".join(re.escape(value[:_PREFIX_CHARS]) for value in values)
        echo = rf"(?:{cut})[\w-]{{0,200}}(?:[*•]{{2,}}|\.{{2,}}|…)[\w*•-]*"
        text = re.sub(echo, REDACTED, re.sub(whole, REDACTED, text))
    return _SHAPES.sub(REDACTED, text)


_PIECE = 8  # characters that identify a key, unless they could be part of a word
_OF_A_WORD = re.compile(r"[\W_]*\w?[a-z\W_]*")
_LONG_WORD = re.compile(rf"[^\s\"'\\]{{{_PIECE},}}")


def without_keys(text: str) -> str:
    """Redact this process's keys in `text`: whole keys, even with other signs in between, and their
    pieces of 8 characters or more. Unlike `redact`, keep text that only looks like a key."""
    named = {value for name, value in os.environ.items() if _SECRET_NAME.search(name)}
    keys = [each for each in named if len(each) >= 2 * _PIECE and not re.search(r"\s", each)]
    for key in keys:
        # Up to 6 signs may separate a key's letters and digits; "+" forbids slow backtracking.
        text = re.sub(r"[\W_]{0,6}+".join(re.findall(r"[^\W_]", key)), REDACTED, text)
    cut_out = (key[at : at + _PIECE] for key in keys for at in range(len(key) - _PIECE + 1))
    pieces = {each for each in cut_out if _OF_A_WORD.fullmatch(each) is None}

    def cut(match: re.Match[str]) -> str:
        word = match[0]
        ats = [at for at in range(len(word) - _PIECE + 1) if word[at : at + _PIECE] in pieces]
        return f"{word[: ats[0]]}{REDACTED}{word[ats[-1] + _PIECE :]}" if ats else word

    return _LONG_WORD.sub(cut, text) if pieces else text


# The loopback interface as clients write it; `art_e.models.providers` adds a model's address.
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def loopback_directly(*hosts: str) -> None:
    """Make clients reach this machine, and its names `hosts`, without a proxy. `HTTP_PROXY` and
    `ALL_PROXY` would send mail to another machine although the model runs here."""
    listed = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    names = [each.strip() for each in listed.split(",") if each.strip()]
    # Clients differ in which of the two variables they read.
    value = ",".join(dict.fromkeys([*names, *LOOPBACK, *hosts]))
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = value
