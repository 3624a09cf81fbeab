"""Tiles of bytes whose rows were widened before: exact, by one routine for each number of rows, in
the order that the core begins instructions in."""

from __future__ import annotations

import dataclasses
import itertools
import re

import pytest

from autotune.codegen.c.dot_tile import DotTile, Side
from autotune.codegen.c.source import CSource
from autotune.codegen.c.widened_tile import is_widened, routine
from autotune.measure.build_task import build_task
from autotune.measure.simulator.executor import UnicornExecutor
from autotune.measure.types import MeasureRequest, MeasureResult, Status, Timing
from autotune.schedule import Schedule
from autotune.target import SOURCE, Target, load_target
from autotune.types import Task
from tests.needs import needs
from tests.unit.codegen.test_dot_tile import schedule_of
from tests.unit.search_spaces.algorithms.test_int8_interleaved import TASKS, convolution

CORES = ("cortex-m4", "cortex-m7", "cortex-m33")
TILE = {"algorithm": "int8_interleaved", "vectors": 2, "order": "points_first"}


def text_of(made: Task, schedule: Schedule, target: Target) -> str:
    source = CSource.decode(
        build_task(made, schedule, dataclasses.replace(target, arch=SOURCE)).code
    )
    return "\n".join([*source.head, *source.body])


def ran(made: Task, schedule: Schedule, target: Target) -> MeasureResult:
    asked = MeasureRequest(task=made, schedule=schedule, target=target, timing=Timing())
    executor = UnicornExecutor()
    return executor.check_and_time(asked, executor.build(asked))


@needs("cortex-m")
@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize(
    ("channels", "rows"), [(8, 4), (12, 4), (20, 3), (64, 3), (16, 2), (4, 2)]
)
def test_any_number_of_words_and_rows_is_exact(core: str, channels: int, rows: int) -> None:
    """With a rest of the rows, which is a tile of fewer."""
    made, target = convolution((9, 8, channels), 16, side=1), load_target(core)
    schedule = schedule_of(made, **TILE, tile_h=rows, tile_w=1)
    text = text_of(made, schedule, target)
    entry = channels // 4 % 4
    called = {f"{high}x2_{entry}" for high in (rows, 9 % rows) if high}
    assert set(re.findall(r"bl dot_(\w+)", text)) == called
    result = ran(made, schedule, target)
    assert (result.status, result.error, result.max_error) == (Status.OK, "", 0)


@needs("cortex-m")
@pytest.mark.parametrize("stride", [1, 2])
def test_rows_of_a_window_are_widened_one_after_the_other(stride: int) -> None:
    made, target = convolution((16, 8, 8), 6, stride=stride), load_target("cortex-m4")
    schedule = schedule_of(made, **TILE, tile_h=1, tile_w=4)
    text = text_of(made, schedule, target)
    assert re.search(r"n < 3; n\+\+\) \{\s*widened_4_u8", text)
    result = ran(made, schedule, target)
    assert (result.status, result.error, result.max_error) == (Status.OK, "", 0)


@needs("cortex-m")
def test_columns_of_a_window_are_one_run_of_words_that_lie_apart() -> None:
    made, target = TASKS["columns of bytes"], load_target("cortex-m4")
    schedule = schedule_of(made, **TILE, tile_h=4, tile_w=1)
    text = text_of(made, schedule, target)
    assert re.search(r"widened_4_u8\(.*, 5, 20\);", text)
    result = ran(made, schedule, target)
    assert (result.status, result.error, result.max_error) == (Status.OK, "", 0)


@needs("cortex-m")
def test_a_product_takes_less_than_a_cycle_and_a_third() -> None:
    """Of 288 products for each sum: 1.1 in the routine, the rest around it."""
    made, target = convolution((16, 16, 32), 32), load_target("cortex-m4")
    schedule = schedule_of(made, **TILE, tile_h=4, tile_w=1)
    result = ran(made, schedule, target)
    assert float(result.conditions.split()[-2]) < 1.33 * 16 * 16 * 32 * 288


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_the_order_alone_differs_where_loads_begin_beside_others(rows: int) -> None:
    """A load never follows another one there but for those that a word begins with."""
    two = "ldr r12, [r6], #4\nldr lr, [r6], #4"
    in_a_row, apart = (
        routine(rows, pairs).replace("ldm r6!, {r12, lr}", two) for pairs in (False, True)
    )
    lines = [re.findall(r"[a-z]\w+ [^\\\n]+", text) for text in (in_a_row, apart)]
    assert sorted(lines[0]) == sorted(lines[1])

    def neighbours(found: list[str]) -> int:
        pairs = itertools.pairwise(found)
        return sum("ldr " in before and "ldr " in after for before, after in pairs)

    assert neighbours(lines[1]) <= neighbours(lines[0])
    assert neighbours(lines[1]) == 8


def test_other_tiles_are_none_of_it() -> None:
    rows = Side(pointer="x", kind="u8", dtype="uint8", offsets=(0, 64, 128), step=4)
    columns = Side(pointer="w", kind="i8", dtype="int8", offsets=(0, 1), step=8, in_turn=2)
    tile = DotTile(rows=rows, columns=columns, sums=(("a", "b"),) * 3, words=4)
    assert is_widened(tile)
    uneven = dataclasses.replace(rows, offsets=(0, 64, 192))
    apart = dataclasses.replace(columns, in_turn=1, offsets=(0, 4))
    runs = dataclasses.replace(columns, run_step=64)
    assert not is_widened(dataclasses.replace(tile, rows=uneven))
    assert not is_widened(dataclasses.replace(tile, columns=apart))
    assert not is_widened(dataclasses.replace(tile, columns=dataclasses.replace(columns, step=16)))
    assert not is_widened(dataclasses.replace(tile, columns=runs, runs=3))
    assert tile.lines() is None
