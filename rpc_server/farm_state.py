"""The tracker's decisions: events in, actions out. No clock, no sockets, no randomness.

Kept whatever happens: a board has at most one lease; a lease that expired or broke frees its board
and never comes back; a request that was accepted ends exactly once; what a peer that went away
left behind is gone after a while.

Who is next among those that wait for a key: the highest level, which is the priority plus one for
every `age_s` of waiting, so that nobody waits for ever; then whose client holds the fewest boards
of the key; then whose client was served longest ago; then who came first. A client that holds
boards while others wait is asked for one back after `slice_s`, or at once by a higher priority.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass

from rpc_server.farm_types import (
    Action,
    Asked,
    Beat,
    Board,
    BoardChanged,
    BoardGone,
    Commanded,
    Ended,
    Event,
    FarmError,
    Granted,
    Lease,
    LeaseEnded,
    Recalled,
    Registered,
    Released,
    Renewed,
    Request,
    Restarted,
    Rules,
    Tick,
    Withdrawn,
)

COMMANDS = ("release", "quarantine", "drain")


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What a board has to know: the lowest fence it may still serve, how it stands, and whether it
    is to be reset."""

    floor: int
    state: str
    reset: bool


class FarmState:
    """Boards, requests and leases. `changed` collects what a store has to write; whoever writes it
    empties it."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.boards: dict[str, Board] = {}
        self.requests: dict[tuple[str, str], Request] = {}
        self.leases: dict[int, Lease] = {}
        self.fence = 0
        self.changed: set[tuple[str, object]] = set()
        self._arrivals = 0
        self._turns: dict[str, int] = {}
        self._turn = 0
        self._heard: dict[str, float] = {}
        self._fences: dict[str, set[int]] = {}
        """Of each client's leases."""
        self._actions: list[Action] = []

    def restore(
        self,
        boards: Iterable[Board],
        requests: Iterable[Request],
        leases: Iterable[Lease],
        fence: int,
    ) -> None:
        """Take over what a store kept. `Restarted` has to follow."""
        self.boards = {b.name: b for b in boards}
        self.requests = {(r.client, r.name): r for r in requests}
        self.leases = {lease.fence: lease for lease in leases}
        self.fence = max([fence, *self.leases])
        for lease in self.leases.values():
            self._fences.setdefault(lease.client, set()).add(lease.fence)
        self._arrivals = max((r.number for r in self.requests.values()), default=0)
        owners = {r.client for r in self.requests.values()}
        self._turns = dict.fromkeys(owners | {x.client for x in self.leases.values()}, 0)

    def apply(self, now_s: float, event: Event) -> tuple[Action, ...]:
        """Let an event happen. Raises FarmError, with nothing changed, where it is refused."""
        self._actions = []
        match event:
            case Registered():
                self._register(now_s, event)
            case Beat():
                self._beat(now_s, event)
            case BoardGone():
                self._board_gone(now_s, event)
            case Asked():
                self._ask(now_s, event)
            case Withdrawn():
                self._end_request(self.requests.get((event.client, event.request)), "withdrawn")
            case Renewed():
                self._renew(now_s, event)
            case Released():
                self._released(now_s, event)
            case Commanded():
                self._command(now_s, event)
            case Tick():
                self._tick(now_s)
            case Restarted():
                self._restarted(now_s)
        return tuple(self._actions)

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
        return [self.leases[fence] for fence in sorted(self._fences.get(client, ()))]

    def requests_of(self, client: str) -> list[Request]:
        return [r for r in self.requests.values() if r.client == client]

    def knows(self, client: str) -> bool:
        """Whether the client waits for a board or holds one."""
        return client in self._turns

    def clients(self) -> set[str]:
        """Those that wait for a board or hold one."""
        return set(self._turns)

    def level(self, request: Request, now_s: float) -> int:
        """Priority with the time waited."""
        return request.priority + int(max(0.0, now_s - request.since_s) / self.rules.age_s)

    # ------------------------------------------------------------------------------------- boards

    def _register(self, now_s: float, event: Registered) -> None:
        old = self.boards.get(event.board)
        if old is None and len(self.boards) >= self.rules.max_boards:
            raise FarmError(f"the farm is full: {self.rules.max_boards} boards")
        # A tracker that lost its file must not hand out fences that boards have seen already.
        self.fence = max(self.fence, int(event.info.get("floor", 0)))
        again = old is not None and old.secret == event.secret
        if old is not None and not again and old.connected:
            raise FarmError(
                f"a board named {event.board} is there already, at {old.address}; "
                "give this one another --name"
            )
        if old is not None and not again:
            self._end_lease(now_s, old.lease, "the board was started again", fault=True)
            old = self.boards[event.board]
        base = old or Board(
            name=event.board, key=event.key, address=event.address, secret=event.secret
        )
        self._put(
            dataclasses.replace(
                base,
                key=event.key,
                address=event.address,
                secret=event.secret,
                info=event.info,
                connected=True,
                seen_s=now_s,
                reset_due=base.reset_due and again and base.info == event.info,
                idle_since_s=now_s if base.lease is None else base.idle_since_s,
            ),
            now_s,
        )
        self._match(event.key, now_s)

    def _beat(self, now_s: float, event: Beat) -> None:
        board = self._known(event.board, event.secret)
        came_back = not board.connected
        board = dataclasses.replace(board, connected=True, seen_s=now_s, stats=event.stats)
        if came_back:
            self._put(board, now_s)
            self._match(board.key, now_s)
        else:
            self.boards[board.name] = board  # nothing that has to outlive the tracker

    def _board_gone(self, now_s: float, event: BoardGone) -> None:
        board = self.boards.get(event.board)
        if board is None or board.secret != event.secret:
            return
        seen_s = now_s - self.rules.board_lost_s - 1 if event.left else board.seen_s
        board = dataclasses.replace(board, connected=False, seen_s=seen_s)
        self._put(board, now_s)
        if event.left:
            self._end_lease(now_s, board.lease, "the board was stopped")

    def _known(self, name: str, secret: str) -> Board:
        board = self.boards.get(name)
        if board is None or board.secret != secret:
            raise FarmError(f"the board {name} is not registered; register it again")
        return board

    def _command(self, now_s: float, event: Commanded) -> None:
        board = self.boards.get(event.board)
        if board is None:
            known = ", ".join(sorted(self.boards)[:10]) or "none"
            raise FarmError(f"no board named {event.board}; there are: {known}")
        if event.command == "drain":
            self._put(dataclasses.replace(board, drained=True), now_s)
            self._recall(now_s, board.lease)
        elif event.command == "quarantine":
            self._put(dataclasses.replace(board, quarantined_until_s=math.inf), now_s)
            self._end_lease(now_s, board.lease, "the board was quarantined by hand")
        elif event.command == "release":
            self._end_lease(now_s, board.lease, "the lease was ended by hand")
            board = dataclasses.replace(
                self.boards[event.board],
                drained=False,
                quarantined_until_s=None,
                probation=False,
                faults=0,
                quarantines=0,
            )
            self._put(board, now_s)
            self._match(board.key, now_s)
        else:
            raise FarmError(f"expected one of {', '.join(COMMANDS)}, got {event.command!r}")

    def _fault(self, now_s: float, board: Board, reason: str) -> Board:
        """Count it; too many, or one in probation, take the board out of service."""
        faults = board.faults + 1
        board = dataclasses.replace(board, faults=faults, last_error=reason)
        if faults < self.rules.fault_limit and not board.probation:
            return board
        if board.quarantined_until_s is not None:
            return board
        doubled = self.rules.quarantine_s * 2.0 ** min(board.quarantines, 30)
        return dataclasses.replace(
            board,
            quarantined_until_s=now_s + min(doubled, self.rules.longest_quarantine_s),
            quarantines=board.quarantines + 1,
            reset_due=bool(board.info.get("resettable")),
        )

    def _put(self, board: Board, now_s: float) -> None:
        """Keep a board; say so if it stands differently now."""
        old = self.boards.get(board.name)
        self.boards[board.name] = board
        self.changed.add(("board", board.name))
        state = self.state_of(board, now_s)
        if old is None or self.state_of(old, now_s) != state:
            reason = board.last_error if state == "quarantined" else ""
            self._actions.append(BoardChanged(board=board.name, state=state, reason=reason))

    # ------------------------------------------------------------------------------------ clients

    def _ask(self, now_s: float, event: Asked) -> None:
        self._heard[event.client] = now_s
        place = (event.client, event.request)
        if place in self.requests or any(
            lease.request == event.request for lease in self.leases_of(event.client)
        ):
            return  # sent again because an answer was lost
        if not any(board.key == event.key for board in self.boards.values()):
            keys = ", ".join(sorted({b.key for b in self.boards.values()})) or "none"
            self._forget(event.client)
            raise FarmError(
                f"no board of key {event.key!r}; keys there are: {keys}; start one with "
                f"`rpc_server serve --tracker HOST:PORT --key {event.key}`"
            )
        limit = self.rules.max_requests_per_client
        if len(self.requests_of(event.client)) >= limit:
            raise FarmError(f"{limit} requests of yours are waiting already; wait for those")
        if len(self.requests) >= self.rules.max_requests:
            self._forget(event.client)
            raise FarmError(f"the queue is full: {self.rules.max_requests} requests; try later")
        self._arrivals += 1
        self._turns.setdefault(event.client, self._turn - 1)  # before who was just served
        self.requests[place] = Request(
            name=event.request,
            client=event.client,
            key=event.key,
            priority=event.priority,
            number=self._arrivals,
            since_s=now_s,
            until_s=now_s + event.queue_s,
        )
        self.changed.add(("request", place))
        self._match(event.key, now_s)
        if any(lease.priority < event.priority for lease in self.leases.values()):
            self._recall_for_waiting(event.key, now_s)

    def _renew(self, now_s: float, event: Renewed) -> None:
        if not self.knows(event.client):
            return
        self._heard[event.client] = now_s
        for fence in event.fences:
            lease = self.leases.get(fence)
            if lease is None or lease.client != event.client:
                continue
            until_s = now_s + self.rules.lease_s
            if lease.recalled_s is not None:
                until_s = min(until_s, lease.recalled_s + self.rules.recall_grace_s)
            self.leases[fence] = dataclasses.replace(lease, until_s=max(until_s, lease.until_s))

    def _released(self, now_s: float, event: Released) -> None:
        lease = self.leases.get(event.fence)
        if lease is None or lease.client != event.client:
            return  # it ended before
        self._heard[event.client] = now_s
        if event.fault:
            self._end_lease(now_s, event.fence, event.fault, fault=True)
            return
        if event.results:
            board = self.boards[lease.board]
            proven = dataclasses.replace(board, faults=0, quarantines=0, probation=False)
            if proven != board:
                self._put(proven, now_s)
        self._end_lease(now_s, event.fence, "")

    def _end_request(self, request: Request | None, reason: str) -> None:
        if request is None:
            return
        place = (request.client, request.name)
        del self.requests[place]
        self.changed.add(("request", place))
        self._actions.append(Ended(client=request.client, request=request.name, reason=reason))
        self._forget(request.client)

    def _end_lease(
        self, now_s: float, fence: int | None, reason: str, *, fault: bool = False
    ) -> None:
        """The board is free again, or out of service."""
        lease = self.leases.pop(fence, None) if fence is not None else None
        if lease is None:
            return
        self._fences[lease.client].remove(lease.fence)
        self.changed.add(("lease", lease.fence))
        board = dataclasses.replace(self.boards[lease.board], lease=None, idle_since_s=now_s)
        if fault:
            board = self._fault(now_s, board, reason)
        self._put(board, now_s)
        self._actions.append(
            LeaseEnded(client=lease.client, board=lease.board, fence=lease.fence, reason=reason)
        )
        self._forget(lease.client)
        self._match(board.key, now_s)

    def _forget(self, client: str) -> None:
        """Nothing is kept of a client that neither waits nor holds."""
        if not self._fences.get(client) and not self.requests_of(client):
            self._fences.pop(client, None)
            self._turns.pop(client, None)
            self._heard.pop(client, None)

    # ----------------------------------------------------------------------------------- matching

    def _match(self, key: str, now_s: float) -> None:
        """Give idle boards of a key to those who wait."""
        waiting = [r for r in self.requests.values() if r.key == key]
        if not waiting or len(self.leases) == len(self.boards):
            return
        idle = [
            b
            for b in self.boards.values()
            if b.lease is None
            and b.key == key
            and self.state_of(b, now_s) in ("idle", "probation")
        ]
        idle.sort(key=lambda b: (b.probation, b.faults, b.idle_since_s, b.name))
        if not idle:
            return
        held = self._held(key)
        for board in idle[: len(waiting)]:
            best = min(waiting, key=lambda r: self._rank(r, held, now_s))
            waiting.remove(best)
            self._grant(best, board, now_s)
            held[best.client] = held.get(best.client, 0) + 1

    def _rank(
        self, request: Request, held: dict[str, int], now_s: float
    ) -> tuple[int, int, int, int]:
        client = request.client
        level = self.level(request, now_s)
        return (-level, held.get(client, 0), self._turns[client], request.number)

    def _held(self, key: str) -> dict[str, int]:
        """Boards of a key by client."""
        leases, boards = self.leases, self.boards
        return {
            client: sum(boards[leases[fence].board].key == key for fence in fences)
            for client, fences in self._fences.items()
        }

    def _grant(self, request: Request, board: Board, now_s: float) -> None:
        self.fence += 1
        self._turn += 1
        self._turns[request.client] = self._turn
        place = (request.client, request.name)
        del self.requests[place]
        self.leases[self.fence] = Lease(
            fence=self.fence,
            board=board.name,
            client=request.client,
            request=request.name,
            priority=request.priority,
            since_s=now_s,
            until_s=now_s + self.rules.lease_s,
        )
        self._fences.setdefault(request.client, set()).add(self.fence)
        self.changed |= {("request", place), ("lease", self.fence)}
        self._put(dataclasses.replace(board, lease=self.fence), now_s)
        self._actions.append(
            Granted(
                client=request.client, request=request.name, board=board.name, fence=self.fence
            )
        )

    def _recall_for_waiting(self, key: str, now_s: float) -> None:
        """Ask leases back for requests that no board is coming free for."""
        waiting = [r for r in self.requests.values() if r.key == key]
        if not waiting:
            return
        held = self._held(key)
        leases = [x for x in self.leases.values() if self.boards[x.board].key == key]
        coming = sum(x.recalled_s is not None for x in leases)
        kept = [x for x in leases if x.recalled_s is None]
        for request in sorted(waiting, key=lambda r: self._rank(r, held, now_s))[coming:]:
            due = [x for x in kept if self._is_due(x, request, held, now_s)]
            if not due:
                return
            lease = min(due, key=lambda x: (x.priority, -held[x.client], x.since_s))
            kept.remove(lease)
            held[lease.client] -= 1
            held[request.client] = held.get(request.client, 0) + 1
            self._recall(now_s, lease.fence)

    def _is_due(self, lease: Lease, request: Request, held: dict[str, int], now_s: float) -> bool:
        if request.priority > lease.priority:
            return True
        return (
            now_s - lease.since_s >= self.rules.slice_s
            and self.level(request, now_s) >= lease.priority
            and held.get(request.client, 0) < held[lease.client]
        )

    def _recall(self, now_s: float, fence: int | None) -> None:
        lease = self.leases.get(fence) if fence is not None else None
        if lease is None or lease.recalled_s is not None:
            return
        self.leases[lease.fence] = dataclasses.replace(lease, recalled_s=now_s)
        self.changed.add(("lease", lease.fence))
        self._actions.append(Recalled(client=lease.client, board=lease.board, fence=lease.fence))

    # --------------------------------------------------------------------------------------- time

    def _tick(self, now_s: float) -> None:
        rules = self.rules
        for board in list(self.boards.values()):
            silent_s = now_s - board.seen_s
            if silent_s > rules.board_lost_s and (board.connected or board.lease is not None):
                self._lose(now_s, board)
            elif silent_s > rules.forget_board_s and board.lease is None:
                del self.boards[board.name]
                self.changed.add(("board", board.name))
                self._actions.append(BoardChanged(board=board.name, state="forgotten"))
            elif board.quarantined_until_s is not None and board.quarantined_until_s <= now_s:
                back = dataclasses.replace(board, quarantined_until_s=None, probation=True)
                self._put(back, now_s)
        for request in list(self.requests.values()):
            heard_s = self._heard.get(request.client, -math.inf)
            if request.until_s < now_s:
                self._end_request(request, "no board came free in time")
            elif now_s - heard_s > rules.lease_s:
                self._end_request(request, "its client went away")
        for lease in [x for x in self.leases.values() if x.until_s < now_s]:
            reason = f"not renewed within {rules.lease_s:g} s"
            if lease.recalled_s is not None:
                reason = f"not given back within {rules.recall_grace_s:g} s of being recalled"
            self._end_lease(now_s, lease.fence, reason)
        for key in {r.key for r in self.requests.values()}:
            self._match(key, now_s)
            self._recall_for_waiting(key, now_s)

    def _lose(self, now_s: float, board: Board) -> None:
        """A board has been silent for too long."""
        self._put(dataclasses.replace(board, connected=False), now_s)
        reason = f"the board was not heard of for {self.rules.board_lost_s:g} s"
        self._end_lease(now_s, board.lease, reason, fault=True)

    def _restarted(self, now_s: float) -> None:
        for board in list(self.boards.values()):
            self.boards[board.name] = dataclasses.replace(board, seen_s=now_s)
        for lease in list(self.leases.values()):
            until_s = now_s + self.rules.lease_s
            self.leases[lease.fence] = dataclasses.replace(lease, until_s=until_s)
        for client in self._turns:
            self._heard[client] = now_s
