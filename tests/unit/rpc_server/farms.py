"""A farm in processes of its own, for tests: a tracker, boards that need no compiler."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rpc_server.client.farm_runner import FarmRunner
from rpc_server.client.options import Deadlines, FarmOptions
from rpc_server.security.tls import Credentials
from rpc_server.tracker.link import TrackerLink
from rpc_server.wire import messages as wire
from tests.patience import PATIENCE_S
from tests.unit.measure import fakes
from tests.unit.rpc_server.boards import children_of

ROOT = Path(__file__).parents[3]
LEASE_S = 8.0
"""Short enough to wait for, long enough for processes that share a busy machine to be in time."""
QUICK = f"""
[tracker]
heartbeat_s = 0.2
board_lost_s = {LEASE_S}
lease_s = {LEASE_S}
slice_s = 1.0
quarantine_s = 1.0
longest_quarantine_s = 1.0
"""
DEADLINES = Deadlines(queue_s=PATIENCE_S, session_s=PATIENCE_S, reconnect_s=1.0)


class ServerProcess:
    """`python -m rpc_server ARGUMENTS`, which prints `listening on HOST:PORT`. `{port}` in an
    argument is the port it had before, 0 at first. `command`: all of it, of another Python.
    `machine`: its environment."""

    def __init__(
        self,
        *arguments: str,
        command: Sequence[str] = (),
        machine: Mapping[str, str] | None = None,
    ) -> None:
        self._machine = machine or {**os.environ, "PYTHONPATH": str(ROOT)}
        self._command = command or (sys.executable, "-m", "rpc_server", *arguments)
        self.port = 0
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start and wait until it listens."""
        command = [a.replace("{port}", str(self.port)) for a in self._command]
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=self._machine,
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if "listening on " in line:
                self.port = int(line.rsplit(":", 1)[1])
                return
        raise AssertionError(f"it ended: {command}")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait; the exit status."""
        if self._process is None:
            return 0
        process, self._process = self._process, None
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        status = process.wait(timeout=PATIENCE_S)
        assert process.stdout is not None
        process.stdout.close()
        return status

    def children(self) -> list[int]:
        """Process ids of a board's workers."""
        return children_of(self.pid)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)


def farm_status(port: int, certs: Path | None = None) -> dict[str, Any]:
    """What the tracker at a port of this machine says of its farm."""
    credentials = Credentials(certs) if certs else None
    with contextlib.closing(TrackerLink("127.0.0.1", port, credentials)) as link:
        return wire.decode("farm", link.call("status", wire.encode("status", {}), PATIENCE_S))


class FarmProcesses:
    """A tracker and boards named b0, b1, ... of key k."""

    def __init__(
        self,
        folder: Path,
        boards: int,
        executor: str = fakes.FAKE,
        options: Sequence[str] = (),
        machine: Mapping[str, str] | None = None,
    ) -> None:
        config = folder / "farm.toml"
        config.write_text(QUICK, encoding="utf-8")
        self.audit = folder / "audit.jsonl"
        self.tracker = ServerProcess(
            "tracker", "--listen", "127.0.0.1:{port}", "--state", str(folder / "farm.db"),
            "--audit", str(self.audit), "--config", str(config),
        )  # fmt: skip
        self.tracker.start()
        self.boards = [
            ServerProcess(
                "serve", "--tracker", self.address, "--key", "k", "--name", f"b{n}",
                "--listen", "127.0.0.1:{port}", "--executor", executor, *options,
                machine=machine,
            )
            for n in range(boards)
        ]  # fmt: skip
        for board in self.boards:
            board.start()
        self.wait_for(lambda farm: len(farm["boards"]) == boards)

    def close(self) -> None:
        for process in (*self.boards, self.tracker):
            process.stop()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.tracker.port}"

    @property
    def url(self) -> str:
        return f"tracker://{self.address}/k"

    def runner(
        self, boards: int = 1, deadlines: Deadlines = DEADLINES, **options: Any
    ) -> FarmRunner:
        use = FarmOptions(boards=boards, deadlines=deadlines)
        return FarmRunner(self.url, farm=use, **options)

    def status(self, certs: Path | None = None) -> dict[str, Any]:
        return farm_status(self.tracker.port, certs)

    def states(self) -> dict[str, str]:
        return {b["name"]: b["state"] for b in self.status()["boards"]}

    def wait_for(
        self, holds: Callable[[dict[str, Any]], bool], limit_s: float = PATIENCE_S
    ) -> None:
        """Ask for the status until something holds. Raises AssertionError."""
        until_s = time.monotonic() + limit_s
        while not holds(farm := self.status()):
            assert time.monotonic() < until_s, json.dumps(farm, indent=1)
            time.sleep(0.05)

    def together(self, runner: FarmRunner, boards: int) -> None:
        """Wait until a runner is connected to so many boards: a batch that begins before could be
        measured by the first alone."""
        runner._session.want(boards)
        until_s = time.monotonic() + PATIENCE_S
        while sum(h.runner is not None for h in list(runner._helpers.values())) < boards:
            assert time.monotonic() < until_s, json.dumps(self.status(), indent=1)
            time.sleep(0.02)

    def in_service(self) -> None:
        """Wait until every board is idle."""
        self.wait_for(lambda farm: {b["state"] for b in farm["boards"]} == {"idle"})


@contextlib.contextmanager
def running_farm(
    folder: Path,
    boards: int,
    executor: str = fakes.FAKE,
    options: Sequence[str] = (),
    machine: Mapping[str, str] | None = None,
) -> Iterator[FarmProcesses]:
    farm = FarmProcesses(folder, boards, executor, options, machine)
    try:
        yield farm
    finally:
        farm.close()
