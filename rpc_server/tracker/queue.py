"""Requests and leases: who gets a board, who keeps it, who is asked for it back.

In: a client's events, and idle boards. Out: a changed ledger. See `state` for the order in which
those who wait are served.
"""

from __future__ import annotations

import dataclasses

from rpc_server.tracker.ledger import Ledger, owner_of
from rpc_server.tracker.types import (
    Asked,
    Board,
    Ended,
    FarmError,
    FarmRules,
    Granted,
    Lease,
    LeaseEnded,
    Recalled,
    Released,
    Renewed,
    Request,
)


def ask(ledger: Ledger, now_s: float, event: Asked) -> None:
    """A client wants a board. Raises FarmError where there is none of the key, or no room."""
    ledger.heard[event.client] = now_s
    place = (event.client, event.request)
    if place in ledger.requests or any(
        lease.request == event.request for lease in ledger.leases_of(event.client)
    ):
        return  # sent again because an answer was lost
    if not any(board.key == event.key for board in ledger.boards.values()):
        keys = ", ".join(sorted({b.key for b in ledger.boards.values()})) or "none"
        ledger.forget(event.client)
        raise FarmError(
            f"no board of key {event.key!r}; keys there are: {keys}; start one with "
            f"`rpc_server serve --tracker HOST:PORT --key {event.key}`"
        )
    limit = ledger.rules.max_requests_per_client
    if ledger.waiting_of(owner_of(event.client)) >= limit:
        ledger.forget(event.client)
        raise FarmError(f"{limit} requests of yours are waiting already; wait for those")
    if len(ledger.requests) >= ledger.rules.max_requests:
        ledger.forget(event.client)
        raise FarmError(f"the queue is full: {ledger.rules.max_requests} requests; try later")
    ledger.arrivals += 1
    ledger.turns.setdefault(event.client, ledger.turn - 1)  # before who was just served
    ledger.add_request(
        Request(
            name=event.request,
            client=event.client,
            key=event.key,
            priority=event.priority,
            number=ledger.arrivals,
            since_s=now_s,
            until_s=now_s + event.queue_s,
        )
    )
    match_key(ledger, event.key, now_s)
    if any(lease.priority < event.priority for lease in ledger.leases.values()):
        recall_for_waiting(ledger, event.key, now_s)


def renew(ledger: Ledger, now_s: float, event: Renewed) -> None:
    """A client lives, and holds on to leases."""
    if not ledger.knows(event.client):
        return
    ledger.heard[event.client] = now_s
    for fence in event.fences:
        lease = ledger.leases.get(fence)
        if lease is None or lease.client != event.client:
            continue
        until_s = now_s + ledger.rules.lease_s
        if lease.recalled_s is not None:
            until_s = min(until_s, lease.recalled_s + ledger.rules.recall_grace_s)
        ledger.leases[fence] = dataclasses.replace(lease, until_s=max(until_s, lease.until_s))


def release(ledger: Ledger, now_s: float, event: Released) -> None:
    """A client gives a lease back."""
    lease = ledger.leases.get(event.fence)
    if lease is None or lease.client != event.client:
        return  # it ended before
    ledger.heard[event.client] = now_s
    if event.fault:
        if event.unsound:
            board = ledger.boards[lease.board]
            ledger.put(dataclasses.replace(board, unsound=board.unsound + 1), now_s)
        end_lease(ledger, now_s, event.fence, event.fault, fault=True)
        return
    if event.results:
        board = ledger.boards[lease.board]
        proven = dataclasses.replace(board, faults=0, quarantines=0, probation=False)
        if proven != board:
            ledger.put(proven, now_s)
    end_lease(ledger, now_s, event.fence, "")


def end_request(ledger: Ledger, request: Request | None, reason: str) -> None:
    """End a request that got no board."""
    if request is None:
        return
    ledger.drop_request(request)
    ledger.tell(Ended(client=request.client, request=request.name, reason=reason))
    ledger.forget(request.client)


def end_lease(
    ledger: Ledger, now_s: float, fence: int | None, reason: str, *, fault: bool = False
) -> None:
    """The board is free again, or out of service."""
    lease = ledger.leases.pop(fence, None) if fence is not None else None
    if lease is None:
        return
    ledger.fences[lease.client].remove(lease.fence)
    ledger.changed.add(("lease", lease.fence))
    board = dataclasses.replace(ledger.boards[lease.board], lease=None, idle_since_s=now_s)
    if fault:
        board = _with_fault(ledger.rules, board, now_s, reason)
    ledger.put(board, now_s)
    ledger.tell(
        LeaseEnded(client=lease.client, board=lease.board, fence=lease.fence, reason=reason)
    )
    ledger.forget(lease.client)
    match_key(ledger, board.key, now_s)


