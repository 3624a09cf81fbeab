"""Exact values of a task at points."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.errors import VerifyError
from autotune.tasks import evaluate
from autotune.tasks.evaluate import evaluate_points, evaluate_task
from autotune.tasks.inputs import random_inputs, sample_points
from autotune.types import Task
from tests.unit.program import tasks

TASKS = [tasks.conv_relu(), tasks.conv_conv(), tasks.attention_scores()]


@pytest.mark.parametrize("made", TASKS)
@pytest.mark.parametrize("count", [1, 6, 1000])
def test_points_are_those_of_the_whole(made: Task, count: int) -> None:
    arrays = random_inputs(made, 1)
    points = sample_points(made, 2, count)
    whole = evaluate_task(made, arrays)
    np.testing.assert_allclose(
        evaluate_points(made, arrays, points), whole[tuple(points.T)], rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("made", TASKS)
def test_pieces_give_the_same(made: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = random_inputs(made, 1)
    points = sample_points(made, 2, 30)
    want = evaluate_points(made, arrays, points)
    monkeypatch.setattr(evaluate, "CHUNK", 20)
    np.testing.assert_allclose(evaluate_points(made, arrays, points), want, rtol=1e-12)


def test_results_are_more_exact_than_the_inputs_type() -> None:
    made = tasks.task(
        [tasks.node("reduce_sum", "i0", "o0", axes=(0,), keepdims=False)],
        [tasks.value("i0", (3,)), tasks.value("o0", ())],
    )
    arrays = {"i0": np.asarray([1e8, 1.0, -1e8], np.float32)}
    assert evaluate_points(made, arrays, np.zeros((1, 0), np.int64)) == [1.0]
    assert evaluate_task(made, arrays) == 1.0


def test_a_read_outside_an_array_of_the_wrong_shape_is_an_error() -> None:
    made = tasks.attention_scores()
    arrays = random_inputs(made, 1)
    arrays["i0"] = arrays["i0"][:, :2]
    with pytest.raises(VerifyError, match="i0 dimension 1 is read at 4"):
        evaluate_points(made, arrays, np.asarray([[0, 4, 0]]))


def test_points_of_the_wrong_rank_are_refused() -> None:
    made = tasks.attention_scores()
    with pytest.raises(ValueError, match=r"points must be \[P, 3\]"):
        evaluate_points(made, random_inputs(made, 1), np.zeros((4, 2), np.int64))
