"""Limits of devices: targets that have them, spaces within them, code that goes beyond."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import cost_model
from autotune.codegen import DeviceCode, backend_for
from autotune.errors import BuildError
from autotune.machine import Machine
from autotune.measure.devices import DEVICES, DeviceFacts, open_device
from autotune.measure.devices.profile import fitted
from autotune.program.launch import launches
from autotune.schedule import apply_schedule
from autotune.target import Target, load_target
from autotune.tasks.build import build_program
from search_spaces.rules import RULES, Rule
from tests.contracts.test_rules import TASKS
from tests.interpreter.parse import parse_program
from tests.needs import needs

OPENCL, CUDA = load_target("opencl"), load_target("cuda")
SMALL = DeviceFacts(
    kind="opencl", name="small", arch="gpu", driver="1", memory_bytes=1 << 28, multiprocessors=2,
    max_threads=64, shared_bytes=16 << 10, clock_hz=5e8, warp=16, vector_bytes=4,
)  # fmt: skip
WIDE = dataclasses.replace(SMALL, max_threads=1024, shared_bytes=64 << 10, warp=64)
ODD = dataclasses.replace(SMALL, max_threads=96, warp=0, arch="cpu", vector_bytes=32)
WIDE_BLOCK = """program p
param o0: float32[THREADS] written
for b in 1 block.x:
  alloc s: float32[SHARED] shared:
    for t in THREADS thread.x:
      s[t] = float32(1.0)
    barrier
    for u in THREADS thread.x:
      o0[u] = s[u]
"""


def test_an_opencl_device_says_what_its_limits_are() -> None:
    target = fitted(OPENCL, SMALL)
    assert (target.warp, target.max_threads, target.shared_bytes) == (16, 64, 16 << 10)
    assert (target.multiprocessors, target.cores) == (2, 2)
    assert target.vector_bytes == OPENCL.vector_bytes
    assert target.key == OPENCL.key
    silent = dataclasses.replace(ODD, max_threads=0, shared_bytes=0)
    assert fitted(OPENCL, silent).max_threads == OPENCL.max_threads


def test_a_processor_has_vectors() -> None:
    assert fitted(OPENCL, dataclasses.replace(ODD, warp=1)).vector_bytes == 32


def test_a_gpu_of_cuda_has_what_its_generation_has_at_most() -> None:
    facts = dataclasses.replace(SMALL, kind="cuda", max_threads=2048, shared_bytes=99 << 10)
    target = fitted(CUDA, dataclasses.replace(facts, warp=32))
    assert (target.max_threads, target.shared_bytes, target.multiprocessors) == (1024, 99 << 10, 2)


def test_tuning_keeps_to_the_limits_of_a_device_of_the_same_kind() -> None:
    device = fitted(OPENCL, SMALL)
    assert OPENCL.within(device).max_threads == 64
    assert CUDA.within(device) == CUDA
    cpu = load_target("x86-64-v3")
    assert cpu.within(cpu.with_threads(2)) == cpu


@pytest.mark.parametrize("facts", [SMALL, WIDE, ODD], ids=["small", "wide", "odd"])
@pytest.mark.parametrize("rule", [r for r in RULES.parts() if r.name.startswith("gpu")],
                         ids=lambda r: r.name)  # fmt: skip
def test_what_spaces_hold_fits_the_device(rule: Rule, facts: DeviceFacts) -> None:
    target = fitted(OPENCL, facts)
    fitting = [made for made in TASKS.values() if rule.matches(made, target)]
    assert fitting
    for made in fitting[::5]:
        space = rule.space(made, target)
        rows = space.sample(np.random.default_rng(0), 2)
        for config in (
            cost_model.default(made, Machine.of(target), rule),
            *map(space.config, rows),
        ):
            schedule = rule.schedule(made, target, config)
            for launch in launches(apply_schedule(build_program(made), schedule)):
                assert launch.threads <= facts.max_threads
                assert launch.shared_bytes <= facts.shared_bytes


def loaded(threads: int, shared: int) -> None:
    text = WIDE_BLOCK.replace("THREADS", str(threads)).replace("SHARED", str(shared))
    code = backend_for(OPENCL).build(parse_program(text), OPENCL, "k").code
    open_device(OPENCL).load(DeviceCode.decode(code))


@needs("opencl")
def test_code_for_a_larger_device_is_refused_when_it_is_loaded() -> None:
    facts = DEVICES.get("opencl").find()[0]
    loaded(64, 64)
    with pytest.raises(BuildError, match=f"a block of {2 * facts.max_threads} threads"):
        loaded(2 * facts.max_threads, 2 * facts.max_threads)
    with pytest.raises(BuildError, match="bytes of shared memory"):
        loaded(64, facts.shared_bytes)


@needs("opencl")
def test_the_device_that_is_here_is_described() -> None:
    facts = DEVICES.get("opencl").find()[0]
    target: Target = fitted(OPENCL, facts)
    assert target.max_threads == facts.max_threads > 1
    assert target.warp >= 1
    assert target.vector_bytes >= 4
