"""Mail of an IMAP account: `follow` fetches it into a spool, which ingest reads like any source.

    ART_E_HOME/imap/<account>/<folder>-<UIDVALIDITY>/<UID>    a message as the server sent it
    <inbox file>.sync.json                                    the messages there are, and labels

Nothing on the server ever changes. A file's name stands for one message for ever (RFC 3501), so
only what the spool lacks is fetched. The state is written when all is there, then what the server
no longer has leaves the spool: after a cut or a kill at any point the next time goes on from there.
"""

import base64
import collections
import contextlib
import datetime as dt
import errno
import getpass
import imaplib
import itertools
import os
import re
import socket
import ssl
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from art_e.cli.output import note, one_line, plural, progress
from art_e.errors import UserError
from art_e.privacy import LOOPBACK, REDACTED, load_env, redact
from art_e.storage import home, locked, partial_of, write_whole
from art_e.text import digest, printable
from data_pipeline.ingest.archives import head_of, regular_files
from data_pipeline.ingest.headers import parse_date
from data_pipeline.ingest.labels import of_imap
from data_pipeline.ingest.oauth import PROVIDERS, Grant, RejectedError, grant_in
from data_pipeline.ingest.records import LARGEST_MESSAGE, RawMessage

PASSWORD = "ART_E_IMAP_PASSWORD"
# Seconds before a connection that was cut is opened again.
WAITS_S = (1.0, 5.0, 20.0)
_SIGN_S = 30.0  # between signs of life
# For each command; a second more for each 4 kB of its answer, and an hour at most.
_TIMEOUT_S, _SLOWEST, _LONGEST_S = 60.0, 4_000, 3_600.0
# Bytes of an answer, of a list of messages (a million), of a batch, of a line. Each line counts as
# 64 bytes more, which Python needs to hold it.
_ANSWER, _LISTING, _BATCH, _LINE = 16_000_000, 256_000_000, 128_000_000, 1_000_000
# What a cut loses, for a batch comes whole or not at all; at most 100 messages.
_BATCH_BYTES = 1_000_000
# What imaplib and we raise over an answer in another form.
_NONSENSE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_UNEXPECTED = re.compile(r"unexpected (?:tagged )?response: b")
# Errors of this machine that name no file.
_OURS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EMFILE, errno.ENOMEM}
_ADDRESS = re.compile(r"(imaps?)://([^:/]+)@([\w.-]+)(?::(\d{1,5}))?/?")

# ---- Accounts and their passwords.


def is_account(source: str) -> bool:
    """Return whether a source is an IMAP account."""
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
        return home() / "imap" / digest(str(self))

    @property
    def grant_file(self) -> Path:
        return self.spool.with_suffix(".oauth.json")

    @property
    def provider(self) -> Grant | None:
        return PROVIDERS.get(".".join(self.host.split(".")[-2:]))


def _secret_of(account: Account) -> str | Grant:
    """The password, or the sign-in by OAuth."""
    if (grant := grant_in(account.grant_file)) is not None:
        return grant
    if account.provider is not None and account.provider.device_url:
        raise UserError(
            f"{account.host} takes no password, as all of Microsoft's, but OAuth: art-e login"
            f" {account} --client-id ID (docs/inbox.md says where you get an id)"
        )
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
    place: str = Field(pattern=r"^[0-9a-f]{16}-[0-9]{1,10}$")
    messages: dict[int, Marks]


class State(BaseModel):
    """The account as it was last found; folders by their names as the server writes them. `owner`
    is the address whose inbox holds all of its mail, if that is known."""

    account: str
    owner: str = ""
    folders: dict[str, Folder] = {}

    def files(self) -> Iterator[tuple[Path, str, Marks]]:
        """Of each message: its file, a name for people, its marks."""
        spool = Account.of(self.account).spool
        for folder in self.folders.values():
            for uid, marks in folder.messages.items():
                yield spool / folder.place / str(uid), f"{folder.name}/{uid}", marks


_STATES: TypeAdapter[State | list[State]] = TypeAdapter(State | list[State])


