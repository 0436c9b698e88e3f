"""Mail of an IMAP account: `follow` fetches it into a spool, which ingest reads like any source.

    ART_E_HOME/imap/<account>/<folder>-<UIDVALIDITY>/<UID>    a message as the server sent it
    <inbox file>.sync.json                                    the messages there are, and labels

Nothing on the server ever changes. A file's name stands for one message for ever (RFC 3501), so
only what the spool lacks is fetched. The state is written when all is there, then what the server
no longer has leaves the spool: after a cut or a kill at any point the next time goes on from there.
"""

import contextlib
import datetime as dt
import errno
import getpass
import imaplib
import itertools
import os
import re
import ssl
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from pydantic import BaseModel, ValidationError

from art_e.cli.output import note, one_line, progress
from art_e.errors import UserError
from art_e.privacy import LOOPBACK, load_env
from art_e.storage import home, locked, partial_of, write_whole
from art_e.text import digest, printable
from data_pipeline.ingest.archives import head_of, regular_files
from data_pipeline.ingest.headers import parse_date
from data_pipeline.ingest.labels import of_imap
from data_pipeline.ingest.records import LARGEST_MESSAGE, RawMessage

PASSWORD = "ART_E_IMAP_PASSWORD"
# Seconds before a connection that was cut is opened again.
WAITS_S = (1.0, 5.0, 20.0)
_TIMEOUT_S = 60.0
# What a cut loses, for a batch comes whole or not at all; at most 100 messages.
_BATCH_BYTES = 1_000_000
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS}
_ADDRESS = re.compile(r"(imaps?)://([^:/]+)@([\w.-]+)(?::(\d{1,5}))?/?")

# ---- Accounts and their passwords.


def is_account(source: str) -> bool:
    """Whether a source is an IMAP account."""
    return source.startswith(("imaps://", "imap://"))


class Account(NamedTuple):
    """An account; its text is the `imaps://user@host:port` that names it."""

    scheme: str
    user: str
    host: str
    port: int

    @classmethod
    def of(cls, address: str) -> "Account":
        """The account of an address, which no error repeats: it may hold a password."""
        match = _ADDRESS.fullmatch(address)
        if match is None or int(match[4] or 0) > 65_535:
            raise UserError(
                "an IMAP account is written imaps://user@host or imaps://user@host:port, without a"
                f" password; {PASSWORD}, the keyring or a prompt gives that"
            )
        scheme, user, host, port = match.groups()
        usual = {"imaps": 993, "imap": 143}[scheme]
        return cls(scheme, unquote(user), host.lower(), int(port or usual))

    def __str__(self) -> str:
        return f"{self.scheme}://{quote(self.user, '@')}@{self.host}:{self.port}"

    @property
    def spool(self) -> Path:
        """The folder of its messages."""
        return home() / "imap" / digest(str(self))


def _password_of(account: Account) -> str:
    with contextlib.suppress(ImportError):
        import keyring

        with contextlib.suppress(keyring.errors.KeyringError):
            if kept := keyring.get_password(account.host, account.user):
                return str(kept)
    load_env()
    if given := os.environ.get(PASSWORD):
        return given
    if sys.stdin.isatty():
        return getpass.getpass(one_line(f"password of {account.user} at {account.host}:") + " ")
    raise UserError(
        f"no password of {account.user} at {account.host}: set {PASSWORD}, or keep it with"
        f" keyring set {account.host} {account.user} (pip install 'art-e[imap]')"
    )


# ---- The state and the spool.

Marks = tuple[tuple[str, ...], str]  # labels, and Gmail's name of the thread


class Folder(BaseModel):
    """A folder of the account: its place in the spool, and the UIDs of its messages."""

    name: str
    place: str
    messages: dict[int, Marks]


class State(BaseModel):
    """The account as it was last found; folders by their names as the server writes them."""

    account: str
    folders: dict[str, Folder] = {}

    def files(self) -> Iterator[tuple[Path, str, Marks]]:
        """Of each message: its file, a name for people, its marks."""
        spool = Account.of(self.account).spool
        for folder in self.folders.values():
            for uid, marks in folder.messages.items():
                yield spool / folder.place / str(uid), f"{folder.name}/{uid}", marks


