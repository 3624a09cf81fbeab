"""A board's side of the farm: it registers with the tracker, says that it lives, and obeys.

In: a Board and the tracker's address. Out: heartbeats, and what the tracker decided carried out:
leases that are over lose their batches, a reset is run and the device measured again. The board
serves its lease on while the tracker is away.
"""

from __future__ import annotations

import contextlib
import random
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.errors import DeviceError
from rpc_server.board.lease_guard import Gate
from rpc_server.tracker.link import Backoff, TrackerLink
from rpc_server.tracker.types import Beat, FarmError, Registered
from rpc_server.wire import farm as farm_wire
from rpc_server.wire.checks import name
from rpc_server.wire.link import LinkLostError

CALL_S = 10.0
"""Seconds that the tracker has to answer."""
RESET_S = 300.0
"""Seconds that the command which resets a board may take."""
LONGEST_PAUSE_S = 4.0
"""Seconds between two tries to reach the tracker, at most; `Backoff` draws them."""
PAUSE_BEATS = 2
"""Beats that a pause may take at most: a tracker that was started again has its boards back before
it would take them for lost."""
THERMAL = Path("/sys/class/thermal")


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """The board that an agent watches over: its `stats`, `raise_floor` and `remeasure`."""

    name: str
    key: str
    address: str
    gate: Gate
    info: Callable[[], Mapping[str, Any]]
    stats: Callable[[], Mapping[str, Any]]
    raise_floor: Callable[[int], None]
    remeasure: Callable[[], None]
    reset_command: str = ""


class Agent:
    """`run` on a thread of its own until `stop`."""

    def __init__(
        self,
        post: Post,
        link: TrackerLink,
        *,
        generator: random.Random,
        say: Callable[[str], None] = lambda line: print(line, flush=True),
    ) -> None:
        self._post = post
        self._link = link
        self._backoff = Backoff(0.1, LONGEST_PAUSE_S, generator)
        self._say = say
        self._stopped = threading.Event()
        self._resets = 0
        self._trouble = ""
        self._said = 0
        """The floor in the last registration."""

    def run(self) -> None:
        """Register, beat, and come back for as long as it takes."""
        registered = False
        while not self._stopped.is_set():
            try:
                status = self._beat() if registered else self._register()
            except LinkLostError as error:
                # The tracker learns by the next registration what it missed.
                registered = False
                self._complain(f"the tracker {self._link.address} does not answer: {error}")
                self._stopped.wait(self._backoff.pause_s())
                continue
            except DeviceError as error:
                if not registered:
                    self._complain(f"the tracker {self._link.address} refuses: {error}")
                    self._stopped.wait(self._backoff.pause_s())
                registered = False
                continue
            if not registered and status.floor < self._said:
                self._begin_anew(status.floor)
                continue
            if not registered:
                self._trouble = ""
                self._say(f"registered with {self._link.address} as {self._post.name}")
            registered = True
            self._backoff.reset(min(LONGEST_PAUSE_S, PAUSE_BEATS * status.heartbeat_s))
            self._post.raise_floor(status.floor)
            if status.reset:
                self._reset()
                registered = False
                continue
            self._stopped.wait(status.heartbeat_s)

    def stop(self) -> None:
        """End `run`, and tell the tracker."""
        self._stopped.set()
        with contextlib.suppress(LinkLostError):
            self._link.call("bye", farm_wire.encode_beat(self._pulse()), 1.0)
        self._link.close()

    def _begin_anew(self, floor: int) -> None:
        """The tracker grants leases that this board takes for old ones: its file was lost, or a
        fence was never granted. The board comes back as if it had been started again."""
        gate = self._post.gate
        self._complain(
            f"the tracker {self._link.address} is at lease {floor}, this board at {self._said}; "
            "registering anew under another secret"
        )
        with contextlib.suppress(LinkLostError):
            self._link.call("bye", farm_wire.encode_beat(self._pulse()), CALL_S)
        self._post.raise_floor(gate.floor + 1)  # batches of leases that nobody knows
        gate.begin_anew()
        self._stopped.wait(self._backoff.pause_s())

    def _register(self) -> farm_wire.BoardStatus:
        post = self._post
        self._said = post.gate.floor
        event = Registered(
            board=post.name,
            key=post.key,
            address=post.address,
            secret=post.gate.secret,
            info={
                **post.info(),
                "floor": self._said,
                "resets": self._resets,
                "resettable": bool(post.reset_command),
            },
        )
        return self._answer("register", farm_wire.encode_register(event))

    def _beat(self) -> farm_wire.BoardStatus:
        return self._answer("beat", farm_wire.encode_beat(self._pulse()))

    def _pulse(self) -> Beat:
        stats = {**self._post.stats(), "temperature_c": temperature_c()}
        return Beat(board=self._post.name, secret=self._post.gate.secret, stats=stats)

    def _answer(self, name: str, payload: bytes) -> farm_wire.BoardStatus:
        return farm_wire.decode_board_status(self._link.call(name, payload, CALL_S))

    def _reset(self) -> None:
        """Run the command that brings the device back, then measure it anew."""
        self._resets += 1
        self._say(f"resetting: {self._post.reset_command}")
        try:
            subprocess.run(
                shlex.split(self._post.reset_command),
                check=True,
                timeout=RESET_S,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self._complain(f"the reset failed: {error}")
            return
        self._post.remeasure()

    def _complain(self, trouble: str) -> None:
        """Once per trouble."""
        if trouble != self._trouble and not self._stopped.is_set():
            self._trouble = trouble
            print(f"warning: {trouble}", file=sys.stderr, flush=True)


def temperature_c(root: Path = THERMAL) -> float | None:
    """The hottest sensor of this machine; None where there is none to read."""
    readings = []
    for sensor in root.glob("thermal_zone*/temp"):
        with contextlib.suppress(OSError, ValueError):
            readings.append(int(sensor.read_text()) / 1000)
    return max(readings, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """A board's name and key in a farm, and where clients reach it."""

    name: str
    key: str
    address: str


def check_place(place: Membership) -> Membership:
    """Raises FarmError where the tracker would not take these names."""
    for option, text in (
        ("--name", place.name),
        ("--key", place.key),
        ("--advertise", place.address),
    ):
        try:
            name(text)
        except ValueError as error:
            raise FarmError(f"{option}: {error}") from None
    return place


def check_reset(command: str) -> None:
    """Raises FarmError where the command that brings the device back cannot be started."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise FarmError(f"--reset-command {command!r}: {error}") from None
    if words and not shutil.which(words[0]):
        raise FarmError(f"--reset-command: there is no program {words[0]!r}")