def state_file(db: Path) -> Path:
    """Return the file beside an inbox file that says which accounts it follows."""
    return db.with_name(f"{db.name}.sync.json")


def save_states(path: Path, states: Iterable[State]) -> None:
    """Write a state file."""
    write_whole(path, _STATES.dump_json(list(states)).decode())


def load_states(path: Path) -> list[State]:
    """Return the states of a state file, none if there is no file."""
    try:
        states = _STATES.validate_json(path.read_bytes())
        # Once a file followed one account.
        return [states] if isinstance(states, State) else states
    except FileNotFoundError:
        return []
    except ValidationError:
        raise UserError(f"{path} is damaged: delete it, then ingest with --replace") from None


def read_spool(path: Path) -> Iterator[RawMessage]:
    """The messages of a state file."""
    for state in load_states(path):
        for file, source, (labels, thread) in state.files():
            data = head_of(file, LARGEST_MESSAGE + 1)
            received = dt.datetime.fromtimestamp(file.stat().st_mtime, dt.UTC)
            yield RawMessage(source, data, received, labels, gmail_thread=thread, owner=state.owner)


# ---- A connection, which reads what was asked for and not for longer than that takes.


class _Wire(imaplib.IMAP4):
    password = ""

    def open(self, *args: Any, **options: Any) -> None:
        # STARTTLS makes another socket, for which nothing is read ahead.
        self._ahead: dict[socket.socket, bytearray] = collections.defaultdict(bytearray)
        self._bytes, self._sign = 0, time.monotonic() + _SIGN_S
        self.expect()
        super().open(*args, **options)

    def expect(self, most_bytes: int = _ANSWER) -> None:
        """Begin a command with an answer of at most so many bytes."""
        self.untagged_responses = {}
        self._left, self._since, self._before = most_bytes, time.monotonic(), self._bytes

    def _more(self, ahead: bytearray) -> None:
        now, received = time.monotonic(), self._bytes - self._before
        if now - self._since > min(_TIMEOUT_S + received / _SLOWEST, _LONGEST_S):
            raise TimeoutError("it is too slow")
        if now > self._sign:
            note(f"{self.host}: {self._bytes / 1e6:,.1f} MB so far")
            self._sign = now + _SIGN_S
        if not (data := self.sock.recv(65_536)):
            raise ConnectionError("it was closed")
        self._bytes += len(data)
        ahead += data

    def _bounded(self, data: bytearray) -> bytes:
        self._left -= len(data) + 64
        if self._left < 0:
            raise ValueError("more than was asked for")
        return bytes(data)

    def readline(self) -> bytes:
        ahead, seen = self._ahead[self.sock], 0
        while not (end := ahead.find(b"\n", seen) + 1):
            if (seen := len(ahead)) > _LINE:
                raise ValueError("a line without an end")
            self._more(ahead)
        line = ahead[:end]
        del ahead[:end]
        return self._bounded(line)

    def read(self, size: int) -> bytes:
        ahead, data, rest = self._ahead[self.sock], bytearray(), _number(str(size))
        while rest:
            if not ahead:
                self._more(ahead)
            data += ahead[: min(rest, LARGEST_MESSAGE + 1 - len(data))]
            rest -= (used := min(rest, len(ahead)))
            del ahead[:used]
        return self._bounded(data)


class _TlsWire(_Wire, imaplib.IMAP4_SSL):
    pass


# ---- Following an account.


def follow(account: Account, db: Path, owner: str = "") -> dict[str, int]:
    """Bring the spool, and the state beside the inbox file `db`, to what the account holds; returns
    how many messages are new, have changed labels, and are deleted."""
    secret = _secret_of(account)
    for folder in (account.spool, db.parent):
        folder.mkdir(parents=True, exist_ok=True)
    busy = f"{account.user} at {account.host} is being read already; wait for it to end"
    with locked(account.spool.with_suffix(".lock"), busy):
        states = {each.account: each for each in load_states(state_file(db))}
        old = states.get(str(account), State(account=str(account)))
        new = states[old.account] = State(account=old.account, owner=owner or old.owner)
        _read_account(account, secret, old, new)
        was, now = ({file: marks for file, _, marks in each.files()} for each in (old, new))
        both = was.keys() & now.keys()
        changed = sum(was[each] != now[each] for each in both)
        if new != old or not now:
            save_states(state_file(db), states.values())
        # With what a cut left half written.
        for file in regular_files(account.spool):
            if file not in now:
                file.unlink()
    return {"new": len(now) - len(both), "changed": changed, "deleted": len(was) - len(both)}


