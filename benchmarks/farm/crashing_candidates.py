"""Candidates that crash, one after another on one board. In: how many. Out: how the board is.

    python benchmarks/farm/crashing_candidates.py [--count 1000]

Every candidate fails in one of ten ways, each bounded, so that a limit that fails to hold harms no
machine. Each must cost one failed trial; the board must serve on, its memory, threads, descriptors
and processes as before. Exit status 1 if not.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import re
import signal
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from autotune.measure.executor import Built
from autotune.measure.types import MeasureRequest, MeasureResult, Status, Timing
from rpc_server.client.board_runner import RpcRunner
from tests.unit.measure import fakes
from tests.unit.rpc_server.boards import BoardProcess

EXECUTOR = "benchmarks.farm.crashing_candidates:CrashingExecutor"
GOOD = 100
MEMORY_MIB = 768
CHILD_S = 20
LIMITS = Timing(build_timeout_s=2.0, run_timeout_s=1.0)
WARM_UP = 20


def segfault() -> None:
    ctypes.string_at(0)


def illegal_instruction() -> None:
    os.kill(os.getpid(), signal.SIGILL)


def loop() -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        pass


def leak() -> None:
    blocks = [bytearray(64 << 20) for _ in range(32)]
    raise AssertionError(f"{len(blocks)} blocks of 64 MiB were given")


def fork() -> None:
    for _ in range(8):
        if os.fork() == 0:
            time.sleep(CHILD_S)
            os._exit(0)


def escape() -> None:
    """Children in a session of their own, whose parent is gone."""
    for _ in range(2):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(CHILD_S)
            os._exit(0)


def flood() -> None:
    line = b"x" * (1 << 20)
    for _ in range(256):
        os.write(1, line)


def fill_disk() -> None:
    for number in range(16):
        with open(f"block{number}", "wb") as file:
            for _ in range(24):
                file.write(bytes(1 << 20))
    time.sleep(5)


def leave() -> None:
    os._exit(0)


def write_outside() -> None:
    Path(tempfile.gettempdir()).parent.joinpath("written-by-a-candidate").write_bytes(b"x")


BEHAVIOURS = (
    segfault, illegal_instruction, loop, leak, fork, escape, flood, fill_disk, leave,
    write_outside,
)  # fmt: skip


class CrashingExecutor(fakes.FakeExecutor):
    """The request's seed says how the candidate fails; GOOD does not."""

    def build(self, request: MeasureRequest) -> Built:  # noqa: ARG002 (all alike)
        return Built(symbol="kernel", code=b"\0code", workspace_bytes=0)

    def prepare(self, request: MeasureRequest) -> None:  # noqa: ARG002
        return None

    def check_and_time(self, request: MeasureRequest, built: Built) -> MeasureResult:  # noqa: ARG002
        if request.seed < len(BEHAVIOURS):
            BEHAVIOURS[request.seed]()
        return MeasureResult(status=Status.OK, times_s=(1.0,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What the board holds."""

    memory_kib: int
    threads: int
    descriptors: int
    processes: int
    """Its descendants and whatever else runs a candidate's program."""
    folders: int


def usage(pid: int) -> Usage:
    """Of a board's process."""
    status = Path(f"/proc/{pid}/status").read_text().split("\n")
    fields = dict(line.split(":", 1) for line in status if ":" in line)
    return Usage(
        memory_kib=int(fields["VmRSS"].split()[0]),
        threads=int(fields["Threads"]),
        descriptors=len(os.listdir(f"/proc/{pid}/fd")),
        processes=len(workers(pid)),
        folders=len(list(Path(tempfile.gettempdir()).glob(f"autotune-worker-{pid}-*"))),
    )


def workers(board: int) -> list[int]:
    """Processes that run candidates of this board, wherever in the tree they are."""
    prefix = f"TMPDIR={tempfile.gettempdir()}/autotune-worker-{board}-".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == board:
            continue
        with contextlib.suppress(OSError):
            if prefix in (entry / "environ").read_bytes():
                found.append(int(entry.name))
    return found


def crash(runner: RpcRunner, count: int) -> dict[str, int]:
    """Measure this many failing candidates; how often each way of failing gave each status."""
    seen: dict[str, int] = {}
    for first in range(0, count, len(BEHAVIOURS)):
        seeds = range(min(len(BEHAVIOURS), count - first))
        results = runner.measure(tuple(fakes.request(s, timing=LIMITS) for s in seeds))
        for seed, result in zip(seeds, results, strict=True):
            reason = re.sub(r"\d{4,}", "N", result.error[:80])
            key = f"{BEHAVIOURS[seed].__name__:20} {result.status:12} {reason}"
            seen[key] = seen.get(key, 0) + 1
    return seen


def problems(before: Usage, after: Usage) -> list[str]:
    """What grew. Processes and folders may not, memory and the rest a little."""
    allowed = Usage(
        memory_kib=before.memory_kib + 8192,
        threads=before.threads + 2,
        descriptors=before.descriptors + 4,
        processes=before.processes,
        folders=before.folders,
    )
    limits = asdict(allowed)
    return [
        f"{name} grew from {asdict(before)[name]} to {value}"
        for name, value in asdict(after).items()
        if value > limits[name]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Crash candidates on one board.")
    parser.add_argument("--count", type=int, default=1000)
    count = parser.parse_args().count
    options = ("--memory-mib", str(MEMORY_MIB))
    with BoardProcess(executor=EXECUTOR, options=options) as board, RpcRunner(board.url) as runner:
        print("\n".join(line for line in board.greeting if line.startswith(("sandbox", "absent"))))
        crash(runner, WARM_UP)
        settle(runner)
        before, start = usage(board.pid), time.perf_counter()
        seen = crash(runner, count)
        for line, times in sorted(seen.items()):
            print(f"{times:6} {line}")
        (last,) = settle(runner)
        after = usage(board.pid)
    print(f"{count} candidates in {time.perf_counter() - start:.0f} s")
    print(f"before  {before}\nafter   {after}")
    found = problems(before, after)
    found += [f"did not fail: {line}" for line in seen if line.split()[1] == "OK"]
    found += [] if last.status is Status.OK else [f"the good candidate after it: {last.error}"]
    print("\n".join(found) or "the board serves on, nothing grew")
    sys.exit(bool(found))


def settle(runner: RpcRunner) -> tuple[MeasureResult, ...]:
    """A good candidate: all workers are up and idle after it."""
    return runner.measure((fakes.request(GOOD, timing=LIMITS),))


if __name__ == "__main__":
    main()
