"""TLS 1.3 with client certificates, for both ends of every link.

In: a folder with ca.pem, crl.pem, cert.pem and key.pem (what `rpc_server certs issue` makes). Out:
verified sockets and who is on their other end. Only the standard library is used. Either side is
refused by the handshake itself if its certificate is of another CA, expired or revoked; the
revocation list is read again whenever the file changes.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
from pathlib import Path

from autotune.errors import ConfigError
from rpc_server.security.auth import (
    AuthError,
    Peer,
    Role,
    is_loopback,
    local_peer,
    peer_of,
    require_role,
)

CA, CRL, CERT, KEY = "ca.pem", "crl.pem", "cert.pem", "key.pem"
HANDSHAKE_S = 5.0
"""Seconds of a handshake: who is slower holds a thread."""


class Credentials:
    """This end's certificate and the CA it trusts. Thread-safe. Raises ConfigError where the
    folder has no usable certificate."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._loaded: dict[bool, tuple[tuple[int, ...], ssl.SSLContext]] = {}
        for name in (CA, CRL, CERT, KEY):
            if not os.path.isfile(folder / name):
                raise ConfigError(
                    f"{folder} has no {name}; make it with `rpc_server certs issue NAME --role "
                    "ROLE` and copy the whole folder NAME here"
                )
        if (folder / KEY).stat().st_mode & 0o077:
            raise ConfigError(
                f"{folder / KEY} can be read by other users; run `chmod 600 {folder / KEY}`"
            )
        self.context(server=True)

    def context(self, *, server: bool) -> ssl.SSLContext:
        """The current context of one side: a new one after any of the files changed."""
        with self._lock:
            stamp = self.stamp()
            known = self._loaded.get(server)
            if known is not None and known[0] == stamp:
                return known[1]
            try:
                context = self._load(server)
            except (OSError, ssl.SSLError) as error:
                raise ConfigError(
                    f"the certificates in {self._folder} cannot be used: {error}; issue them again"
                ) from None
            self._loaded[server] = (stamp, context)
            return context

    def stamp(self) -> tuple[int, ...]:
        """Changes whenever one of the files does: links made before are to be checked again."""
        try:
            found = [(self._folder / name).stat() for name in (CA, CRL, CERT, KEY)]
        except OSError as error:
            raise ConfigError(f"the certificates in {self._folder} are gone: {error}") from None
        return tuple(n for s in found for n in (s.st_mtime_ns, s.st_size, s.st_ino))

    def _load(self, server: bool) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # names and roles are checked, addresses move
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_CRL_CHECK_LEAF
        context.load_verify_locations(self._folder / CA)
        context.load_verify_locations(self._folder / CRL)
        context.load_cert_chain(self._folder / CERT, self._folder / KEY)
        if server:
            context.num_tickets = 0  # no resumption: every connection is checked in full
        return context


def wrap(sock: socket.socket, credentials: Credentials | None, *, server: bool) -> socket.socket:
    """The socket to use from now on; nothing is sent yet. Raises OSError if the peer is gone."""
    if credentials is None:
        return sock
    return credentials.context(server=server).wrap_socket(
        sock, server_side=server, do_handshake_on_connect=False
    )


def shake_hands(sock: socket.socket, admitted: frozenset[Role], timeout_s: float) -> Peer:
    """Who is on the other end of a wrapped socket. Without TLS: somebody on this machine.

    The whole handshake has `timeout_s`. Raises AuthError (it has none of the admitted roles) and
    OSError (it did not get through the handshake)."""
    if isinstance(sock, ssl.SSLSocket):
        sock.settimeout(timeout_s)
        sock.do_handshake()
        return require_role(peer_of(sock.getpeercert()), admitted)
    host = str(sock.getpeername()[0])
    return local_peer(host)


def secure(
    sock: socket.socket,
    credentials: Credentials | None,
    admitted: frozenset[Role],
    timeout_s: float = HANDSHAKE_S,
) -> tuple[socket.socket, Peer]:
    """The client's part, after connecting: the socket to use from now on, and the server. Raises
    as `shake_hands`; the socket is closed then. Without credentials only servers on this machine
    are spoken to."""
    wrapped = sock
    try:
        if credentials is None:
            check_peer_is_local(sock)
        wrapped = wrap(sock, credentials, server=False)
        return wrapped, shake_hands(wrapped, admitted, timeout_s)
    except BaseException:
        wrapped.close()
        raise


def check_peer_is_local(sock: socket.socket) -> None:
    """Raises AuthError where the other end is another machine: that needs certificates."""
    host = str(sock.getpeername()[0])
    if not is_loopback(host.removeprefix("::ffff:")):
        raise AuthError(
            f"without certificates only this machine is trusted, {host} is another; "
            "use --certs DIR on both sides, or an SSH tunnel"
        )
