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

from rpc_server.tracker.boards import age, beat, board_gone, command, register
from rpc_server.tracker.ledger import Ledger
from rpc_server.tracker.queue import (
    ask,
    end_lease,
    end_request,
    match_key,
    recall_for_waiting,
    release,
    renew,
)
from rpc_server.tracker.types import (
    Action,
    Asked,
    Beat,
    Board,
    BoardGone,
    Commanded,
    Event,
    Registered,
    Released,
    Renewed,
    Restarted,
    Tick,
    Withdrawn,
)


class FarmState(Ledger):
    """The ledger, and what happens to them."""

    def apply(self, now_s: float, event: Event) -> tuple[Action, ...]:
        """Let an event happen. Raises FarmError, with nothing changed, where it is refused."""
        self.actions = []
        match event:
            case Registered():
                register(self, now_s, event)
            case Beat():
                beat(self, now_s, event)
            case BoardGone():
                board_gone(self, now_s, event)
            case Asked():
                ask(self, now_s, event)
            case Withdrawn():
                end_request(self, self.requests.get((event.client, event.request)), "withdrawn")
            case Renewed():
                renew(self, now_s, event)
            case Released():
                release(self, now_s, event)
            case Commanded():
                command(self, now_s, event)
            case Tick():
                self._tick(now_s)
            case Restarted():
                self._restarted(now_s)
        return tuple(self.actions)

    def _tick(self, now_s: float) -> None:
        """Deadlines that have passed."""
        rules = self.rules
        for board in list(self.boards.values()):
            age(self, now_s, board)
        for request in list(self.requests.values()):
            heard_s = self.heard.get(request.client, -math.inf)
            if request.until_s < now_s:
                end_request(self, request, "no board came free in time")
            elif now_s - heard_s > rules.lease_s:
                end_request(self, request, "its client went away")
        for lease in [x for x in self.leases.values() if x.until_s < now_s]:
            reason = f"not renewed within {rules.lease_s:g} s"
            if lease.recalled_s is not None:
                reason = f"not given back within {rules.recall_grace_s:g} s of being recalled"
            end_lease(self, now_s, lease.fence, reason)
        for key in {r.key for r in self.requests.values()}:
            match_key(self, key, now_s)
            recall_for_waiting(self, key, now_s)

    def _restarted(self, now_s: float) -> None:
        """Nobody is late yet, and nothing began later than now: the clock of a machine that was
        started again may be behind what it was."""
        for name, board in list(self.boards.items()):
            self.boards[name] = _board_as_of(board, now_s, self.rules.longest_quarantine_s)
        for fence, lease in list(self.leases.items()):
            recalled_s = None if lease.recalled_s is None else min(lease.recalled_s, now_s)
            self.leases[fence] = dataclasses.replace(
                lease,
                since_s=min(lease.since_s, now_s),
                until_s=now_s + self.rules.lease_s,
                recalled_s=recalled_s,
            )
        for place, request in list(self.requests.items()):
            ahead_s = max(0.0, request.since_s - now_s)
            self.requests[place] = dataclasses.replace(
                request, since_s=request.since_s - ahead_s, until_s=request.until_s - ahead_s
            )
        for client in self.turns:
            self.heard[client] = now_s


def _board_as_of(board: Board, now_s: float, longest_quarantine_s: float) -> Board:
    until_s = board.quarantined_until_s
    if until_s is not None and math.isfinite(until_s):
        until_s = min(until_s, now_s + longest_quarantine_s)
    return dataclasses.replace(
        board,
        seen_s=now_s,
        idle_since_s=min(board.idle_since_s, now_s),
        quarantined_until_s=until_s,
    )
