"""Candidates on a device: checked, timed, and what becomes of the bad ones. Needs an OpenCL
device; PoCL (Debian: pocl-opencl-icd) makes one of any CPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

import cost_model
from autotune.codegen import DeviceCode
from autotune.errors import DeviceError
from autotune.machine import Machine
from autotune.measure.case import Case, make_case
from autotune.measure.devices import DEVICES, DeviceAddress, bench, open_device
from autotune.measure.devices.bench import DeviceBench
from autotune.measure.devices.sandbox import sandbox_for
from autotune.measure.execute import build
from autotune.measure.runners.local import LocalRunner
from autotune.measure.sandbox import Sandbox
from autotune.measure.types import Built, MeasureRequest, Status, Timing
from autotune.target import load_target
from search_spaces.rules import rule_for
from tests.needs import needs
from tests.unit.codegen.kernels import device_of, matmul

TARGET = load_target("opencl")
TASK = matmul(6, 8, 16)
TIMING = Timing(min_repeats=2, max_repeats=2, min_repeat_s=1e-5, budget_s=0.01)


def request(**changes: object) -> MeasureRequest:
    rule = rule_for(TASK, TARGET)
    schedule = rule.schedule(TASK, TARGET, cost_model.default(TASK, Machine.of(TARGET), rule))
    made = MeasureRequest(task=TASK, schedule=schedule, target=TARGET, timing=TIMING)
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def built(change: Callable[[str], str] = str) -> Built:
    """The default candidate's code, changed."""
    made = build(request())
    code = DeviceCode.decode(made.code)
    text = change(code.text.decode())
    return dataclasses.replace(made, code=dataclasses.replace(code, text=text.encode()).encode())


def first_line(line: str) -> Callable[[str], str]:
    """Puts a statement where the first kernel begins."""
    return lambda text: text.replace("\n{\n", "\n{\n" + line + "\n", 1)


@pytest.fixture(scope="module")
def case() -> Case:
    return make_case(TASK, 0)


@pytest.fixture(scope="module")
def device_bench() -> DeviceBench:
    return DeviceBench()


@needs("opencl")
def test_a_right_candidate_is_timed(device_bench: DeviceBench, case: Case) -> None:
    result = device_bench.check_and_time(request(), built(), case)
    assert (result.status, result.error) == (Status.OK, "")
    assert len(result.times_s) == 2
    assert all(0 < t < 1 for t in result.times_s)


@needs("opencl")
def test_caches_are_flushed_between_calls(device_bench: DeviceBench, case: Case) -> None:
    cold = request(timing=dataclasses.replace(TIMING, foreign_bytes=1 << 20))
    assert device_bench.check_and_time(cold, built(), case).status is Status.OK


@needs("opencl")
def test_a_wrong_result_is_seen(device_bench: DeviceBench, case: Case) -> None:
    wrong = built(lambda text: text.replace(" * ", " + "))
    result = device_bench.check_and_time(request(), wrong, case)
    assert result.status is Status.WRONG_RESULT
    assert not result.times_s


@needs("opencl")
def test_a_write_outside_the_output_is_seen(device_bench: DeviceBench, case: Case) -> None:
    number = DeviceCode.decode(built().code).launches[0].args.index("o0")
    line = f"((__global float *)(m{number} + a{number}))[-1] = 1.0f;"
    result = device_bench.check_and_time(request(), built(first_line(line)), case)
    assert result.status is Status.WRONG_RESULT
    assert "bytes outside the output were overwritten" in result.error


@needs("opencl")
def test_code_that_the_driver_refuses_is_a_build_error(
    device_bench: DeviceBench, case: Case
) -> None:
    result = device_bench.check_and_time(request(), built(first_line("no code;")), case)
    assert result.status is Status.BUILD_ERROR
    assert "the OpenCL compiler refused the program" in result.error


def test_a_device_that_is_gone_is_lost(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: object) -> None:
        raise DeviceError("fell off the bus")

    monkeypatch.setattr(bench, "open_device", gone)
    result = DeviceBench().check_and_time(request(), built(), case)
    assert (result.status, result.error) == (Status.DEVICE_LOST, "fell off the bus")


@needs("opencl")
def test_a_device_that_computes_wrong_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    device = open_device(TARGET)
    monkeypatch.setattr(device, "launch", lambda *_: None)
    monkeypatch.setattr(bench, "open_device", lambda _: device)
    with pytest.raises(DeviceError, match="computes wrong results"):
        DeviceBench().open(TARGET)


def test_memory_keeps_what_is_put_there() -> None:
    device = device_of("opencl")
    memory = device.allocate(64)
    out = np.empty(64, np.uint8)
    device.fill(DeviceAddress(memory=memory), 64, 7)
    device.upload(DeviceAddress(memory=memory, offset_bytes=8), np.arange(4, dtype=np.float32))
    device.download(DeviceAddress(memory=memory), out)
    assert out[:8].tolist() == out[24:].tolist()[:8] == [7] * 8
    assert out[8:24].view(np.float32).tolist() == [0, 1, 2, 3]


@needs("opencl")
def test_devices_say_what_they_can_do() -> None:
    facts = DEVICES.get("opencl").find()[0]
    assert facts.kind == "opencl"
    assert facts.max_threads >= 1
    assert facts.memory_bytes > 1 << 20


def test_workers_get_what_a_target_needs_and_no_more() -> None:
    bounds = Sandbox()
    assert sandbox_for(load_target("x86-64-v3"), bounds) == bounds
    assert sandbox_for(load_target("c"), bounds) == dataclasses.replace(bounds, programs=True)
    assert sandbox_for(TARGET, bounds).programs
    cuda = sandbox_for(load_target("sm_80"), bounds)
    assert (cuda.programs, cuda.memory_bytes, cuda.filter_calls) == (False, 0, True)


@pytest.mark.slow
def test_hung_and_crashing_kernels_leave_the_device_usable() -> None:
    timing = dataclasses.replace(TIMING, run_timeout_s=4.0)
    endless = first_line("for (volatile int spin = 1; spin;) {}")
    crash = first_line("*(volatile __global int *)8 = 1;")
    requests = [request(timing=timing, built=built(c)) for c in (endless, str, crash, str)]
    with LocalRunner(TARGET) as runner:
        results = runner.measure(tuple(requests))
    statuses = [r.status for r in results]
    assert statuses == [Status.RUN_TIMEOUT, Status.OK, Status.RUN_CRASH, Status.OK]


@pytest.mark.slow
def test_a_device_is_measured_in_a_worker() -> None:
    with LocalRunner(TARGET) as runner:
        profile = runner.profile()
    assert profile.peak_flops > 1e8
    assert [level.name for level in profile.levels] == ["L2", "memory"]
    assert all(level.load_bytes_per_s > 1e7 for level in profile.levels)
    assert all(level.copy_bytes_per_s > 5e6 for level in profile.levels)
