"""Building candidates, here in a build process or elsewhere on an executor's workers.

In: requests. Out: `Built`, or the MeasureResult of a build that failed. A job on an executor is
bytes, a frame of JSON both ways: a worker needs this package, and nothing of the caller's.
"""

from __future__ import annotations

import atexit
import functools
import io
import queue
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from typing import Any

from autotune.errors import DeviceError
from autotune.measure.executor import Built
from autotune.measure.frames import Frame, encode_frame, read_frame
from autotune.measure.process import WorkerDiedError, WorkerProcess, WorkerTimeoutError
from autotune.measure.types import MeasureRequest, MeasureResult, Status
from autotune.measure.worker import one_line

PATIENCE_S = 120.0
"""How long the oldest job of an executor may take, its waiting for a worker included."""
LOST = (CancelledError, BrokenExecutor)
"""What the future of a job raises when nobody works on it any more."""


class ExecutorBuilds:
    """Builds on the workers of an executor. A job whose worker is lost is for the executor to do
    again; one that it gives up is that candidate's BUILD_ERROR."""

    def __init__(
        self, executor: Executor, name: str = "the executor", patience_s: float = PATIENCE_S
    ) -> None:
        self._executor = executor
        self._name = name
        self._patience_s = patience_s

    def submit(self, request: MeasureRequest) -> Future[Built | MeasureResult]:
        """Cancelling the future withdraws the job. Raises DeviceError where no job is taken."""
        limit_s = request.timing.build_timeout_s
        job = encode_frame({"request": request.to_json(), "limit_s": limit_s})
        try:
            working = self._executor.submit(build_job, job)
        except (RuntimeError, *LOST) as error:
            raise self._lost(error) from None
        outcome: Future[Built | MeasureResult] = Future()

        def settle(done: Future[bytes]) -> None:
            if outcome.set_running_or_notify_cancel():
                self._settle(done, outcome)

        def withdraw(asked: Future[Built | MeasureResult]) -> None:
            if asked.cancelled():
                working.cancel()

        working.add_done_callback(settle)
        outcome.add_done_callback(withdraw)
        return outcome

    def wait(self, outcome: Future[Built | MeasureResult]) -> Built | MeasureResult:
        """Raises DeviceError where the executor is lost, or silent for too long."""
        try:
            return outcome.result(self._patience_s)
        except TimeoutError:
            raise DeviceError(silent(self._name, self._patience_s)) from None

    def _settle(self, done: Future[bytes], outcome: Future[Built | MeasureResult]) -> None:
        try:
            header, code = read_frame(io.BytesIO(done.result()).read)
            outcome.set_result(outcome_of(header, code))
        except LOST as error:
            outcome.set_exception(self._lost(error))
        except Exception as error:  # the process boundary: what the executor could not do
            failed = MeasureResult(status=Status.BUILD_ERROR, error=f"build: {one_line(error)}")
            outcome.set_result(failed)

    def _lost(self, error: BaseException) -> DeviceError:
        return DeviceError(lost(self._name, error))


def lost(name: str, error: BaseException) -> str:
    """One line: the executor is gone."""
    why = one_line(error).removesuffix(": ")
    return f"{name} is lost ({why}); what was measured is in the log: run the command again"


def silent(name: str, patience_s: float) -> str:
    """One line: the executor has no worker that answers."""
    return (
        f"no worker of {name} has answered for {patience_s:g} s; start one, and run the same "
        "command again to continue"
    )


def build_job(frame: bytes) -> bytes:
    """What a worker of the executor does: one build in a build process of its own, which is killed
    at the deadline."""
    header, _ = read_frame(io.BytesIO(frame).read)
    idle = _idle_processes()
    try:
        process = idle.get_nowait()
    except queue.Empty:
        process = WorkerProcess()
    try:
        limit_s = float(header["limit_s"])
        return encode_frame(*build_reply(process.call, header["request"], limit_s))
    finally:
        idle.put(process)


@functools.cache
def _idle_processes() -> queue.SimpleQueue[WorkerProcess]:
    """Build processes of this worker, kept since starting one costs more than a build. They end
    with the worker."""
    idle: queue.SimpleQueue[WorkerProcess] = queue.SimpleQueue()
    atexit.register(_end, idle)
    return idle


def _end(idle: queue.SimpleQueue[WorkerProcess]) -> None:
    while not idle.empty():
        idle.get_nowait().stop()


def build_in(
    process: WorkerProcess, request: Mapping[str, Any], limit_s: float, where: str = "build"
) -> Built | MeasureResult:
    """One build in a build process; its failures are the candidate's, and say `where`."""
    return outcome_of(*build_reply(process.call, request, limit_s, where))


def build_reply(
    call: Callable[..., Frame], request: Mapping[str, Any], limit_s: float, where: str = "build"
) -> Frame:
    """The reply of a build process to one build, by `call` (as WorkerProcess.call). A process that
    dies, or takes longer than `limit_s`, has failed the candidate: that is the reply then."""
    try:
        return call({"command": "build", "request": request}, timeout_s=limit_s)
    except WorkerTimeoutError:
        error = f"{where}: over {limit_s:g} s"
        failed = MeasureResult(status=Status.BUILD_TIMEOUT, error=error, build_s=limit_s)
    except WorkerDiedError as died:
        failed = MeasureResult(status=Status.BUILD_ERROR, error=f"{where}: {died}")
    return {"result": failed.to_json()}, b""


def outcome_of(reply: Mapping[str, Any], code: bytes) -> Built | MeasureResult:
    """What a reply tells: the candidate as it was built, or how that failed."""
    if "built" in reply:
        return Built.from_header(reply["built"], code)
    return MeasureResult.from_json(reply["result"])
