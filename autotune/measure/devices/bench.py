"""Candidates on devices, checked and timed. In: a request, its code and data. Out: the result.

A device is opened when it is first needed and tried at once: a worker that replaces one which a
kernel hung or crashed finds out whether the device has come back before the next candidate runs.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

from autotune.codegen.base import DeviceCode
from autotune.errors import BuildError, DeviceError
from autotune.machine.profile import DeviceProfile
from autotune.measure.case import Case, judge
from autotune.measure.devices.base import Device, open_device
from autotune.measure.devices.kernel import DeviceKernel
from autotune.measure.devices.profile import measure_device, try_device
from autotune.measure.storage import GuardedTensor, reset_output
from autotune.measure.timing import time_kernel
from autotune.measure.types import Built, MeasureRequest, MeasureResult, Status
from autotune.target import Target


class DeviceBench:
    """The devices of one worker process, by kind and number."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._devices: dict[tuple[str, int], Device] = {}

    def open(self, target: Target) -> Device:
        """The device, which has computed something right before. Raises DeviceError."""
        key = target.kind, target.device
        if key not in self._devices:
            device = open_device(target)
            try_device(device, target)
            self._devices[key] = device
        return self._devices[key]

    def profile(self, target: Target) -> DeviceProfile:
        return measure_device(self.open(target), target)

    def check_and_time(self, request: MeasureRequest, built: Built, case: Case) -> MeasureResult:
        """Never raises for what a candidate does, short of killing the process."""
        start = self._clock()

        def result(status: Status, error: str = "", max_error: float = 0.0) -> MeasureResult:
            run_s = self._clock() - start
            return MeasureResult(
                status=status, error=error, times_s=times_s, build_s=built.build_s,
                run_s=run_s, max_error=max_error,
            )  # fmt: skip

        times_s: tuple[float, ...] = ()
        try:
            device = self.open(request.target)
        except DeviceError as error:
            return result(Status.DEVICE_LOST, str(error))
        try:
            reset_output(case.output)
            code = DeviceCode.decode(built.code)
            kernel = DeviceKernel(device, code, _storages(request, built, case))
            first_call_s = kernel.run(1).wall_s
            kernel.fetch(request.task.by_role("output")[0].name, case.output)
            verdict = judge(case)
            if verdict.error:
                why = f"check: {verdict.error}"
                return result(Status.WRONG_RESULT, why, verdict.max_error)
            run = kernel.run_cold if request.timing.foreign_bytes else kernel.run
            times_s = time_kernel(run, request.timing, first_call_s)
            timed = result(Status.OK, max_error=verdict.max_error)
            return dataclasses.replace(timed, conditions=device.conditions())
        except BuildError as error:
            return result(Status.BUILD_ERROR, f"build: {error}")
        except DeviceError as error:
            self._devices.pop((request.target.kind, request.target.device), None)
            return result(Status.RUN_CRASH, f"run: {error}")


def _storages(request: MeasureRequest, built: Built, case: Case) -> dict[str, GuardedTensor]:
    """Host memory of every param."""
    packs = {p.buffer: p for p in built.packs}
    constants = [v.name for v in request.task.by_role("constant")]
    (output,) = request.task.by_role("output")
    return {
        **{v.name: case.inputs[v.name] for v in request.task.by_role("input")},
        **{name: case.constant(name, packs.get(name)) for name in constants},
        output.name: case.output,
    }
