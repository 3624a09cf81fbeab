"""The farm's words: boards, requests and leases; what happens to them, and what follows.

A request asks for one board of a key. It ends once: granted, or not. A lease is a board granted to
a client; its fence, a number that only grows, tells it from every earlier one, so that a board
refuses a client whose lease has passed on without asking anybody. Times are seconds of one clock,
the tracker's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autotune.errors import DeviceError


class FarmError(DeviceError):
    """The farm refuses, or a deadline of it has passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FarmRules:
    """Settings of the tracker. See configs/farm/default.toml for what each means."""

    lease_s: float = 8.0
    heartbeat_s: float = 2.0
    board_lost_s: float = 8.0
    slice_s: float = 30.0
    recall_grace_s: float = 60.0
    age_s: float = 60.0
    fault_limit: int = 3
    quarantine_s: float = 60.0
    longest_quarantine_s: float = 3600.0
    forget_board_s: float = 86400.0
    max_boards: int = 4096
    max_requests: int = 8192
    max_requests_per_client: int = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """A board as the tracker knows it. `secret` is of one run of the board's process: another one
    under the same name is the same board started again."""

    name: str
    key: str
    address: str
    secret: str
    info: Mapping[str, Any] = field(default_factory=dict)
    """What it says of itself when it registers: profile, versions, cores, absent bounds."""
    stats: Mapping[str, Any] = field(default_factory=dict)
    """What it says with every heartbeat: trials done and failed, temperature."""
    connected: bool = True
    seen_s: float = 0.0
    faults: int = 0
    """Since the last lease that went well."""
    quarantines: int = 0
    """Since the last lease that went well; each is twice as long as the one before."""
    quarantined_until_s: float | None = None
    drained: bool = False
    probation: bool = False
    """Back from quarantine and not yet proven: the next fault sends it there again."""
    unsound: int = 0
    """Leases in which it gave results that no machine can give, since it was released by hand:
    leases that go well do not make up for them."""
    reset_due: bool = False
    last_error: str = ""
    lease: int | None = None
    idle_since_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A client waits for a board of `key`. `number` is the order of arrival."""

    name: str
    client: str
    key: str
    priority: int
    number: int
    since_s: float
    until_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A board in a client's hands until `until_s`, which renewals move on."""

    fence: int
    board: str
    client: str
    request: str
    priority: int
    since_s: float
    until_s: float
    recalled_s: float | None = None
    """When it was asked back; its client gives it up between two batches."""


# ------------------------------------------------------------------------------------------ events


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A board says who it is: at its start, after a reset, and after every reconnection."""

    board: str
    key: str
    address: str
    secret: str
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A board is alive."""

    board: str
    secret: str
    stats: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardGone:
    """A board's connection closed. It may come back within `board_lost_s`. `left`: it said
    goodbye."""

    board: str
    secret: str
    left: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A client wants one board of a key. The same request may be sent again."""

    client: str
    request: str
    key: str
    priority: int = 0
    queue_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn:
    """A client does not want that board any more."""

    client: str
    request: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewed:
    """A client still wants what it waits for, and the leases named."""

    client: str
    fences: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """A client gives a lease back. `fault`: what the board did wrong, '' for nothing; `unsound`:
    it gave results that no machine can give."""

    client: str
    fence: int
    results: int = 0
    fault: str = ""
    unsound: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Commanded:
    """Somebody responsible decides about a board: release, quarantine or drain."""

    board: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarted:
    """The tracker was away: nobody is late yet."""


Event = (
    Registered
    | Beat
    | BoardGone
    | Asked
    | Withdrawn
    | Renewed
    | Released
    | Commanded
    | Tick
    | Restarted
)


# ----------------------------------------------------------------------------------------- actions


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """A request ended well."""

    client: str
    request: str
    board: str
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A request ended without a board."""

    client: str
    request: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """A lease is asked back for somebody who waits."""

    client: str
    board: str
    fence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseEnded:
    """A lease is over. `reason` is '' where its client gave it back."""

    client: str
    board: str
    fence: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardChanged:
    """A board came, went, or changed its standing."""

    board: str
    state: str
    reason: str = ""


Action = Granted | Ended | Recalled | LeaseEnded | BoardChanged
