"""An executor without a compiler: the request's seed says what the candidate does.

In: requests made by `request`. Out: results, hangs, crashes. Imported by worker processes.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import signal
import sys
import time

from autotune.errors import BuildError
from autotune.machine.facts import MachineFacts
from autotune.machine.profile import CacheLevel, DeviceProfile
from autotune.measure.executor import Built
from autotune.measure.types import MeasureRequest, MeasureResult, Status, Timing
from autotune.target import Target, host_target
from autotune.types import Layout, Task, TaskNode, TaskValue, TensorType
from tests.unit.machine import samples

GOOD, BUILD_ERROR, BUILD_HANG, BUILD_CRASH, SEGFAULT, HANG = range(6)
WRONG, EXIT, RAISE, SLOW, NOISY, GONE = range(6, 12)
PATIENT = Timing(build_timeout_s=30.0, run_timeout_s=30.0)
"""For candidates that end by themselves, however busy this machine is."""
LIMITS = {
    BUILD_HANG: dataclasses.replace(PATIENT, build_timeout_s=1.0),
    HANG: dataclasses.replace(PATIENT, run_timeout_s=1.0),
}


def request(
    behaviour: int, *, threads: int = 1, timing: Timing | None = None, size: int = 4
) -> MeasureRequest:
    """A request of a tiny task whose candidate behaves as said."""
    timing = timing or LIMITS.get(behaviour, PATIENT)
    kind = TensorType(dtype="float32", shape=(size,))
    layout = Layout.dense(kind.shape)
    task = Task(
        nodes=(TaskNode(op="relu", inputs=("i0",), outputs=("o0",)),),
        values=(
            TaskValue(name="i0", type=kind, role="input", layout=layout),
            TaskValue(name="o0", type=kind, role="output", layout=layout),
        ),
        anchor=0,
    )
    target = host_target(threads)
    return MeasureRequest(task=task, schedule=(), target=target, timing=timing, seed=behaviour)


class FakeExecutor:
    """Does what the seed says; the time of a good candidate is its process id."""

    def build(self, request: MeasureRequest) -> Built:
        if request.seed == BUILD_ERROR:
            raise BuildError("step 3 is not legal")
        if request.seed == BUILD_HANG:
            time.sleep(60)
        if request.seed == BUILD_CRASH:
            os.kill(os.getpid(), signal.SIGABRT)
        return Built(symbol="kernel", code=b"\0code", workspace_bytes=0)

    def prepare(self, request: MeasureRequest) -> None:
        if request.seed == RAISE:
            raise RuntimeError("no inputs")

    def check_and_time(self, request: MeasureRequest, built: Built) -> MeasureResult:
        assert built.code == b"\0code"
        if request.seed == SEGFAULT:
            ctypes.string_at(0)
        if request.seed == HANG:
            ctypes.CDLL(None).sleep(60)
        if request.seed == EXIT:
            sys.stderr.write("giving up\n")
            sys.stderr.flush()
            os._exit(7)
        if request.seed == RAISE:
            raise ValueError("two\nlines")
        if request.seed == SLOW:
            time.sleep(0.3)
        if request.seed == NOISY:
            os.write(1, b"printed by native code")
            print("printed by Python")
        if request.seed == GONE:
            return MeasureResult(status=Status.DEVICE_LOST, error="it does not come back")
        if request.seed == WRONG:
            return MeasureResult(status=Status.WRONG_RESULT, error="o0[3]: expected 1, got 2")
        return MeasureResult(status=Status.OK, times_s=(float(os.getpid()),), run_s=0.1)

    def profile(self, target: Target) -> DeviceProfile:
        return DeviceProfile(
            device="fake",
            target=target,
            peak_flops=1e11,
            levels=(CacheLevel(name="L1", size_bytes=32768, load_bytes_per_s=2e11),),
            parallel_region_s=1e-6,
        )

    def facts(self, target: Target) -> MachineFacts | None:  # noqa: ARG002
        return None


class ToldExecutor(FakeExecutor):
    """Finds out what another machine is like, and how often it was asked."""

    def __init__(self) -> None:
        self._asked = 0

    def facts(self, target: Target) -> MachineFacts | None:  # noqa: ARG002
        self._asked += 1
        return dataclasses.replace(samples.FACTS, transfer_s=float(self._asked))


class SilentExecutor(FakeExecutor):
    """Cannot find out anything."""

    def facts(self, target: Target) -> MachineFacts | None:
        raise BuildError(f"no loops for {target.name}")


class AlwaysKilledExecutor(FakeExecutor):
    """Kills its own process at every run."""

    def check_and_time(self, request: MeasureRequest, built: Built) -> MeasureResult:
        os.kill(os.getpid(), signal.SIGKILL)
        return super().check_and_time(request, built)


class CountingExecutor(FakeExecutor):
    """The time of a candidate is how many the process that built it had built by then."""

    def __init__(self) -> None:
        self._builds = 0

    def build(self, request: MeasureRequest) -> Built:  # noqa: ARG002
        self._builds += 1
        return Built(symbol="kernel", code=b"\0code", workspace_bytes=self._builds)

    def check_and_time(self, request: MeasureRequest, built: Built) -> MeasureResult:  # noqa: ARG002
        return MeasureResult(status=Status.OK, times_s=(float(built.workspace_bytes),))


FAKE = "tests.unit.measure.fakes:FakeExecutor"
TOLD = "tests.unit.measure.fakes:ToldExecutor"
SILENT = "tests.unit.measure.fakes:SilentExecutor"
COUNTING = "tests.unit.measure.fakes:CountingExecutor"
ALWAYS_KILLED = "tests.unit.measure.fakes:AlwaysKilledExecutor"


def plain(result: MeasureResult) -> MeasureResult:
    """A result without what differs from run to run."""
    return dataclasses.replace(result, times_s=(), build_s=0.0, run_s=0.0)
