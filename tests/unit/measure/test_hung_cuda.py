"""Hung kernels on a GPU: the worker goes, the device is tried, and lost if it stays away."""

from __future__ import annotations

import dataclasses

import pytest

import cost_model
from autotune.codegen import DeviceCode
from autotune.machine import Machine
from autotune.measure import batch
from autotune.measure.execute import build
from autotune.measure.runners.local import LocalRunner
from autotune.measure.sandbox import Sandbox
from autotune.measure.types import Built, MeasureRequest, Status, Timing
from autotune.target import load_target
from search_spaces.rules import rule_for
from tests.emulator.device import emulated_cuda
from tests.unit.codegen.kernels import matmul
from tests.unit.measure.hung_cuda import EMULATED, GONE

TARGET = load_target("sm_90a")
TASK = matmul(6, 8, 16)
TIMING = Timing(min_repeats=2, max_repeats=2, min_repeat_s=1e-6, budget_s=0.01)
HUNG = dataclasses.replace(TIMING, run_timeout_s=1.0)
COMPILER = Sandbox(programs=True)
"""The emulator is compiled when it is first needed."""
SPIN = "entry:\n  br label %spin\nspin:\n  br label %spin\nrest:\n"


def request(endless: bool = False) -> MeasureRequest:
    rule = rule_for(TASK, TARGET)
    schedule = rule.schedule(TASK, TARGET, cost_model.default(TASK, Machine.of(TARGET), rule))
    timing = HUNG if endless else TIMING
    made = MeasureRequest(task=TASK, schedule=schedule, target=TARGET, timing=timing)
    with emulated_cuda():
        built: Built = build(made)
    if not endless:
        return dataclasses.replace(made, built=built)
    code = DeviceCode.decode(built.code)
    text = code.text.decode().replace("entry:\n", SPIN, 1).encode()
    spinning = dataclasses.replace(built, code=dataclasses.replace(code, text=text).encode())
    return dataclasses.replace(made, built=spinning)


@pytest.mark.slow
def test_a_kernel_that_hangs_ends_with_its_worker_and_the_next_one_runs() -> None:
    with emulated_cuda(), LocalRunner(TARGET, executor=EMULATED, sandbox=COMPILER) as runner:
        hung, good = runner.measure((request(endless=True), request()))
    assert hung.status is Status.RUN_TIMEOUT
    assert (good.status, good.error) == (Status.OK, "")
    assert good.conditions == "1980/3201 MHz 41 C 120 W"


def test_a_device_that_does_not_come_back_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "PREPARE_TIMEOUT_S", 0.5)
    with emulated_cuda(), LocalRunner(TARGET, executor=GONE) as runner:
        (result,) = runner.measure((request(),))
    assert result.status is Status.DEVICE_LOST
    assert result.error.startswith("the device does not come back")
