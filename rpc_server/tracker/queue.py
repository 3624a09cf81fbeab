"""Requests and leases: who gets a board, who keeps it, who is asked for it back.

In: a client's events, and idle boards. Out: a changed ledger. See `state` for the order in which
those who wait are served.
"""

from __future__ import annotations

import dataclasses

from rpc_server.tracker.ledger import Books, owner_of
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


def ask(books: Books, now_s: float, event: Asked) -> None:
    """A client wants a board. Raises FarmError where there is none of the key, or no room."""
    books.heard[event.client] = now_s
    place = (event.client, event.request)
    if place in books.requests or any(
        lease.request == event.request for lease in books.leases_of(event.client)
    ):
        return  # sent again because an answer was lost
    if not any(board.key == event.key for board in books.boards.values()):
        keys = ", ".join(sorted({b.key for b in books.boards.values()})) or "none"
        books.forget(event.client)
        raise FarmError(
            f"no board of key {event.key!r}; keys there are: {keys}; start one with "
            f"`rpc_server serve --tracker HOST:PORT --key {event.key}`"
        )
    limit = books.rules.max_requests_per_client
    if books.waiting_of(owner_of(event.client)) >= limit:
        books.forget(event.client)
        raise FarmError(f"{limit} requests of yours are waiting already; wait for those")
    if len(books.requests) >= books.rules.max_requests:
        books.forget(event.client)
        raise FarmError(f"the queue is full: {books.rules.max_requests} requests; try later")
    books.arrivals += 1
    books.turns.setdefault(event.client, books.turn - 1)  # before who was just served
    books.add_request(
        Request(
            name=event.request,
            client=event.client,
            key=event.key,
            priority=event.priority,
            number=books.arrivals,
            since_s=now_s,
            until_s=now_s + event.queue_s,
        )
    )
    match_key(books, event.key, now_s)
    if any(lease.priority < event.priority for lease in books.leases.values()):
        recall_for_waiting(books, event.key, now_s)


def renew(books: Books, now_s: float, event: Renewed) -> None:
    """A client lives, and holds on to leases."""
    if not books.knows(event.client):
        return
    books.heard[event.client] = now_s
    for fence in event.fences:
        lease = books.leases.get(fence)
        if lease is None or lease.client != event.client:
            continue
        until_s = now_s + books.rules.lease_s
        if lease.recalled_s is not None:
            until_s = min(until_s, lease.recalled_s + books.rules.recall_grace_s)
        books.leases[fence] = dataclasses.replace(lease, until_s=max(until_s, lease.until_s))


def release(books: Books, now_s: float, event: Released) -> None:
    """A client gives a lease back."""
    lease = books.leases.get(event.fence)
    if lease is None or lease.client != event.client:
        return  # it ended before
    books.heard[event.client] = now_s
    if event.fault:
        if event.unsound:
            board = books.boards[lease.board]
            books.put(dataclasses.replace(board, unsound=board.unsound + 1), now_s)
        end_lease(books, now_s, event.fence, event.fault, fault=True)
        return
    if event.results:
        board = books.boards[lease.board]
        proven = dataclasses.replace(board, faults=0, quarantines=0, probation=False)
        if proven != board:
            books.put(proven, now_s)
    end_lease(books, now_s, event.fence, "")


def end_request(books: Books, request: Request | None, reason: str) -> None:
    """It is over without a board."""
    if request is None:
        return
    books.drop_request(request)
    books.tell(Ended(client=request.client, request=request.name, reason=reason))
    books.forget(request.client)


def end_lease(
    books: Books, now_s: float, fence: int | None, reason: str, *, fault: bool = False
) -> None:
    """The board is free again, or out of service."""
    lease = books.leases.pop(fence, None) if fence is not None else None
    if lease is None:
        return
    books.fences[lease.client].remove(lease.fence)
    books.changed.add(("lease", lease.fence))
    board = dataclasses.replace(books.boards[lease.board], lease=None, idle_since_s=now_s)
    if fault:
        board = _with_fault(books.rules, board, now_s, reason)
    books.put(board, now_s)
    books.tell(
        LeaseEnded(client=lease.client, board=lease.board, fence=lease.fence, reason=reason)
    )
    books.forget(lease.client)
    match_key(books, board.key, now_s)


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


