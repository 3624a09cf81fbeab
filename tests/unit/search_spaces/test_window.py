"""Windows: which way sums roll by default, data that evict each other, and what columns cost."""

from __future__ import annotations

import numpy as np
import pytest

import cost_model
from autotune.machine import Machine
from autotune.machine.cpu import evicted_share
from autotune.schedule import apply_schedule
from autotune.target import load_target
from autotune.tasks.build import build_program
from autotune.tasks.evaluate import evaluate_task
from autotune.tasks.inputs import random_inputs
from autotune.types import Task
from cost_model import Prediction
from search_spaces.params import Choice
from search_spaces.rules import rule_for
from tests.interpreter.interp import run
from tests.unit.codegen.kernels import assert_close, node, task, value
from tests.unit.tuner.synthetic import PROFILE

TARGET = load_target("x86-64-v4", 1)
ZEN4 = Machine.of(TARGET)
ATTRS = {"strides": (2, 2), "pads": (0, 0, 0, 0)}


def depthwise(rows: int, width: int, channels: int) -> Task:
    return task(
        [node("conv2d", "i0 c0", "o0", **ATTRS, groups=channels)],
        value("i0", (1, rows, width, channels)), value("c0", (3, 3, 1, channels)),
        value("o0", (1, (rows - 1) // 2, (width - 1) // 2, channels)),
    )  # fmt: skip


def pool(width: int, channels: int = 64) -> Task:
    return task(
        [node("max_pool2d", "i0", "o0", **ATTRS, kernel=(3, 3))],
        value("i0", (1, 57, width, channels)), value("o0", (1, 28, (width - 1) // 2, channels)),
    )  # fmt: skip


def default(made: Task) -> dict[str, object]:
    return dict(cost_model.default(made, Machine.of(TARGET)).items)


def prediction(made: Task, **choices: Choice) -> Prediction:
    """Of the default, with these choices instead."""
    rule = rule_for(made, TARGET)
    config = {**default(made), **choices}
    space = rule.space(made, TARGET)
    rows = np.array([[p.choices.index(config[p.name]) for p in space.params]])
    return cost_model.predict(made, Machine.of(TARGET, PROFILE), space.configs(rows))


def counted(made: Task, **choices: Choice) -> float:
    """Cycles that a config is expected to take, up to a factor of the task."""
    return float(prediction(made, **choices).prior.relative[0])


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


def test_a_pool_takes_more_rows_where_points_adjoin() -> None:
    assert default(pool(57, 24))["tile_h"] == 7


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
    found = evicted_share(ZEN4, step, np.array([1, rows]), np.array([64, span]))
    assert found == pytest.approx([0.0, share])


def test_points_evict_each_other_where_their_lines_share_sets() -> None:
    row, point = 7 * 2048, 256
    for span in (64, point):
        found = evicted_share(ZEN4, row, np.array([15.0, 29.0]), span, apart=point, points=3)
        assert found == pytest.approx([0.0, 1.0])
    assert evicted_share(ZEN4, 4096, 9, 32, apart=96, points=2) == pytest.approx([1.0])
    side_by_side = evicted_share(ZEN4, 4096, 9, 32, apart=32, points=2)
    assert side_by_side == evicted_share(ZEN4, 4096, 9, 64)


def test_a_column_needs_registers_for_one_row_of_data_at_a_time() -> None:
    high, low = (
        prediction(pool(57), vectors=1, tile_w=7, tile_h=1, down=down).estimate for down in (28, 7)
    )
    assert high.compute_s == pytest.approx(low.compute_s)


def test_narrow_columns_read_again_what_their_rows_evict() -> None:
    column: dict[str, Choice] = {"vectors": 2, "tile_h": 1, "down": 14, "order": "rows_first"}
    lost, kept = (
        counted(pool(width), tile_w=1, **column) / counted(pool(width), tile_w=7, **column)
        for width in (112, 113)
    )
    assert lost > kept


def test_columns_take_constants_that_change_by_row() -> None:
    plain = depthwise(17, 17, 16)
    shape = plain.value("o0").type.shape
    made = task(
        [node("conv2d", "i0 c0", "t0", **ATTRS, groups=16), node("add", "t0 c1", "o0")],
        value("i0", plain.value("i0").type.shape), value("c0", (3, 3, 1, 16)),
        value("c1", (1, shape[1], 1, 16)), value("t0", shape), value("o0", shape),
    )  # fmt: skip
    rule = rule_for(made, TARGET)
    space = rule.space(made, TARGET)
    rows = space.sample(np.random.default_rng(0), 200)
    configs = rows[space.configs(rows)["down"] > 1]
    assert len(configs)
    arrays = random_inputs(made, 0)
    for row in configs[:3]:
        schedule = rule.schedule(made, TARGET, space.config(row))
        got = run(apply_schedule(build_program(made), schedule), arrays)
        assert_close(got, evaluate_task(made, arrays), 1e-4)