def _with_fault(rules: FarmRules, board: Board, now_s: float, reason: str) -> Board:
    """Count it; too many, or one in probation, take the board out of service. One that has given
    results that no machine gives as often is out at every further fault."""
    faults = board.faults + 1
    board = dataclasses.replace(board, faults=faults, last_error=reason)
    if max(faults, board.unsound) < rules.fault_limit and not board.probation:
        return board
    if board.quarantined_until_s is not None:
        return board
    doubled = rules.quarantine_s * 2.0 ** min(board.quarantines, 30)
    return dataclasses.replace(
        board,
        quarantined_until_s=now_s + min(doubled, rules.longest_quarantine_s),
        quarantines=board.quarantines + 1,
        reset_due=bool(board.info.get("resettable")),
    )


# --------------------------------------------------------------------------------------- matching


def match_key(ledger: Ledger, key: str, now_s: float) -> None:
    """Give idle boards of a key to those who wait."""
    waiting = [r for r in ledger.requests.values() if r.key == key]
    if not waiting or len(ledger.leases) == len(ledger.boards):
        return
    idle = [
        b
        for b in ledger.boards.values()
        if b.lease is None and b.key == key and ledger.state_of(b, now_s) in ("idle", "probation")
    ]
    idle.sort(key=lambda b: (b.probation, b.faults, b.idle_since_s, b.name))
    if not idle:
        return
    held = _held_of(ledger, key)
    for board in idle[: len(waiting)]:
        best = min(waiting, key=lambda r: _rank(ledger, r, held, now_s))
        waiting.remove(best)
        _grant(ledger, best, board, now_s)
        held[best.client] = held.get(best.client, 0) + 1


def _rank(
    ledger: Ledger, request: Request, held: dict[str, int], now_s: float
) -> tuple[int, int, int, int]:
    """Who is served first: the smallest."""
    client = request.client
    level = ledger.level(request, now_s)
    return (-level, held.get(client, 0), ledger.turns[client], request.number)


def _held_of(ledger: Ledger, key: str) -> dict[str, int]:
    """Boards of a key by client."""
    leases, boards = ledger.leases, ledger.boards
    return {
        client: sum(boards[leases[fence].board].key == key for fence in fences)
        for client, fences in ledger.fences.items()
    }


def _grant(ledger: Ledger, request: Request, board: Board, now_s: float) -> None:
    """The request ends with this board."""
    ledger.fence += 1
    ledger.turn += 1
    ledger.turns[request.client] = ledger.turn
    ledger.drop_request(request)
    ledger.leases[ledger.fence] = Lease(
        fence=ledger.fence,
        board=board.name,
        client=request.client,
        request=request.name,
        priority=request.priority,
        since_s=now_s,
        until_s=now_s + ledger.rules.lease_s,
    )
    ledger.fences.setdefault(request.client, set()).add(ledger.fence)
    ledger.changed.add(("lease", ledger.fence))
    ledger.put(dataclasses.replace(board, lease=ledger.fence), now_s)
    ledger.tell(
        Granted(client=request.client, request=request.name, board=board.name, fence=ledger.fence)
    )


def recall_for_waiting(ledger: Ledger, key: str, now_s: float) -> None:
    """Ask leases back for requests that no board is coming free for."""
    waiting = [r for r in ledger.requests.values() if r.key == key]
    if not waiting:
        return
    held = _held_of(ledger, key)
    leases = [x for x in ledger.leases.values() if ledger.boards[x.board].key == key]
    coming = sum(x.recalled_s is not None for x in leases)
    kept = [x for x in leases if x.recalled_s is None]
    for request in sorted(waiting, key=lambda r: _rank(ledger, r, held, now_s))[coming:]:
        due = [x for x in kept if _is_due(ledger, x, request, held, now_s)]
        if not due:
            return
        lease = min(due, key=lambda x: (x.priority, -held[x.client], x.since_s))
        kept.remove(lease)
        held[lease.client] -= 1
        held[request.client] = held.get(request.client, 0) + 1
        recall(ledger, now_s, lease.fence)


def _is_due(
    ledger: Ledger, lease: Lease, request: Request, held: dict[str, int], now_s: float
) -> bool:
    """Whether a lease may be asked back for a request."""
    if request.priority > lease.priority:
        return True
    return (
        now_s - lease.since_s >= ledger.rules.slice_s
        and ledger.level(request, now_s) >= lease.priority
        and held.get(request.client, 0) < held[lease.client]
    )


def recall(ledger: Ledger, now_s: float, fence: int | None) -> None:
    """Ask a lease back, once."""
    lease = ledger.leases.get(fence) if fence is not None else None
    if lease is None or lease.recalled_s is not None:
        return
    ledger.leases[lease.fence] = dataclasses.replace(lease, recalled_s=now_s)
    ledger.changed.add(("lease", lease.fence))
    ledger.tell(Recalled(client=lease.client, board=lease.board, fence=lease.fence))
