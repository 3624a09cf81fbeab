"""Depthwise convolutions of bytes on a simulated Cortex-M4: exact, in few cycles, weights loaded
once for a channel."""

from __future__ import annotations

import pytest

from autotune.measure.simulator.executor import UnicornExecutor
from autotune.measure.types import MeasureRequest, MeasureResult, Status, Timing
from autotune.types import Task
from tests.needs import needs
from tests.unit.codegen.kernels import node, task, value
from tests.unit.codegen.test_dot_tile import TARGET, schedule_of, text_of


def window(side: tuple[int, int], stride: int, *, channels: int = 8) -> Task:
    """A depthwise convolution of an image of 9 by 12 points; nothing outside of it is read."""
    high, wide = side
    sums = (1, (9 - high) // stride + 1, (12 - wide) // stride + 1, channels)
    return task(
        [
            node("conv2d", "i0 c0", "t0", strides=(stride, stride), groups=channels),
            node("requantize", "t0 c1 c2", "t1", least_shift=32, rounding="twice"),
            node("clip", "t1", "t2", min=0, max=255),
            node("to_uint8", "t2", "o0"),
        ],
        value("i0", (1, 9, 12, channels), "uint8"),
        value("c0", (high, wide, 1, channels), "int8"),
        value("c1", (channels,), "int32"),
        value("c2", (channels,), "int32"),
        value("t0", sums, "int32"),
        value("t1", sums, "int32"),
        value("t2", sums, "int32"),
        value("o0", sums, "uint8"),
    )


def run(made: Task, **params: int) -> MeasureResult:
    asked = MeasureRequest(
        task=made, schedule=schedule_of(made, **params), target=TARGET, timing=Timing()
    )
    executor = UnicornExecutor()
    return executor.check_and_time(asked, executor.build(asked))


@needs("cortex-m")
@pytest.mark.parametrize(
    ("made", "tile_w"),
    [
        (window((3, 3), 1), 5), (window((3, 3), 1), 4), (window((3, 3), 2), 2),
        (window((2, 3), 1), 3), (window((1, 5), 1), 4),
        (window((5, 2), 1), 2), (window((3, 3), 2, channels=3), 1), (window((4, 2), 3), 2),
    ],
)  # fmt: skip
def test_windows_are_exact(made: Task, tile_w: int) -> None:
    """Rows in pairs and alone, points that leave a rest, points further apart than a window."""
    result = run(made, tile_w=tile_w)
    assert (result.status, result.error) == (Status.OK, "")
    assert result.max_error == 0


def test_weights_are_loaded_before_rows_and_points() -> None:
    made = window((3, 3), 1)
    text = text_of(made, schedule_of(made))
    assert "smlad %[s0], %[t], %[w0]" in text
    assert text.index("const u32 w4") < text.index("for (ix rows")


def test_more_sums_than_registers_are_left_to_the_compiler() -> None:
    made = window((3, 3), 1)
    assert "smlad %[s0]" not in text_of(made, schedule_of(made, tile_w=6, tile_h=1))


@needs("cortex-m")
def test_a_product_takes_about_three_cycles() -> None:
    """With the scaling of its sum; of an image whose rows are whole tiles."""
    made = window((3, 3), 1)
    products = 7 * 10 * 8 * 9
    assert float(run(made).conditions.split()[1]) < 3.4 * products
