"""Figures of accuracy, ranges of values."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.graph.int8.accuracy import compare
from autotune.graph.int8.calibrate import calibrate
from tests.unit.graph.nets import Net, random_feeds


def test_equal_outputs_have_nothing_to_say() -> None:
    a = {"y": np.array([[1.0, 5.0, 2.0]], np.float32)}
    (row,) = compare([a, a], [a, a])
    assert (row.samples, row.cosine, row.max_error, row.top1) == (2, pytest.approx(1), 0, 1)
    assert row.snr_db == np.inf


def test_errors_are_relative_to_the_largest_value() -> None:
    a = {"y": np.array([[3.0, 4.0], [0.0, 1.0]]), "ids": np.array([1, 2])}
    b = {"y": np.array([[4.0, 3.0], [0.0, 1.0]]), "ids": np.array([1, 2])}
    (row,) = compare([a], [b])
    assert row.output == "y"
    assert row.max_error == pytest.approx(0.25)
    assert row.top1 == 0.5
    assert row.snr_db == pytest.approx(10 * np.log10(26 / 2))
    assert row.cosine == pytest.approx(25 / 26)


def test_rows_are_along_the_last_dimension_that_is_one() -> None:
    a = {"y": np.array([1.0, 2.0, 0.0]).reshape(1, 3, 1, 1)}
    b = {"y": np.array([1.0, 1.5, 1.0]).reshape(1, 3, 1, 1)}
    assert compare([a], [b])[0].top1 == 1


def test_ranges_leave_outliers_out_but_keep_a_bound_of_zero() -> None:
    net = Net()
    x = net.feed("x", 1, 200, 1000)
    graph = net.graph(net.op("relu", x))
    feeds = random_feeds(graph)
    feeds["x"][0, 0, 0] = 1000
    found = calibrate(graph, [feeds], coverage=0.999).ranges
    assert 2 < found["x"].high < 5
    assert -5 < found["x"].low < -2
    assert found[graph.outputs[0][1]].low == 0
    whole = calibrate(graph, [feeds, feeds], coverage=1.0)
    assert whole.ranges["x"].high == 1000
    assert len(whole.outputs) == 2
