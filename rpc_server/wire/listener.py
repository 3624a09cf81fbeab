"""The listening side of every link: who may come in, how many, and for how long.

In: an address, this end's credentials, the roles admitted and what a peer may call. Out: served
links, each on its own thread, until `close`. A connection that has not said anything yet holds one
of a few places that the next one takes over, so that half-open connections keep nobody out: first
those of the machine that has most of them, never those of this machine for another one's.
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
from rpc_server.security.audit import AuditLog
from rpc_server.security.auth import AuthError, Peer, Role, check_loopback, is_loopback
from rpc_server.security.tls import (
    HANDSHAKE_S,
    Credentials,
    check_peer_is_local,
    shake_hands,
    wrap,
)
from rpc_server.wire.link import LINK_ERRORS, Admission, BytesConnection, Exposed, attach

Methods = dict[str, Callable[[bytes], bytes]]
RECHECK_S = 1.0
"""Seconds between two looks whether certificates changed."""
PAUSE_S = 0.02
"""Seconds to wait where accepting fails, as without a file left it does at once again."""
BACKLOG = 512
"""Connections that the system holds until they are accepted."""
LINGER_S, LINGER_BYTES = 1.0, 4096
"""Seconds, and bytes, for which the rest of a refused message is read: else its sender would not
see the reason."""
LOCAL_SHARE = 16
"""One part in so many of the links is kept for this machine's operators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLimits:
    """Limits on what peers can take of a server."""

    links: int = 64
    """Connections at a time; one in 16 is left to those from this machine."""
    links_per_peer: int = 16
    """Links of one certificate, silent ones too; peers on loopback have no name and share `links`:
    where none is left, one that was idle for `opening_s` makes place for the next."""
    opening: int = 128
    """Connections from other machines that have not said anything yet, and as many from here."""
    opening_s: float = HANDSHAKE_S
    """For the handshake, and again for the first message."""
    idle_s: float = 900.0
    frame_bytes: int | None = None
    """The largest message; None for what a batch may have."""
    opening_bytes: int | None = None
    """The largest until a method has admitted the peer; None where there is nothing to admit."""


