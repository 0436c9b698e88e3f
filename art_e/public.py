"""Names and settings as others may see them: hub ids as they are, of paths the last part.

What leaves this machine passes here: where things lie on it, and whose home that is, is
nobody's business. Knows nothing of what the names name.
"""

import re
from pathlib import Path
from typing import Any

from art_e.errors import UserError
from art_e.policies.checkpoint import split_adapter
from art_e.policies.choose import LOCAL_PREFIX

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
# A model or data set in the hub's cache, as `huggingface_hub` names its folders.
_CACHED = re.compile(r"(?:models|datasets)--([\w.-]+?)--([\w.-]+)")
# A text that is a path and no more, and one within a text; neither is part of a URL.
_PATH = re.compile(r"(?:~\w*|\.{1,2}|[A-Za-z]:)?[\\/].*|~\w*", re.DOTALL)
_PATH_WITHIN = re.compile(
    r"(?<![\w/\\:.~])(?:~\w*|[A-Za-z]:)?[\\/](?:[^\s\\/'\":,;()<>]+[\\/])+[^\s\\/'\":,;()<>]*"
)


def is_hub_id(name: str) -> bool:
    """Whether `name` is an id of the hub, and nothing on this machine."""
    return _HUB_ID.fullmatch(name) is not None and not Path(name).exists()


def public_name(name: str) -> str:
    """A hub id, also of a folder in the hub's cache; of another path its last part."""
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
    """A model's name, of `--model` or of a judge, without the paths of this machine."""
    if not name.startswith(LOCAL_PREFIX):
        return public_name(name) if _PATH.fullmatch(name) else name
    path = name.removeprefix(LOCAL_PREFIX)
    try:
        base, adapter = split_adapter(path)
    except UserError:  # "~nobody", whose home is nowhere
        base, adapter = path, None
    shown = [public_name(each) for each in (base, adapter) if each is not None]
    return LOCAL_PREFIX + "+".join(shown)


def public_text(text: str) -> str:
    """A message of a program, without the paths that it quotes."""
    return _PATH_WITHIN.sub(lambda found: public_name(found[0]), text)


def public_settings(value: Any) -> Any:
    """JSON in which no string is or quotes a path, or is the name of a model that is one."""
    if isinstance(value, str):
        shown = public_model(value)
        return public_text(value) if shown == value else shown
    if isinstance(value, list):
        return [public_settings(each) for each in value]
    if isinstance(value, dict):
        return {name: public_settings(each) for name, each in value.items()}
    return value
