"""The working state of a farm's runner: the farm's address, boards at work, the batch they share.

In: a device's name, what boards say of themselves. Out: values that `farm_runner` uses.
"""

from __future__ import annotations

import contextlib
import queue
from collections import deque
from dataclasses import dataclass, field

from autotune.errors import ConfigError, DeviceError
from autotune.machine.profile import DeviceProfile
from autotune.measure.runners.local import with_threads
from autotune.measure.types import MeasureRequest, MeasureResult
from rpc_server.board.server import parse_address
from rpc_server.client.board_runner import RpcRunner
from rpc_server.wire import messages as wire
from rpc_server.wire.checks import check_profile
from rpc_server.wire.farm import Grant


@dataclass(frozen=True, slots=True, kw_only=True)
class FarmAddress:
    """'tracker://HOST:PORT/KEY' in parts."""

    host: str
    port: int
    key: str

    @staticmethod
    def parse(device: str) -> FarmAddress:
        """Raises DeviceError."""
        address, _, key = device.removeprefix("tracker://").partition("/")
        try:
            host, port = parse_address(address)
        except ConfigError as error:
            raise DeviceError(f"device {device}: {error}") from None
        if not key:
            raise DeviceError(f"expected the device tracker://HOST:PORT/KEY, got {device!r}")
        return FarmAddress(host=host, port=port, key=key)


@dataclass(slots=True, kw_only=True)
class Helper:
    """A leased board at work. Guarded by the runner's condition."""

    grant: Grant
    runner: RpcRunner | None = None
    recalled: bool = False
    lost: str = ""
    results: int = 0
    unsound: bool = False
    """It gave results that no machine can give."""


@dataclass(slots=True, kw_only=True)
class Batch:
    """Requests under measurement. `losses`: boards lost while each was measured."""

    requests: tuple[MeasureRequest, ...]
    todo: deque[int]
    done: queue.SimpleQueue[tuple[int, MeasureResult]] = field(default_factory=queue.SimpleQueue)
    losses: dict[int, int] = field(default_factory=dict)
    left: int = 0
    refusals: dict[str, str] = field(default_factory=dict)
    """Why boards, by name, do not take these requests."""
    over: bool = False

    def refused(self) -> str:
        """Why nobody takes them."""
        board, why = next(iter(self.refusals.items()))
        return f"board {board} refuses: {why}"


def profile_of(boards: list[dict[str, object]], device: str, threads: int | None) -> DeviceProfile:
    """The profile of the first board that says what it is in words that make sense."""
    for info in boards:
        with contextlib.suppress(wire.WireError), wire.checked("boards"):
            profile = check_profile(DeviceProfile.from_json(info["profile"]))  # type: ignore[arg-type]
            return profile if threads is None else with_threads(profile, threads)
    raise DeviceError(f"{device}: its board has not said what it is; restart it")