def match_key(books: Books, key: str, now_s: float) -> None:
    """Give idle boards of a key to those who wait."""
    waiting = [r for r in books.requests.values() if r.key == key]
    if not waiting or len(books.leases) == len(books.boards):
        return
    idle = [
        b
        for b in books.boards.values()
        if b.lease is None and b.key == key and books.state_of(b, now_s) in ("idle", "probation")
    ]
    idle.sort(key=lambda b: (b.probation, b.faults, b.idle_since_s, b.name))
    if not idle:
        return
    held = _held_of(books, key)
    for board in idle[: len(waiting)]:
        best = min(waiting, key=lambda r: _rank(books, r, held, now_s))
        waiting.remove(best)
        _grant(books, best, board, now_s)
        held[best.client] = held.get(best.client, 0) + 1


def _rank(
    books: Books, request: Request, held: dict[str, int], now_s: float
) -> tuple[int, int, int, int]:
    """Who is served first: the smallest."""
    client = request.client
    level = books.level(request, now_s)
    return (-level, held.get(client, 0), books.turns[client], request.number)


def _held_of(books: Books, key: str) -> dict[str, int]:
    """Boards of a key by client."""
    leases, boards = books.leases, books.boards
    return {
        client: sum(boards[leases[fence].board].key == key for fence in fences)
        for client, fences in books.fences.items()
    }


def _grant(books: Books, request: Request, board: Board, now_s: float) -> None:
    """The request ends with this board."""
    books.fence += 1
    books.turn += 1
    books.turns[request.client] = books.turn
    books.drop_request(request)
    books.leases[books.fence] = Lease(
        fence=books.fence,
        board=board.name,
        client=request.client,
        request=request.name,
        priority=request.priority,
        since_s=now_s,
        until_s=now_s + books.rules.lease_s,
    )
    books.fences.setdefault(request.client, set()).add(books.fence)
    books.changed.add(("lease", books.fence))
    books.put(dataclasses.replace(board, lease=books.fence), now_s)
    books.tell(
        Granted(client=request.client, request=request.name, board=board.name, fence=books.fence)
    )


def recall_for_waiting(books: Books, key: str, now_s: float) -> None:
    """Ask leases back for requests that no board is coming free for."""
    waiting = [r for r in books.requests.values() if r.key == key]
    if not waiting:
        return
    held = _held_of(books, key)
    leases = [x for x in books.leases.values() if books.boards[x.board].key == key]
    coming = sum(x.recalled_s is not None for x in leases)
    kept = [x for x in leases if x.recalled_s is None]
    for request in sorted(waiting, key=lambda r: _rank(books, r, held, now_s))[coming:]:
        due = [x for x in kept if _is_due(books, x, request, held, now_s)]
        if not due:
            return
        lease = min(due, key=lambda x: (x.priority, -held[x.client], x.since_s))
        kept.remove(lease)
        held[lease.client] -= 1
        held[request.client] = held.get(request.client, 0) + 1
        recall(books, now_s, lease.fence)


def _is_due(
    books: Books, lease: Lease, request: Request, held: dict[str, int], now_s: float
) -> bool:
    """Whether a lease may be asked back for a request."""
    if request.priority > lease.priority:
        return True
    return (
        now_s - lease.since_s >= books.rules.slice_s
        and books.level(request, now_s) >= lease.priority
        and held.get(request.client, 0) < held[lease.client]
    )


def recall(books: Books, now_s: float, fence: int | None) -> None:
    """Ask a lease back, once."""
    lease = books.leases.get(fence) if fence is not None else None
    if lease is None or lease.recalled_s is not None:
        return
    books.leases[lease.fence] = dataclasses.replace(lease, recalled_s=now_s)
    books.changed.add(("lease", lease.fence))
    books.tell(Recalled(client=lease.client, board=lease.board, fence=lease.fence))
