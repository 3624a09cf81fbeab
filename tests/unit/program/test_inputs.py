"""Random data for a task, and the points where it is checked."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.tasks.evaluate import evaluate_task
from autotune.tasks.inputs import random_inputs, sample_points
from tests.unit.program import tasks


def test_the_seed_decides_everything() -> None:
    made = tasks.conv_relu()
    first, again, other = (random_inputs(made, s) for s in (5, 5, 6))
    assert list(first) == ["i0", "c0"]
    np.testing.assert_array_equal(first["c0"], again["c0"])
    assert (first["c0"] != other["c0"]).any()
    points = [sample_points(made, s, 40) for s in (5, 5, 6)]
    np.testing.assert_array_equal(points[0], points[1])
    assert (points[0] != points[2]).any()


def test_weights_are_scaled_by_their_fan_in() -> None:
    arrays = random_inputs(
        tasks.task(
            [tasks.node("matmul", "i0 c0", "o0")],
            [
                tasks.value("i0", (4, 400)),
                tasks.value("c0", (400, 50)),
                tasks.value("o0", (4, 50)),
            ],
        ),
        0,
    )
    assert arrays["i0"].std() == pytest.approx(1.0, rel=0.1)
    assert arrays["c0"].std() == pytest.approx(0.05, rel=0.1)


def test_gather_indices_are_valid_and_reach_both_ends() -> None:
    made = tasks.task(
        [tasks.node("gather", "i0 i1", "o0", axis=0)],
        [
            tasks.value("i0", (3, 2)),
            tasks.value("i1", (200,), "int64"),
            tasks.value("o0", (200, 2)),
        ],
    )
    assert set(random_inputs(made, 0)["i1"].tolist()) == {-3, -2, -1, 0, 1, 2}


def test_roots_and_divisors_get_positive_numbers() -> None:
    made = tasks.task(
        [
            tasks.node("add", "c0 c1", "t0"),
            tasks.node("sqrt", "t0", "t1"),
            tasks.node("div", "i0 t1", "o0"),
        ],
        [
            tasks.value("i0", (500,)),
            tasks.value("c0", (500,)),
            tasks.value("c1", (1,)),
            tasks.value("t0", (500,)),
            tasks.value("t1", (500,)),
            tasks.value("o0", (500,)),
        ],
    )
    arrays = random_inputs(made, 0)
    assert arrays["c0"].min() > 0
    assert arrays["i0"].min() < 0
    assert np.isfinite(evaluate_task(made, arrays)).all()


def test_points_hold_corners_borders_and_lie_inside() -> None:
    made = tasks.task(
        [tasks.node("relu", "i0", "o0")],
        [tasks.value("i0", (30, 40, 50)), tasks.value("o0", (30, 40, 50))],
    )
    points = sample_points(made, 0, 64)
    assert points.shape == (64, 3)
    assert {(0, 0, 0), (29, 39, 49), (0, 39, 0)} <= set(map(tuple, points.tolist()))
    assert (points >= 0).all()
    assert (points < [30, 40, 50]).all()
    border = ((points == 0) | (points == np.asarray([29, 39, 49]))).any(axis=1)
    assert 20 <= border.sum() < 64


def test_a_small_output_is_checked_whole() -> None:
    made = tasks.attention_scores()
    assert len(np.unique(sample_points(made, 0, 100), axis=0)) == 70
