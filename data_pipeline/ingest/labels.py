"""Labels of a mail: Gmail's, the status in an mbox, folder and flags of a Maildir or over IMAP.

They get one name each ("inbox", "sent", "drafts", "spam", "trash", "starred", "unread",
"answered"); labels of the user's own stay as they are written. Headers are believed only in an
mbox, whose exporter put them there: in other mail a sender can write what he likes.
"""

import csv
import re
from collections.abc import Collection, Iterable

from art_e.text import visible
from data_pipeline.ingest.headers import Headers, decode_words

# Mail with one of these is in no inbox unless it is asked for.
LEFT_OUT = frozenset({"spam", "trash", "drafts"})

# In the languages of accounts: English, German, French, Spanish, Italian, Dutch, Portuguese,
# Polish, Danish, Norwegian, Swedish; and as mail programs name folders.
_NAMES = {
    "spam": "spam junk bulk bulk_mail junk_e-mail junk_email junk_mail",
    "trash": "trash bin papierkorb corbeille papelera cestino prullenbak lixeira lixo kosz"
    " papirkurv papperskorg papperskorgen deleted deleted_items deleted_messages",
    "drafts": "draft drafts entwürfe brouillons borradores bozze concepten rascunhos wersje_robocze"
    " kladder utkast",
    "sent": "sent gesendet envoyés messages_envoyés enviados enviado inviati verzonden"
    " enviadas wysłane sendt skickat sent_items sent_mail sent_messages",
    "inbox": "inbox posteingang boîte_de_réception recibidos posta_in_arrivo postvak_in"
    " caixa_de_entrada odebrane indbakke innboks inkorg inkorgen",
    "starred": "starred flagged markiert suivis destacados speciali met_ster com_estrela"
    " oznaczone_gwiazdką stjernemarkeret stjernemerket stjärnmärkt",
    "unread": "unread ungelesen non_lus no_leídos da_leggere ongelezen não_lidas nieprzeczytane"
    " ulæst ulest olästa",
}
_NAME_OF = {word.replace("_", " "): name for name, text in _NAMES.items() for word in text.split()}
# What says nothing: Gmail marks read and archived mail in the account's language, too.
_DROPPED = frozenset("opened archived geöffnet archiviert ouvert archivé".split())
_LONGEST = 100  # characters of a label
_MOST = 50

_FLAGS = {"F": "starred", "R": "answered", "T": "trash", "D": "drafts"}
# What IMAP folders are for (RFC 6154), and flags of messages.
_IMAP = dict(
    each.split("=")
    for each in r"\sent=sent \drafts=drafts \draft=drafts \junk=spam \trash=trash \deleted=trash"
    r" \flagged=starred \answered=answered \all=".split()
)
_STATUS = {"F": "starred", "A": "answered", "D": "trash", "T": "drafts"}
BEFORE_FLAGS = re.compile("[:!;]2,")


def label(name: str) -> str:
    """The one name of a label or a folder."""
    plain = " ".join(visible(name).split())[:_LONGEST]
    return _NAME_OF.get(plain.casefold(), plain)


def of_mbox(headers: Headers) -> tuple[str, ...]:
    """What an exporter wrote at the top of a mail: Gmail's labels, or Status and X-Status."""
    gmail = decode_words(headers.first("x-gmail-labels"))
    found = list(map(label, next(csv.reader([gmail], skipinitialspace=True), [])))
    found += [_STATUS[each] for each in headers.first("x-status") if each in _STATUS]
    if "status" in headers and "R" not in headers.first("status"):
        found.append("unread")
    return in_order(found)


def of_maildir(folder: str, file: str) -> tuple[str, ...]:
    """The folder (a path, or names with full stops between them) and the flags of a file's name,
    which stands in `folder/cur` or `folder/new`."""
    place, _, kind = folder.rpartition("/")
    found = [label(place.strip("./").replace("/.", "/").replace(".", "/") or "inbox")]
    # Where ":" isn't allowed in file names, "!" or ";" stands for it.
    given = "".join(BEFORE_FLAGS.split(file, maxsplit=1)[1:])
    if kind == "new" or "S" not in given:
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


def of_file(name: str) -> tuple[str, ...]:
    """The label of an mbox file that is a mail program's folder, such as "Trash"."""
    known = label(name.rpartition("/")[2].removesuffix(".mbox"))
    return (known,) if known in _NAMES else ()


def in_order(labels: list[str]) -> tuple[str, ...]:
    """The labels in order, each once."""
    kept = (each for each in labels if each and each.casefold() not in _DROPPED)
    return tuple(sorted(set(kept)))[:_MOST]
