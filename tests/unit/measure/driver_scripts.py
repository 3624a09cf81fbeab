"""What processes on a machine with an emulated GPU do; each prints what it saw.

Run as `python -m tests.unit.measure.driver_scripts NAME`, see `test_cuda_driver.py`.
"""

from __future__ import annotations

import ctypes
import dataclasses
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import cost_model
from autotune.codegen.base import DeviceCode
from autotune.compiler.driver import compile_graph
from autotune.errors import AutotuneError
from autotune.frontend import load_model
from autotune.graph.interp import run_graph
from autotune.machine import Machine
from autotune.measure import batch
from autotune.measure.devices import DeviceAddress, open_device
from autotune.measure.devices.cuda import locked_clocks
from autotune.measure.execute import build
from autotune.measure.runners.local import LocalRunner, device_name
from autotune.measure.types import MeasureRequest, Timing
from autotune.runtime.model import random_feeds
from autotune.target import Target, load_target
from search_spaces.rules import rule_for
from tests.emulator.driver import break_down
from tests.unit.codegen.kernels import matmul

TARGET = load_target("sm_90a")
TASK = matmul(6, 8, 16)
ONCE = Timing(min_repeats=2, max_repeats=2, min_repeat_s=1e-6, budget_s=0.01, run_timeout_s=3.0)


def request(target: Target = TARGET) -> MeasureRequest:
    rule = rule_for(TASK, target)
    schedule = rule.schedule(TASK, target, cost_model.default(TASK, Machine.of(target), rule))
    return MeasureRequest(task=TASK, schedule=schedule, target=target, timing=ONCE)


def counts() -> list[int]:
    """Launches, replays, bytes, contexts."""
    out = (ctypes.c_int64 * 4)()
    ctypes.CDLL("libcuda.so.1").emulated_counts(out)
    return list(out)


def said(work: Callable[[], object]) -> str:
    """The error of what cannot be done."""
    try:
        return str(work())
    except AutotuneError as error:
        return f"{type(error).__name__}: {error}"


def data() -> None:
    device = open_device(TARGET)
    array, back = np.arange(8, dtype=np.float32), np.zeros(16, np.float32)
    memory = device.allocate(64)
    device.upload(DeviceAddress(memory=memory, offset_bytes=32), array)
    device.fill(DeviceAddress(memory=memory), 32, 0)
    device.download(DeviceAddress(memory=memory), back)
    print(back.tolist())
    print(device.conditions())
    print(said(partial(device.upload, DeviceAddress(memory=memory, offset_bytes=112), array)))
    print(said(lambda: device.allocate(1 << 40)))
    code = dataclasses.replace(DeviceCode.decode(build(request()).code), text=b"nothing")
    print(said(lambda: device.load(code)))
    del memory
    device.close()
    print(counts())


def threads() -> None:
    """A device is opened in one thread, used and given back in others."""
    device = open_device(TARGET)
    errors: list[Exception] = []

    def work() -> None:
        try:
            memory = device.allocate(64)
            device.upload(DeviceAddress(memory=memory), np.zeros(4, np.float32))
        except AutotuneError as error:
            errors.append(error)

    for _ in range(2):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    print(errors, counts()[2])


def opened(name: str) -> None:
    """A device that is not there, or has no memory."""
    print(said(lambda: open_device(load_target(name)).allocate(1 << 20)))


def chosen(name: str) -> None:
    """A candidate on a machine with several GPUs."""
    target = load_target(name)
    print(device_name(target).partition("/")[2])
    with LocalRunner(target) as runner, locked_clocks(target):
        patient = dataclasses.replace(ONCE, run_timeout_s=60.0)
        (result,) = runner.measure((dataclasses.replace(request(target), timing=patient),))
    print(result.error or result.conditions)


def locked(name: str) -> None:
    """Holds clocks until it is killed."""
    with locked_clocks(load_target(name)) as why:
        print(why, flush=True)
        sys.stdin.read()


def model() -> None:
    """A network through compiling, the pool, graphs; replayed."""
    graph = load_model("zoo:tiny")
    compiled = compile_graph(graph, TARGET.with_precision("bf16"), processes=1)
    for seed in (0, 1):
        feeds = random_feeds(compiled.inputs, seed)
        got, want = compiled.run(feeds)["y"], run_graph(graph, feeds)["y"]
        print(float(np.max(np.abs(got - want)) / np.max(np.abs(want))) < 3e-2)
    print(compiled.bench(2).median_s > 0)
    launched, replayed, _, _ = counts()
    print(launched > 4 * len(compiled.image.kernels), replayed >= 4)


def faults(folder: str) -> None:
    """One candidate after the other, while the GPU breaks down and comes back."""
    batch.PREPARE_TIMEOUT_S = 3.0
    with LocalRunner(TARGET) as runner:
        for fault in ("", "illegal", "", "endless", "hung", "lost", "none", ""):
            break_down(Path(folder), fault)
            (result,) = runner.measure((request(),))
            print(fault, result.status.name, result.error, result.conditions)


if __name__ == "__main__":
    {f.__name__: f for f in (data, threads, model, faults, opened, chosen, locked)}[sys.argv[1]](
        *sys.argv[2:]
    )
