"""Boards: how they come, beat, go, and are taken out of service.

In: a board's and an operator's events. Out: a changed ledger.
"""

from __future__ import annotations

import dataclasses
import math

from rpc_server.tracker.ledger import FENCES_AHEAD, LAST_BELIEVED, Ledger
from rpc_server.tracker.queue import end_lease, match_key, recall
from rpc_server.tracker.types import (
    Beat,
    Board,
    BoardChanged,
    BoardGone,
    Commanded,
    FarmError,
    Registered,
)

MAX_LISTED = 10
"""Boards that a message names."""
COMMANDS = ("release", "quarantine", "drain")


def register(ledger: Ledger, now_s: float, event: Registered) -> None:
    """A board is there. Raises FarmError for a name that another one has, and a full farm."""
    old = ledger.boards.get(event.board)
    if old is None and len(ledger.boards) >= ledger.rules.max_boards:
        raise FarmError(f"the farm is full: {ledger.rules.max_boards} boards")
    again = old is not None and old.secret == event.secret
    if old is not None and not again and old.connected:
        raise FarmError(
            f"a board named {event.board} is there already, at {old.address}; "
            "give this one another --name"
        )
    doubt = _believe(ledger, int(event.info.get("floor", 0)))
    if old is not None and not again:
        end_lease(ledger, now_s, old.lease, "the board was started again", fault=True)
        old = ledger.boards[event.board]
    base = old or Board(
        name=event.board, key=event.key, address=event.address, secret=event.secret
    )
    ledger.put(
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
            last_error=doubt or base.last_error,
        ),
        now_s,
    )
    match_key(ledger, event.key, now_s)


def _believe(ledger: Ledger, floor: int) -> str:
    """A tracker that lost its file does not hand out what a board has seen already. Why the board
    is not believed, '' where it is: any fence far ahead would leave no room for later ones."""
    if floor <= min(ledger.fence + FENCES_AHEAD, LAST_BELIEVED):
        ledger.fence = max(ledger.fence, floor)
        return ""
    return (
        f"it says that it served lease {floor}, the last one was {ledger.fence}: not believed, it "
        "has to begin anew under another secret, as when it is started again"
    )


def beat(ledger: Ledger, now_s: float, event: Beat) -> None:
    """A board lives. Raises FarmError where it is not known."""
    board = _known(ledger, event.board, event.secret)
    came_back = not board.connected
    board = dataclasses.replace(board, connected=True, seen_s=now_s, stats=event.stats)
    if came_back:
        ledger.put(board, now_s)
        match_key(ledger, board.key, now_s)
    else:
        ledger.boards[board.name] = board  # nothing that has to outlive the tracker


def board_gone(ledger: Ledger, now_s: float, event: BoardGone) -> None:
    """A board's connection closed."""
    board = ledger.boards.get(event.board)
    if board is None or board.secret != event.secret:
        return
    seen_s = now_s - ledger.rules.board_lost_s - 1 if event.left else board.seen_s
    board = dataclasses.replace(board, connected=False, seen_s=seen_s)
    ledger.put(board, now_s)
    if event.left:
        end_lease(ledger, now_s, board.lease, "the board was stopped")


def command(ledger: Ledger, now_s: float, event: Commanded) -> None:
    """Somebody decided about a board. Raises FarmError where there is none, or no such thing."""
    board = ledger.boards[named(ledger, event.board)]
    if event.command == "drain":
        ledger.put(dataclasses.replace(board, drained=True), now_s)
        recall(ledger, now_s, board.lease)
    elif event.command == "quarantine":
        ledger.put(dataclasses.replace(board, quarantined_until_s=math.inf), now_s)
        end_lease(ledger, now_s, board.lease, "the board was quarantined by hand")
    elif event.command == "release":
        end_lease(ledger, now_s, board.lease, "the lease was ended by hand")
        board = dataclasses.replace(
            ledger.boards[board.name],
            drained=False,
            quarantined_until_s=None,
            probation=False,
            faults=0,
            unsound=0,
            quarantines=0,
        )
        ledger.put(board, now_s)
        match_key(ledger, board.key, now_s)
    else:
        raise FarmError(f"expected one of {', '.join(COMMANDS)}, got {event.command!r}")


def named(ledger: Ledger, name: str) -> str:
    """The board of this name, or the only one whose name begins so, or has it for a part: `b1`
    for `b1/vm-0`. Raises FarmError that lists which it could be."""
    if name in ledger.boards:
        return name
    alike = [b for b in ledger.boards if name in b.split("/")]
    alike = alike or [b for b in ledger.boards if b.startswith(name)]
    if len(alike) == 1:
        return alike[0]
    listed = ", ".join(sorted(alike or ledger.boards)[:MAX_LISTED]) or "none"
    if alike:
        raise FarmError(f"{len(alike)} boards could be {name}: {listed}; give the whole name")
    raise FarmError(f"no board named {name}; there are: {listed}")


def _lose(ledger: Ledger, now_s: float, board: Board) -> None:
    """A board has been silent for too long."""
    ledger.put(dataclasses.replace(board, connected=False), now_s)
    reason = f"the board was not heard of for {ledger.rules.board_lost_s:g} s"
    end_lease(ledger, now_s, board.lease, reason, fault=True)


def _known(ledger: Ledger, name: str, secret: str) -> Board:
    board = ledger.boards.get(name)
    if board is None or board.secret != secret:
        raise FarmError(f"the board {name} is not registered; register it again")
    return board


def age(ledger: Ledger, now_s: float, board: Board) -> None:
    """What silence and time do to a board."""
    silent_s = now_s - board.seen_s
    rules = ledger.rules
    if silent_s > rules.board_lost_s and (board.connected or board.lease is not None):
        _lose(ledger, now_s, board)
    elif silent_s > rules.forget_board_s and board.lease is None:
        del ledger.boards[board.name]
        ledger.changed.add(("board", board.name))
        ledger.tell(BoardChanged(board=board.name, state="forgotten"))
    elif board.quarantined_until_s is not None and board.quarantined_until_s <= now_s:
        back = dataclasses.replace(board, quarantined_until_s=None, probation=True)
        ledger.put(back, now_s)
