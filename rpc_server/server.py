"""The board's socket: accepts connections on loopback and answers their calls.

In: a Board and an address. Out: served connections, each on its own thread, until `close`.
"""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import socket
import threading

from autotune.errors import ConfigError
from rpc_server.board import Board
from rpc_server.link import LINK_ERRORS, BytesConnection, Exposed, attach

MAX_CONNECTIONS = 64


def parse_address(text: str) -> tuple[str, int]:
    """'127.0.0.1:9190' or '[::1]:9190' as host and port. Raises ConfigError."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"expected HOST:PORT with a port up to 65535, got {text!r}")
    return host, int(port)


def check_loopback(host: str) -> None:
    """Raises ConfigError for an address that other machines can reach: links are not encrypted."""
    try:
        inside = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        inside = False
    if not inside:
        raise ConfigError(
            f"refusing to listen on {host}: without TLS only loopback addresses are served; "
            "use 127.0.0.1 and reach it through an SSH tunnel"
        )


class BoardServer:
    """Listens from construction on. Raises ConfigError where the address cannot be used."""

    def __init__(self, board: Board, host: str, port: int) -> None:
        check_loopback(host)
        self._board = board
        self._owners = itertools.count()
        self._lock = threading.Lock()
        self._connections: set[BytesConnection] = set()
        self._closed = False
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._listener = socket.create_server((host, port), family=family)
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {host}:{port}: {error.strerror}; choose another port"
            ) from None

    @property
    def port(self) -> int:
        """The port in use, also when 0 was asked for."""
        return int(self._listener.getsockname()[1])

    def serve(self) -> None:
        """Accept connections until `close`."""
        while not self._closed:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                continue  # closed, or the peer gave up before it was accepted
            with self._lock:
                full = self._closed or len(self._connections) >= MAX_CONNECTIONS
            if full:
                sock.close()
                continue
            threading.Thread(target=self._serve_one, args=(sock,), daemon=True).start()

    def _serve_one(self, sock: socket.socket) -> None:
        owner = next(self._owners)
        try:
            connection = attach(sock, Exposed(self._board.methods(owner)))
        except OSError:
            sock.close()
            return
        with self._lock:
            self._connections.add(connection)
        try:
            with contextlib.suppress(*LINK_ERRORS, RecursionError):
                connection.serve_all()
        finally:
            with self._lock:
                self._connections.discard(connection)
            with contextlib.suppress(*LINK_ERRORS):
                connection.drop()
            self._board.forget(owner)

    def close(self) -> None:
        """Stop listening and close every connection."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            with contextlib.suppress(*LINK_ERRORS):
                connection.drop()
