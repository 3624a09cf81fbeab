"""Hosts and processes for benchmarks of a farm: network namespaces on one bridge, processes that
are killed and started again.

In: how many. Out: places that can be cut off, slowed down (where the kernel has netem), and what
runs there. Without root there are no namespaces: every host is this one, on loopback.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NETEM = ["netem", "delay", "200ms", "loss", "5%"]


@dataclass(slots=True)
class Host:
    """Where a process runs: a network namespace, or this one."""

    address: str
    port: int
    space: str = ""
    hub: str = ""

    @property
    def prefix(self) -> list[str]:
        return ["ip", "netns", "exec", self.space] if self.space else []

    def link(self, state: str) -> None:
        _ip("-n", self.hub, "link", "set", f"to-{self.space[-6:]}", state)

    def slow(self, on: bool) -> bool:
        """Delay and lose what it sends; whether the kernel can."""
        what = ["add", "dev", "eth", "root", *NETEM] if on else ["del", "dev", "eth", "root"]
        done = subprocess.run(
            ["tc", "-n", self.space, "qdisc", *what], check=False, capture_output=True
        )
        return done.returncode == 0


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@contextlib.contextmanager
def hosts(count: int) -> Iterator[list[Host]]:
    """Hosts on one network, gone afterwards."""
    if os.getuid() or not shutil.which("ip"):
        yield [Host("127.0.0.1", 0) for _ in range(count)]
        return
    hub = f"farm{os.getpid() % 100000}-hub"
    made = [hub]
    try:
        _ip("netns", "add", hub)
        _ip("-n", hub, "link", "add", "bridge", "type", "bridge")
        _ip("-n", hub, "link", "set", "bridge", "up")
        found = []
        for number in range(count):
            space = f"farm{os.getpid() % 100000}-{number:06}"
            _ip("netns", "add", space)
            made.append(space)
            cable = f"to-{space[-6:]}"
            _ip("-n", hub, "link", "add", cable, "type", "veth", "peer", "name", "eth", "netns",
                space)  # fmt: skip
            _ip("-n", hub, "link", "set", cable, "master", "bridge", "up")
            address = f"10.93.0.{number + 1}"
            _ip("-n", space, "address", "add", f"{address}/24", "dev", "eth")
            _ip("-n", space, "link", "set", "eth", "up")
            _ip("-n", space, "link", "set", "lo", "up")
            found.append(Host(address, 9190, space, hub))
        yield found
    finally:
        for space in made:
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)


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
