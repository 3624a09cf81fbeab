"""The native executor: candidates through the compiler of this process, checked and timed here.

In: MeasureRequest. Out: Built, MeasureResult. Inputs, oracle values and packed weights of the last
tasks are kept, so that a candidate costs its own build, check and timing only.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable
from statistics import median

from autotune.codegen import DEVICE_KINDS
from autotune.codegen.llvm.binding import builds_here
from autotune.codegen.loader import code_in_memory, load
from autotune.machine.facts import MachineFacts
from autotune.machine.profile import DeviceProfile
from autotune.measure.build_task import build_task
from autotune.measure.cache_footprint import pieces_of
from autotune.measure.cache_state import CacheState
from autotune.measure.case import CHECKED_POINTS, Case, judge, make_case
from autotune.measure.devices.bench import DeviceBench
from autotune.measure.executor import Built
from autotune.measure.facts.measure import measure_facts
from autotune.measure.kept_cases import KeptCases
from autotune.measure.plain import PlainCacheState, PlainCalibration, plain_profile
from autotune.measure.profile import CalibrationKernel, measure_profile
from autotune.measure.storage import GARBAGE, aligned_bytes, reset_output
from autotune.measure.team import Threads
from autotune.measure.throttle import Throttling, available_cores
from autotune.measure.timing import Sample, processor_clock, time_kernel
from autotune.measure.types import MeasureRequest, MeasureResult, Status, Timing
from autotune.target import Target

__all__ = ["CHECKED_POINTS", "Case", "NativeExecutor", "build", "judge", "make_case"]

MAX_CASES = 16
"""Tasks whose inputs and reference values a worker keeps."""
SLICE_S = 0.0002
"""Shorter times are not interrupted, and too short for the clock of processor time."""
CONTENDED = 1.10
"""Calibration readings this much above the best mean that somebody else used the core."""


class NativeExecutor:
    """Executor of a worker process. `cache_bytes` bounds the data kept for tasks."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.perf_counter,
        cache_bytes: int = 1 << 30,
        throttling: Throttling | None = None,
    ) -> None:
        self._clock = clock
        self._throttling = throttling or Throttling(available_cores())
        self._cases = KeptCases(MAX_CASES, cache_bytes)
        self._calibrations: dict[str, CalibrationKernel | PlainCalibration] = {}
        self._cache_states: dict[str, CacheState | PlainCacheState] = {}
        self._bench = DeviceBench(clock)

    def build(self, request: MeasureRequest) -> Built:
        return build(request)

    def prepare(self, request: MeasureRequest) -> None:
        if request.target.kind in DEVICE_KINDS:
            self._bench.open(request.target)
            self._cases.of(request)
            return
        self._cases.of(request)
        self._calibration(request.target)

    def check_and_time(self, request: MeasureRequest, built: Built) -> MeasureResult:
        start = self._clock()
        case = self._cases.of(request)
        if request.target.kind in DEVICE_KINDS:
            return self._bench.check_and_time(request, built, case)
        cache_state = self._cache_state_of(request)
        helpers = cache_state.helpers if cache_state else ()
        kernel = Kernel(request, built, case, self._clock, helpers)
        reset_output(case.output)
        first_call_s = kernel.run(1).wall_s
        verdict = judge(case)
        if verdict.error:
            return MeasureResult(
                status=Status.WRONG_RESULT,
                error=f"check: {verdict.error}",
                build_s=built.build_s,
                run_s=self._clock() - start,
                max_error=verdict.max_error,
            )
        times_s, calibration_s = self._time(request, kernel, cache_state, first_call_s)
        return MeasureResult(
            status=Status.OK,
            times_s=times_s,
            build_s=built.build_s,
            run_s=self._clock() - start,
            calibration_s=calibration_s,
            max_error=verdict.max_error,
            conditions=self._throttling.conditions(),
        )

    def profile(self, target: Target) -> DeviceProfile:
        if target.kind in DEVICE_KINDS:
            return self._bench.profile(target)
        measure = measure_profile if _has_llvm(target) else plain_profile
        return measure(target, target.cpu, self._clock)

    def facts(self, target: Target) -> MachineFacts | None:
        return measure_facts(target, available_cores(), self._clock) if _has_llvm(target) else None

    def _time(
        self,
        request: MeasureRequest,
        kernel: Kernel,
        cache_state: CacheState | PlainCacheState | None,
        first_call_s: float,
    ) -> tuple[tuple[float, ...], float]:
        """Samples and the calibration reading beside them; if the core was disturbed or throttled,
        the better of two."""
        calibration = self._calibration(request.target)
        run = kernel.run
        if cache_state:
            team = cache_state.team(kernel.library)
            run = functools.partial(kernel.run_among, cache_state, team, request.timing)

        def attempt() -> tuple[bool, float, tuple[float, ...]]:
            events, before_s = self._throttling.count(), calibration.read()
            times_s = time_kernel(run, request.timing, first_call_s)
            reading_s = max(before_s, calibration.read())
            return self._throttling.count() > events, reading_s, times_s

        throttled, reading_s, times_s = attempt()
        doubtful = throttled or reading_s > CONTENDED * calibration.best_s
        if doubtful and sum(times_s) < request.timing.run_timeout_s / 4:
            again = attempt()
            if (*again[:2], median(again[2])) < (throttled, reading_s, median(times_s)):
                _, reading_s, times_s = again
        return times_s, reading_s

    def _calibration(self, target: Target) -> CalibrationKernel | PlainCalibration:
        if target.key not in self._calibrations:
            self._calibrations[target.key] = (
                CalibrationKernel(target, self._clock)
                if _has_llvm(target)
                else PlainCalibration(self._clock)
            )
        return self._calibrations[target.key]

    def _cache_state_of(self, request: MeasureRequest) -> CacheState | PlainCacheState | None:
        """None where a kernel is called again and again, among nothing."""
        target = request.target
        # What fits the innermost cache is too short to be timed call by call.
        own_bytes = sum(v.type.nbytes for v in request.task.params)
        if not request.timing.foreign_bytes or own_bytes <= target.l1_bytes:
            return None
        if target.key not in self._cache_states:
            kind = CacheState if _has_llvm(target) else PlainCacheState
            self._cache_states[target.key] = kind(target, self._clock)
        return self._cache_states[target.key]


