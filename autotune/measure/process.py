"""The parent's side of a worker process: start, call with a deadline, kill, restart, recycle.

In: a command header and a blob. Out: the worker's reply, or WorkerTimeoutError or WorkerDiedError;
after either the process and its whole group are gone and the next call starts a fresh one. A
worker lives in a sandbox and in an empty temporary directory, which is emptied after every call.
"""

from __future__ import annotations

import contextlib
import functools
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any

from autotune.measure.environment import own_path, worker_environment
from autotune.measure.executor import DEFAULT_EXECUTOR
from autotune.measure.folders import WorkerFolder
from autotune.measure.frames import Frame, FrameError, encode_frame, read_frame
from autotune.measure.sandbox import Report, Sandbox
from autotune.printable import printable

START_TIMEOUT_S = 60.0
"""Seconds until a worker says that it is there."""
STDERR_TAIL_BYTES = 2000
"""Bytes of what a worker printed that are kept."""
LAST_WORDS = 300
"""Characters of its last line that a message shows."""
END_TIMEOUT_S = 20.0
"""A killed process may take that long: drivers of devices free what a hung kernel holds first."""
LOOK_S = 0.25
"""How often the temporary directory of a worker is looked at during a call."""


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
        sandbox: Sandbox | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._executor = executor
        self._cores = tuple(cores)
        self._recycle_after = recycle_after
        self._sandbox = sandbox or Sandbox()
        self._clock = clock
        self._folder: WorkerFolder | None = None
        self.report: Report = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None
        self._stuck: list[subprocess.Popen[bytes]] = []
        self._calls = 0

    @property
    def pid(self) -> int | None:
        """Process id, None while there is no process."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Make sure that there is a live process; it may still be importing. Raises
        WorkerDiedError where the one before is still there, or the system makes no other."""
        if self._process and not ended(self._process) and self._calls < self._recycle_after:
            return
        self.stop()
        self._stuck = [process for process in self._stuck if process.poll() is None]
        if self._stuck:
            held = ", ".join(str(process.pid) for process in self._stuck)
            raise WorkerDiedError(
                "", f"process {held} does not end, killed as it is: its driver holds it"
            )
        try:
            self._spawn()
        except OSError as error:
            self.stop()
            raise WorkerDiedError("", f"cannot be made: {error.strerror or error}") from None

    def _spawn(self) -> None:
        """Raises OSError: no room on the disk, too many files or processes."""
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        self._folder = WorkerFolder()
        program = [sys.executable, "-m", "autotune.measure.confined", self._sandbox.to_json()]
        narrow = self._sandbox.read_system_only
        path = own_path(os.environ, sys.path) if narrow else sys.path
        self._process = start_child(
            [*program, "--executor", self._executor],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            bufsize=0,
            start_new_session=True,
            cwd=self._folder.path,
            env=worker_environment(os.environ, self._folder.path, path),
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
        reply, _ = self.call({"command": "ping"}, timeout_s=START_TIMEOUT_S)
        self.report = {str(k): str(v) for k, v in reply.get("sandbox", {}).items()}

    def call(self, header: dict[str, Any], blob: bytes = b"", *, timeout_s: float) -> Frame:
        """Send one command and wait for its reply."""
        self.start()
        if self._calls == 0 and header.get("command") != "ping":
            self.ready()  # the import time of a fresh process is not the candidate's
        assert self._process is not None
        self._calls += 1
        deadline = self._clock() + timeout_s
        try:
            self._send(encode_frame({**header, "limit_s": timeout_s}, blob), deadline)
            reply = read_frame(lambda count: self._receive(count, deadline))
            self._empty_folder()
            return reply
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
            self._wait(descriptor, select.POLLOUT, deadline)
            with contextlib.suppress(BlockingIOError):
                view = view[os.write(descriptor, view) :]

    def _receive(self, count: int, deadline: float) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        parts = []
        while count:
            self._wait(descriptor, select.POLLIN, deadline)
            part = os.read(descriptor, min(count, 1 << 20))
            if not part:
                raise EOFError("the worker closed its pipe")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def _wait(self, descriptor: int, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(descriptor, event)
        while (left := deadline - self._clock()) > 0:
            if poll.poll(1000 * min(left, LOOK_S)):
                return
            self._check_folder()
        raise WorkerTimeoutError

    def _check_folder(self) -> None:
        """Raises WorkerDiedError, having killed the worker, where it fills the disk."""
        limit = self._sandbox.folder_bytes
        if limit and self._folder and (used := self._folder.size()) > limit:
            self.stop()
            raise WorkerDiedError(
                "", f"killed: {used} bytes in the temporary directory, {limit} are allowed"
            )

    def _empty_folder(self) -> None:
        if self._folder is not None:
            self._folder.empty()

    def _died(self, error: Exception) -> WorkerDiedError:
        """Collect the ended process and say how it ended."""
        process, tail = self._process, ""
        assert process is not None
        until = self._clock() + 2.0
        while not ended(process) and self._clock() < until:
            select.select([], [], [], 0.002)
        if not ended(process):
            tail = f"protocol error: {error}"
        self.kill()
        code = process.wait() if not tail else None
        if self._stderr is not None:
            size = self._stderr.seek(0, os.SEEK_END)
            self._stderr.seek(max(0, size - STDERR_TAIL_BYTES))
            tail = tail or last_words(self._stderr.read())
        self.stop()
        if code is not None and code < 0:
            name = signal_name(-code)
            return WorkerDiedError(name, f"killed by {name}" + (f": {tail}" if tail else ""))
        return WorkerDiedError("", f"exited with status {code}" + (f": {tail}" if tail else ""))

    def kill(self) -> None:
        """End the process at once, from any thread; a call in progress raises WorkerDiedError."""
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)

    def stop(self) -> None:
        """End the process and release its pipes. Safe to call twice. One that its driver holds is
        left behind, and no other starts until it has ended."""
        self.kill()
        process, self._process = self._process, None
        if process is not None:
            try:
                process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._stuck.append(process)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        stderr, self._stderr = self._stderr, None
        if stderr is not None:
            stderr.close()
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.remove()


def last_words(written: bytes) -> str:
    """The last line of what a candidate wrote: its end, what could move a cursor escaped."""
    lines = written[-STDERR_TAIL_BYTES:].decode(errors="replace").strip().splitlines()
    return printable(lines[-1].strip())[-LAST_WORDS:] if lines else ""


def start_child(command: Sequence[str], **settings: Any) -> subprocess.Popen[bytes]:
    """As Popen, from a thread that lasts as long as this process: a parent-death signal comes when
    the thread ends that started the child."""

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, **settings)

    return _starter(os.getpid()).submit(start).result()


@functools.cache
def _starter(_process: int) -> ThreadPoolExecutor:
    """One for each process: a fork does not have the thread."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="starter")


def ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has ended. It is not collected: its process group keeps its number, and what is
    left of it can be killed."""
    if process.returncode is not None:
        return True
    flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
    try:
        return os.waitid(os.P_PID, process.pid, flags) is not None
    except ChildProcessError:  # somebody else collected it
        return True


def signal_name(number: int) -> str:
    """SIGSEGV for 11, and so on."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
