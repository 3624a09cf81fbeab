"""Tiles of products of bytes on a simulated Cortex-M4: exact, in loops of the instructions that
they are counted by."""

from __future__ import annotations

import dataclasses
import re

import pytest

import cost_model
from autotune.codegen.c.dot_tile import REGISTERS, DotTile, Side
from autotune.codegen.c.source import CSource
from autotune.machine import Machine
from autotune.measure.build_task import build_task
from autotune.measure.simulator.executor import UnicornExecutor
from autotune.measure.types import MeasureRequest, Status, Timing
from autotune.schedule import Schedule
from autotune.target import SOURCE, load_target
from autotune.types import Task
from search_spaces.params import Config
from search_spaces.rules import rule_for
from tests.needs import needs
from tests.unit.codegen.kernels import node, task, value

TARGET = load_target("cortex-m4")
POINTWISE = task(
    [node("conv2d", "i0 c0", "o0")],
    value("i0", (1, 6, 8, 64), "uint8"),
    value("c0", (1, 1, 64, 8), "int8"),
    value("o0", (1, 6, 8, 8), "int32"),
)
WINDOW = task(
    [node("conv2d", "i0 c0", "o0", pads=(1, 1, 1, 1), strides=(2, 2))],
    value("i0", (1, 9, 7, 8), "uint8", ((0, 0), (1, 1), (1, 1), (0, 0))),
    value("c0", (3, 3, 8, 7), "int8"),
    value("o0", (1, 5, 4, 7), "int32"),
)
SHORT_ROWS = task(
    [node("conv2d", "i0 c0", "o0", pads=(1, 1, 1, 1))],
    value("i0", (1, 6, 5, 4), "uint8", ((0, 0), (1, 1), (1, 1), (0, 0))),
    value("c0", (3, 3, 4, 6), "int8"),
    value("o0", (1, 6, 5, 6), "int32"),
)
REQUANTIZED = task(
    [
        node("conv2d", "i0 c0", "t0"),
        node("requantize", "t0 c1 c2", "t1", least_shift=32, rounding="twice"),
        node("clip", "t1", "t2", min=0, max=255),
        node("to_uint8", "t2", "o0"),
    ],
    value("i0", (1, 3, 4, 12), "uint8"),
    value("c0", (1, 1, 12, 6), "int8"),
    value("c1", (6,), "int32"),
    value("c2", (6,), "int32"),
    value("t0", (1, 3, 4, 6), "int32"),
    value("t1", (1, 3, 4, 6), "int32"),
    value("t2", (1, 3, 4, 6), "int32"),
    value("o0", (1, 3, 4, 6), "uint8"),
)


def schedule_of(made: Task, **params: int | str) -> Schedule:
    """The default of tiles that are loops of their own, but for some params."""
    rule = rule_for(made, TARGET)
    default = dict(cost_model.default(made, Machine.of(TARGET), rule).items)
    config = default | {"algorithm": "int8"} | params
    return rule.schedule(made, TARGET, Config(items=tuple(config.items())))


def text_of(made: Task, schedule: Schedule) -> str:
    built = build_task(made, schedule, dataclasses.replace(TARGET, arch=SOURCE))
    source = CSource.decode(built.code)
    return "\n".join([*source.head, *source.body])


@needs("cortex-m")
@pytest.mark.parametrize(
    ("made", "vectors", "tile_w", "tile_h"),
    [
        (POINTWISE, 2, 3, 1), (POINTWISE, 3, 2, 1), (POINTWISE, 1, 4, 2), (POINTWISE, 4, 1, 1),
        (WINDOW, 2, 1, 3), (WINDOW, 1, 4, 1), (SHORT_ROWS, 2, 1, 3),
        (SHORT_ROWS, 1, 4, 1), (REQUANTIZED, 2, 1, 3), (REQUANTIZED, 4, 1, 1),
    ],
)  # fmt: skip
def test_tiles_of_any_shape_are_exact(made: Task, vectors: int, tile_w: int, tile_h: int) -> None:
    """With ends that are no whole tiles, and windows whose rows are runs of their own."""
    schedule = schedule_of(made, vectors=vectors, tile_w=tile_w, tile_h=tile_h)
    assert "smlad %[s0_0]" in text_of(made, schedule)
    asked = MeasureRequest(task=made, schedule=schedule, target=TARGET, timing=Timing())
    executor = UnicornExecutor()
    result = executor.check_and_time(asked, executor.build(asked))
    assert (result.status, result.error) == (Status.OK, "")
    assert result.max_error == 0


@needs("cortex-m")
def test_a_product_takes_less_than_two_instructions() -> None:
    """Of 64 products for each sum: 1.25 in the loop, the rest around it."""
    schedule = schedule_of(POINTWISE, vectors=2, tile_w=1, tile_h=3)
    asked = MeasureRequest(task=POINTWISE, schedule=schedule, target=TARGET, timing=Timing())
    executor = UnicornExecutor()
    result = executor.check_and_time(asked, executor.build(asked))
    products = 6 * 8 * 8 * 64
    assert float(result.conditions.split()[-2]) < 1.75 * products


def test_rows_of_a_window_are_one_run() -> None:
    text = text_of(WINDOW, schedule_of(WINDOW, vectors=2, tile_w=1, tile_h=3))
    assembler = re.sub(r"#else.*?#endif", "", text, flags=re.DOTALL)
    loops = re.findall(r"for \(ix (\w+)", assembler)
    assert any("_kh" in name for name in loops)
    assert not any("_kw" in name or "pairs" in name for name in loops)


def test_short_rows_of_a_window_are_written_out_in_one_loop() -> None:
    text = text_of(SHORT_ROWS, schedule_of(SHORT_ROWS, vectors=2, tile_w=1, tile_h=3))
    assembler = re.sub(r"#else.*?#endif", "", text, flags=re.DOTALL)
    assert ".rept 3" in assembler
    assert not re.search(r"for \(ix \w*_k[hw]", assembler)


def side(count: int, apart: int, step: int = 4, dtype: str = "uint8") -> Side:
    offsets = tuple(n * apart for n in range(count))
    return Side(pointer="p", kind="u8", dtype=dtype, offsets=offsets, step=step)


def tile(rows: Side, columns: Side, words: int = 16) -> DotTile:
    sums = tuple(
        tuple(f"s{r}{c}" for c in range(len(columns.offsets))) for r in range(len(rows.offsets))
    )
    return DotTile(rows=rows, columns=columns, sums=sums, words=words)


@pytest.mark.parametrize(("rows", "columns"), [(3, 2), (2, 3), (8, 1), (1, 4), (2, 2), (1, 1)])
def test_registers_suffice(rows: int, columns: int) -> None:
    """Operands of the assembler that must be registers."""
    lines = tile(side(rows, 64), side(columns, 4, step=4 * columns)).lines()
    assert lines is not None
    given = "\n".join(x for x in lines if x.strip().startswith(":"))
    assert len(re.findall(r'"(?:\+r|=&r|r)"', given)) <= REGISTERS


@pytest.mark.parametrize(
    ("rows", "columns"),
    [(side(4, 64), side(2, 4, 8)), (side(2, 4104), side(2, 4, 8)), (side(2, 64, 256), side(1, 4))],
)
def test_what_no_register_or_load_can_hold_is_left_to_the_compiler(
    rows: Side, columns: Side
) -> None:
    """Eight sums by pairs; a row further away than a load reaches; words too far apart."""
    assert tile(rows, columns).lines() is None
