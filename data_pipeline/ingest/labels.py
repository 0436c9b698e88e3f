"""Labels of a mail: Gmail's, the status in an mbox, folder and flags of a Maildir or over IMAP.

They are mapped to "inbox", "sent", "drafts", "spam", "trash", "starred", "unread" and "answered";
the user's own labels stay as written. Headers count only in an mbox, because its exporter wrote
them; in other mail the sender may have."""

import contextlib
import csv
import re
import unicodedata
from collections.abc import Collection, Iterable

from art_e.text import printable, toml_table, visible
from data_pipeline.ingest.headers import Headers, decode_words

LEFT_OUT = frozenset({"spam", "trash", "drafts"})  # left out of inboxes, unless asked for

PROGRAMS = toml_table(__package__, "programs.toml")
_NAMES: dict[str, str] = PROGRAMS["names"]
_NAME_OF = {word.replace("_", " "): name for name, text in _NAMES.items() for word in text.split()}
_FLAGS, _IMAP, _STATUS, _BITS = (PROGRAMS[each] for each in ("maildir", "imap", "status", "bits"))
_MAX_CHARS = 100  # characters of a label
_MAX_LABELS = 50

_FOLDERS = frozenset({"spam", "trash", "drafts", "sent", "inbox"})
_ENDING = re.compile(r"(?:-\d{1,9})?(?:\.(?:mbox|mbx|sbd|gz|bz2|xz))+$", re.IGNORECASE)
_DELETED = re.compile(r"(?:^|/)[,#]\d+$")  # MH's own renaming
INFO = re.compile("[:!;]2,")
# Folders that hold a Maildir's inbox, and the characters that its names shift to UTF-7.
_TOP = re.compile(r"^(?:.*/)?(?:local-)?mail(?:dir)?(?:/local)?(?:/|$)", re.IGNORECASE)
_SHIFTED = re.compile(r"&([\w+,/]*+)-", re.ASCII)


def label(name: str) -> str:
    """Return the common name of a label or folder; the user's own names stay as they are."""
    # File names on a Mac have letters and accents as separate characters.
    plain = unicodedata.normalize("NFC", " ".join(visible(name).split())[:_MAX_CHARS])
    return _NAME_OF.get(plain.lower().replace("_", " "), plain)


def of_mbox(headers: Headers) -> tuple[str, ...]:
    """Return the labels that an exporter wrote: Gmail's labels, or Status and X-Status."""
    gmail = decode_words(headers.first("x-gmail-labels"))
    labels = list(map(label, next(csv.reader([gmail], skipinitialspace=True), [])))
    labels += [_STATUS[each] for each in headers.first("x-status") if each in _STATUS]
    for program in ("x-mozilla-status", "x-evolution"):
        with contextlib.suppress(ValueError):
            labels += of_flags(program, int(headers.first(program).rpartition("-")[2], 16))
    if "status" in headers and "R" not in headers.first("status"):
        labels.append("unread")
    return in_order(labels)


def of_maildir(folder: str, file: str) -> tuple[str, ...]:
    """Return a message's labels: its folder (separated by "/" or "."), "unread", and its flags."""
    path, _, kind = folder.rpartition("/")
    path = _TOP.sub("", path.replace(".directory/", "/"))  # KMail's
    place = decode_folder(path.strip("./").replace("/.", "/").replace(".", "/")) or "inbox"
    leaf = label(place.rpartition("/")[2])
    labels = [leaf if leaf in _FOLDERS else label(place), *_below(place.split("/"))]
    # On file systems without ":" in names, "!" or ";" replaces it.
    flags = "".join(INFO.split(file, maxsplit=1)[1:])
    if kind == "new" or not ("S" in flags or file.endswith(".eml")):  # Thunderbird's has no flags
        labels.append("unread")
    return in_order([*labels, *(_FLAGS[each] for each in flags if each in _FLAGS)])


def of_imap(
    folder: str, attributes: Collection[str], flags: Collection[str], gmail: Iterable[str] = ()
) -> tuple[str, ...]:
    """Return the labels of a message: its folder (separated by "/"), its flags, and Gmail's labels.
    Attributes and flags are in lower case. Folders below spam or trash are spam or trash, too."""
    # Some servers put all folders below the inbox.
    place = folder[6:] if folder[:6].casefold() == "inbox/" else folder
    special = [_IMAP[each] for each in attributes if each in _IMAP]
    top = label(place.partition("/")[0])
    labels = special or [label(place), *[top] * (top in ("spam", "trash"))]
    labels += [_IMAP[each] for each in flags if each in _IMAP]
    labels += ["unread"] * ("\\seen" not in flags)
    return in_order([*labels, *(label(each.removeprefix("\\")) for each in gmail)])


def of_path(name: str) -> tuple[str, ...]:
    """Return the labels of a mailbox like "Trash.mbox/mbox"; subfolders inherit spam and trash."""
    parts = [label(_ENDING.sub("", part)) for part in name.split("/") if part[-4:] != ".sbd"]
    folders = [part for part in parts if part in _FOLDERS] + ["trash"] * bool(_DELETED.search(name))
    return in_order([*folders[-1:], *_below(_ENDING.sub("", part) for part in name.split("/"))])


def decode_folder(folder: str) -> str:
    """Return a folder's name decoded from modified UTF-7 (RFC 3501), if encoded."""

    def unshifted(match: "re.Match[str]") -> str:
        with contextlib.suppress(ValueError):
            return f"+{match[1].replace(',', '/')}-".encode().decode("utf-7") if match[1] else "&"
        return match[0]

    return printable(_SHIFTED.sub(unshifted, folder))


def _below(parts: Iterable[str]) -> list[str]:
    return [name for name in map(label, parts) if name in ("spam", "trash")]


def of_flags(program: str, flags: int) -> list[str]:
    """Return the labels of the bits in a mail program's flags."""
    return [name for name, bit in _BITS[program].items() if bool(flags & bit) != (name == "unread")]


def in_order(labels: list[str]) -> tuple[str, ...]:
    """Return the labels sorted, without repeats."""
    return tuple(sorted({each for each in labels if each}))[:_MAX_LABELS]
