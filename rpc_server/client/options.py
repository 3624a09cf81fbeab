"""A client's options of using a farm: number of boards, priority, and deadlines."""

from __future__ import annotations

from dataclasses import dataclass, field

from autotune import arguments

MAX_PRIORITY = 100
"""The highest that the protocol has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """Longest waits of a farm's client, in seconds, at each of the farm's own stages; build and
    run are those of the requests, a lease's is the tracker's."""

    queue_s: float = 600.0
    """For a board, while none is at work."""
    transfer_s: float = 30.0
    """For one message of a board to come through."""
    session_s: float = 120.0
    """For a tracker that does not answer, while no board is at work."""
    reconnect_s: float = 5.0
    """For a board that stopped answering, before its requests go to another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FarmOptions:
    """A client's use of a farm's boards: up to `boards` at a time, before clients of a lower
    `priority`. Raises ConfigError."""

    boards: int = 1
    priority: int = 0
    deadlines: Deadlines = field(default_factory=Deadlines)

    def __post_init__(self) -> None:
        arguments.whole("boards", self.boards, 1)
        arguments.whole("priority", self.priority, -MAX_PRIORITY, MAX_PRIORITY)
        arguments.instance("deadlines", self.deadlines, Deadlines, "Deadlines")
