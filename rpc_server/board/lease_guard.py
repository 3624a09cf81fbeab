"""The guard of a farm's board: only the holder of its newest lease uses it. In: tickets. Out: yes
or no.

A ticket is a lease's fence and a MAC over fence and client under the secret that the board gave
the tracker when it registered. The board needs nobody else to check one, so leases work while the
tracker is away; a ticket of a newer lease ends every older one.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import secrets
import threading

from autotune.parse_int import whole
from rpc_server.security.auth import Peer, Role
from rpc_server.tracker.types import FarmError

LEASE_OVER = "the lease is over"


def identity(peer: Peer) -> str:
    """What a ticket is bound to: a certificate's name."""
    return "local" if peer.role is Role.LOCAL else peer.name


@functools.lru_cache(maxsize=4096)
def make_ticket(secret: str, fence: int, client: str) -> str:
    """For the client with this identity."""
    text = f"{fence}:{client}".encode()
    return f"{fence}:{hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()}"


class Gate:
    """Thread-safe. `floor`: the lowest fence that is served."""

    def __init__(self, secret: str) -> None:
        self.secret = secret
        self._lock = threading.Lock()
        self._floor = 0
        self._fences: dict[int, int] = {}

    @property
    def floor(self) -> int:
        with self._lock:
            return self._floor

    def raise_floor(self, floor: int) -> None:
        """Older leases are over."""
        with self._lock:
            self._floor = max(self._floor, floor)

    def begin_anew(self) -> None:
        """Under another secret, as a board that was started again: all tickets are over, and
        fences may be lower than before."""
        with self._lock:
            self.secret = secrets.token_hex(16)
            self._floor = 0
            self._fences.clear()

    def admit(self, owner: int, peer: Peer, ticket: str) -> None:
        """The link `owner` holds this ticket. Raises FarmError."""
        number, _, _ = ticket.partition(":")
        fence = whole(number)
        if fence is None or not hmac.compare_digest(
            make_ticket(self.secret, fence, identity(peer)).encode(), ticket.encode()
        ):
            raise FarmError("the ticket is not of this board's lease; lease it again")
        with self._lock:
            self._check(fence)
            self._floor = fence
            self._fences[owner] = fence

    def fence(self, owner: int) -> int:
        """The fence of the link's lease. Raises FarmError where it has none, or it is over."""
        with self._lock:
            fence = self._fences.get(owner)
            if fence is None:
                raise FarmError(
                    "this board is leased by its tracker; use --device tracker://HOST:PORT/KEY"
                )
            self._check(fence)
            return fence

    def _check(self, fence: int) -> None:
        if fence < self._floor:
            raise FarmError(f"{LEASE_OVER}, a newer one has begun; lease a board again")

    def forget(self, owner: int) -> None:
        with self._lock:
            self._fences.pop(owner, None)
