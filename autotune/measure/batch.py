"""Batches of candidates through worker processes: builders work ahead of one runner.

In: requests. Out: one result per request, in order, whatever the candidates do. The runner is
alone on its cores while it times; builders have the others. Where the kernel takes every core, a
window of candidates is built first and timed when the builders are idle.
"""

from __future__ import annotations

import dataclasses
import functools
import queue
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from autotune.codegen.base import DEVICE_KINDS
from autotune.errors import DeviceError
from autotune.machine.facts import MachineFacts
from autotune.machine.profile import DeviceProfile
from autotune.measure.builds import ExecutorBuilds, build_reply, outcome_of
from autotune.measure.executor import DEFAULT_EXECUTOR, Built
from autotune.measure.frames import Frame
from autotune.measure.process import WorkerDiedError, WorkerProcess, WorkerTimeoutError
from autotune.measure.sandbox import Report, Sandbox
from autotune.measure.throttle import available_cores
from autotune.measure.types import MeasureRequest, MeasureResult, OnResult, Status, Timing
from autotune.target import Target

MAX_BUILDERS = 4
"""Processes that build, at most."""
BUILD_AHEAD = 12
"""Candidates that are built and wait to be timed, at most."""
PREPARE_TIMEOUT_S = 60.0
"""Seconds to make a task's inputs and reference values."""
PROFILE_TIMEOUT_S = 60.0
"""Seconds to measure a device's profile, which takes two where the device is fast."""
FACTS_TIMEOUT_S = 180.0
"""Beside much other work, cores that wait for each other rarely run at the same time."""
MAX_KEPT = 1024
"""Built candidates kept for when they are measured again, or linked to a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CorePlan:
    """Which cores run and which build. `exclusive`: they overlap, so they take turns."""

    runner: tuple[int, ...]
    builders: tuple[int, ...]
    exclusive: bool


def plan_cores(cores: Sequence[int], threads: int) -> CorePlan:
    """The last `threads` cores run, the rest build; with no rest everything is shared."""
    cores = tuple(cores)
    if threads < len(cores):
        return CorePlan(runner=cores[-threads:], builders=cores[:-threads], exclusive=False)
    return CorePlan(runner=cores, builders=cores, exclusive=True)


class BatchExecutor:
    """Owns the worker processes of one device. One batch at a time; `interrupt` may come from any
    thread, the rest from one. With `builds` nothing is built here: nothing disturbs the runner."""

    def __init__(
        self,
        *,
        device: str,
        cores: Sequence[int] = (),
        executor: str = DEFAULT_EXECUTOR,
        sandbox: Sandbox | None = None,
        builds: ExecutorBuilds | None = None,
    ) -> None:
        self._device = device
        self._builds = builds
        self._cores = tuple(cores) or available_cores()
        self._executor = executor
        self._sandbox = sandbox
        self._plan: CorePlan | None = None
        self._runner: WorkerProcess | None = None
        self._builders: list[WorkerProcess] = []
        self._idle: queue.SimpleQueue[WorkerProcess] = queue.SimpleQueue()
        self._threads: ThreadPoolExecutor | None = None
        self._kept: OrderedDict[MeasureRequest, Built] = OrderedDict()
        self._prepared: set[tuple[int | None, str, int]] = set()
        self._aborting = False
        self._closed = False

    @property
    def runner_pid(self) -> int | None:
        """Process id of the worker that runs candidates."""
        return self._runner.pid if self._runner else None

    @property
    def sandbox(self) -> Report:
        """Which bounds of the workers hold, and why others do not; empty before they start."""
        return dict(self._runner.report) if self._runner else {}

    def ready(self, target: Target) -> Report:
        """Start the workers for kernels of a target: which bounds hold. Raises DeviceError."""
        return dict(self._start(self._threads_of(target)).report)

    def profile(self, target: Target) -> DeviceProfile:
        """Measured by the runner on its own cores. Raises DeviceError."""
        runner = self._start(self._threads_of(target), building=False)
        reply = self._asked(runner, "profile", target, PROFILE_TIMEOUT_S)
        return dataclasses.replace(DeviceProfile.from_json(reply["profile"]), device=self._device)

    def facts(self, target: Target) -> MachineFacts | None:
        """What micro-benchmarks find on all cores; None where there are none for such a device.
        Raises DeviceError."""
        runner = self._start(len(self._cores), building=False)
        reply = self._asked(runner, "facts", target, FACTS_TIMEOUT_S)
        return None if reply["facts"] is None else MachineFacts.from_json(reply["facts"])

    def _asked(
        self, runner: WorkerProcess, command: str, target: Target, timeout_s: float
    ) -> dict[str, Any]:
        """The reply to a command that measures the device. Raises DeviceError."""
        what = "measuring this device's peaks" if command == "profile" else "micro-benchmarks"
        try:
            header = {"command": command, "target": target.to_json()}
            reply, _ = self._call(runner, header, timeout_s=timeout_s)
        except (WorkerDiedError, WorkerTimeoutError) as error:
            raise DeviceError(f"{what} failed: {_why(error)}") from None
        if "error" in reply:
            raise DeviceError(f"{what} failed: {reply['error']}")
        return reply

    def measure(
        self,
        requests: Sequence[MeasureRequest],
        on_result: OnResult | None = None,
        stop: Callable[[], bool] = lambda: False,
    ) -> tuple[MeasureResult, ...]:
        """One result per request. After `stop` says yes the rest is DEVICE_LOST, not reported to
        `on_result`. Raises DeviceError when no worker can be started."""
        if not requests:
            return ()
        runner = self._start(max(self._threads_of(r.target) for r in requests))
        assert self._plan is not None
        results: list[MeasureResult] = []
        pending: deque[Future[Built | MeasureResult]] = deque()
        submitted = 0
        shared: dict[MeasureRequest, Future[Built | MeasureResult]] = {}
        try:
            for number, request in enumerate(requests):
                if stop() or self._closed:
                    break
                disturbing = self._plan.exclusive and self._builds is None
                if not pending or not disturbing:
                    ahead = BUILD_AHEAD if self._builds is None else len(requests)
                    last = min(number + ahead, len(requests))
                    for later in requests[submitted:last]:
                        pending.append(self._submit_once(later, shared))
                    submitted = last
                if disturbing:
                    wait(pending)
                built = self._outcome(pending.popleft())
                self._keep(request, built)
                result = self._finish(runner, request, built)
                if self._closed:
                    break
                results.append(result)
                if on_result is not None:
                    on_result(number, result)
        finally:
            self._abort(pending)
        lost = MeasureResult(
            status=Status.DEVICE_LOST, error="the batch was cancelled", device=self._device
        )
        return (*results, *[lost] * (len(requests) - len(results)))

    def _abort(self, pending: deque[Future[Built | MeasureResult]]) -> None:
        """Drop builds that nobody waits for, so that every builder is idle."""
        running = [f for f in pending if not f.cancel() and not f.done()]
        if running:
            self._aborting = True
            for builder in self._builders:
                builder.kill()
            wait(running)
            self._aborting = False

    def _threads_of(self, target: Target) -> int:
        """Cores that a run needs: for a device all, where its driver compiles or computes."""
        return len(self._cores) if target.kind in DEVICE_KINDS else target.threads

    def _start(self, threads: int, *, building: bool = True) -> WorkerProcess:
        """Workers placed for kernels of this many threads; the runner is answering. Builders that
        nothing is built by would only disturb what is measured."""
        if self._closed:
            raise DeviceError(f"{self._device}: the runner is closed; open a new one")
        plan = plan_cores(self._cores, threads)
        if plan != self._plan:
            self._stop_workers()
            self._plan = plan
            self._runner = self._worker(plan.runner)
            if self._builds is None:
                self._start_builders(plan.builders)
        assert self._runner is not None
        for builder in self._builders if building else ():
            builder.start()  # imports while the runner does
        try:
            self._runner.ready()
        except (WorkerDiedError, WorkerTimeoutError) as error:
            raise DeviceError(f"a worker process does not start: {_why(error)}") from None
        return self._runner

    def _start_builders(self, cores: tuple[int, ...]) -> None:
        count = min(len(cores), MAX_BUILDERS)
        self._builders = [self._worker(cores) for _ in range(count)]
        for builder in self._builders:
            self._idle.put(builder)
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="build")

    def _worker(self, cores: tuple[int, ...]) -> WorkerProcess:
        return WorkerProcess(
            executor=self._executor,
            cores=cores,
            sandbox=self._sandbox,
        )

    def _submit(self, request: MeasureRequest) -> Future[Built | MeasureResult]:
        if request.built is not None:
            known: Future[Built | MeasureResult] = Future()
            known.set_result(request.built)
            return known
        if self._builds is not None:
            return self._builds.submit(request)
        assert self._threads is not None
        return self._threads.submit(self._build, request)

    def _outcome(self, build: Future[Built | MeasureResult]) -> Built | MeasureResult:
        return build.result() if self._builds is None else self._builds.wait(build)

    def _submit_once(
        self,
        request: MeasureRequest,
        shared: dict[MeasureRequest, Future[Built | MeasureResult]],
    ) -> Future[Built | MeasureResult]:
        """A candidate that is measured several times in a batch is built once: how often and how
        long it is timed is no matter."""
        key = dataclasses.replace(request, timing=Timing())
        if key not in shared:
            kept = self._kept.get(key)
            shared[key] = self._submit(
                dataclasses.replace(request, built=kept) if kept else request
            )
        return shared[key]

    def _keep(self, request: MeasureRequest, built: Built | MeasureResult) -> None:
        """The fastest are measured again at the end of a task: without being built again. What was
        built elsewhere comes along with its request."""
        if isinstance(built, Built) and request.built is None:
            self._kept[dataclasses.replace(request, timing=Timing())] = built
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)

    def built(self, request: MeasureRequest) -> Built | None:
        """The candidate as it was built for a measurement, if it is kept."""
        return self._kept.get(dataclasses.replace(request, timing=Timing()))

    def _build(self, request: MeasureRequest) -> Built | MeasureResult:
        worker = self._idle.get()
        call = functools.partial(self._call, worker)
        try:
            reply = build_reply(call, request.to_json(), request.timing.build_timeout_s)
        finally:
            self._idle.put(worker)
        return outcome_of(*reply)

    def _finish(
        self, runner: WorkerProcess, request: MeasureRequest, built: Built | MeasureResult
    ) -> MeasureResult:
        result = built if isinstance(built, MeasureResult) else self._run(runner, request, built)
        return dataclasses.replace(result, device=self._device)

    def _run(self, runner: WorkerProcess, request: MeasureRequest, built: Built) -> MeasureResult:
        limit = request.timing.run_timeout_s
        on_device = request.target.kind in DEVICE_KINDS
        header: dict[str, Any] = {"request": request.to_json()}
        prepared = False
        try:
            self._prepare(runner, request, header)
            prepared = True
            command = {"command": "run", "built": built.header(), **header}
            reply, _ = self._call(runner, command, built.code, timeout_s=limit)
        except (WorkerTimeoutError, WorkerDiedError) as error:
            if on_device and not prepared:
                return MeasureResult(
                    status=Status.DEVICE_LOST,
                    error=f"the device does not come back: {_why(error)}",
                )
            if isinstance(error, WorkerTimeoutError):
                return MeasureResult(
                    status=Status.RUN_TIMEOUT,
                    error=f"run: over {limit:g} s",
                    build_s=built.build_s,
                    run_s=limit,
                )
            return MeasureResult(
                status=Status.RUN_CRASH, error=f"run: {error}", build_s=built.build_s
            )
        result = MeasureResult.from_json(reply["result"])
        if on_device and result.status in (Status.RUN_CRASH, Status.DEVICE_LOST):
            runner.stop()  # what a driver has refused once it may refuse for good
        return result

    def _prepare(
        self, runner: WorkerProcess, request: MeasureRequest, header: dict[str, Any]
    ) -> None:
        runner.start()
        mark = (runner.pid, request.task.key, request.seed)
        if mark not in self._prepared:
            self._prepared = {m for m in self._prepared if m[0] == runner.pid} | {mark}
            self._call(runner, {"command": "prepare", **header}, timeout_s=PREPARE_TIMEOUT_S)

    def _call(
        self, worker: WorkerProcess, header: dict[str, Any], blob: bytes = b"", *, timeout_s: float
    ) -> Frame:
        """A call that is tried again once after SIGKILL: no kernel sends that, people and the
        system's memory manager do."""
        try:
            return worker.call(header, blob, timeout_s=timeout_s)
        except WorkerDiedError as error:
            if error.signal_name != "SIGKILL" or self._closed or self._aborting:
                raise
        return worker.call(header, blob, timeout_s=timeout_s)

    def _kill_workers(self) -> None:
        for worker in (self._runner, *self._builders):
            if worker is not None:
                worker.kill()

    def _stop_workers(self) -> None:
        self._kill_workers()
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)
            self._threads = None
        for worker in (self._runner, *self._builders):
            if worker is not None:
                worker.stop()
        self._runner, self._builders, self._plan = None, [], None
        self._idle = queue.SimpleQueue()

    def renew(self) -> None:
        """Replace the process that runs candidates, which foreign code may have changed."""
        if self._runner is not None and not self._closed:
            self._runner.stop()

    def interrupt(self) -> None:
        """Kill the workers, from any thread: a batch in progress ends at once, the rest lost."""
        self._closed = True
        self._kill_workers()

    def close(self) -> None:
        """End every worker process. Safe to call twice."""
        self._closed = True
        self._stop_workers()


def _why(error: Exception) -> str:
    return str(error) or "no answer in time"
