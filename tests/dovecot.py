"""A real IMAP server, Dovecot, with an empty account, and a connection to it that can be cut."""

import base64
import contextlib
import getpass
import grp
import hmac
import imaplib
import json
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import NamedTuple

import pytest

from tests.processes import free_port

USER, PASSWORD = "ann@home.example", "swordfish & 'tombola' ä"
_PATH = f"{os.environ['PATH']}{os.pathsep}/usr/sbin"

_CONFIG = Template(Path(__file__).with_name("data").joinpath("dovecot.conf").read_text())
# A token that is signed with this key is valid (RFC 7519).
_KEY = b"a key"
_OAUTH = "introspection_mode = local\nlocal_validation_key_dict = fs:posix:prefix={}/"
_CERTIFICATE = (
    "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext"
    " subjectAltName=DNS:localhost,IP:127.0.0.2 -keyout key.pem -out cert.pem"
)


class Server(NamedTuple):
    """The ports of a server, and its folder with `cert.pem`."""

    folder: Path
    port: int
    tls_port: int

    @contextlib.contextmanager
    def client(self, *, select: bool = True) -> Iterator[imaplib.IMAP4]:
        """Connect as another mail program, which may change INBOX."""
        with imaplib.IMAP4("127.0.0.1", self.port) as imap:
            imap.authenticate("PLAIN", lambda _: f"\0{USER}\0{PASSWORD}".encode())
            if select:
                imap.select()
            yield imap


@contextlib.contextmanager
def dovecot() -> Iterator[Server]:
    """Start a server; skip the test without Dovecot."""
    binary = shutil.which("dovecot", path=_PATH)
    if binary is None:
        pytest.skip("Dovecot is not installed: apt-get install dovecot-imapd")
    # It doesn't serve mail of root.
    owner = pwd.getpwnam("nobody" if os.getuid() == 0 else getpass.getuser())
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        server = Server(Path(name), free_port(), free_port())
        subprocess.run(_CERTIFICATE.split(), cwd=name, check=True, capture_output=True)
        (server.folder / "users").write_text(f"{USER}:{{PLAIN}}{PASSWORD}::::::\n")
        (server.folder / "oauth").write_text(_OAUTH.format(name))
        (server.folder / "default/HS256").mkdir(parents=True)
        (server.folder / "default/HS256/default").write_bytes(base64.b64encode(_KEY))
        group = grp.getgrgid(owner.pw_gid).gr_name
        config = _CONFIG.substitute(server._asdict(), user=owner.pw_name, group=group)
        (server.folder / "conf").write_text(config)
        for path in (server.folder, *server.folder.rglob("*")):
            os.chown(path, owner.pw_uid, owner.pw_gid)
        command = [binary, "-F", "-c", f"{name}/conf"]
        with subprocess.Popen(command, user=owner.pw_uid, group=owner.pw_gid) as process:
            try:
                while process.poll() is None:
                    with contextlib.suppress(OSError), server.client():
                        break
                yield server
            finally:
                process.terminate()


def token_for(user: str) -> str:
    """Return a token with which the user can sign in to Dovecot."""
    now = int(time.time())
    claims = {"email": user, "sub": user, "iat": now - 5, "exp": now + 600}
    parts = (json.dumps(each).encode() for each in ({"alg": "HS256", "typ": "JWT"}, claims))
    signed = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    signature = hmac.digest(_KEY, signed, "sha256")
    return f"{signed.decode()}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


class Wire:
    """A port that leads to a server. Connection n closes after `cuts[n]` bytes of answers; for a
    negative number the last of these bytes is damaged instead."""

    def __init__(self, server_port: int) -> None:
        self.cuts: list[int] = []
        self._server_port = server_port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                far = socket.create_connection(("127.0.0.1", self._server_port))
                cut = self.cuts.pop(0) if self.cuts else None
                for ends in ((near, far, None), (far, near, cut)):
                    threading.Thread(target=self._pass, args=ends, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, cut: int | None) -> None:
        with source, target, contextlib.suppress(OSError):
            left = 65_536 if cut is None else abs(cut)
            while data := source.recv(min(left, 65_536)):
                left -= 0 if cut is None else len(data)
                if not left and cut is not None and cut < 0:
                    data, left, cut = data[:-1] + bytes([data[-1] ^ 1]), 65_536, None
                target.sendall(data)
            for end in (source, target):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
