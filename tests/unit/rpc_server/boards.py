"""A board in a process of its own, for tests. In: an executor's name. Out: its URL."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tests.patience import PATIENCE_S


class BoardProcess:
    """`python -m rpc_server serve` on loopback; restartable on the same port.
    `first`: folders whose modules take the place of others; `machine`: its environment."""

    def __init__(
        self,
        *,
        executor: str,
        port: int = 0,
        options: tuple[str, ...] = (),
        first: tuple[Path, ...] = (),
        machine: Mapping[str, str] | None = None,
    ) -> None:
        self._executor = executor
        self._options = options
        path = os.pathsep.join(map(str, (*first, Path(__file__).parents[3])))
        self._machine = machine or {**os.environ, "PYTHONPATH": path}
        self.port = port
        self.greeting: list[str] = []
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> BoardProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(signal.SIGTERM)

    @property
    def url(self) -> str:
        return f"rpc://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start and wait until it listens."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rpc_server", "serve", "--listen", f"127.0.0.1:{self.port}",
             "--executor", self._executor, *self._options],
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=self._machine,
        )  # fmt: skip
        assert self._process.stdout is not None
        self.greeting = []
        for line in self._process.stdout:
            self.greeting.append(line.rstrip())
            if line.startswith("listening on "):
                self.port = int(line.rsplit(":", 1)[1])
                return
        raise AssertionError(f"the board ended: {self.greeting}")

    def stop(self, number: int) -> int:
        """Send a signal and wait; the exit status."""
        assert self._process is not None
        self._process.send_signal(number)
        status = self._process.wait(timeout=PATIENCE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return status

    def children(self) -> list[int]:
        """Process ids of the board's workers."""
        return children_of(self.pid)


def children_of(parent: int) -> list[int]:
    """Process ids of a process's children."""
    pids = []
    for task in Path(f"/proc/{parent}/task").iterdir():
        pids += [int(pid) for pid in (task / "children").read_text().split()]
    return sorted(pids)


def wait_until_gone(pids: list[int], limit_s: float = PATIENCE_S) -> None:
    """Wait until processes have ended (they are not our children). Raises AssertionError."""
    until = time.monotonic() + limit_s
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            left = max(0.0, until - time.monotonic())
            assert select.select([descriptor], [], [], left)[0], f"process {pid} is still there"
        finally:
            os.close(descriptor)