@dataclass(slots=True, kw_only=True, eq=False)
class Visit:
    """One connection. Guarded by the listener's lock."""

    sock: socket.socket
    host: str = ""
    local: bool = False
    peer: Peer | None = None
    surplus: bool = False
    """One more than its peer may have: it is told so when it speaks, if it is not too late."""
    connection: BytesConnection | None = None
    speaking: bool = False
    calls: int = 0
    """Under way."""
    heard_s: float = 0.0
    """When the last one ended; monotonic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAccess:
    """What a server admits and offers. `enter` gives the methods of one link and what to do when
    it has ended."""

    enter: Callable[[Peer], tuple[Methods, Callable[[], None]]]
    roles: frozenset[Role]
    credentials: Credentials | None = None
    limits: LinkLimits = field(default_factory=LinkLimits)
    audit: AuditLog = field(default_factory=lambda: AuditLog(None))
    clock: Callable[[], float] = time.time
    """Seconds since 1970: certificates end at a date."""


def take_address(host: str, port: int, credentials: Credentials | None) -> socket.socket:
    """A socket that has an address, and answers nobody before a listener listens on it. Raises
    ConfigError where the address cannot be used, or may not be without certificates."""
    if credentials is None:
        check_loopback(host)
    try:
        sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise _taken(host, port, error) from None
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise _taken(host, port, error) from None
    return sock


def _taken(host: str, port: int, error: OSError) -> ConfigError:
    return ConfigError(f"cannot listen on {host}:{port}: {error.strerror}; choose another port")


class Listener:
    """Listens from construction on, where it is given one on a socket that has its address. Raises
    ConfigError as `take_address`."""

    def __init__(
        self, host: str, port: int, access: ServerAccess, bound: socket.socket | None = None
    ) -> None:
        self._access = access
        self._lock = threading.Lock()
        self._visits: list[Visit] = []
        self._closed = False
        self._stamp = access.credentials.stamp() if access.credentials else ()
        self._socket = bound or take_address(host, port, access.credentials)
        try:
            self._socket.listen(BACKLOG)
        except OSError as error:
            raise _taken(host, port, error) from None

    @property
    def port(self) -> int:
        """The port in use, also when 0 was asked for."""
        return int(self._socket.getsockname()[1])

    def serve(self) -> None:
        """Accept connections until `close`."""
        self._socket.settimeout(RECHECK_S)
        checked = time.monotonic()
        while not self._closed:
            try:
                sock, address = self._socket.accept()
                self._receive(sock, str(address[0]))
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
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with self._lock:
            visits = list(self._visits)
        for visit in visits:
            _hang_up(visit)

    def _receive(self, sock: socket.socket, host: str) -> None:
        """Give a new connection a place, a silent one's if there is none."""
        visit = Visit(sock=sock, host=host, local=is_loopback(host.removeprefix("::ffff:")))
        with self._lock:
            silent = [v for v in self._visits if not v.speaking and v.local == visit.local]
            evicted = _least(silent) if len(silent) >= self._access.limits.opening else None
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
        limits = access.limits
        try:
            self._introduce(visit, peer)
            spoken = {name: self._speaking(visit, method) for name, method in methods.items()}
            connection = attach(
                visit.sock,
                Exposed(spoken),
                idle_s=limits.opening_s,
                frame_bytes=limits.opening_bytes or limits.frame_bytes,
            )
            visit.connection = connection
            with contextlib.suppress(*LINK_ERRORS, RecursionError, AttributeError):
                connection.serve_all()
        except OSError:
            pass  # it went away before it was attached
        finally:
            self._leave(visit)
            leave()

    def _introduce(self, visit: Visit, peer: Peer) -> None:
        """The visit has a name from here on, and counts among its peer's links."""
        with self._lock:
            visit.peer = peer
            own = self._own(visit)
            visit.surplus = (
                peer.role is not Role.LOCAL and own >= self._access.limits.links_per_peer
            )

    def _own(self, visit: Visit) -> int:
        """Links of the same peer, silent or not, that it may have. Under the lock."""
        assert visit.peer is not None
        name = visit.peer.name
        others = (v for v in self._visits if v is not visit and not v.surplus)
        return sum(v.peer is not None and v.peer.name == name for v in others)

    def _speaking(
        self, visit: Visit, method: Callable[[bytes], bytes]
    ) -> Callable[[bytes], bytes]:
        """The method, which at its first call turns a silent connection into a link."""

        def call(payload: bytes) -> bytes:
            if not visit.speaking:
                self._seat(visit)
            visit.calls += 1
            try:
                reply = method(payload)
            finally:
                visit.calls -= 1
                visit.heard_s = time.monotonic()
            if isinstance(reply, Admission):
                assert visit.connection is not None
                visit.connection.admit(self._access.limits.frame_bytes)
            return bytes(reply)

        return call

    def _seat(self, visit: Visit) -> None:
        """Raises ValueError, which the peer sees, where there is no place left."""
        limits = self._access.limits
        with self._lock:
            if visit not in self._visits:
                raise ValueError("the connection was given up; come again")
            seated = [v for v in self._visits if v.speaking]
            own = self._own(visit) if visit.surplus else 0
            most = limits.links if visit.local else limits.links - limits.links // LOCAL_SHARE
            idle = self._idle(seated) if visit.local and len(seated) >= most else None
            if own >= limits.links_per_peer or (len(seated) >= most and idle is None):
                raise ValueError(
                    f"too many links: {len(seated)} of {limits.links}, {own} of "
                    f"{limits.links_per_peer} yours; try again later"
                )
            if idle is not None:
                self._visits.remove(idle)
            visit.speaking, visit.surplus = True, False
        if idle is not None:
            _hang_up(idle)
        assert visit.connection is not None
        visit.connection.set_idle(limits.idle_s)

    def _idle(self, seated: list[Visit]) -> Visit | None:
        """The nameless link that nobody has used for the longest time."""
        since_s = time.monotonic() - self._access.limits.opening_s
        idle = [v for v in seated if not v.calls and v.heard_s < since_s and _nameless(v)]
        return min(idle, key=lambda v: v.heard_s, default=None)

    def _refuse(self, visit: Visit, error: Exception) -> None:
        if isinstance(error, AuthError | ssl.SSLCertVerificationError):
            reason = getattr(error, "verify_message", "") or str(error)
            self._access.audit.write(None, "connect", f"refused: {reason}")
        if isinstance(error, ssl.SSLError):
            _linger(visit.sock)
        self._leave(visit)

    def _leave(self, visit: Visit) -> None:
        """By the visit's own thread, when it is done with the connection."""
        with self._lock:
            if visit in self._visits:
                self._visits.remove(visit)
        if visit.connection is not None:
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


def _linger(sock: socket.socket) -> None:
    """Let the other end hear why it is refused: what it has sent meanwhile is read and dropped,
    for a socket that is closed on unread bytes takes back what was said."""
    until_s = time.monotonic() + LINGER_S
    with contextlib.suppress(OSError):  # the lower layer: TLS has ended
        socket.socket.shutdown(sock, socket.SHUT_WR)
        sock.settimeout(LINGER_S)
        while time.monotonic() < until_s and socket.socket.recv(sock, LINGER_BYTES):
            continue


def _hang_up(visit: Visit) -> None:
    """End a connection from any thread; the visit's own thread wakes and cleans up."""
    with contextlib.suppress(
        OSError
    ):  # also of a TLS socket: the lower layer, nothing is waited for
        socket.socket.shutdown(visit.sock, socket.SHUT_RDWR)


def _nameless(visit: Visit) -> bool:
    return visit.peer is not None and visit.peer.role is Role.LOCAL


def _least(silent: list[Visit]) -> Visit:
    """Whose place the next connection gets: one too many of its peer, or the oldest of the machine
    that has most."""
    hosts = Counter(v.host for v in silent)
    return max(silent, key=lambda v: (v.surplus, hosts[v.host]))  # the first of equals
