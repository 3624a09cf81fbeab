"""The board's socket: its listener, with what a client may call behind it.

In: a Board, an address, credentials. Out: served connections, each on its own thread, until
`close`.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable

from autotune.errors import ConfigError
from autotune.parse_int import whole
from rpc_server.board.device import BoardDevice
from rpc_server.security.audit import AuditLog
from rpc_server.security.auth import Peer, Role, check_loopback
from rpc_server.security.freshness import sealed_where_local
from rpc_server.security.tls import Credentials
from rpc_server.wire.listener import LinkLimits, Listener, Methods, ServerAccess
from rpc_server.wire.messages import SMALL_BYTES

__all__ = ["BoardServer", "check_loopback", "parse_address"]

GUARDED = frozenset({"hello"})
"""On a board of a farm: it carries the ticket that the rest of a link depends on."""
ADMITTED = frozenset({Role.CLIENT, Role.TRACKER})
LIMITS = LinkLimits(opening_bytes=SMALL_BYTES)


def parse_address(text: str) -> tuple[str, int]:
    """'127.0.0.1:9190' or '[::1]:9190' as host and port. Raises ConfigError."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    number = whole(port, 65535)
    if not colon or not host or number is None:
        raise ConfigError(f"expected HOST:PORT with a port up to 65535, got {text!r}")
    return host, number


class BoardServer(Listener):
    """Listens from construction on. Raises ConfigError where the address cannot be used."""

    def __init__(
        self,
        board: BoardDevice,
        host: str,
        port: int,
        *,
        credentials: Credentials | None = None,
        audit: AuditLog | None = None,
        limits: LinkLimits | None = None,
        bound: socket.socket | None = None,
    ) -> None:
        owners = itertools.count()

        def enter(peer: Peer) -> tuple[Methods, Callable[[], None]]:
            owner = next(owners)
            return board.methods(owner, peer), lambda: board.forget(owner)

        access = ServerAccess(
            enter=sealed_where_local(enter, lambda name: board.leased and name in GUARDED),
            roles=ADMITTED,
            credentials=credentials,
            audit=audit or AuditLog(None),
            limits=limits or LIMITS,
        )
        super().__init__(host, port, access, bound)
