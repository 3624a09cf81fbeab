"""Jobs that wait on a board for its device: batches of requests, and runs of whole models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from autotune.machine.profile import DeviceProfile
from autotune.measure.types import MeasureRequest, MeasureResult, OnResult
from rpc_server.security.auth import Peer
from rpc_server.wire.models import ModelOutcome, ModelRequest


class Measurer(Protocol):
    """The runner that a board measures with (a LocalRunner)."""

    def profile(self) -> DeviceProfile: ...

    def measure(
        self,
        requests: tuple[MeasureRequest, ...],
        on_result: OnResult | None = None,
        stop: Callable[[], bool] = ...,
    ) -> tuple[MeasureResult, ...]: ...

    def remeasure(self) -> DeviceProfile: ...

    def interrupt(self) -> None: ...

    def close(self) -> None: ...


@dataclass(slots=True, kw_only=True)
class Job:
    """A batch in the queue, in progress or finished. Guarded by the board's condition."""

    name: str
    owner: int
    peer: Peer
    requests: tuple[MeasureRequest | MeasureResult, ...]
    seen_s: float
    fence: int = 0
    """The fence of the lease it came under, on a board of a farm."""
    model: ModelRequest | None = None
    """What it runs in place of measuring requests."""
    outcome: ModelOutcome | None = None
    """What came of it."""
    results: list[MeasureResult] = field(default_factory=list)
    done: bool = False
    failed: str = ""
    cancelled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """A board's description of itself for clients."""

    version: str
    cores: int
    compiler: str = ""
    """What it builds with."""
    can_build: bool = True
    accept_objects: bool = False
    """Whether it runs object code that clients built."""
    simulated: bool = False
    """Whether its core is simulated."""
