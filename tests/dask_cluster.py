"""A real Dask scheduler and workers for tests: processes on loopback, gone when they end."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.patience import PATIENCE_S

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Cluster:
    address: str
    """HOST:PORT of the scheduler."""
    workers: tuple[subprocess.Popen[bytes], ...]


@contextlib.contextmanager
def cluster(workers: int) -> Iterator[Cluster]:
    """A scheduler, and workers without a nanny, which all have registered: one that is killed
    stays away."""
    from distributed import Client  # takes a second

    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        about = Path(folder) / "scheduler.json"
        where = ("--host", "127.0.0.1")
        stack.enter_context(
            _program("scheduler", *where, "--port", "0", "--no-dashboard",
                     "--scheduler-file", str(about), folder=folder)
        )  # fmt: skip
        address = _address(about)
        worker = ("worker", address, *where, "--nthreads", "1", "--no-nanny", "--no-dashboard")
        started = [stack.enter_context(_program(*worker, folder=folder)) for _ in range(workers)]
        with Client(address, timeout=PATIENCE_S, set_as_default=False) as client:
            client.wait_for_workers(workers, timeout=PATIENCE_S)
        yield Cluster(address.removeprefix("tcp://"), tuple(started))


@contextlib.contextmanager
def _program(name: str, *arguments: str, folder: str) -> Iterator[subprocess.Popen[bytes]]:
    module = f"distributed.cli.dask_{name}"
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "TMPDIR": folder, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _address(about: Path) -> str:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, ValueError):
            return str(json.loads(about.read_text(encoding="utf-8"))["address"])
        time.sleep(0.05)
    raise AssertionError("the Dask scheduler does not start")
