"""Windows: which way sums roll by default, and rows of data that evict each other."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.target import load_target
from autotune.types import Task
from search_spaces.rules import rule_for
from search_spaces.rules._rates import evicted
from tests.unit.codegen.kernels import node, task, value

TARGET = load_target("x86-64-v4", 1)
ATTRS = {"strides": (2, 2), "pads": (0, 0, 0, 0)}


def depthwise(rows: int, width: int, channels: int) -> Task:
    return task(
        [node("conv2d", "i0 c0", "o0", **ATTRS, groups=channels)],
        value("i0", (1, rows, width, channels)), value("c0", (3, 3, 1, channels)),
        value("o0", (1, (rows - 1) // 2, (width - 1) // 2, channels)),
    )  # fmt: skip


def pool(width: int) -> Task:
    return task(
        [node("max_pool2d", "i0", "o0", **ATTRS, kernel=(3, 3))],
        value("i0", (1, 57, width, 64)), value("o0", (1, 28, (width - 1) // 2, 64)),
    )  # fmt: skip


def default(made: Task) -> dict[str, object]:
    return dict(rule_for(made, TARGET).default(made, TARGET).items)


@pytest.mark.parametrize(
    ("made", "along"),
    [
        (depthwise(57, 57, 144), 1),  # more than the second cache holds
        (depthwise(15, 113, 96), 1),
        (depthwise(15, 16, 576), 0),  # rows nine pages apart
        (depthwise(29, 29, 136), 0),  # points begin amid lines
    ],
)
def test_sums_roll_along_rows_where_these_follow_each_other(made: Task, along: int) -> None:
    assert default(made)["along"] == along


def test_a_pool_takes_fewer_rows_where_these_evict_each_other() -> None:
    assert (default(pool(112))["tile_h"], default(pool(113))["tile_h"]) == (2, 4)


@pytest.mark.parametrize(
    ("step", "rows", "span", "share"),
    [
        (7 * 4096, 8, 512, 0.0),
        (7 * 4096, 9, 512, 1.0),
        (4096 - 64, 9, 128, 0.0),
        (4096 - 64, 9, 576, 9 / 81),
        (4096 + 2048, 9, 2048 + 64, 2 * 9 / (9 * 33)),
        (4096, 9, 0, 1.0),
    ],
)
def test_rows_evict_each_other_in_sets_of_eight(
    step: int, rows: int, span: int, share: float
) -> None:
    assert evicted(step, np.array([1, rows]), np.array([64, span])) == pytest.approx([0.0, share])
