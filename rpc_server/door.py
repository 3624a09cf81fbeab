"""The listening side of every link: who may come in, how many, and for how long.

In: an address, this end's credentials, the roles admitted and what a peer may call. Out: served
links, each on its own thread, until `close`. A connection that has not said anything yet holds one
of a few places that the next one takes over, so that half-open connections keep nobody out.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from autotune.errors import ConfigError
from rpc_server.audit import AuditLog
from rpc_server.auth import AuthError, Peer, Role, check_loopback
from rpc_server.link import LINK_ERRORS, BytesConnection, Exposed, attach
from rpc_server.tls import HANDSHAKE_S, Credentials, check_peer_is_local, shake_hands, wrap

Methods = dict[str, Callable[[bytes], bytes]]
RECHECK_S = 1.0
PAUSE_S = 0.02
BACKLOG = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much of a server its peers can take."""

    links: int = 64
    links_per_peer: int = 16
    """Links of one certificate; peers on loopback have no name and share `links`."""
    opening: int = 128
    """Connections that have not said anything yet."""
    opening_s: float = HANDSHAKE_S
    """For the handshake, and again for the first message."""
    idle_s: float = 900.0
    frame_bytes: int | None = None
    """The largest message; None for what a batch may have."""


@dataclass(slots=True, kw_only=True, eq=False)
class Visit:
    """One connection. Guarded by the door's lock."""

    sock: socket.socket
    peer: Peer | None = None
    connection: BytesConnection | None = None
    speaking: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What a server admits and offers. `enter` gives the methods of one link and what to do when
    it has ended."""

    enter: Callable[[Peer], tuple[Methods, Callable[[], None]]]
    roles: frozenset[Role]
    credentials: Credentials | None = None
    limits: Limits = field(default_factory=Limits)
    audit: AuditLog = field(default_factory=lambda: AuditLog(None))
    clock: Callable[[], float] = time.time
    """Seconds since 1970: certificates end at a date."""


class Door:
    """Listens from construction on. Raises ConfigError where the address cannot be used, or may
    not be without certificates."""

    def __init__(self, host: str, port: int, access: Access) -> None:
        if access.credentials is None:
            check_loopback(host)
        self._access = access
        self._lock = threading.Lock()
        self._visits: list[Visit] = []
        self._closed = False
        self._stamp = access.credentials.stamp() if access.credentials else ()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
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
        self._listener.settimeout(RECHECK_S)
        checked = time.monotonic()
        while not self._closed:
            try:
                sock, _ = self._listener.accept()
                self._receive(sock)
            except TimeoutError:
                pass  # nobody came
            except OSError:  # the peer gave up, or `close`; with no file left not at once again
                time.sleep(PAUSE_S)
            if self._access.credentials and time.monotonic() - checked >= RECHECK_S:
                checked = time.monotonic()
                self._recheck()

    def close(self) -> None:
        """Stop listening and close every connection."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            visits = list(self._visits)
        for visit in visits:
            _hang_up(visit)

    def _receive(self, sock: socket.socket) -> None:
        """Give a new connection a place, the oldest silent one's if there is none."""
        visit = Visit(sock=sock)
        with self._lock:
            silent = [v for v in self._visits if not v.speaking]
            evicted = silent[0] if len(silent) >= self._access.limits.opening else None
            if evicted is not None:
                self._visits.remove(evicted)
            self._visits.append(visit)
        if evicted is not None:
            _hang_up(evicted)
        try:
            threading.Thread(target=self._serve_one, args=(visit,), daemon=True).start()
        except RuntimeError:  # no more threads: this one has to come again
            self._leave(visit)

    def _serve_one(self, visit: Visit) -> None:
        access = self._access
        try:
            if access.credentials is None:
                check_peer_is_local(visit.sock)
            visit.sock = wrap(visit.sock, access.credentials, server=True)
            peer = shake_hands(visit.sock, access.roles, access.limits.opening_s)
        except (AuthError, ConfigError, OSError) as error:
            self._refuse(visit, error)
            return
        methods, leave = access.enter(peer)
        try:
            visit.peer = peer
            spoken = {name: self._speaking(visit, method) for name, method in methods.items()}
            connection = attach(
                visit.sock,
                Exposed(spoken),
                idle_s=access.limits.opening_s,
                frame_bytes=access.limits.frame_bytes,
            )
            visit.connection = connection
            with contextlib.suppress(*LINK_ERRORS, RecursionError, AttributeError):
                connection.serve_all()
        except OSError:
            pass  # it went away before it was attached
        finally:
            self._leave(visit)
            leave()

    def _speaking(
        self, visit: Visit, method: Callable[[bytes], bytes]
    ) -> Callable[[bytes], bytes]:
        """The method, which at its first call turns a silent connection into a link."""

        def call(payload: bytes) -> bytes:
            if not visit.speaking:
                self._seat(visit)
            return method(payload)

        return call

    def _seat(self, visit: Visit) -> None:
        """Raises ValueError, which the peer sees, where there is no place left."""
        limits = self._access.limits
        with self._lock:
            if visit not in self._visits:
                raise ValueError("the connection was given up; come again")
            seated = Counter(v.peer.name for v in self._visits if v.speaking and v.peer)
            assert visit.peer is not None
            own = 0 if visit.peer.role is Role.LOCAL else seated[visit.peer.name]
            if seated.total() >= limits.links or own >= limits.links_per_peer:
                raise ValueError(
                    f"too many links: {seated.total()} of {limits.links}, {own} of "
                    f"{limits.links_per_peer} yours; try again later"
                )
            visit.speaking = True
        assert visit.connection is not None
        visit.connection.set_idle(limits.idle_s)

    def _refuse(self, visit: Visit, error: Exception) -> None:
        if isinstance(error, AuthError | ssl.SSLCertVerificationError):
            reason = getattr(error, "verify_message", "") or str(error)
            self._access.audit.write(None, "connect", f"refused: {reason}")
        self._leave(visit)

    def _leave(self, visit: Visit) -> None:
        """By the visit's own thread, when it is done with the connection."""
        with self._lock:
            if visit in self._visits:
                self._visits.remove(visit)
        if visit.connection is not None:
            with contextlib.suppress(*LINK_ERRORS, AttributeError):
                visit.connection.drop()
        visit.sock.close()

    def _recheck(self) -> None:
        """Drop links whose certificate has ended, and all of them when the list of revoked
        certificates was replaced: they come again and are checked."""
        assert self._access.credentials is not None
        now = self._access.clock()
        try:
            stamp = self._access.credentials.stamp()
        except ConfigError:
            return  # being replaced
        with self._lock:
            changed, self._stamp = stamp != self._stamp, stamp
            ended = [v for v in self._visits if v.peer and (changed or v.peer.expires_s < now)]
        for visit in ended:
            _hang_up(visit)


def _hang_up(visit: Visit) -> None:
    """End a connection from any thread; the visit's own thread wakes and cleans up."""
    with contextlib.suppress(
        OSError
    ):  # also of a TLS socket: the lower layer, nothing is waited for
        socket.socket.shutdown(visit.sock, socket.SHUT_RDWR)