def state_file(db: Path) -> Path:
    """The file beside an inbox file that says which account it follows."""
    return db.with_name(f"{db.name}.sync.json")


def load_state(path: Path) -> State | None:
    """The state in a file; None without one."""
    try:
        return State.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError:
        raise UserError(f"{path} is damaged: delete it, then ingest with --replace") from None


def read_spool(path: Path) -> Iterator[RawMessage]:
    """The messages of a state file."""
    state = load_state(path)
    for file, source, (labels, thread) in state.files() if state else ():
        data = head_of(file, LARGEST_MESSAGE + 1)
        received = dt.datetime.fromtimestamp(file.stat().st_mtime, dt.UTC)
        yield RawMessage(source, data, received, labels, gmail_thread=thread)


# ---- Following an account.


def follow(account: Account, db: Path) -> dict[str, int]:
    """Bring the spool, and the state beside the inbox file `db`, to what the account holds; returns
    how many messages are new, have changed labels, and are deleted."""
    password = _password_of(account)
    for folder in (account.spool, db.parent):
        folder.mkdir(parents=True, exist_ok=True)
    busy = f"{account.user} at {account.host} is being read already; wait for it to end"
    with locked(account.spool.with_suffix(".lock"), busy):
        new, old = State(account=str(account)), load_state(state_file(db))
        if old is None or old.account != new.account:
            old = State(account=new.account)
        _read_account(account, password, old, new)
        was, now = ({file: marks for file, _, marks in each.files()} for each in (old, new))
        both = was.keys() & now.keys()
        changed = sum(was[each] != now[each] for each in both)
        if new != old or not now:
            write_whole(state_file(db), new.model_dump_json())
        # With what a cut left half written.
        for file in regular_files(account.spool):
            if file not in now:
                file.unlink()
    return {"new": len(now) - len(both), "changed": changed, "deleted": len(was) - len(both)}


def _read_account(account: Account, password: str, old: State, new: State) -> None:
    """Fill `new`, over as many connections as it takes while each brings something."""

    def have() -> int:
        return len(new.folders) + sum(1 for _ in regular_files(account.spool))

    waits = iter(WAITS_S)
    while True:
        before = have()
        try:
            with _connection(account, password) as imap:
                return _read_folders(imap, account.spool, old, new)
        except ssl.SSLCertVerificationError as error:
            raise UserError(
                f"the certificate of {account.host} can't be trusted ({error.verify_message}):"
                " check the host's name; SSL_CERT_FILE names a certificate of your own"
            ) from None
        except (imaplib.IMAP4.abort, OSError) as error:
            if isinstance(error, OSError) and error.errno in _DISK:
                raise
            if have() > before:
                waits = iter(WAITS_S)
            # What imaplib says holds pieces of mail.
            why = str(error) if isinstance(error, OSError) else "it was closed"
            if (wait := next(waits, None)) is None:
                raise UserError(
                    f"no connection to {account.host}:{account.port} ({why}): what was fetched is"
                    " kept, and the same command goes on from there"
                ) from None
            note(f"the connection to {account.host} is cut ({why}); again in {wait:.0f} s")
            time.sleep(wait)
        except imaplib.IMAP4.error as error:
            raise UserError(f"{account.host} refuses ({error}); try again later") from None


@contextlib.contextmanager
def _connection(account: Account, password: str) -> Iterator[imaplib.IMAP4]:
    context, at = ssl.create_default_context(), (account.host, account.port)
    if account.scheme == "imaps":
        imap: imaplib.IMAP4 = imaplib.IMAP4_SSL(*at, ssl_context=context, timeout=_TIMEOUT_S)
    else:
        imap = imaplib.IMAP4(*at, timeout=_TIMEOUT_S)
    try:
        open_is_fine = account.host in LOOPBACK and "LOGINDISABLED" not in imap.capabilities
        if account.scheme == "imap" and not open_is_fine:
            if "STARTTLS" not in imap.capabilities:
                raise UserError(f"{account.host} would get the password in the open: use imaps://")
            imap.starttls(context)
        if "AUTH=PLAIN" in imap.capabilities:
            imap.authenticate("PLAIN", lambda _: f"\0{account.user}\0{password}".encode())
        else:
            imap.login(_quoted(account.user.encode()).decode(), password)
        yield imap
    except (imaplib.IMAP4.error, UnicodeError) as error:
        cut = isinstance(error, imaplib.IMAP4.abort) or "[UNAVAILABLE]" in str(error)
        if cut or imap.state != "NONAUTH":
            raise
        # Without the server's words, which may repeat the password.
        raise UserError(
            f"{account.host} rejects the password of {account.user}: check both; Gmail, Fastmail,"
            " iCloud and Yahoo want an app password"
        ) from None
    finally:
        # Without LOGOUT, which waits for what is still on its way.
        with contextlib.suppress(OSError):
            imap.shutdown()


