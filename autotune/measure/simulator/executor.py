"""Executors of simulated boards: candidates compiled for a core, checked, their cycles counted.

In: MeasureRequest. Out: Built, MeasureResult: seconds are cycles of the core's clock, the same in
every run, and `conditions` says how many.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Protocol

from autotune.codegen.c.source import CSource
from autotune.errors import DeviceError
from autotune.machine.facts import MachineFacts
from autotune.machine.profile import CacheLevel, DeviceProfile
from autotune.measure.build_task import build_task
from autotune.measure.case import judge, operands_of
from autotune.measure.executor import Built
from autotune.measure.kept_cases import KeptCases
from autotune.measure.simulator.cores import Core
from autotune.measure.simulator.costs import Counted, whole
from autotune.measure.simulator.image import called_once, image_of, tools
from autotune.measure.simulator.memory import CoreMemory
from autotune.measure.simulator.qemu_engine import QemuEngine, boot_text
from autotune.measure.simulator.serial_port import BoardGoneError
from autotune.measure.simulator.unicorn_engine import UnicornEngine
from autotune.measure.storage import GARBAGE, aligned_bytes, reset_output
from autotune.measure.types import MeasureRequest, MeasureResult, Status
from autotune.target import SOURCE, Target

_MOST_CASES = 4


class CoreEngine(Protocol):
    """What simulates cores."""

    name: str
    """The first word of what is said about a run."""
    boot: bool
    """Whether images need code that the core begins with."""

    def core(self, target: Target) -> Core:
        """The core, where the engine has memory for it. Raises ConfigError."""
        ...

    def check(self, core: Core) -> None:
        """Raises DeviceError where what it takes is not installed."""
        ...

    def run(
        self, core: Core, image: bytes, memory: CoreMemory, timeout_s: float
    ) -> tuple[tuple[Counted, ...], bytes]:
        """Sections between marks, the first of which is what comes before any kernel, and all of
        the memory. Raises DeviceError for what a processor would stop at, TimeoutError where it
        does not come back."""
        ...


class SimulatedExecutor:
    """Executor of a worker process that runs candidates on a simulated core."""

    def __init__(self, engine: CoreEngine) -> None:
        self.engine = engine
        self._cases = KeptCases(_MOST_CASES)

    def build(self, request: MeasureRequest) -> Built:
        target, core = (
            dataclasses.replace(request.target, arch=SOURCE),
            self.engine.core(request.target),
        )
        built = build_task(request.task, request.schedule, target)
        kernel = CSource.decode(built.code)
        image = image_of([kernel], called_once(kernel), core, self.boot(core))
        return dataclasses.replace(built, code=image)

    def prepare(self, request: MeasureRequest) -> None:
        self._cases.of(request)

    def check_and_time(self, request: MeasureRequest, built: Built) -> MeasureResult:
        start, case = time.perf_counter(), self._cases.of(request)

        def failed(status: Status, error: str) -> MeasureResult:
            run_s = time.perf_counter() - start
            return MeasureResult(status=status, error=error, build_s=built.build_s, run_s=run_s)

        reset_output(case.output)
        core = self.engine.core(request.target)
        blocks = operands_of(case, request.task, built.packs)
        blocks.append((aligned_bytes(max(built.workspace_bytes, 1), GARBAGE), 0))
        memory = CoreMemory(core, blocks, [len(blocks) - 2])
        try:
            sections, left = self.engine.run(
                core, built.code, memory, request.timing.run_timeout_s
            )
        except TimeoutError as error:
            return failed(Status.RUN_TIMEOUT, f"run: {error}")
        except BoardGoneError as error:
            return failed(Status.DEVICE_LOST, str(error))
        except DeviceError as error:
            return failed(Status.RUN_CRASH, f"run: {error}")
        memory.take(left)
        verdict = judge(case)
        if verdict.error:
            return failed(Status.WRONG_RESULT, f"check: {verdict.error}")
        counted = whole(sections[1:])
        count = counted.instructions
        instructions = f", {count} instructions" if count else ""
        return MeasureResult(
            status=Status.OK,
            times_s=(counted.cycles / core.clock_hz,),
            build_s=built.build_s,
            run_s=time.perf_counter() - start,
            max_error=verdict.max_error,
            conditions=f"{self.engine.name}: {counted.cycles} cycles of "
            f"{core.clock_hz / 1e6:g} MHz" + instructions,
        )

    def profile(self, target: Target) -> DeviceProfile:
        """A core that adds one product and loads half a word in each cycle."""
        core = self.engine.core(target)
        tools(core)
        self.engine.check(core)
        memory = CacheLevel(name="memory", size_bytes=1 << 40, load_bytes_per_s=2 * core.clock_hz)
        return DeviceProfile(
            device=f"{self.engine.name}/{target.name}",
            target=target,
            peak_flops=2 * core.clock_hz,
            levels=(memory,),
            parallel_region_s=0.0,
        )

    def facts(self, target: Target) -> MachineFacts | None:  # noqa: ARG002
        return None

    def boot(self, core: Core) -> str:
        """C of what an image for this engine begins with."""
        return boot_text(core) if self.engine.boot else ""


class UnicornExecutor(SimulatedExecutor):
    """Code on cores of Unicorn."""

    def __init__(self) -> None:
        super().__init__(UnicornEngine())


class QemuExecutor(SimulatedExecutor):
    """Code on boards of QEMU."""

    def __init__(self) -> None:
        super().__init__(QemuEngine())