def _read_account(account: Account, secret: str | Grant, old: State, new: State) -> None:
    """Fill `new`, over as many connections as it takes while each brings something."""

    def have() -> int:
        return len(new.folders) + sum(1 for _ in regular_files(account.spool))

    waits = iter(WAITS_S)
    while True:
        before = have()
        token = isinstance(secret, Grant) and secret.access_token(account.grant_file, str(account))
        password = token or str(secret)
        try:
            with _connection(account, password, bool(token)) as imap:
                return _read_folders(imap, account.spool, old, new)
        except ssl.SSLCertVerificationError as error:
            raise UserError(
                f"the certificate of {account.host} can't be trusted ({error.verify_message}):"
                " check the host's name; SSL_CERT_FILE names a certificate of your own"
            ) from None
        except (imaplib.IMAP4.error, OSError, *_NONSENSE) as error:
            lost = isinstance(error, imaplib.IMAP4.abort | OSError)
            if isinstance(error, OSError) and (error.filename or error.errno in _OURS):
                raise
            odd = isinstance(error, _NONSENSE) or _UNEXPECTED.search(str(error)) is not None
            if odd or not lost:
                what = "answers what no IMAP server does" if odd else "refuses"
                raise UserError(
                    f"{account.host} {what} ({_words(error, password)}): check its name and that"
                    f" {account.port} is its port for IMAP, or try again later"
                ) from None
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


def _words(said: object, password: str) -> str:
    """What a server says, unless that holds 8 characters of the password, in any usual code."""
    secret = password.encode()
    codes = [password, repr(secret)[2:-1], secret.hex(), quote(password, safe="")]
    codes += [base64.b64encode(bytes(before) + secret).decode() for before in range(3)]
    plain, *codes = (re.sub(r"[\W_]", "", each).casefold() for each in (str(said), *codes))
    pieces = (code[at : at + 8] for code in codes for at in range(max(1, len(code) - 7)))
    return REDACTED if any(each in plain for each in pieces) else redact(str(said))[:200]


@contextlib.contextmanager
def _connection(account: Account, password: str, is_token: bool) -> Iterator[_Wire]:
    context, at = ssl.create_default_context(), (account.host, account.port)
    if account.scheme == "imaps":
        imap: _Wire = _TlsWire(*at, ssl_context=context, timeout=_TIMEOUT_S)
    else:
        imap = _Wire(*at, timeout=_TIMEOUT_S)
    imap.password = password
    try:
        open_is_fine = account.host in LOOPBACK and "LOGINDISABLED" not in imap.capabilities
        if account.scheme == "imap" and not open_is_fine:
            if "STARTTLS" not in imap.capabilities:
                raise UserError(f"{account.host} would get the password in the open: use imaps://")
            imap.starttls(context)
        if is_token:
            bearer = f"user={account.user}\1auth=Bearer {password}\1\1".encode()
            # A server that refuses says why first, and wants an answer to that.
            imap.authenticate("XOAUTH2", lambda reason: b"" if reason else bearer)
        elif "AUTH=PLAIN" in imap.capabilities:
            imap.authenticate("PLAIN", lambda _: f"\0{account.user}\0{password}".encode())
        else:
            imap.login(_quoted(account.user.encode()).decode(), password)
        yield imap
    except (imaplib.IMAP4.error, UnicodeEncodeError) as error:
        cut = isinstance(error, imaplib.IMAP4.abort) or "[UNAVAILABLE]" in str(error)
        if cut or imap.state != "NONAUTH":
            raise
        # Without the server's words, which may repeat the password.
        what = "sign-in" if is_token else "password"
        raise RejectedError(
            f"{account.host} rejects the {what} of {account.user}: check both; Gmail, Fastmail,"
            " iCloud and Yahoo want an app password, Outlook.com and Microsoft 365 take none but"
            f" OAuth, which Gmail takes, too: art-e login {account} --client-id ID"
        ) from None
    finally:
        # Without LOGOUT, which waits for what is still on its way.
        with contextlib.suppress(OSError):
            imap.shutdown()


