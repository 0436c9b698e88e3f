"""A real IMAP server, Dovecot, with an empty account; and a wire to it that can be cut."""

import contextlib
import getpass
import grp
import imaplib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.processes import free_port

USER, PASSWORD = "ann@home.example", "swordfish & 'tombola' ä"
_PATH = f"{os.environ['PATH']}{os.pathsep}/usr/sbin"

# It runs as whoever starts it, without users of its own. "; " ends a line.
_CONFIG = r"""
protocols = imap; listen = 127.0.0.1, 127.0.0.2; log_path = {folder}/log
base_dir = {folder}/run; state_dir = {folder}/state; first_valid_uid = 1
default_internal_user = {user}; default_internal_group = {group}; default_login_user = {user}
auth_failure_delay = 0; disable_plaintext_auth = no; mail_fsync = never
ssl = yes; ssl_cert = <{folder}/cert.pem; ssl_key = <{folder}/key.pem
mail_location = mdbox:{folder}/mail
passdb {{; driver = passwd-file; args = {folder}/users; }}
userdb {{; driver = static; args = uid={user} gid={group} home={folder}; }}
namespace inbox {{; inbox = yes; separator = .
  mailbox Altpapier {{; special_use = \Trash; }}
  mailbox Bulk {{; special_use = \Junk; }}
  mailbox Outgoing {{; special_use = \Sent; }}
}}
service anvil {{; chroot =; }}
service stats {{; chroot =; }}
service imap-login {{; chroot =
  inet_listener imap {{; port = {port}; }}
  inet_listener imaps {{; port = {tls_port}; ssl = yes; }}
}}
"""
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
        """Another mail program, which may change what it likes in INBOX."""
        with imaplib.IMAP4("127.0.0.1", self.port) as imap:
            imap.authenticate("PLAIN", lambda _: f"\0{USER}\0{PASSWORD}".encode())
            if select:
                imap.select()
            yield imap


@contextlib.contextmanager
def dovecot() -> Iterator[Server]:
    """Start a server; without Dovecot the test is skipped."""
    binary = shutil.which("dovecot", path=_PATH)
    if binary is None:
        pytest.skip("Dovecot is not installed: apt-get install dovecot-imapd")
    # It serves no mail of root's.
    owner = pwd.getpwnam("nobody" if os.getuid() == 0 else getpass.getuser())
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        server = Server(Path(name), free_port(), free_port())
        subprocess.run(_CERTIFICATE.split(), cwd=name, check=True, capture_output=True)
        (server.folder / "users").write_text(f"{USER}:{{PLAIN}}{PASSWORD}::::::\n")
        group = grp.getgrgid(owner.pw_gid).gr_name
        config = _CONFIG.format(**server._asdict(), user=owner.pw_name, group=group)
        (server.folder / "conf").write_text(config.replace("; ", "\n"))
        for each in (server.folder, *server.folder.iterdir()):
            os.chown(each, owner.pw_uid, owner.pw_gid)
        command = [binary, "-F", "-c", f"{name}/conf"]
        with subprocess.Popen(command, user=owner.pw_uid, group=owner.pw_gid) as process:
            try:
                while process.poll() is None:
                    with contextlib.suppress(OSError), server.client():
                        break
                yield server
            finally:
                process.terminate()


class Wire:
    """A port that leads to a server, and closes after it has passed `cuts[n]` bytes of its answers
    over connection n; of a negative number it damages the last of them instead."""

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
                left = self.cuts.pop(0) if self.cuts else None
                for ends in ((near, far, None), (far, near, left)):
                    threading.Thread(target=self._pass, args=ends, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, left: int | None) -> None:
        with contextlib.suppress(OSError):
            damages = left is not None and left < 0
            left = None if left is None else abs(left)
            while data := source.recv(65_536 if left is None else min(left, 65_536)):
                left = None if left is None else left - len(data)
                if left == 0 and damages:
                    data, left = data[:-1] + bytes([data[-1] ^ 1]), None
                target.sendall(data)
                if left == 0:
                    break
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
