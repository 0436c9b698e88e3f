"""An IMAP account: its address and password, and a connection that reads it.

It never changes anything on the server. Answers have limits in bytes and time, and messages to the
user never hold the password."""

import base64
import collections
import contextlib
import datetime as dt
import errno
import getpass
import imaplib
import os
import re
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from art_e.cli.output import note, one_line
from art_e.errors import UserError, install_command
from art_e.privacy import LOOPBACK, REDACTED, load_env, redact
from art_e.storage import home
from art_e.text import digest
from data_pipeline.accounts.oauth import PROVIDERS, REJECTED, Grant, RejectedError, grant_in
from data_pipeline.ingest.archives import buffered
from data_pipeline.ingest.headers import parse_date
from data_pipeline.ingest.labels import decode_folder, of_imap
from data_pipeline.ingest.records import LARGEST_MESSAGE

PASSWORD = "ART_E_IMAP_PASSWORD"
_SIGN_S = 30.0  # seconds between progress notes
# Per command; a second more for each 4 kB of its answer, and an hour at most.
_TIMEOUT_S, _SLOWEST, _LONGEST_S = 60.0, 4_000, 3_600.0
# Bytes of an answer, a list of a million messages, a batch, a line; a line or literal adds 64.
_ANSWER, _LISTING, _BATCH, _LINE = 16_000_000, 256_000_000, 128_000_000, 1_000_000
# Errors of imaplib and of this module for a malformed answer.
_NONSENSE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_UNEXPECTED = re.compile(r"unexpected (?:tagged )?response: b")
# Errors of this machine that name no file.
_OURS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EMFILE, errno.ENOMEM}
_ADDRESS = re.compile(r"(imaps?)://([^:/]+)@([\w.-]+)(?::(\d{1,5}))?/?")

# ---- Accounts and their passwords.


class Account(NamedTuple):
    """An account; `str` returns its address, `imaps://user@host:port`."""

    scheme: str
    user: str
    host: str
    port: int

    @classmethod
    def of(cls, address: str) -> "Account":
        """Return the account of an address. Errors don't repeat it, as it may hold a password."""
        match = _ADDRESS.fullmatch(address)
        if match is None or int(match[4] or 0) > 65_535:
            form = "imaps://user@host or imaps://user@host:port, without a password"
            whence = f"it comes from {PASSWORD}, the keyring or a prompt"
            raise UserError(f"an IMAP account is written {form}; {whence}")
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

    def secret(self) -> str | Grant:
        """Return the password, or the sign-in by OAuth."""
        if (grant := grant_in(self.grant_file)) is not None:
            return grant
        if self.provider is not None and self.provider.device_url:
            why = f"{self.host} accepts only OAuth, no password, like all of Microsoft's servers"
            fix = f"art-e login {self} --client-id ID (docs/inbox.md says where you get an id)"
            raise UserError(f"{why}: {fix}")
        with contextlib.suppress(ImportError):
            import keyring

            with contextlib.suppress(keyring.errors.KeyringError):
                if password := keyring.get_password(self.host, self.user):
                    return str(password)
        load_env()
        if password := os.environ.get(PASSWORD):
            return password
        if sys.stdin.isatty():
            return getpass.getpass(one_line(f"password of {self.user} at {self.host}:") + " ")
        keep = f"keyring set {self.host} {self.user} ({install_command('imap')})"
        why = f"no password of {self.user} at {self.host}"
        raise UserError(f"{why}: set {PASSWORD}, or keep it with {keep}")


# ---- A connection with limits on the bytes and the time of an answer.


class Folder(NamedTuple):
    """A folder that the server lists."""

    key: str  # the name on the wire
    name: str  # decoded, with "/" as separator
    attributes: frozenset[str]


class MessageFields(NamedTuple):
    """The fields of a message in the list of a folder."""

    labels: tuple[str, ...]
    thread: str  # Gmail's
    size: int


