"""Tiles of bytes whose rows were widened before: exact, by one routine in the order that the core
begins instructions in."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from autotune.codegen.c.source import CSource
from autotune.codegen.c.widened_tile import routine
from autotune.measure.build_task import build_task
from autotune.measure.simulator.executor import UnicornExecutor
from autotune.measure.types import MeasureRequest, Status, Timing
from autotune.schedule import Schedule
from autotune.target import SOURCE, Target, load_target
from autotune.types import Task
from tests.needs import needs
from tests.unit.codegen.kernels import node, task, value
from tests.unit.codegen.test_dot_tile import schedule_of

CORES = ("cortex-m4", "cortex-m7", "cortex-m33")


def products(channels: int, points: tuple[int, int] = (6, 9), sums: int = 16) -> Task:
    rows, columns = points
    return task(
        [node("conv2d", "i0 c0", "o0")],
        value("i0", (1, rows, columns, channels), "uint8"),
        value("c0", (1, 1, channels, sums), "int8"),
        value("o0", (1, rows, columns, sums), "int32"),
    )


def text_of(made: Task, schedule: Schedule, target: Target) -> str:
    source = CSource.decode(
        build_task(made, schedule, dataclasses.replace(target, arch=SOURCE)).code
    )
    return "\n".join([*source.head, *source.body])


@needs("cortex-m")
@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("channels", [8, 12, 20, 64])
def test_odd_and_even_numbers_of_words_are_exact(core: str, channels: int) -> None:
    made, target = products(channels), load_target(core)
    schedule = schedule_of(made, vectors=2, tile_w=3, tile_h=1)
    assert f"bl dot_3x2_{channels // 4 % 2}" in text_of(made, schedule, target)
    asked = MeasureRequest(task=made, schedule=schedule, target=target, timing=Timing())
    executor = UnicornExecutor()
    result = executor.check_and_time(asked, executor.build(asked))
    assert (result.status, result.error, result.max_error) == (Status.OK, "", 0)


def test_the_order_alone_differs_where_loads_begin_beside_others() -> None:
    """A load never follows another one there but for those that a word begins with."""
    in_a_row, apart = (routine(pairs).splitlines() for pairs in (False, True))
    assert sorted(in_a_row) == sorted(apart)
    assert in_a_row != apart

    def neighbours(lines: list[str]) -> int:
        pairs = itertools.pairwise(lines)
        return sum("ldr " in before and "ldr " in after for before, after in pairs)

    assert neighbours(in_a_row) == 13
    assert neighbours(apart) == 4


def test_few_columns_are_not_worth_widened_rows() -> None:
    made = products(64, sums=2)
    target = load_target("cortex-m4")
    schedule = schedule_of(made, vectors=2, tile_w=3, tile_h=1)
    assert "bl dot_3x2" not in text_of(made, schedule, target)
