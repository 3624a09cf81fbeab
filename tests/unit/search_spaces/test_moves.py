"""Kernels that hardly compute: data moved in runs, tiles turned, sums over far rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import cost_model
from autotune.machine import Machine
from autotune.program.ir import For, walk
from autotune.schedule import apply_schedule
from autotune.target import Target, host_target
from autotune.tasks.build import build_program
from autotune.tasks.evaluate import evaluate_task
from autotune.tasks.inputs import random_inputs
from autotune.types import Attr, Layout, Task, TaskValue, TensorType
from search_spaces.rules import rule_for
from tests.unit.codegen.kernels import assert_close, node, run_kernel, task, value


def blocks_to_channels(block: int) -> Task:
    """Space to depth as a view is read: every `block`-th element of an image's rows."""
    size = 16 * block
    shape = (1, block, block, 3, 16, 16)
    strides = (block * size, size, 1, size * size, block * size, block)
    image = TaskValue(
        name="i0",
        type=TensorType(dtype="float32", shape=shape),
        role="input",
        layout=replace(Layout.dense(shape), strides=strides),
    )
    channels = (1, 3 * block * block, 16, 16)
    return task([node("reshape", "i0", "o0", shape=channels)], image, value("o0", channels))


def moved(op: str, shape: tuple[int, ...], result: tuple[int, ...], **attrs: Attr) -> Task:
    return task([node(op, "i0", "o0", **attrs)], value("i0", shape), value("o0", result))


def checked(made: Task, target: Target) -> list[str]:
    """Runs every config and compares the results; gives the loops of the default."""
    rule, arrays = rule_for(made, target), random_inputs(made, 0)
    space = rule.space(made, target)
    for config in map(space.config, space.rows(100, np.random.default_rng(0))):
        program = apply_schedule(build_program(made), rule.schedule(made, target, config))
        assert_close(run_kernel(made, program, target, arrays), evaluate_task(made, arrays), 1e-4)
    default = cost_model.default(made, Machine.of(target), rule)
    program = rule.write(made, target, default).program
    return [s.var for s in walk(program.body) if isinstance(s, For)]


@pytest.mark.parametrize("threads", [1, 2])
def test_heads_are_taken_apart_in_the_order_they_are_read(threads: int) -> None:
    made = moved("transpose", (1, 9, 4, 32), (1, 4, 9, 32), perm=(0, 2, 1, 3))
    loops = checked(made, host_target(threads))
    assert threads > 1 or loops.index("o0_d2") < loops.index("o0_d1")


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("block", [2, 4])
def test_blocks_of_space_are_moved_from_the_same_vectors(block: int, threads: int) -> None:
    loops = checked(blocks_to_channels(block), host_target(threads))
    assert threads > 1 or loops[-2].startswith("o0_d1_d")


@pytest.mark.parametrize("shape", [(40, 40), (37, 90), (100, 23), (64, 48), (8, 40)])
def test_tiles_are_turned_in_groups_and_their_ends_alone(shape: tuple[int, int]) -> None:
    checked(moved("transpose", shape, shape[::-1], perm=(1, 0)), host_target(1))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("op", ["reduce_sum", "reduce_mean", "reduce_max"])
@pytest.mark.parametrize("shape", [(64, 64), (37, 70)])
def test_far_rows_are_joined_as_they_lie(shape: tuple[int, int], op: str, threads: int) -> None:
    target = replace(host_target(threads), l2_bytes=4096)
    made = moved(op, shape, shape[1:], axes=(0,), keepdims=False)
    assert rule_for(made, target).name == "row_sums"
    checked(made, target)
