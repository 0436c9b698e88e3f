"""Untrusted text made safe to print: no control sequences, no overrides of direction.

Mail and a model's answers are written by others, and a terminal obeys what is
printed on it. Knows nothing of mail or of consoles.
"""

import re

# A string sequence (OSC, DCS, SOS, PM, APC) goes with its payload where it ends
# properly; without an end only its introducer goes, so that it can't swallow the
# rest of a mail. The payload's class stops at every ESC: the work stays linear.
_STRING = r"\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"
_CSI = r"\x1b\[[0-?]*[ -/]*[@-~]?"
_OTHER_ESCAPE = r"\x1b(?:[ -/]+[0-~]?|[0-~])?"
# One character each. C1 characters are no introducers here: in mail they are
# mostly what is left of a wrong charset, and what stands between two is text.
_CONTROLS = r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"
_DIRECTIONS = r"[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
_SURROGATES = r"[\ud800-\udfff]"

_UNSAFE = re.compile("|".join((_STRING, _CSI, _OTHER_ESCAPE, _CONTROLS, _DIRECTIONS, _SURROGATES)))


def clean(text: str) -> str:
    """`text` without escape sequences, control characters other than "\\n" and "\\t",
    characters that override the direction of writing, and lone surrogates.
    """
    return _UNSAFE.sub("", text)


def one_line(text: str) -> str:
    """`text` cleaned, on one line, with single spaces."""
    return " ".join(clean(" ".join(text.split())).split())
