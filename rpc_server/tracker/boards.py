"""Boards: how they come, beat, go, and are taken out of service.

In: a board's and an operator's events. Out: changed books.
"""

from __future__ import annotations

import dataclasses
import math

from rpc_server.tracker.ledger import FENCES_AHEAD, LAST_BELIEVED, Books
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
COMMANDS = ("release", "quarantine", "drain")


def register(books: Books, now_s: float, event: Registered) -> None:
    """A board is there. Raises FarmError for a name that another one has, and a full farm."""
    old = books.boards.get(event.board)
    if old is None and len(books.boards) >= books.rules.max_boards:
        raise FarmError(f"the farm is full: {books.rules.max_boards} boards")
    again = old is not None and old.secret == event.secret
    if old is not None and not again and old.connected:
        raise FarmError(
            f"a board named {event.board} is there already, at {old.address}; "
            "give this one another --name"
        )
    doubt = _believe(books, int(event.info.get("floor", 0)))
    if old is not None and not again:
        end_lease(books, now_s, old.lease, "the board was started again", fault=True)
        old = books.boards[event.board]
    base = old or Board(
        name=event.board, key=event.key, address=event.address, secret=event.secret
    )
    books.put(
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
    match_key(books, event.key, now_s)


def _believe(books: Books, floor: int) -> str:
    """A tracker that lost its file does not hand out what a board has seen already. Why the board
    is not believed, '' where it is: any fence far ahead would leave no room for later ones."""
    if floor <= min(books.fence + FENCES_AHEAD, LAST_BELIEVED):
        books.fence = max(books.fence, floor)
        return ""
    return (
        f"it says that it served lease {floor}, the last one was {books.fence}: not believed, it "
        "has to begin anew under another secret, as when it is started again"
    )


def beat(books: Books, now_s: float, event: Beat) -> None:
    """A board lives. Raises FarmError where it is not known."""
    board = _known(books, event.board, event.secret)
    came_back = not board.connected
    board = dataclasses.replace(board, connected=True, seen_s=now_s, stats=event.stats)
    if came_back:
        books.put(board, now_s)
        match_key(books, board.key, now_s)
    else:
        books.boards[board.name] = board  # nothing that has to outlive the tracker


def board_gone(books: Books, now_s: float, event: BoardGone) -> None:
    """A board's connection closed."""
    board = books.boards.get(event.board)
    if board is None or board.secret != event.secret:
        return
    seen_s = now_s - books.rules.board_lost_s - 1 if event.left else board.seen_s
    board = dataclasses.replace(board, connected=False, seen_s=seen_s)
    books.put(board, now_s)
    if event.left:
        end_lease(books, now_s, board.lease, "the board was stopped")


def command(books: Books, now_s: float, event: Commanded) -> None:
    """Somebody decided about a board. Raises FarmError where there is none, or no such thing."""
    board = books.boards[named(books, event.board)]
    if event.command == "drain":
        books.put(dataclasses.replace(board, drained=True), now_s)
        recall(books, now_s, board.lease)
    elif event.command == "quarantine":
        books.put(dataclasses.replace(board, quarantined_until_s=math.inf), now_s)
        end_lease(books, now_s, board.lease, "the board was quarantined by hand")
    elif event.command == "release":
        end_lease(books, now_s, board.lease, "the lease was ended by hand")
        board = dataclasses.replace(
            books.boards[board.name],
            drained=False,
            quarantined_until_s=None,
            probation=False,
            faults=0,
            unsound=0,
            quarantines=0,
        )
        books.put(board, now_s)
        match_key(books, board.key, now_s)
    else:
        raise FarmError(f"expected one of {', '.join(COMMANDS)}, got {event.command!r}")


def named(books: Books, name: str) -> str:
    """The board of this name, or the only one whose name begins so, or has it for a part: `b1`
    for `b1/vm-0`. Raises FarmError that lists which it could be."""
    if name in books.boards:
        return name
    alike = [b for b in books.boards if name in b.split("/")]
    alike = alike or [b for b in books.boards if b.startswith(name)]
    if len(alike) == 1:
        return alike[0]
    listed = ", ".join(sorted(alike or books.boards)[:MAX_LISTED]) or "none"
    if alike:
        raise FarmError(f"{len(alike)} boards could be {name}: {listed}; give the whole name")
    raise FarmError(f"no board named {name}; there are: {listed}")


def _lose(books: Books, now_s: float, board: Board) -> None:
    """A board has been silent for too long."""
    books.put(dataclasses.replace(board, connected=False), now_s)
    reason = f"the board was not heard of for {books.rules.board_lost_s:g} s"
    end_lease(books, now_s, board.lease, reason, fault=True)


def _known(books: Books, name: str, secret: str) -> Board:
    board = books.boards.get(name)
    if board is None or board.secret != secret:
        raise FarmError(f"the board {name} is not registered; register it again")
    return board


def age(books: Books, now_s: float, board: Board) -> None:
    """What silence and time do to a board."""
    silent_s = now_s - board.seen_s
    rules = books.rules
    if silent_s > rules.board_lost_s and (board.connected or board.lease is not None):
        _lose(books, now_s, board)
    elif silent_s > rules.forget_board_s and board.lease is None:
        del books.boards[board.name]
        books.changed.add(("board", board.name))
        books.tell(BoardChanged(board=board.name, state="forgotten"))
    elif board.quarantined_until_s is not None and board.quarantined_until_s <= now_s:
        back = dataclasses.replace(board, quarantined_until_s=None, probation=True)
        books.put(back, now_s)
