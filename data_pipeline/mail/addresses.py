"""Who wrote and who received a mail: address headers made into mailboxes.

Knows nothing of messages. An address is lower case, without white space,
quotes and angle brackets; it has an "@" with something on both sides.
"""

import email.utils
import re
from collections.abc import Iterable
from typing import NamedTuple

from art_e.inbox.mail import Mailbox
from data_pipeline.mail.headers import decode_words
from data_pipeline.mail.text import cached_if_short, one_line

_PLAIN = r"[^\s<>@,;:\"()\\\[\]]+@[^\s<>@,;:\"()\\\[\]]+"
_BARE_ITEM = re.compile(rf"\s*({_PLAIN})\s*")
_NAMED_ITEM = re.compile(rf"([^<>@]*)<\s*({_PLAIN})\s*>\s*")
_SEPARATORS = re.compile(r"[\s<>,;:\"()\\\[\]]+")
# A sender is one mailbox, so all before "<" is the name, commas included.
_SENDER = re.compile(rf"([^<>@]*)<\s*({_PLAIN})\s*>\s*")
_JUMBLE = re.compile(r"[,<>]")
_NEEDS_GRAMMAR = re.compile(r"[\"();:\\\[\]]")
_DIRT = re.compile(r"[\s\x00-\x20\x7f-\xa0<>\"]+")
# Beyond this the grammar of `email.utils` takes too long; addresses are picked out instead.
_LONGEST_GRAMMAR = 200_000
_LONGEST_NAME = 1_000

# Notes and Exchange tails behind a name: "/HOU/ECT@ECT", "@ENRON", " AT ENRON_DEVELOPMENT@CCMAIL".
_DIRECTORY_PATH = re.compile(r"/[^/@]*(?:/[^@]*)?@.*$|/[^/@\s]+/[^@]*$")
_DIRECTORY_DOMAIN = re.compile(r"(?: AT [A-Za-z_]+)?@[A-Za-z_]+\s*$")

# Newer Pythons refuse odd lists in their strict mode; the lenient one is the same everywhere.
_LENIENT = {"strict": False} if getattr(email.utils, "supports_strict_parsing", False) else {}


class Recipients(NamedTuple):
    """To, Cc and Bcc; an address stands in one of them, once."""

    to: tuple[Mailbox, ...]
    cc: tuple[Mailbox, ...]
    bcc: tuple[Mailbox, ...]


def mailboxes(values: Iterable[str]) -> list[Mailbox]:
    """The mailboxes of address headers (unfolded values), in order; those without "@" are dropped.

    RFC 2822 with groups, comments, quoted and encoded names; what that grammar
    makes nothing of is searched for anything that looks like an address.
    """
    found: list[Mailbox] = []
    for value in values:
        if "@" in value or "=?" in value:
            found += _simple_list(value) or _grammar_list(value)
    return found


def sender_mailbox(value: str, directory_name: str = "") -> Mailbox:
    """The first mailbox of a From header; with no address at all its text is the name.

    `directory_name` (Enron's X-From) gives the name where From has none.
    """
    sender = _first_mailbox(value)
    if sender.name or not directory_name:
        return sender
    return Mailbox(sender.address, readable_name(directory_name))


@cached_if_short
def _first_mailbox(value: str) -> Mailbox:
    named = _SENDER.fullmatch(value)
    if named and '"' not in named[1]:
        first = [_mailbox(named[1], named[2])]
    else:
        first = mailboxes([value])[:1]
    return first[0] if first else Mailbox("", _clean_name(value.partition("<")[0] or value))


def recipients(to: Iterable[Mailbox], cc: Iterable[Mailbox], bcc: Iterable[Mailbox]) -> Recipients:
    """Each address once, in its strongest role: to before cc before bcc."""
    seen: set[str] = set()
    roles: list[tuple[Mailbox, ...]] = []
    for boxes in (to, cc, bcc):
        kept: list[Mailbox] = []
        for box in boxes:
            if box.address not in seen:
                seen.add(box.address)
                kept.append(box)
        roles.append(tuple(kept))
    return Recipients(*roles)


@cached_if_short
def readable_name(directory_name: str) -> str:
    """The name in an X-From header: without address, directory path and quotes."""
    name = decode_words(directory_name).partition("<")[0][:_LONGEST_NAME]
    name = name.replace("\\", "").replace('"', "").strip().strip("'").strip()
    name = _DIRECTORY_PATH.sub("", name)
    name = _DIRECTORY_DOMAIN.sub("", name).strip(" \"'")
    return "" if "@" in name else name


def _simple_list(value: str) -> list[Mailbox]:
    """A list that needs no grammar: `a@x, b@y` or `Name <a@x>, ...`; [] if it isn't one."""
    found: list[Mailbox] = []
    for item in value.split(","):
        boxes = _simple_item(item)
        if boxes is None:
            return []
        found += boxes
    return found


@cached_if_short
def _simple_item(item: str) -> tuple[Mailbox, ...] | None:
    """The mailbox of an entry of a list, if it has one; None where it needs the grammar."""
    if _NEEDS_GRAMMAR.search(item):
        return None
    if bare := _BARE_ITEM.fullmatch(item):
        box = _mailbox("", bare[1])
    elif named := _NAMED_ITEM.fullmatch(item):
        box = _mailbox(named[1], named[2])
    else:
        return None if "@" in item else ()
    return (box,) if box.address else ()


def _grammar_list(value: str) -> list[Mailbox]:
    pairs: list[tuple[str, str]] = []
    if len(value) <= _LONGEST_GRAMMAR:
        try:
            pairs = email.utils.getaddresses([value], **_LENIENT)
        except (ValueError, IndexError, TypeError, RecursionError):
            pairs = []
    found = [_mailbox(name, address) for name, address in pairs]
    found = [box for box in found if box.address]
    if not found or any(_JUMBLE.search(address) for _, address in pairs):
        # Whole entries inside an encoded word, unbalanced quotes and brackets.
        texts = _SEPARATORS.split(decode_words(value))
        found = [_mailbox("", text) for text in texts if "@" in text]
    return [box for box in found if box.address]


def _mailbox(name: str, address: str) -> Mailbox:
    """A clean mailbox; its address is "" where there is no usable one."""
    if "=?" in address and "@" in address:
        address = decode_words(address)
    address = _DIRT.sub("", address).strip("'`,;:").rstrip(".").lower()
    local, _, domain = address.rpartition("@")
    if not local or not domain:
        address = ""
    return Mailbox(address, _clean_name(name) if name else "")


def _clean_name(name: str) -> str:
    name = decode_words(name).strip()
    if len(name) > 1 and name[0] == name[-1] and name[0] in "\"'":
        name = name[1:-1]
    return one_line(name.strip('"'))