def _read_folders(imap: _Wire, spool: Path, old: State, new: State) -> None:
    """Add the folders that `new` lacks; at Gmail of those that hold all mail."""
    query, folders = "(UID FLAGS RFC822.SIZE)", list(_folders(imap))
    if b"X-GM-EXT-1" in imap.capability()[1][0].upper().split():
        query = "(UID FLAGS RFC822.SIZE X-GM-LABELS X-GM-THRID)"
        if any("\\all" in each.attributes for each in folders):
            folders = [each for each in folders if each.attributes & {"\\all", "\\junk", "\\trash"}]
    for folder in (each for each in folders if each.key not in new.folders):
        try:
            new.folders[folder.key] = _read_folder(imap, spool, folder, query)
        except imaplib.IMAP4.abort:
            raise
        except imaplib.IMAP4.error as error:
            name, words = (_words(each, imap.password) for each in (folder.name, error))
            note(f"{name} can't be read ({words}); it stays as it was")
            if folder.key in old.folders:
                new.folders[folder.key] = old.folders[folder.key]


class _Listed(NamedTuple):
    key: str  # the name on the wire
    name: str  # in words with "/" between
    attributes: frozenset[str]


def _folders(imap: _Wire) -> Iterator[_Listed]:
    imap.expect()
    for text, literals in _responses(imap.list()):
        match = _LIST.fullmatch(text)
        name = next(_strings(match[3], literals), b"") if match else b""
        # A name with a line's end can be in no command.
        if match is None or not name or re.search(rb"[\r\n\0]", name):
            continue
        attributes = frozenset(match[1].decode("latin-1").lower().split())
        words = _decoded(name).replace((match[2] or b"/")[-1:].decode("latin-1"), "/")
        if not attributes & {"\\noselect", "\\nonexistent"}:
            yield _Listed(name.decode("latin-1"), words, attributes)


