"""Executors of boards that run WebAssembly: candidates linked as modules, checked and timed in an
engine. In: MeasureRequest. Out: Built, MeasureResult: seconds of the engine, call after call.
"""

from __future__ import annotations

import dataclasses
import time

from autotune.codegen.wasm.module import LinkedModule
from autotune.errors import DeviceError
from autotune.machine import Machine
from autotune.machine.facts import MachineFacts
from autotune.machine.profile import DeviceProfile
from autotune.measure.build_task import build_task
from autotune.measure.case import Case, judge, operands_of
from autotune.measure.executor import Built
from autotune.measure.kept_cases import KeptCases
from autotune.measure.simulator.node_engine import NodeEngine
from autotune.measure.simulator.wasm_engine import WasmEngine, WasmtimeEngine
from autotune.measure.storage import GARBAGE, aligned_bytes, reset_output
from autotune.measure.timing import time_kernel
from autotune.measure.types import MeasureRequest, MeasureResult, Status
from autotune.memory import ALIGNMENT
from autotune.target import Target

_MOST_CASES = 4
_POINTER_BYTES = 4


class WasmExecutor:
    """Executor of a worker process that runs candidates in an engine."""

    def __init__(self, engine: WasmEngine, name: str) -> None:
        self._engine = engine
        self._name = name
        self._cases = KeptCases(_MOST_CASES)

    def build(self, request: MeasureRequest) -> Built:
        return build_task(request.task, request.schedule, request.target)

    def prepare(self, request: MeasureRequest) -> None:
        self._cases.of(request)

    def check_and_time(self, request: MeasureRequest, built: Built) -> MeasureResult:
        start, case = time.perf_counter(), self._cases.of(request)

        def result(
            status: Status, times_s: tuple[float, ...] = (), error: str = ""
        ) -> MeasureResult:
            return MeasureResult(
                status=status, times_s=times_s, error=error, build_s=built.build_s,
                run_s=time.perf_counter() - start, conditions=f"simulated: {self._name}",
            )  # fmt: skip

        reset_output(case.output)
        memory = _EngineMemory(request, built, case)
        try:
            self._engine.load(memory.module, f"{built.symbol}_run", memory.blocks)
            first = self._engine.run(memory.pointers, 1)
            output, at = memory.output
            output[:] = memoryview(self._engine.read(at, len(output)))
            verdict = judge(case)
            if verdict.error:
                return result(Status.WRONG_RESULT, error=f"check: {verdict.error}")
            times_s = time_kernel(
                lambda calls: self._engine.run(memory.pointers, calls),
                request.timing,
                first.wall_s,
            )
        except DeviceError as error:
            return result(Status.RUN_CRASH, error=f"run: {error}")
        finally:
            self._engine.close()
        return dataclasses.replace(result(Status.OK, times_s), max_error=verdict.max_error)

    def profile(self, target: Target) -> DeviceProfile:
        """What such an engine should reach on a core of the tables."""
        named = f"simulated/{target.name}"
        return dataclasses.replace(Machine.of(target).profile, device=named)

    def facts(self, target: Target) -> MachineFacts | None:  # noqa: ARG002
        return None


class NodeExecutor(WasmExecutor):
    """Candidates in node, whose engine is Chromium's."""

    def __init__(self) -> None:
        super().__init__(NodeEngine(), "node")


class WasmtimeExecutor(WasmExecutor):
    """Candidates in wasmtime."""

    def __init__(self) -> None:
        super().__init__(WasmtimeEngine(), "wasmtime")


class _EngineMemory:
    """A candidate's module, and where its arguments lie in it: each as it lies here, relative to
    a multiple of the alignment."""

    def __init__(self, request: MeasureRequest, built: Built, case: Case) -> None:
        linked = LinkedModule([built.code], [f"{built.symbol}_run"])
        at, addresses = linked.start, []
        self.blocks: dict[int, bytes] = {}
        for block, first in operands_of(case, request.task, built.packs):
            at += -(at + first) % ALIGNMENT
            self.output = block, at
            self.blocks[at] = block.tobytes()
            addresses.append(at + first)
            at += block.nbytes
        self.pointers = at + -at % ALIGNMENT
        room = self.pointers + (len(addresses) + 1) * _POINTER_BYTES
        workspace = room + -room % ALIGNMENT
        addresses.append(workspace)
        self.blocks[self.pointers] = b"".join(a.to_bytes(4, "little") for a in addresses)
        garbage = aligned_bytes(built.workspace_bytes, GARBAGE)
        self.blocks[workspace] = garbage.tobytes()
        self.module = linked.written({}, workspace + garbage.nbytes, {})
