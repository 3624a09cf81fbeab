"""Scatters: every way to share them out, places of any kind, what the default takes."""

from __future__ import annotations

import numpy as np
import pytest

import cost_model
from autotune.machine import Machine
from autotune.ops import OPS
from autotune.schedule import apply_schedule
from autotune.target import Target, host_target, load_target
from autotune.tasks.build import build_program
from autotune.tasks.evaluate import evaluate_task
from autotune.tasks.inputs import random_inputs
from autotune.types import Array, Task
from search_spaces.params import Config
from search_spaces.rules import rule_for
from tests.contracts.test_rules import scatter
from tests.unit.codegen.kernels import assert_close, run_kernel

MANY = scatter((50, 70), (300, 1), (300, 70))
THREADS = host_target(2)


def ways(made: Task, target: Target) -> tuple[object, ...]:
    space = rule_for(made, target).space(made, target)
    return next(p.choices for p in space.params if p.name == "by")


def result(made: Task, target: Target, by: str, arrays: dict[str, Array]) -> Array:
    rule = rule_for(made, target)
    other = ("threads", 64) if target.is_gpu else ("unroll", 2)
    schedule = rule.schedule(made, target, Config((other, ("by", by))))
    return run_kernel(made, apply_schedule(build_program(made), schedule), target, arrays)


@pytest.mark.parametrize("by", ["alone", "columns", "places"])
@pytest.mark.parametrize("reduction", ["none", "add", "max"])
def test_threads_share_updates_in_every_way(by: str, reduction: str) -> None:
    made = scatter((50, 70), (300, 1), (300, 70), reduction)
    arrays = random_inputs(made, 3)
    for _ in range(5):
        assert_close(result(made, THREADS, by, arrays), evaluate_task(made, arrays))


@pytest.mark.parametrize("name", ["x86-64-v3", "opencl"])
def test_nothing_outside_is_written_wherever_places_are(name: str) -> None:
    target = load_target(name)
    arrays = random_inputs(MANY, 0)
    wild = np.random.default_rng(1).integers(-(1 << 31), 1 << 31, (300, 1))
    wild[:4, 0] = (-1, -51, 50, -(1 << 31))
    arrays["i1"] = wild
    for by in ways(MANY, target):
        assert_close(result(MANY, target, str(by), arrays), evaluate_task(MANY, arrays))


def test_sums_are_those_of_float64() -> None:
    arrays = random_inputs(MANY, 0)
    x, places, updates = (arrays[f"i{k}"] for k in range(3))
    want = x.astype(np.float64)
    for place, row in zip(places[:, 0], updates, strict=True):
        want[place] += row  # numpy counts from the end too
    assert_close(result(MANY, host_target(1), "alone", arrays), want)


def test_the_last_of_equal_places_stays() -> None:
    x, updates = np.zeros((3, 1)), np.arange(1.0, 6.0).reshape(5, 1)
    places = np.array([0, 2, 0, -1, 0]).reshape(5, 1)
    got = OPS.get("scatter").reference([x, places, updates], {"reduction": "none"})
    assert got.ravel().tolist() == [5, 0, 4]


def test_wide_updates_are_divided_by_columns() -> None:
    wide = scatter((64, 512), (2000, 1), (2000, 512))
    assert cost_model.default(wide, Machine.of(THREADS))["by"] == "columns"


def test_one_thread_has_one_way() -> None:
    assert ways(MANY, host_target(1)) == ("alone",)
