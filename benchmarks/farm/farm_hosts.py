"""Hosts and processes for benchmarks of a farm: places that can be cut off and slowed down, and
processes that are killed and started again.

In: how many. Out: network namespaces (benchmarks.farm.farm_switch), and what runs there. Where
there can be none, every host is this one, on loopback.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.farm.farm_switch import Switch, network, space_of

ROOT = Path(__file__).resolve().parents[2]


@dataclass(slots=True, kw_only=True)
class Host:
    """Where a process runs: a network namespace, or this one, which has no switch."""

    address: str
    port: int
    switch: Switch | None = None

    @property
    def prefix(self) -> list[str]:
        return ["ip", "netns", "exec", space_of(self.address)] if self.switch else []

    def cut(self, on: bool) -> None:
        """Off from all others, or back."""
        if self.switch:
            (self.switch.cut.add if on else self.switch.cut.discard)(self.address)

    def slow(self, on: bool) -> None:
        """What it sends and is sent is late, and some of it lost."""
        if self.switch:
            (self.switch.slow.add if on else self.switch.slow.discard)(self.address)


@contextlib.contextmanager
def hosts(count: int, generator: random.Random) -> Iterator[list[Host]]:
    """Hosts on one network, gone afterwards."""
    addresses = [f"10.93.0.{number + 1}" for number in range(count)]
    with contextlib.ExitStack() as stack:
        try:
            switch = stack.enter_context(network(addresses, generator))
        except OSError as error:
            print(f"everything runs on loopback, nobody is cut off or slowed down: {error}")
            yield [Host(address="127.0.0.1", port=29190 + n) for n in range(count)]
            return
        yield [Host(address=address, port=9190, switch=switch) for address in addresses]


@dataclass(slots=True)
class Member:
    """A process of the farm, started again whenever it is dead."""

    name: str
    host: Host
    command: list[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if self.process is not None and self.process.poll() is None:
            return
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.host.prefix, *self.command],
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )

    def signal(self, number: int) -> None:
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        assert self.process is not None
        self.process.wait()

    def workers(self) -> list[int]:
        assert self.process is not None
        pids: list[int] = []
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{self.process.pid}/task").iterdir():
                pids += map(int, (task / "children").read_text(encoding="ascii").split())
        return pids
