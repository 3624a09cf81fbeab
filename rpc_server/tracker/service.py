"""The tracker: the clock, the locks and the disk around FarmState, and what its peers may call.

In: messages of boards, clients and operators, from a Listener. Out: answers. Every event is
decided by FarmState under one lock and on disk before it is answered; a client that waits is woken
when something of its own changes. The decisions are in rpc_server.tracker.state.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace

from autotune.errors import AutotuneError
from rpc_server.board.lease_guard import identity, make_ticket
from rpc_server.security.audit import AuditLog
from rpc_server.security.auth import Peer, Role
from rpc_server.security.freshness import sealed_where_local
from rpc_server.security.tls import Credentials
from rpc_server.tracker.boards import named
from rpc_server.tracker.group_commit import GroupCommit
from rpc_server.tracker.ledger import owner_of
from rpc_server.tracker.report import Paces, farm_report
from rpc_server.tracker.state import FarmState
from rpc_server.tracker.store import StateStore
from rpc_server.tracker.types import (
    Action,
    Asked,
    BoardChanged,
    BoardGone,
    Commanded,
    Ended,
    Event,
    FarmError,
    FarmRules,
    LeaseEnded,
    Renewed,
    Restarted,
    Tick,
    Withdrawn,
)
from rpc_server.wire import farm as farm_wire
from rpc_server.wire import messages as wire
from rpc_server.wire.listener import LinkLimits, Listener, Methods, ServerAccess

ROLES = frozenset({Role.BOARD, Role.CLIENT, Role.TRACKER})
QUESTIONS = frozenset({"status", "key"})
"""Methods that change nothing."""
LIMITS = LinkLimits(links=4096, links_per_peer=512, opening=512, frame_bytes=wire.SMALL_BYTES)
TICK_S, PAUSED_S = 0.25, 2.0
"""Seconds between two looks at what has expired; from which on the tracker itself stood still."""
MAX_SESSIONS, MAX_SESSIONS_OWN, MAX_BOARDS_OWN = 4096, 64, 64
"""Sessions of all clients, and sessions and boards of one certificate, at most."""
SESSION_S, MAX_NOTES = 60.0, 32
"""Seconds that a silent session is kept; notes that wait for its client."""


def steady_clock() -> Callable[[], float]:
    """Seconds since 1970 that never jump: set once, then monotonic."""
    offset = time.time() - time.monotonic()
    return lambda: offset + time.monotonic()


@dataclass(slots=True, kw_only=True)
class WaitingClient:
    """A client that waits for news. Guarded by the tracker's lock."""

    version: int
    news: threading.Condition
    seen_s: float
    notes: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=MAX_NOTES))