def _has_llvm(target: Target) -> bool:
    """Whether calibration and peak kernels can be generated for the target here."""
    return target.kind == "cpu" and builds_here()


def build(request: MeasureRequest) -> Built:
    """Object code of a candidate. Raises AutotuneError where it cannot be built."""
    return build_task(request.task, request.schedule, request.target)


class Kernel:
    """A loaded candidate with its arguments. `helpers`: objects to load with it."""

    def __init__(
        self,
        request: MeasureRequest,
        built: Built,
        case: Case,
        clock: Callable[[], float],
        helpers: tuple[bytes, ...] = (),
    ) -> None:
        packs = {p.buffer: p for p in built.packs}
        task = request.task
        self._storages = [case.inputs[v.name] for v in task.by_role("input")]
        constants = {
            v.name: case.constant(v.name, packs.get(v.name)) for v in task.by_role("constant")
        }
        self._storages += [*constants.values(), case.output]
        self._workspace = aligned_bytes(built.workspace_bytes, GARBAGE)
        addresses = [s.address for s in self._storages] + [self._workspace.ctypes.data]
        self._arguments = (ctypes.c_void_p * len(addresses))(*addresses)
        symbol = f"{built.symbol}_run"
        self.library = load([built.code, *helpers], request.target)
        self._call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(
            self.library.address(symbol)
        )
        known = request.target.kind == "cpu"
        self.pieces = pieces_of(
            request.timing,
            request.target,
            inputs=case.inputs,
            constants=constants,
            output=(task.by_role("output")[0].name, case.output),
            workspace=self._workspace,
            code=code_in_memory(self.library, built.code, symbol) if known else None,
        )
        self._threads = request.target.threads
        self._clock = clock
        self._cpu_clock = processor_clock(self._threads)

    def run(self, calls: int) -> Sample:
        """This many calls. The share stolen is what the processor clock lacks."""
        address, busy, start = ctypes.addressof(self._arguments), self._cpu_clock(), self._clock()
        self._call(address, calls)
        wall_s = max(self._clock() - start, 1e-9)
        busy_s = self._cpu_clock() - busy
        return Sample(wall_s, _share_stolen(wall_s, busy_s), running_s=self._alone(busy_s))

    def run_among(
        self,
        cache_state: CacheState | PlainCacheState,
        team: Threads,
        timing: Timing,
        calls: int,
    ) -> Sample:
        """This many calls one by one, each as if other kernels had run before it. What starting a
        call takes is not part of it."""
        address, start = ctypes.addressof(self._arguments), self._clock()
        wall_s = away_s = 0.0
        for _ in range(calls):
            cache_state.between_calls(self.pieces, timing, team)
            before = self._away_s()  # takes longer than threads without work stay awake
            team.gather()
            begin = self._clock()
            self._call(address, 1)
            wall_s += self._clock() - begin
            away_s += self._away_s() - before
        beside_s = self._clock() - start - wall_s
        busy_s = max(0.0, wall_s - away_s)
        work_s = max(wall_s - calls * cache_state.overhead_s, wall_s / 2)
        return Sample(work_s, _share_stolen(wall_s, busy_s), beside_s, self._alone(busy_s))

    def _away_s(self) -> float:
        """Seconds in which the threads have not had what they wanted, up to a constant."""
        return self._clock() - self._cpu_clock()

    def _alone(self, busy_s: float) -> float:
        """Processor time of a single thread; that of several says little of how long they took."""
        return busy_s if self._threads == 1 else 0.0


def _share_stolen(wall_s: float, busy_s: float) -> float:
    """Share of the wall time without a core. Nobody else gets it for less than a slice."""
    if wall_s < SLICE_S:
        return 0.0
    return max(0.0, 1.0 - busy_s / wall_s)
