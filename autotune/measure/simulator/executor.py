"""The executor of a simulated board: candidates compiled for it, checked, their cycles counted.

In: MeasureRequest. Out: Built, MeasureResult: seconds are cycles of the core's clock, the same in
every run, and `conditions` says how many.
"""

from __future__ import annotations

import dataclasses
import time
from collections import OrderedDict

from autotune.codegen.c.source import CSource
from autotune.errors import DeviceError
from autotune.machine.facts import MachineFacts
from autotune.machine.profile import CacheLevel, DeviceProfile
from autotune.measure.build_task import build_task
from autotune.measure.case import Case, judge, make_case
from autotune.measure.executor import Built
from autotune.measure.simulator.core import SimulatedCore, unicorn
from autotune.measure.simulator.image import image_of, tools
from autotune.measure.storage import GARBAGE, GuardedTensor, aligned_bytes, reset_output
from autotune.measure.types import MeasureRequest, MeasureResult, Status
from autotune.target import SOURCE, Target
from autotune.types import Array

CLOCK_HZ = 120e6
"""The core's clock, chosen: that of boards whose results of MLPerf Tiny are published."""
_MOST_CASES = 4


class SimulatedExecutor:
    """Executor of a worker process that runs candidates on a simulated core."""

    def __init__(self) -> None:
        self._cases: OrderedDict[tuple[str, int, str], Case] = OrderedDict()

    def build(self, request: MeasureRequest) -> Built:
        target = dataclasses.replace(request.target, arch=SOURCE)
        built = build_task(request.task, request.schedule, target)
        return dataclasses.replace(built, code=image_of(CSource.decode(built.code)))

    def prepare(self, request: MeasureRequest) -> None:
        self._case(request)

    def check_and_time(self, request: MeasureRequest, built: Built) -> MeasureResult:
        start, case = time.perf_counter(), self._case(request)
        reset_output(case.output)
        packs, task = {p.buffer: p for p in built.packs}, request.task
        tensors = [case.inputs[v.name] for v in task.by_role("input")]
        tensors += [case.constant(v.name, packs.get(v.name)) for v in task.by_role("constant")]
        blocks = [_block(tensor) for tensor in (*tensors, case.output)]
        blocks.append((aligned_bytes(max(built.workspace_bytes, 1), GARBAGE), 0))
        core = SimulatedCore(built.code, blocks)
        try:
            counted = core.run(request.timing.run_timeout_s)
        except TimeoutError as error:
            return self._failed(Status.RUN_TIMEOUT, f"run: {error}", built, start)
        except DeviceError as error:
            return self._failed(Status.RUN_CRASH, f"run: {error}", built, start)
        core.read()
        verdict = judge(case)
        if verdict.error:
            return self._failed(Status.WRONG_RESULT, f"check: {verdict.error}", built, start)
        return MeasureResult(
            status=Status.OK,
            times_s=(counted.cycles / CLOCK_HZ,),
            build_s=built.build_s,
            run_s=time.perf_counter() - start,
            max_error=verdict.max_error,
            conditions=f"simulated: {counted.cycles} cycles of {CLOCK_HZ / 1e6:g} MHz, "
            f"{counted.instructions} instructions",
        )

    def profile(self, target: Target) -> DeviceProfile:
        """A core that adds one product and loads half a word in each cycle."""
        tools()
        unicorn()
        memory = CacheLevel(name="memory", size_bytes=1 << 40, load_bytes_per_s=2 * CLOCK_HZ)
        return DeviceProfile(
            device=f"simulated/{target.name}",
            target=target,
            peak_flops=2 * CLOCK_HZ,
            levels=(memory,),
            parallel_region_s=0.0,
        )

    def facts(self, target: Target) -> MachineFacts | None:  # noqa: ARG002
        return None

    def _failed(self, status: Status, error: str, built: Built, start: float) -> MeasureResult:
        run_s = time.perf_counter() - start
        return MeasureResult(status=status, error=error, build_s=built.build_s, run_s=run_s)

    def _case(self, request: MeasureRequest) -> Case:
        key = (request.task.key, request.seed, request.target.precision)
        if key not in self._cases:
            self._cases[key] = make_case(request.task, request.seed, request.target.precision)
        self._cases.move_to_end(key)
        while len(self._cases) > _MOST_CASES:
            self._cases.popitem(last=False)
        return self._cases[key]


def _block(tensor: GuardedTensor) -> tuple[Array, int]:
    """A tensor's memory, and where in it its first element lies."""
    return tensor.block, tensor.address - tensor.block.ctypes.data
