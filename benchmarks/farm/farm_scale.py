"""How a tracker does with many boards and clients that speak the real protocol.

In: numbers of boards and clients, the length of a job. Out: how soon a board that was given back
is in the next client's hands (both network hops and the tracker's decision), how busy the boards
are, and the tracker's processor time and memory. The tracker is a process of its own; boards
register and beat with the code of a real board, clients lease with the code of a real client; a
job is time that passes. Exit status 1 where a limit is not held.

Usage: python benchmarks/farm/farm_scale.py [--boards 500] [--clients 50] [--job 1.0] [--time 20]
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import os
import queue
import random
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from rpc_server.board.agent import Agent, Post  # noqa: E402
from rpc_server.board.lease_guard import Gate  # noqa: E402
from rpc_server.client.leases import LeaseSession, LeaseTerms, News  # noqa: E402
from rpc_server.tracker.link import Backoff, TrackerLink  # noqa: E402
from rpc_server.wire.farm import Grant  # noqa: E402
from tests.unit.rpc_server.farms import ServerProcess  # noqa: E402

HELPERS = 32
"""Threads that give boards back, for all clients together."""
WARM_UP_S = 5.0
P99_S, BUSY = 0.1, 0.95
"""The limits."""


class Clock:
    """Calls things later, on a few threads."""

    def __init__(self) -> None:
        self._later: list[tuple[float, int, Any]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._due: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._wait, daemon=True).start()
        for _ in range(HELPERS):
            threading.Thread(target=self._call, daemon=True).start()

    def after(self, seconds: float, call: Any) -> None:
        with self._changed:
            entry = (time.monotonic() + seconds, next(self._numbers), call)
            heapq.heappush(self._later, entry)
            if self._later[0] is entry:
                self._changed.notify()

    def _wait(self) -> None:
        while True:
            with self._changed:
                while not self._later or self._later[0][0] > time.monotonic():
                    left_s = self._later[0][0] - time.monotonic() if self._later else None
                    self._changed.wait(left_s)
                _, _, call = heapq.heappop(self._later)
            self._due.put(call)

    def _call(self) -> None:
        while True:
            self._due.get()()


class Meter:
    """Gaps between two leases of a board, and the time it was leased."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._freed_s: dict[str, float] = {}
        self.gaps_s: list[float] = []
        self.busy_s = 0.0
        self.jobs = 0

    def granted(self, board: str) -> None:
        with self._lock:
            freed_s = self._freed_s.pop(board, None)
            if freed_s is not None:
                self.gaps_s.append(time.monotonic() - freed_s)

    def freed(self, board: str, job_s: float) -> None:
        with self._lock:
            self._freed_s[board] = time.monotonic()
            self.busy_s += job_s
            self.jobs += 1

    def restart(self) -> None:
        with self._lock:
            self.gaps_s, self.busy_s, self.jobs = [], 0.0, 0


class Client:
    """Holds its share of the boards, one job at a time on each, and waits for a few more."""

    def __init__(self, port: int, wanted: int, job_s: float, clock: Clock, meter: Meter) -> None:
        self._job_s, self._clock, self._meter = job_s, clock, meter
        self._session = LeaseSession(
            TrackerLink("127.0.0.1", port),
            TrackerLink("127.0.0.1", port),
            News(granted=self._granted, recalled=lambda _: None, lost=lambda *_: None),
            LeaseTerms("k", 0, 600.0),
            backoff=Backoff(0.1, 2.0, random.Random(0)),
            clock=time.monotonic,
        )
        self._session.want(wanted)

    def _granted(self, grant: Grant) -> None:
        self._meter.granted(grant.board)

        def done() -> None:
            self._meter.freed(grant.board, self._job_s)
            self._session.release(grant.fence, 1, "")

        self._clock.after(self._job_s, done)


def board(number: int, port: int) -> Agent:
    """A board that serves nobody but tells the tracker what a real one does."""
    info: Mapping[str, Any] = {"version": "simulated", "profile": {}, "sandbox": {}}
    post = Post(
        name=f"board-{number:04}",
        key="k",
        address="127.0.0.1:9",
        gate=Gate(f"secret-{number}"),
        info=lambda: info,
        stats=lambda: {"trials": 0, "failed": 0},
        raise_floor=lambda _: None,
        remeasure=lambda: None,
    )
    agent = Agent(
        post,
        TrackerLink("127.0.0.1", port),
        generator=random.Random(number),
        say=lambda _: None,
    )
    threading.Thread(target=agent.run, daemon=True).start()
    return agent


def boards_process(count: int, port: int) -> int:
    """The boards live in a process of their own, so that they do not share the clients' lock."""
    child = os.fork()
    if child:
        return child
    for number in range(count):
        board(number, port)
        time.sleep(0.002)
    threading.Event().wait()
    raise AssertionError("unreachable")


def processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--boards", type=int, default=500)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--job", type=float, default=1.0, help="seconds")
    parser.add_argument("--time", type=float, default=20.0, help="seconds, after a warm-up")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tracker = ServerProcess(
            "tracker", "--listen", "127.0.0.1:0", "--state", f"{folder}/farm.db"
        )
        tracker.start()
        child = boards_process(options.boards, tracker.port)
        try:
            held = measure(options, tracker)
        finally:
            os.kill(child, 9)
            os.waitpid(child, 0)
            tracker.stop()
    sys.exit(not held)


def measure(options: argparse.Namespace, tracker: ServerProcess) -> bool:
    """Whether the limits are held."""
    time.sleep(1.0 + options.boards / 100)  # they have registered
    clock, meter = Clock(), Meter()
    share = options.boards // options.clients + 2
    for _ in range(options.clients):
        Client(tracker.port, share, options.job, clock, meter)
        time.sleep(options.job / options.clients)  # jobs do not end all at once
    time.sleep(WARM_UP_S)
    meter.restart()
    before_s, started_s = processor_s(tracker.pid), time.monotonic()
    time.sleep(options.time)
    elapsed_s = time.monotonic() - started_s
    gaps_s = sorted(meter.gaps_s)
    busy = meter.busy_s / (options.boards * elapsed_s)
    load = (processor_s(tracker.pid) - before_s) / elapsed_s
    if not gaps_s:
        print("no board was granted twice")
        return False
    p50_s, p99_s = (gaps_s[int(len(gaps_s) * share)] for share in (0.5, 0.99))
    print(
        f"{options.boards} boards, {options.clients} clients, jobs of {options.job:g} s: "
        f"{meter.jobs / elapsed_s:.0f} grants/s, p50 {p50_s * 1e3:.0f} ms, "
        f"p99 {p99_s * 1e3:.0f} ms (limit {P99_S * 1e3:g} ms), boards busy "
        f"{busy:.1%} (limit {BUSY:.0%}), tracker {load:.0%} of a core, "
        f"{resident_mib(tracker.pid):.0f} MiB"
    )
    return p99_s < P99_S and busy >= BUSY


if __name__ == "__main__":
    main()