def _read_folder(imap: _Wire, spool: Path, folder: _Listed, query: str) -> Folder:
    """The folder's messages, after those that the spool lacks were fetched."""
    wire_name: Any = _quoted(folder.key.encode("latin-1"))  # typeshed wants text
    imap.expect()
    count, _ = next(_responses(imap.select(wire_name, readonly=True)), (b"0", []))  # EXAMINE
    validity = _number(imap.response("UIDVALIDITY")[1][0] or b"0")
    imap.expect(_LISTING)
    messages, sizes = dict[int, Marks](), dict[int, int]()
    # An empty folder has no "1:*".
    for text, literals in _responses(imap.uid("FETCH", "1:*", query)) if _number(count) else ():
        plain = _LABELS.sub(b"", text)
        if b"RFC822.SIZE" not in plain:
            continue  # the server's word on a change meanwhile
        fields = _fields(plain)
        gmail = map(_decoded, _strings(b" ".join(_LABELS.findall(text)), literals))
        uid, flags = _number(fields["UID"], 1), fields["FLAGS"].strip("()").lower().split()
        labels = of_imap(folder.name, folder.attributes, flags, gmail)
        messages[uid] = labels, fields.get("X-GM-THRID", "")
        sizes[uid] = _number(fields["RFC822.SIZE"])
    place = spool / f"{digest(folder.key)}-{validity}"
    place.mkdir(exist_ok=True)
    # Empty is what a loss of power may leave.
    kept = {each.name for each in os.scandir(place) if each.stat().st_size}
    missing = [uid for uid in sorted(messages) if str(uid) not in kept]
    totals = itertools.accumulate(max(sizes[uid], _BATCH_BYTES // 100) for uid in missing)
    batch_of = {uid: total // _BATCH_BYTES for uid, total in zip(missing, totals, strict=True)}
    name = _words(folder.name, imap.password)
    with progress("", len(missing), doing=f"fetching {name}") as advance:
        for _, batch in itertools.groupby(missing, batch_of.get):
            for uid in _fetch_into(imap, place, list(batch)):
                kept.add(str(uid))
                advance()
    if lost := sum(str(uid) not in kept for uid in missing):
        note(f"{name}: {plural(lost, 'message')} did not come; the next sync asks again")
    present = {uid: marks for uid, marks in sorted(messages.items()) if str(uid) in kept}
    return Folder(name=folder.name, place=place.name, messages=present)


def _fetch_into(imap: _Wire, place: Path, uids: Sequence[int]) -> Iterator[int]:
    """Fetch messages into their files, cut one byte beyond what the parser accepts; the UIDs."""
    query = f"(UID INTERNALDATE BODY.PEEK[]<0.{LARGEST_MESSAGE + 1}>)"
    imap.expect(_BATCH)
    try:
        found = list(_responses(imap.uid("FETCH", ",".join(map(str, uids)), query)))
    except imaplib.IMAP4.abort:
        raise
    except imaplib.IMAP4.error as error:
        if len(uids) == 1:
            note(f"a message can't be fetched and is left out ({_words(error, imap.password)})")
            return
        for uid in uids:  # a bad one fails all of its batch
            yield from _fetch_into(imap, place, [uid])
        return
    for text, literals in found:
        fields = _fields(text)
        uid = _number(fields.get("UID", "0"))
        if uid not in uids or b"BODY[" not in text:
            continue
        partial = partial_of(place / str(uid))
        # Some servers send others of theirs as literals, too.
        before = len(re.findall(rb"\{\d+\}", text.partition(b"BODY[")[0]))
        partial.write_bytes(b"".join(literals[before : before + 1]))
        if (received := parse_date(fields.get("INTERNALDATE", "").strip('"'))) is not None:
            os.utime(partial, (received.timestamp(), received.timestamp()))
        partial.replace(place / str(uid))
        yield uid


# ---- The wire, as far as imaplib leaves it to us.

# What is begun and not closed goes to the end: a pattern that fails there and begins again behind
# its start takes quadratic time.
_LIST = re.compile(rb'\(([^)]*)\) (?:NIL|"(\\?[^"])") (.+)', re.DOTALL)
_FIELD = re.compile(rb'[ (]([A-Z][A-Z0-9.-]++) (\([^)]*+\)?|"[^"]*+"?|\d++(?![^ )]))')
_LABELS = re.compile(rb'X-GM-LABELS \(((?:"(?:[^"\\]++|\\.?)*+"?|[^")]++)*+)\)?', re.DOTALL)
_STRING = re.compile(rb'"((?:[^"\\]++|\\.?)*+)"?|(\{\d+\})|([^\s()"]++)', re.DOTALL)
_SHIFTED = re.compile(rb"&([\w+,/]*+)-", re.ASCII)


def _responses(reply: tuple[str, list[Any]]) -> Iterator[tuple[bytes, list[bytes]]]:
    """Each response to a command: its text, with "{size}" where its literals stood, and these."""
    kind, items = reply
    if kind != "OK":
        raise imaplib.IMAP4.error(b" ".join(filter(None, items)).decode("utf-8", "replace"))
    texts, literals = [], []
    for item in items:
        if isinstance(item, tuple):
            texts.append(item[0])
            literals.append(item[1])
        elif item is not None:
            yield b"".join((*texts, item)), literals
            texts, literals = [], []


def _number(digits: bytes | str, least: int = 0) -> int:
    """A number of the protocol, which has 32 bits (RFC 3501)."""
    if len(digits) > 10 or not digits.isdigit() or not least <= int(digits) < 2**32:
        raise ValueError(f"no number: {digits[:20]!r}")
    return int(digits)


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
