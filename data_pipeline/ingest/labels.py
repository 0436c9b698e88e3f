"""Labels of a mail: Gmail's, the status in an mbox, folder and flags of a Maildir or over IMAP.

They get one name each ("inbox", "sent", "drafts", "spam", "trash", "starred", "unread",
"answered"); labels of the user's own stay as they are written. Headers are believed only in an
mbox, whose exporter put them there: in other mail a sender can write what he likes."""

import contextlib
import csv
import re
import unicodedata
from collections.abc import Collection, Iterable

from art_e.text import printable, toml_table, visible
from data_pipeline.ingest.headers import Headers, decode_words

LEFT_OUT = frozenset({"spam", "trash", "drafts"})  # in no inbox, unless asked for

PROGRAMS = toml_table(__package__, "programs.toml")
_NAMES: dict[str, str] = PROGRAMS["names"]
_NAME_OF = {word.replace("_", " "): name for name, text in _NAMES.items() for word in text.split()}
_FLAGS, _IMAP, _STATUS, _BITS = (PROGRAMS[each] for each in ("maildir", "imap", "status", "bits"))
_LONGEST = 100  # characters of a label
_MOST = 50

_FOLDERS = frozenset({"spam", "trash", "drafts", "sent", "inbox"})
_ENDING = re.compile(r"(?:-\d{1,9})?(?:\.(?:mbox|mbx|sbd|gz|bz2|xz))+$", re.IGNORECASE)
_DELETED = re.compile(r"(?:^|/)[,#]\d+$")  # MH's own renaming
INFO = re.compile("[:!;]2,")
# Folders that hold a Maildir's inbox, and the characters that its names shift to UTF-7.
_TOP = re.compile(r"^(?:.*/)?(?:local-)?mail(?:dir)?(?:/local)?(?:/|$)", re.IGNORECASE)
_SHIFTED = re.compile(r"&([\w+,/]*+)-", re.ASCII)


def label(name: str) -> str:
    """The one name of a label or a folder."""
    # A Mac's file names have letters and accents apart.
    plain = unicodedata.normalize("NFC", " ".join(visible(name).split())[:_LONGEST])
    return _NAME_OF.get(plain.lower().replace("_", " "), plain)


def of_mbox(headers: Headers) -> tuple[str, ...]:
    """What an exporter wrote at the top of a mail: Gmail's labels, or Status and X-Status."""
    gmail = decode_words(headers.first("x-gmail-labels"))
    found = list(map(label, next(csv.reader([gmail], skipinitialspace=True), [])))
    found += [_STATUS[each] for each in headers.first("x-status") if each in _STATUS]
    for program in ("x-mozilla-status", "x-evolution"):
        with contextlib.suppress(ValueError):
            found += of_flags(program, int(headers.first(program).rpartition("-")[2], 16))
    if "status" in headers and "R" not in headers.first("status"):
        found.append("unread")
    return in_order(found)


def of_maildir(folder: str, file: str) -> tuple[str, ...]:
    """The folder (a path, or names with full stops between), cur or new below it, and the flags."""
    path, _, kind = folder.rpartition("/")
    path = _TOP.sub("", path.replace(".directory/", "/"))  # KMail's
    place = words_of(path.strip("./").replace("/.", "/").replace(".", "/")) or "inbox"
    leaf = label(place.rpartition("/")[2])
    found = [leaf if leaf in _FOLDERS else label(place), *_below(place.split("/"))]
    # Where ":" isn't allowed in file names, "!" or ";" stands for it.
    given = "".join(INFO.split(file, maxsplit=1)[1:])
    if kind == "new" or not ("S" in given or file.endswith(".eml")):  # Thunderbird's has no flags
        found.append("unread")
    return in_order([*found, *(_FLAGS[each] for each in given if each in _FLAGS)])


def of_imap(
    folder: str, attributes: Collection[str], flags: Collection[str], gmail: Iterable[str] = ()
) -> tuple[str, ...]:
    """The folder (names with "/" between them), the message's flags, and its labels at Gmail.
    Attributes and flags are in lower case. What lies below spam or trash is spam or trash."""
    # Some servers keep all folders below the inbox.
    place = folder[6:] if folder[:6].casefold() == "inbox/" else folder
    special = [_IMAP[each] for each in attributes if each in _IMAP]
    top = label(place.partition("/")[0])
    found = special or [label(place), *[top] * (top in ("spam", "trash"))]
    found += [_IMAP[each] for each in flags if each in _IMAP]
    found += ["unread"] * ("\\seen" not in flags)
    return in_order([*found, *(label(each.removeprefix("\\")) for each in gmail)])


def of_path(name: str) -> tuple[str, ...]:
    """The label of a mailbox, such as "Trash.mbox/mbox"; spam and trash label all below them."""
    parts = [label(_ENDING.sub("", part)) for part in name.split("/") if part[-4:] != ".sbd"]
    known = [part for part in parts if part in _FOLDERS] + ["trash"] * bool(_DELETED.search(name))
    return in_order([*known[-1:], *_below(_ENDING.sub("", part) for part in name.split("/"))])


def words_of(folder: str) -> str:
    """A folder's name without modified UTF-7 (RFC 3501), which not every program keeps to."""

    def unshifted(match: "re.Match[str]") -> str:
        with contextlib.suppress(ValueError):
            return f"+{match[1].replace(',', '/')}-".encode().decode("utf-7") if match[1] else "&"
        return match[0]

    return printable(_SHIFTED.sub(unshifted, folder))


def _below(parts: Iterable[str]) -> list[str]:
    return [name for name in map(label, parts) if name in ("spam", "trash")]


def of_flags(program: str, flags: int) -> list[str]:
    """The labels that the bits of a mail program's flags stand for."""
    return [name for name, bit in _BITS[program].items() if bool(flags & bit) != (name == "unread")]


def in_order(labels: list[str]) -> tuple[str, ...]:
    """The labels in order, each once."""
    return tuple(sorted({each for each in labels if each}))[:_MOST]