class Connection(imaplib.IMAP4):
    """A connection to an account, which reads its folders and messages."""

    _query = "(UID FLAGS RFC822.SIZE)"

    def __init__(self, account: Account, password: str) -> None:
        self.account, self.password, self.context = account, password, ssl.create_default_context()
        # STARTTLS makes another socket, with its own buffer.
        self._files: dict[socket.socket, BufferedReader]
        self._files = collections.defaultdict(lambda: buffered(self._receive))
        self._bytes, self._sign = 0, time.monotonic() + _SIGN_S
        self._expect(_ANSWER)
        super().__init__(account.host, account.port, _TIMEOUT_S)

    def open(self, *args: Any, **options: Any) -> None:
        super().open(*args, **options)
        if self.account.scheme == "imaps":
            self.sock = self.context.wrap_socket(self.sock, server_hostname=self.host)

    def sign_in(self, *, is_token: bool) -> None:
        user, password = self.account.user, self.password
        open_is_fine = self.host in LOOPBACK and "LOGINDISABLED" not in self.capabilities
        if self.account.scheme == "imap" and not open_is_fine:
            if "STARTTLS" not in self.capabilities:
                raise UserError(f"{self.host} would get the password unencrypted: use imaps://")
            self.starttls(self.context)
        if is_token:
            bearer = f"user={user}\1auth=Bearer {password}\1\1".encode()
            # A server that refuses sends its reason first, and expects an answer to it.
            self.authenticate("XOAUTH2", lambda reason: b"" if reason else bearer)
        elif "AUTH=PLAIN" in self.capabilities:
            self.authenticate("PLAIN", lambda _: f"\0{user}\0{password}".encode())
        else:
            self.login(_quoted(user.encode()).decode(), password)

    def _expect(self, limit: int) -> None:
        """Reset the limits for a command, whose answer may have `limit` bytes."""
        self.untagged_responses = {}
        self._left, self._since, self._before = limit, time.monotonic(), self._bytes

    def _receive(self, size: int) -> bytes:
        now, received = time.monotonic(), self._bytes - self._before
        if now - self._since > min(_TIMEOUT_S + received / _SLOWEST, _LONGEST_S):
            raise TimeoutError("it is too slow")
        if now > self._sign:
            note(f"{self.host}: {self._bytes / 1e6:,.1f} MB so far")
            self._sign = now + _SIGN_S
        if not (data := self.sock.recv(min(size, 65_536))):
            raise ConnectionError("it was closed")
        self._bytes += len(data)
        return data

    def _bounded(self, data: bytes) -> bytes:
        self._left -= len(data) + 64
        if self._left < 0:
            raise ValueError("more than was asked for")
        return data

    def readline(self) -> bytes:
        line = self._files[self.sock].readline(_LINE)
        if not line.endswith(b"\n"):
            raise ValueError("a line without an end")
        return self._bounded(line)

    def read(self, size: int) -> bytes:
        file, rest = self._files[self.sock], _number(str(size))
        data = file.read(min(rest, LARGEST_MESSAGE + 1))
        rest -= len(data)
        while rest:
            rest -= len(file.read(min(rest, 65_536)))
        return self._bounded(data)

    def _ask(
        self, command: Callable[..., tuple[str, list[Any]]], *args: Any, limit: int = _ANSWER
    ) -> Iterator[tuple[bytes, list[bytes]]]:
        """Yield the text of each response, with "{size}" for each literal, and the literals."""
        self._expect(limit)
        kind, items = command(*args)
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

    def folders(self) -> list[Folder]:
        """Return the folders that can be opened; at Gmail only those that hold all mail."""
        listed = []
        for text, literals in self._ask(self.list):
            match = _LIST.fullmatch(text)
            name = next(_strings(match[3], literals), b"") if match else b""
            # A name with a line end can't be sent in a command.
            if match is None or not name or re.search(rb"[\r\n\0]", name):
                continue
            attributes = frozenset(match[1].decode("latin-1").lower().split())
            words = _decoded(name).replace((match[2] or b"/")[-1:].decode("latin-1"), "/")
            if not attributes & {"\\noselect", "\\nonexistent"}:
                listed.append(Folder(name.decode("latin-1"), words, attributes))
        if b"X-GM-EXT-1" in self.capability()[1][0].upper().split():
            self._query = "(UID FLAGS RFC822.SIZE X-GM-LABELS X-GM-THRID)"
            if any("\\all" in each.attributes for each in listed):
                return [each for each in listed if each.attributes & {"\\all", "\\junk", "\\trash"}]
        return listed

    def contents(self, folder: Folder) -> tuple[int, dict[int, MessageFields]]:
        """Open a folder read-only; return its UIDVALIDITY, and its messages by UID."""
        name, listed = _quoted(folder.key.encode("latin-1")), dict[int, MessageFields]()
        count, _ = next(self._ask(self.select, name, True), (b"0", []))  # EXAMINE
        validity = _number(self.response("UIDVALIDITY")[1][0] or b"0")
        # An empty folder has no "1:*".
        fetch = self._ask(self.uid, "FETCH", "1:*", self._query, limit=_LISTING)
        for text, literals in fetch if _number(count) else ():
            plain = _LABELS.sub(b"", text)
            if b"RFC822.SIZE" not in plain:
                continue  # an unsolicited response about a change
            fields = _fields(plain)
            gmail = map(_decoded, _strings(b" ".join(_LABELS.findall(text)), literals))
            uid, flags = _number(fields["UID"], 1), fields["FLAGS"].strip("()").lower().split()
            labels = of_imap(folder.name, folder.attributes, flags, gmail)
            size = _number(fields["RFC822.SIZE"])
            listed[uid] = MessageFields(labels, fields.get("X-GM-THRID", ""), size)
        return validity, listed

    def messages(self, uids: Sequence[int]) -> Iterator[tuple[int, bytes, dt.datetime | None]]:
        """Yield UID, bytes (cut if too large) and arrival date of messages in the open folder."""
        query = f"(UID INTERNALDATE BODY.PEEK[]<0.{LARGEST_MESSAGE + 1}>)"
        listed = ",".join(map(str, uids))
        try:
            responses = list(self._ask(self.uid, "FETCH", listed, query, limit=_BATCH))
        except imaplib.IMAP4.abort:
            raise
        except imaplib.IMAP4.error as error:
            if len(uids) == 1:
                why = censored(error, self.password)
                note(f"a message can't be fetched and is left out ({why})")
                return
            for uid in uids:  # one bad message fails its whole batch
                yield from self.messages([uid])
            return
        for text, literals in responses:
            fields = _fields(text)
            uid = _number(fields.get("UID", "0"))
            if uid in uids and b"BODY[" in text:
                # Some servers send other fields as literals, too.
                before = len(re.findall(rb"\{\d+\}", text.partition(b"BODY[")[0]))
                received = parse_date(fields.get("INTERNALDATE", "").strip('"'))
                yield uid, b"".join(literals[before : before + 1]), received


