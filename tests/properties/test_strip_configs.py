"""Strips of open tasks by drawn schedules, in every precision: right at all sizes, or refused."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import assume, given, seed, settings
from hypothesis import strategies as st

from autotune.compiler.open_sizes import OpenParts
from autotune.compiler.strip_lengths import strip_lengths
from autotune.errors import ScheduleError
from autotune.frontend import open_model
from autotune.graph.ir import Graph
from autotune.size_ranges import size_ranges
from autotune.sizes import value_at
from autotune.target import Target, host_target, load_target
from autotune.tasks.at_sizes import of_some, task_at, task_symbols
from autotune.tasks.evaluate import evaluate_task
from autotune.tasks.inputs import random_inputs
from autotune.tasks.joined import as_few
from autotune.tasks.samples import sample_task
from autotune.tasks.strips import check_strips, in_strips
from autotune.types import Task
from search_spaces.algorithms.base import DIRECT, algorithm_of
from search_spaces.rules import rules_for
from tests.unit.codegen.kernels import run_kernel
from tests.unit.compiler.open_models import attention, convolutions, detector, windows

IMAGES = {"N": (1, 3), "H": (8, 64, 4), "W": (8, 64, 4)}
MODELS = (
    (convolutions, IMAGES),
    (detector, IMAGES),
    (windows, IMAGES),
    (attention, {"B": (1, 4), "S": (1, 40)}),
)
TOLERANCE = {"float32": 2e-4, "bfloat16": 0.03, "int8": 2e-3}
"""Of the largest value; of bytes, one more."""
DRAWS = 60


@functools.cache
def targets() -> tuple[Target, ...]:
    named = (host_target(), load_target("x86-64-v3"))
    return tuple(t.with_precision(p) for t in named for p in TOLERANCE)


@functools.cache
def opened(model: int, target: Target) -> tuple[OpenParts, tuple[Task, ...]]:
    """A model's tasks that strips may serve."""
    made, ranges = MODELS[model]
    read = open_model(made())
    assert not isinstance(read, Graph)
    parts = OpenParts.of(read, size_ranges(ranges, read.symbols), target, None)
    tasks = []
    for task in parts.parts.weights():
        few = as_few(of_some(task))
        try:
            check_strips(few)
        except ScheduleError:
            continue
        tasks.append(few)
    return parts, tuple(tasks)


def check(model: int, target: Target, draw: np.random.Generator) -> None:
    parts, tasks = opened(model, target)
    task = tasks[draw.integers(len(tasks))]
    lengths = list(strip_lengths(task, 12, parts.machine_of(task)))
    rules = list(rules_for(task_at(task, dict.fromkeys(parts.sizes, 9)), target))
    rule = rules[draw.integers(len(rules))]
    try:
        small = sample_task(task, lengths[draw.integers(len(lengths))], parts.sizes)
        space = rule.space(small, target)
        config = space.config(space.sample(draw, 1)[0])
        made = rule.write(small, target, config)
        placed = algorithm_of(made.schedule)[1] != DIRECT
        program = in_strips(made.program, task, small, apart=bool(draw.integers(2)), placed=placed)
    except ScheduleError:
        assume(False)
    (least,) = small.by_role("output")
    symbols = sorted(task_symbols(task), key=lambda s: s.name)
    for _ in range(8):
        sizes = {s.name: int(draw.integers(s.low, min(s.high, s.low + 40) + 1)) for s in symbols}
        (output,) = task.by_role("output")
        shape = tuple(value_at(extent, sizes) for extent in output.type.shape)
        if any(extent < length for extent, length in zip(shape, least.type.shape, strict=True)):
            continue
        there = task_at(task, sizes)
        arrays = random_inputs(there, 3)
        want, got = evaluate_task(there, arrays), run_kernel(there, program, target, arrays, sizes)
        bytes_ = want.dtype.kind in "iu"
        near = 1.01 if bytes_ else TOLERANCE[target.precision] * max(1e-6, np.abs(want).max())
        assert np.abs(want.astype(np.float64) - got).max() <= near, (task, config, sizes)
        return
    assume(False)


@settings(max_examples=DRAWS)
@seed(0)
@given(st.integers(0, len(MODELS) - 1), st.integers(0, 5), st.integers(0, 1 << 30))
def test_drawn_schedules_are_right_in_strips(model: int, target: int, drawn: int) -> None:
    check(model, targets()[target], np.random.default_rng(drawn))


@pytest.mark.slow
@settings(max_examples=20 * DRAWS)
@seed(1)
@given(st.integers(0, len(MODELS) - 1), st.integers(0, 5), st.integers(0, 1 << 30))
def test_many_drawn_schedules_are_right_in_strips(model: int, target: int, drawn: int) -> None:
    check(model, targets()[target], np.random.default_rng(drawn))