def _read_folders(imap: imaplib.IMAP4, spool: Path, old: State, new: State) -> None:
    """Add the folders that `new` lacks; at Gmail of those that hold all mail."""
    query, folders = "(UID FLAGS RFC822.SIZE)", list(_folders(imap))
    if b"X-GM-EXT-1" in imap.capability()[1][0].upper().split():
        query = "(UID FLAGS RFC822.SIZE X-GM-LABELS X-GM-THRID)"
        if any("\\all" in each.attributes for each in folders):
            folders = [each for each in folders if each.attributes & {"\\all", "\\junk", "\\trash"}]
    for folder in folders:
        if folder.key in new.folders:
            continue
        try:
            new.folders[folder.key] = _read_folder(imap, spool, folder, query)
        except imaplib.IMAP4.abort:
            raise
        except imaplib.IMAP4.error as error:
            note(f"{folder.name} can't be read ({error}); it stays as it was")
            if folder.key in old.folders:
                new.folders[folder.key] = old.folders[folder.key]


class _Listed(NamedTuple):
    key: str  # the name on the wire
    name: str  # in words with "/" between
    attributes: frozenset[str]


def _folders(imap: imaplib.IMAP4) -> Iterator[_Listed]:
    for text, literals in _responses(imap.list()):
        match = _LIST.fullmatch(text)
        name = next(_strings(match[3], literals), b"") if match else b""
        # A name with a line's end can be in no command.
        if match is None or not name or re.search(rb"[\r\n\0]", name):
            continue
        attributes = frozenset(match[1].decode("latin-1").lower().split())
        words = _decoded(name)
        if match[2]:
            words = words.replace(match[2][-1:].decode("latin-1"), "/")
        if not attributes & {"\\noselect", "\\nonexistent"}:
            yield _Listed(name.decode("latin-1"), words, attributes)