def censored(words: object, password: str) -> str:
    """Return a server's words, unless they hold 8 characters of the password in any usual code."""
    secret = password.encode()
    codes = [password, repr(secret)[2:-1], secret.hex(), quote(password, safe="")]
    codes += [base64.b64encode(bytes(before) + secret).decode() for before in range(3)]
    plain, *codes = (re.sub(r"[\W_]", "", each).casefold() for each in (str(words), *codes))
    pieces = (code[at : at + 8] for code in codes for at in range(max(1, len(code) - 7)))
    return REDACTED if any(each in plain for each in pieces) else redact(str(words))[:200]


@contextlib.contextmanager
def connection(account: Account, secret: str | Grant) -> Iterator[Connection]:
    """Open an account. Raises `ConnectionError` if a retry may help, else `UserError`."""
    grant = secret if isinstance(secret, Grant) else None
    password = grant.access_token(account.grant_file, str(account)) if grant else str(secret)
    imap = None
    try:
        imap = Connection(account, password)
        imap.sign_in(is_token=grant is not None)
        yield imap
    except ssl.SSLCertVerificationError as error:
        fault = f"the certificate of {account} can't be trusted ({error.verify_message})"
        fix = "check the host's name; SSL_CERT_FILE names a certificate of your own"
        raise UserError(f"{fault}: {fix}") from None
    except (imaplib.IMAP4.error, OSError, *_NONSENSE) as error:
        if isinstance(error, OSError) and (error.filename or error.errno in _OURS):
            raise
        cut = isinstance(error, imaplib.IMAP4.abort | OSError)
        refused = isinstance(error, imaplib.IMAP4.error | UnicodeEncodeError) and not cut
        if refused and imap and imap.state == "NONAUTH" and "[UNAVAILABLE]" not in str(error):
            # Without the server's words, which may repeat the password.
            what = REJECTED["token" if grant else "password"].format(account)
            raise RejectedError(f"{account} rejects the {what}") from None
        odd = isinstance(error, _NONSENSE) or _UNEXPECTED.search(str(error)) is not None
        if odd or not cut:
            what = "does not answer like an IMAP server" if odd else "refuses"
            fault = f"{account} {what} ({censored(error, password)})"
            fix = f"check its name and that {account.port} is its port for IMAP, or try again later"
            raise UserError(f"{fault}: {fix}") from None
        # The messages of imaplib hold pieces of mail.
        why = error.strerror or str(error) if isinstance(error, OSError) else "it was closed"
        raise ConnectionError(why) from None
    finally:
        # Send no LOGOUT, which would wait for data in transit.
        with contextlib.suppress(OSError):
            if imap is not None:
                imap.shutdown()


# ---- Parts of the protocol that imaplib doesn't parse.

# Unclosed lists and strings match to the end of the text: backtracking would take quadratic time.
_LIST = re.compile(rb'\(([^)]*)\) (?:NIL|"(\\?[^"])") (.+)', re.DOTALL)
_FIELD = re.compile(rb'[ (]([A-Z][A-Z0-9.-]++) (\([^)]*+\)?|"[^"]*+"?|\d++(?![^ )]))')
_LABELS = re.compile(rb'X-GM-LABELS \(((?:"(?:[^"\\]++|\\.?)*+"?|[^")]++)*+)\)?', re.DOTALL)
_STRING = re.compile(rb'"((?:[^"\\]++|\\.?)*+)"?|(\{\d+\})|([^\s()"]++)', re.DOTALL)


def _number(digits: bytes | str, least: int = 0) -> int:
    """Return a number of the protocol, which has 32 bits (RFC 3501)."""
    if len(digits) > 10 or not digits.isdigit() or not least <= int(digits) < 2**32:
        raise ValueError(f"not a number: {digits[:20]!r}")
    return int(digits)


def _fields(text: bytes) -> dict[str, str]:
    return {name.decode(): value.decode("latin-1") for name, value in _FIELD.findall(text)}


def _strings(text: bytes, literals: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the strings in a response: quoted, literal or bare."""
    left = iter(literals)
    for quoted, literal, bare in _STRING.findall(text):
        yield next(left, b"") if literal else bare or re.sub(rb"\\(.)", rb"\1", quoted)


def _quoted(name: bytes) -> bytes:
    return b'"' + re.sub(rb'(["\\])', rb"\\\1", name) + b'"'


def _decoded(name: bytes) -> str:
    return decode_folder(name.decode("utf-8", "replace"))
