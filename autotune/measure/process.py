"""The parent's side of a worker process: start, call with a deadline, kill, restart, recycle.

In: a command header and a blob. Out: the worker's reply, or WorkerTimeoutError or WorkerDiedError;
after either the process is gone and the next call starts a fresh one.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import IO, Any

from autotune.measure.executor import DEFAULT_EXECUTOR
from autotune.measure.frames import Frame, FrameError, encode_frame, read_frame

START_TIMEOUT_S = 60.0
STDERR_TAIL_BYTES = 2000


class WorkerTimeoutError(Exception):
    """No reply before the deadline; the process was killed."""


class WorkerDiedError(Exception):
    """The process ended in the middle of a command. `signal_name` is '' if it exited."""

    def __init__(self, signal_name: str, message: str) -> None:
        super().__init__(message)
        self.signal_name = signal_name


class WorkerProcess:
    """A restartable worker. Not thread-safe: one caller at a time, except `kill`."""

    def __init__(
        self,
        *,
        executor: str = DEFAULT_EXECUTOR,
        cores: Sequence[int] = (),
        recycle_after: int = 400,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._executor = executor
        self._cores = tuple(cores)
        self._recycle_after = recycle_after
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None
        self._calls = 0

    @property
    def pid(self) -> int | None:
        """Process id, None while there is no process."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Make sure that there is a live process; it may still be importing."""
        if self._process and self._process.poll() is None and self._calls < self._recycle_after:
            return
        self.stop()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "autotune.measure.worker", "--executor", self._executor],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            bufsize=0,
            start_new_session=True,
            # the child finds the same modules as its parent
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )
        self._calls = 0
        if self._cores and hasattr(os, "sched_setaffinity"):
            with contextlib.suppress(OSError):
                os.sched_setaffinity(self._process.pid, self._cores)
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)

    def ready(self) -> None:
        """Start and wait until the worker answers. Raises as `call`."""
        self.start()
        self.call({"command": "ping"}, timeout_s=START_TIMEOUT_S)

    def call(self, header: dict[str, Any], blob: bytes = b"", *, timeout_s: float) -> Frame:
        """Send one command and wait for its reply."""
        self.start()
        if self._calls == 0 and header.get("command") != "ping":
            self.ready()  # the import time of a fresh process is not the candidate's
        assert self._process is not None
        self._calls += 1
        deadline = self._clock() + timeout_s
        try:
            self._send(encode_frame(header, blob), deadline)
            return read_frame(lambda count: self._receive(count, deadline))
        except (EOFError, OSError, FrameError) as error:
            raise self._died(error) from None
        except BaseException:  # a reply may still come: this process cannot be used again
            self.stop()
            raise

    def _send(self, data: bytes, deadline: float) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        descriptor = self._process.stdin.fileno()
        os.set_blocking(descriptor, False)
        view = memoryview(data)
        while view:
            self._wait([], [descriptor], deadline)
            with contextlib.suppress(BlockingIOError):
                view = view[os.write(descriptor, view) :]

    def _receive(self, count: int, deadline: float) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        parts = []
        while count:
            self._wait([descriptor], [], deadline)
            part = os.read(descriptor, min(count, 1 << 20))
            if not part:
                raise EOFError("the worker closed its pipe")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def _wait(self, readable: list[int], writable: list[int], deadline: float) -> None:
        left = deadline - self._clock()
        if left <= 0 or not any(select.select(readable, writable, [], left)):
            raise WorkerTimeoutError

    def _died(self, error: Exception) -> WorkerDiedError:
        """Collect the ended process and say how it ended."""
        process, tail = self._process, ""
        assert process is not None
        try:
            process.wait(timeout=2.0)
        except subprocess.TimeoutExpired:
            tail = f"protocol error: {error}"
        code = process.poll()
        if self._stderr is not None:
            size = self._stderr.seek(0, os.SEEK_END)
            self._stderr.seek(max(0, size - STDERR_TAIL_BYTES))
            lines = self._stderr.read().decode(errors="replace").strip().splitlines()
            tail = tail or (lines[-1].strip() if lines else "")
        self.stop()
        if code is not None and code < 0:
            name = signal_name(-code)
            return WorkerDiedError(name, f"killed by {name}" + (f": {tail}" if tail else ""))
        return WorkerDiedError("", f"exited with status {code}" + (f": {tail}" if tail else ""))

    def kill(self) -> None:
        """End the process at once, from any thread; a call in progress raises WorkerDiedError."""
        process = self._process
        if process is not None and process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)

    def stop(self) -> None:
        """End the process and release its pipes. Safe to call twice."""
        self.kill()
        process, self._process = self._process, None
        if process is not None:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        stderr, self._stderr = self._stderr, None
        if stderr is not None:
            stderr.close()


def signal_name(number: int) -> str:
    """SIGSEGV for 11, and so on."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
