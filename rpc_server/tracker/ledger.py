"""The tracker's ledger: boards, requests, leases, and who is waiting for what.

In: changes, made by `queue` and `boards`. Out: answers, what a store has to write, and the actions
that follow. No clock, no sockets.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from rpc_server.tracker.types import Action, Board, BoardChanged, FarmRules, Lease, Request

FENCES_AHEAD = 1 << 16
"""How far beyond its own last fence a tracker believes a board: what it granted since its file was
copied, or lost while the farm was young. A board that is further ahead begins anew."""
LAST_BELIEVED = 1 << 48
"""No fence is believed beyond this one, however near: grants alone do not get there."""
BEGUN_ANEW = 1 << 40
"""Where fences go on after a repair: beyond any that were granted, far from where they end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What a board has to know: the lowest fence it may still serve, how it stands, and whether it
    is to be reset."""

    floor: int
    state: str
    reset: bool


def owner_of(client: str) -> str:
    """Whose quota a client's requests count against: a certificate's, for all of its sessions. On
    loopback there are no certificates to tell sessions apart by."""
    name, _, _ = client.partition("#")
    return client if name == "local" else name


class Ledger:
    """Boards, requests and leases. `changed` collects what a store has to write; whoever writes it
    empties it."""

    def __init__(self, rules: FarmRules) -> None:
        self.rules = rules
        self.boards: dict[str, Board] = {}
        self.requests: dict[tuple[str, str], Request] = {}
        self.leases: dict[int, Lease] = {}
        self.fence = 0
        self.repaired = ""
        """What `restore` mended, in one line; '' for nothing."""
        self.changed: set[tuple[str, object]] = set()
        self.arrivals = 0
        self.turns: dict[str, int] = {}
        """When each client that waits or holds was served last, counted in grants."""
        self.turn = 0
        self.heard: dict[str, float] = {}
        self.fences: dict[str, set[int]] = {}
        """Fences of the leases of each client."""
        self.actions: list[Action] = []
        self._waiting: Counter[str] = Counter()
        """Requests by client, and by owner."""

    def restore(
        self,
        boards: Iterable[Board],
        requests: Iterable[Request],
        leases: Iterable[Lease],
        fence: int,
    ) -> None:
        """Take over what a store kept. `Restarted` has to follow."""
        self.boards = {b.name: b for b in boards}
        for request in requests:
            self.add_request(request)
        self.changed.clear()
        self.leases = {lease.fence: lease for lease in leases}
        self.fence = max([fence, *self.leases])
        if self.fence > LAST_BELIEVED:
            self._begin_anew()
        for lease in self.leases.values():
            self.fences.setdefault(lease.client, set()).add(lease.fence)
        self.arrivals = max((r.number for r in self.requests.values()), default=0)
        owners = {r.client for r in self.requests.values()}
        self.turns = dict.fromkeys(owners | {x.client for x in self.leases.values()}, 0)

    def _begin_anew(self) -> None:
        """A fence that nobody granted got into the store: there is no room for later ones."""
        self.repaired = (
            f"the farm's last lease was number {self.fence}, which was never granted: leases end, "
            f"the next is number {BEGUN_ANEW + 1}; boards come back by themselves"
        )
        for lease in self.leases.values():
            board = self.boards.get(lease.board)
            if board is not None:
                self.boards[board.name] = dataclasses.replace(board, lease=None)
                self.changed.add(("board", board.name))
            self.changed.add(("lease", lease.fence))
        self.leases = {}
        self.fence = BEGUN_ANEW

    # ---------------------------------------------------------------------------------- questions

    def state_of(self, board: Board, now_s: float) -> str:
        """One word for how a board stands."""
        if not board.connected and now_s - board.seen_s > self.rules.board_lost_s:
            return "offline"
        if board.quarantined_until_s is not None:
            return "quarantined"
        if board.drained:
            return "draining" if board.lease is not None else "drained"
        if board.lease is not None:
            return "leased"
        if not board.connected:
            return "away"
        return "probation" if board.probation else "idle"

    def orders(self, name: str, now_s: float) -> Orders:
        """For the board of this name, which exists."""
        board = self.boards[name]
        floor = board.lease if board.lease is not None else self.fence + 1
        return Orders(floor=floor, state=self.state_of(board, now_s), reset=board.reset_due)

    def leases_of(self, client: str) -> list[Lease]:
        return [self.leases[fence] for fence in sorted(self.fences.get(client, ()))]

    def requests_of(self, client: str) -> list[Request]:
        return [r for r in self.requests.values() if r.client == client]

    def waiting_of(self, who: str) -> int:
        """Requests of a client, or of all clients of an owner."""
        return self._waiting[who]

    def knows(self, client: str) -> bool:
        """Whether the client waits for a board or holds one."""
        return client in self.turns

    def clients(self) -> set[str]:
        """Clients that wait for a board or hold one."""
        return set(self.turns)

    def level(self, request: Request, now_s: float) -> int:
        """Priority with the time waited."""
        return request.priority + int(max(0.0, now_s - request.since_s) / self.rules.age_s)

    # ------------------------------------------------------------------------------------ changes

    def put(self, board: Board, now_s: float) -> None:
        """Keep a board; say so if it stands differently now."""
        old = self.boards.get(board.name)
        self.boards[board.name] = board
        self.changed.add(("board", board.name))
        state = self.state_of(board, now_s)
        if old is None or self.state_of(old, now_s) != state:
            reason = board.last_error if state == "quarantined" else ""
            self.tell(BoardChanged(board=board.name, state=state, reason=reason))

    def forget(self, client: str) -> None:
        """Nothing is kept of a client that neither waits nor holds."""
        if not self.fences.get(client) and not self.waiting_of(client):
            self.fences.pop(client, None)
            self.turns.pop(client, None)
            self.heard.pop(client, None)

    def add_request(self, request: Request) -> None:
        place = (request.client, request.name)
        self.requests[place] = request
        self.changed.add(("request", place))
        self._waiting.update({request.client, owner_of(request.client)})

    def drop_request(self, request: Request) -> None:
        place = (request.client, request.name)
        del self.requests[place]
        self.changed.add(("request", place))
        for who in {request.client, owner_of(request.client)}:
            self._waiting[who] -= 1
            if not self._waiting[who]:
                del self._waiting[who]

    def tell(self, action: Action) -> None:
        """Something that follows from the event under way."""
        self.actions.append(action)