def _read_folder(imap: imaplib.IMAP4, spool: Path, folder: _Listed, query: str) -> Folder:
    """The folder's messages, after those that the spool lacks were fetched."""
    name: Any = _quoted(folder.key.encode("latin-1"))  # typeshed wants text
    count, _ = next(_responses(imap.select(name, readonly=True)), (b"0", []))  # EXAMINE
    validity = (imap.response("UIDVALIDITY")[1][0] or b"0").decode()
    messages: dict[int, Marks] = {}
    sizes: dict[int, int] = {}
    # An empty folder has no "1:*".
    for text, literals in _responses(imap.uid("FETCH", "1:*", query)) if int(count) else ():
        fields = _fields(_LABELS.sub(b"", text))
        if not fields.keys() >= {"UID", "FLAGS", "RFC822.SIZE"}:
            continue  # the server's word on a change meanwhile
        gmail = map(_decoded, _strings(b" ".join(_LABELS.findall(text)), literals))
        uid, flags = int(fields["UID"]), fields["FLAGS"].strip("()").lower().split()
        labels = of_imap(folder.name, folder.attributes, flags, gmail)
        messages[uid] = labels, fields.get("X-GM-THRID", "")
        sizes[uid] = int(fields["RFC822.SIZE"])
    place = spool / f"{digest(folder.key)}-{validity}"
    place.mkdir(exist_ok=True)
    # Empty is what a loss of power may leave.
    kept = {each.name for each in os.scandir(place) if each.stat().st_size}
    missing = [uid for uid in sorted(messages) if str(uid) not in kept]
    totals = itertools.accumulate(max(sizes[uid], _BATCH_BYTES // 100) for uid in missing)
    with progress("", len(missing), doing=f"fetching {folder.name}") as advance:
        for _, batch in itertools.groupby(
            zip(missing, totals, strict=True), lambda each: each[1] // _BATCH_BYTES
        ):
            for uid in _fetch_into(imap, place, [uid for uid, _ in batch]):
                kept.add(str(uid))
                advance()
    present = {uid: marks for uid, marks in sorted(messages.items()) if str(uid) in kept}
    return Folder(name=folder.name, place=place.name, messages=present)


def _fetch_into(imap: imaplib.IMAP4, place: Path, uids: Sequence[int]) -> Iterator[int]:
    """Fetch messages into their files, cut one byte beyond what the parser accepts; the UIDs."""
    query = f"(UID INTERNALDATE BODY.PEEK[]<0.{LARGEST_MESSAGE + 1}>)"
    try:
        found = list(_responses(imap.uid("FETCH", ",".join(map(str, uids)), query)))
    except imaplib.IMAP4.abort:
        raise
    except imaplib.IMAP4.error as error:
        if len(uids) == 1:
            note(f"a message can't be fetched and is left out ({error})")
            return
        for uid in uids:  # a bad one fails all of its batch
            yield from _fetch_into(imap, place, [uid])
        return
    for text, literals in found:
        fields = _fields(text)
        uid = int(fields.get("UID", 0))
        if uid not in uids or b"BODY[" not in text:
            continue
        partial = partial_of(place / str(uid))
        partial.write_bytes(literals[0] if literals else b"")
        if (received := parse_date(fields.get("INTERNALDATE", "").strip('"'))) is not None:
            os.utime(partial, (received.timestamp(), received.timestamp()))
        partial.replace(place / str(uid))
        yield uid


# ---- The wire, as far as imaplib leaves it to us.

_LIST = re.compile(rb'\(([^)]*)\) (?:NIL|"(\\?[^"])") (.+)', re.DOTALL)
_FIELD = re.compile(rb'[ (]([A-Z][A-Z0-9.-]+) (\([^)]*\)|"[^"]*"|\d+)')
_LABELS = re.compile(rb'X-GM-LABELS \(((?:"(?:[^"\\]|\\.)*"|[^")])*)\)')
_STRING = re.compile(rb'"((?:[^"\\]|\\.)*)"|(\{\d+\})|([^\s()"]+)')
_SHIFTED = re.compile(rb"&([^-]*)-")


def _responses(reply: tuple[str, list[Any]]) -> Iterator[tuple[bytes, list[bytes]]]:
    """Each response to a command: its text, with "{size}" where its literals stood, and these."""
    kind, items = reply
    if kind != "OK":
        raise imaplib.IMAP4.error(b" ".join(filter(None, items)).decode("utf-8", "replace"))
    text, literals = b"", []
    for item in items:
        if isinstance(item, tuple):
            text += item[0]
            literals.append(item[1])
        elif item is not None:
            yield text + item, literals
            text, literals = b"", []


def _fields(text: bytes) -> dict[str, str]:
    """The fields of a FETCH that are numbers, lists or quoted."""
    return {name.decode(): value.decode("latin-1") for name, value in _FIELD.findall(text)}


def _strings(text: bytes, literals: Sequence[bytes]) -> Iterator[bytes]:
    """The strings in a response: quoted, literal or bare."""
    left = iter(literals)
    for quoted, literal, bare in _STRING.findall(text):
        yield next(left, b"") if literal else bare or re.sub(rb"\\(.)", rb"\1", quoted)


def _quoted(name: bytes) -> bytes:
    return b'"' + re.sub(rb'(["\\])', rb"\\\1", name) + b'"'


def _decoded(name: bytes) -> str:
    """A name in words: modified UTF-7 (RFC 3501), which some servers don't keep to."""

    def shifted(match: "re.Match[bytes]") -> bytes:
        inside = b"+" + match[1].replace(b",", b"/") + b"-"
        return inside.decode("utf-7", "replace").encode("utf-8", "replace") if match[1] else b"&"

    return printable(_SHIFTED.sub(shifted, name).decode("utf-8", "replace"))
