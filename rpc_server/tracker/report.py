"""The status of a farm as data. In: the tracker's ledger and what boards say. Out: plain data.

`rpc_server.tracker.status` makes text of it.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

from rpc_server.tracker.ledger import Ledger
from rpc_server.tracker.types import Board

RATE_S = 30.0
"""Throughput is the mean over about this long."""


@dataclass(slots=True, kw_only=True)
class Pace:
    """Trials of a board per second, as its heartbeats tell."""

    trials: int
    at_s: float
    per_s: float = 0.0

    def update(self, trials: int, now_s: float) -> None:
        elapsed_s = now_s - self.at_s
        if elapsed_s <= 0:
            return
        fresh = max(0, trials - self.trials) / elapsed_s
        weight = -math.expm1(-elapsed_s / RATE_S)
        self.per_s += weight * (fresh - self.per_s)
        self.trials, self.at_s = trials, now_s


class Paces:
    """The pace of every board."""

    def __init__(self) -> None:
        self._paces: dict[str, Pace] = {}

    def count(self, board: str, stats: Mapping[str, Any], now_s: float) -> None:
        """Take in what a heartbeat says."""
        trials = stats.get("trials", 0)
        if isinstance(trials, int):
            pace = self._paces.setdefault(board, Pace(trials=trials, at_s=now_s))
            pace.update(trials, now_s)

    def keep(self, boards: Container[str]) -> None:
        """Forget all others."""
        self._paces = {name: pace for name, pace in self._paces.items() if name in boards}

    def per_s(self, board: str) -> float:
        """Trials."""
        return self._paces[board].per_s if board in self._paces else 0.0


def farm_report(ledger: Ledger, paces: Paces, now_s: float) -> dict[str, Any]:
    """Boards by key and name, and the queue in order of arrival."""
    boards = [_board_report(ledger, b, paces.per_s(b.name), now_s) for b in ledger.boards.values()]
    queue = [
        {
            "client": r.client.partition("#")[0],
            "key": r.key,
            "priority": r.priority,
            "waited_s": round(now_s - r.since_s, 1),
        }
        for r in sorted(ledger.requests.values(), key=lambda r: r.number)
    ]
    return {"boards": sorted(boards, key=lambda b: (b["key"], b["name"])), "queue": queue}


def _board_report(
    ledger: Ledger, board: Board, trials_per_s: float, now_s: float
) -> dict[str, Any]:
    lease = ledger.leases.get(board.lease) if board.lease is not None else None
    until_s = board.quarantined_until_s
    return {
        "name": board.name,
        "key": board.key,
        "state": ledger.state_of(board, now_s),
        "address": board.address,
        "client": lease.client.partition("#")[0] if lease else "",
        "leased_s": round(now_s - lease.since_s, 1) if lease else None,
        "recalled": bool(lease and lease.recalled_s is not None),
        "seen_s": round(max(0.0, now_s - board.seen_s), 1),
        "quarantine_left_s": (
            round(until_s - now_s, 1) if until_s and math.isfinite(until_s) else None
        ),
        "faults": board.faults,
        "trials_per_s": round(trials_per_s, 2),
        "last_error": _last_error(board),
        "stats": dict(board.stats),
        "info": {k: v for k, v in board.info.items() if k != "profile"},
    }


def _last_error(board: Board) -> str:
    """The board's own trouble while it counts, then that of its candidates."""
    trial = str(board.stats.get("last_error", ""))
    return board.last_error if board.faults else trial or board.last_error