class Tracker:
    """`run` keeps time on the calling thread until `stop`; `enter` is for a Listener."""

    def __init__(
        self,
        rules: FarmRules,
        store: StateStore,
        *,
        version: str,
        audit: AuditLog | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._clock = clock or steady_clock()
        self._version = version
        self._audit = audit or AuditLog(None)
        self._state = FarmState(rules)
        self._lock = threading.Lock()
        self._sessions: dict[str, WaitingClient] = {}
        self._paces = Paces()
        self._links: dict[str, object] = {}
        self._stopped = threading.Event()
        self._run = secrets.token_hex(4)
        self._first_version = int(self._clock() * 1000)
        store.load(self._state)
        if self._state.repaired:
            print(f"warning: {self._state.repaired}", file=sys.stderr, flush=True)
        self._disk = GroupCommit(store, self._state, self._lock)
        with self._lock:
            self._apply(Restarted())
            self._disk.settle()

    # ---------------------------------------------------------------------------------- time

    def run(self) -> None:
        """Let time pass until `stop`."""
        last_s = self._clock()
        while not self._stopped.wait(TICK_S):
            now_s = self._clock()
            with self._lock, contextlib.suppress(FarmError):
                if now_s - last_s > PAUSED_S:
                    self._apply(Restarted())
                self._apply(Tick())
                self._drop_sessions(now_s)
                self._disk.settle()
            last_s = now_s

    def stop(self) -> None:
        """End `run`, and every wait of a client."""
        with self._lock:
            self._stopped.set()
            for session in self._sessions.values():
                session.news.notify_all()
            self._disk.settle()

    def _drop_sessions(self, now_s: float) -> None:
        for name, session in list(self._sessions.items()):
            if now_s - session.seen_s > SESSION_S and not self._state.knows(name):
                del self._sessions[name]
        self._paces.keep(self._state.boards)

    # -------------------------------------------------------------------------------- events

    def _apply(self, event: Event) -> None:
        """Decide and tell. Raises FarmError where it is refused. Under the lock; whoever answers
        somebody waits for the disk first."""
        if self._stopped.is_set():
            raise FarmError("the tracker is stopping; try again when it is back")
        actions = self._state.apply(self._clock(), event)
        self._disk.note()
        for action in actions:
            self._tell(action)

    def _tell(self, action: Action) -> None:
        details: dict[str, str | int] = {
            f.name: value
            for f in fields(action)
            if isinstance(value := getattr(action, f.name), str | int)
        }
        self._audit.write(None, "farm", type(action).__name__, **details)
        if isinstance(action, BoardChanged):
            return
        session = self._sessions.get(action.client)
        if session is None:
            return
        session.version += 1
        if isinstance(action, Ended):
            session.notes.append((action.request, action.reason))
        elif isinstance(action, LeaseEnded) and action.reason:
            session.notes.append((f"lease {action.fence}", action.reason))
        session.news.notify_all()

    # --------------------------------------------------------------------------------- peers

    def enter(self, peer: Peer) -> tuple[Methods, Callable[[], None]]:
        """What one link may call, and what happens when it ends."""
        link = object()
        boards: set[tuple[str, str]] = set()

        def register(payload: bytes) -> bytes:
            event = farm_wire.decode_register(payload)
            event = replace(event, board=_board_name(peer, event.board))
            with self._lock:
                self._check_boards(peer, event.board)
                self._apply(event)
                boards.add((event.board, event.secret))
                self._links[event.board] = link
                return self._board_status(event.board)

        def beat(payload: bytes) -> bytes:
            event = farm_wire.decode_beat(payload)
            event = replace(event, board=_board_name(peer, event.board))
            with self._lock:
                self._apply(event)
                self._paces.count(event.board, event.stats, self._clock())
                return self._board_status(event.board)

        def bye(payload: bytes) -> bytes:
            event = farm_wire.decode_beat(payload)
            name = _board_name(peer, event.board)
            with self._lock:
                self._apply(BoardGone(board=name, secret=event.secret, left=True))
            return wire.encode("bye", {})

        def leave() -> None:
            with self._lock:
                for name, secret in boards:
                    if self._links.get(name) is link:
                        del self._links[name]
                        with contextlib.suppress(FarmError):
                            self._apply(BoardGone(board=name, secret=secret))

        calls: dict[str, tuple[frozenset[Role], Callable[[bytes], bytes]]] = {
            "register": (frozenset({Role.BOARD}), register),
            "beat": (frozenset({Role.BOARD}), beat),
            "bye": (frozenset({Role.BOARD}), bye),
            "sync": (frozenset({Role.CLIENT}), lambda p: self._sync(peer, p)),
            "key": (frozenset({Role.CLIENT}), self._key),
            "command": (frozenset({Role.TRACKER}), lambda p: self._command(peer, p)),
            "status": (ROLES, self._status),
        }
        return {n: self._guarded(n, peer, roles, m) for n, (roles, m) in calls.items()}, leave

    def _guarded(
        self, name: str, peer: Peer, roles: frozenset[Role], method: Callable[[bytes], bytes]
    ) -> Callable[[bytes], bytes]:
        """Errors become error messages; a peer of another role gets no further than this."""

        def call(payload: bytes) -> bytes:
            try:
                if peer.role is not Role.LOCAL and peer.role not in roles:
                    wanted = " or ".join(sorted(roles))
                    raise FarmError(
                        f"{name} is for a {wanted}, and {peer} is none; "
                        f"pass --certs with the folder of a {wanted}"
                    )
                reply = method(payload)
            except AutotuneError as error:
                self._audit.write(peer, name, f"refused: {error}")
                reply = wire.encode_error(str(error))
            with self._lock:
                self._disk.settle()  # nobody is told of what could still be lost
            return reply

        return call

    # -------------------------------------------------------------------------------- boards

    def _check_boards(self, peer: Peer, name: str) -> None:
        own = [b for b in self._state.boards if b == peer.name or b.startswith(f"{peer.name}/")]
        if peer.role is Role.BOARD and name not in own and len(own) >= MAX_BOARDS_OWN:
            raise FarmError(
                f"{MAX_BOARDS_OWN} boards of the certificate {peer.name} are there; issue another"
            )

    def _board_status(self, board: str) -> bytes:
        orders = self._state.orders(board, self._clock())
        return farm_wire.encode_board_status(
            farm_wire.BoardStatus(
                floor=orders.floor,
                state=orders.state,
                reset=orders.reset,
                heartbeat_s=self._state.rules.heartbeat_s,
            )
        )

    # ------------------------------------------------------------------------------- clients

    def _sync(self, peer: Peer, payload: bytes) -> bytes:
        sync = farm_wire.decode_sync(payload, identity(peer))
        # Nobody is kept waiting past the time to renew.
        until_s = self._clock() + min(sync.wait_s, self._state.rules.lease_s / 4)
        with self._lock:
            session = self._session(sync.session)
            for release in sync.releases:
                self._apply(release)
            for name in sync.withdrawn:
                self._apply(Withdrawn(client=sync.session, request=name))
            for ask in sync.asks:
                self._ask(session, ask)
            while True:
                self._apply(Renewed(client=sync.session, fences=sync.renew))
                session.seen_s = self._clock()
                left_s = until_s - session.seen_s
                if session.version != sync.version or left_s <= 0 or self._stopped.is_set():
                    return farm_wire.encode_view(self._view(sync.session, session))
                session.news.wait(min(left_s, 1.0))

    def _session(self, name: str) -> WaitingClient:
        session = self._sessions.get(name)
        if session is None:
            if len(self._sessions) >= MAX_SESSIONS:
                raise FarmError(f"the tracker has {MAX_SESSIONS} clients; try again later")
            owner = owner_of(name)
            if sum(owner_of(other) == owner for other in self._sessions) >= MAX_SESSIONS_OWN:
                raise FarmError(f"{MAX_SESSIONS_OWN} tuners of yours are at work; end one first")
            session = WaitingClient(
                version=self._first_version,
                news=threading.Condition(self._lock),
                seen_s=self._clock(),
            )
            self._sessions[name] = session
        return session

    def _ask(self, session: WaitingClient, ask: Asked) -> None:
        """A refusal is a note: the other requests of the message stand."""
        try:
            self._apply(ask)
        except FarmError as error:
            session.notes.append((ask.request, str(error)))
        session.version += 1

    def _view(self, client: str, session: WaitingClient) -> farm_wire.View:
        who = client.partition("#")[0]
        grants = []
        for lease in self._state.leases_of(client):
            board = self._state.boards[lease.board]
            grants.append(
                farm_wire.Grant(
                    fence=lease.fence,
                    request=lease.request,
                    board=board.name,
                    address=board.address,
                    ticket=make_ticket(board.secret, lease.fence, who),
                    recalled=lease.recalled_s is not None,
                )
            )
        return farm_wire.View(
            version=session.version,
            waiting=tuple(r.name for r in self._state.requests_of(client)),
            grants=tuple(grants),
            notes=dict(session.notes),
            run=self._run,
        )

    def _key(self, payload: bytes) -> bytes:
        """What the boards of a key are like, best known first."""
        key = farm_wire.decode_key(payload)
        now_s = self._clock()
        with self._lock:
            state = self._state
            boards = [b for b in state.boards.values() if b.key == key]
            boards.sort(key=lambda b: (state.state_of(b, now_s) == "offline", b.name))
            keys = sorted({b.key for b in state.boards.values()})
        if not boards:
            raise FarmError(
                f"no board of key {key!r}; keys there are: {', '.join(keys) or 'none'}; start one "
                f"with `rpc_server serve --tracker HOST:PORT --key {key}`"
            )
        return wire.encode("boards", {"boards": [dict(b.info) for b in boards[:16]]})

    # ----------------------------------------------------------------------------- operators

    def _command(self, peer: Peer, payload: bytes) -> bytes:
        board, command = farm_wire.decode_command(payload)
        with self._lock:
            board = named(self._state, board)
            self._apply(Commanded(board=board, command=command))
            state = self._state.state_of(self._state.boards[board], self._clock())
        self._audit.write(peer, command, "done", board=board)
        return wire.encode("done", {"board": board, "state": state})

    def _status(self, payload: bytes) -> bytes:
        wire.decode("status", payload)
        with self._lock:
            return wire.encode(
                "farm",
                {
                    "version": self._version,
                    **farm_report(self._state, self._paces, self._clock()),
                    "storage_error": self._disk.error,
                },
            )


def _board_name(peer: Peer, name: str) -> str:
    """A board with a certificate speaks for itself only: that name comes first."""
    if peer.role is Role.LOCAL or name == peer.name:
        return name
    return f"{peer.name}/{name}"


def tracker_listener(
    tracker: Tracker,
    host: str,
    port: int,
    *,
    credentials: Credentials | None = None,
    audit: AuditLog | None = None,
    limits: LinkLimits = LIMITS,
    bound: socket.socket | None = None,
) -> Listener:
    """Listens from here on. Raises ConfigError where the address cannot be used."""
    access = ServerAccess(
        enter=sealed_where_local(tracker.enter, lambda name: name not in QUESTIONS),
        roles=ROLES,
        credentials=credentials,
        audit=audit or AuditLog(None),
        limits=limits,
    )
    return Listener(host, port, access, bound)
