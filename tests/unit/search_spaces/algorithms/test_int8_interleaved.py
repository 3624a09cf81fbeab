"""Tiles of points that are widened first: where they apply, how their weights lie, what memory
they may take."""

from __future__ import annotations

import numpy as np
import pytest

import cost_model
from autotune.machine import Machine
from autotune.program.packing import apply_pack
from autotune.schedule import apply_schedule
from autotune.target import load_target
from autotune.tasks.build import build_program
from autotune.types import Task
from search_spaces.algorithms.base import ON_CPUS
from search_spaces.cpu.contraction.shape import contraction_of
from search_spaces.params import Config
from search_spaces.rules import rule_for
from tests.unit.codegen.kernels import node, task, value

TARGET = load_target("cortex-m4")
NAME = "int8_interleaved"


def convolution(image: tuple[int, int, int], sums: int, side: int = 3, stride: int = 1) -> Task:
    rows, columns, channels = image
    pad = side // 2
    out = tuple((e + 2 * pad - side) // stride + 1 for e in (rows, columns))
    return task(
        [node("conv2d", "i0 c0", "o0", pads=(pad,) * 4, strides=(stride, stride))],
        value("i0", (1, *image), "uint8", ((0, 0), (pad, pad), (pad, pad), (0, 0))),
        value("c0", (side, side, channels, sums), "int8"),
        value("o0", (1, *out, sums), "int32"),
    )


TASKS = {
    "points of bytes": convolution((9, 8, 12), 6, side=1),
    "windows of bytes": convolution((24, 16, 8), 10),
    "windows of bytes at a stride": convolution((25, 17, 4), 4, stride=2),
    "columns of bytes": task(
        [node("conv2d", "i0 c0", "o0", strides=(2, 1))],
        value("i0", (1, 28, 5, 4), "uint8"),
        value("c0", (5, 1, 4, 6), "int8"),
        value("o0", (1, 12, 5, 6), "int32"),
    ),
}


def applies(made: Task, target: str = "cortex-m4") -> bool:
    found = ON_CPUS.applicable(made, contraction_of(made), load_target(target))
    return NAME in {a.name for a in found}


def test_it_is_for_even_channels_of_cores_that_multiply_halves_and_have_no_vectors() -> None:
    made = TASKS["windows of bytes"]
    assert all(applies(made, core) for core in ("cortex-m4", "cortex-m7", "cortex-m33"))
    assert not any(applies(made, core) for core in ("cortex-m55", "rv32imac", "x86-64-v3"))
    assert not applies(convolution((24, 16, 8), 9))


def default_of(made: Task) -> Config:
    return cost_model.default(made, Machine.of(TARGET), rule_for(made, TARGET))


@pytest.mark.parametrize("made", TASKS.values(), ids=TASKS)
def test_weights_of_two_channels_lie_in_turn_even_ones_before_odd_ones(made: Task) -> None:
    rule = rule_for(made, TARGET)
    chosen = dict(default_of(made).items) | {
        "algorithm": NAME, "vectors": 2, "lanes": 1, "order": "points_first", "unroll": 1,
    }  # fmt: skip
    schedule = rule.schedule(made, TARGET, Config(items=tuple(chosen.items())))
    (pack,) = apply_schedule(build_program(made), schedule).packs
    shape = made.value("c0").type.shape
    weights = np.arange(np.prod(shape)).reshape(shape)
    packed = apply_pack(pack, weights).reshape(-1, 8)
    first = weights.reshape(-1, shape[-1])[:4, :2]
    assert packed[0].tolist() == first[[0, 2, 1, 3]].reshape(-1).tolist()


def test_the_default_takes_it_where_points_meet_many_channels() -> None:
    assert default_of(convolution((16, 16, 32), 32))["algorithm"] == NAME
    assert default_of(convolution((16, 16, 32), 2, side=1))["algorithm"] == "int8"


def test_widened_points_take_little_beside_data_and_results() -> None:
    made = convolution((4, 4, 64), 64)
    space = rule_for(made, TARGET).space(made, TARGET)
    configs = space.configs(space.rows(5_000, np.random.default_rng(0)))
    assert not (configs["algorithm"] == NAME).any()
