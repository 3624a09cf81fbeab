"""run_graph: results, precision, feeds."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.errors import FeedError
from autotune.graph.build import GraphBuilder
from autotune.graph.interp import run_graph
from autotune.graph.ir import Graph
from autotune.types import Array, TensorType


def graph() -> Graph:
    """y = relu(x @ w) and its square, over int64 positions."""
    b = GraphBuilder("g")
    x = b.input("x", TensorType(dtype="float32", shape=(2, 3)))
    at = b.input("at", TensorType(dtype="int64", shape=(2,)))
    w = b.constant(np.arange(12, dtype=np.float32).reshape(3, 4) - 5, "w")
    y = b.op("relu", b.op("matmul", x, w))
    picked = b.op("gather", y, at, axis=0)
    return b.finish([("y", y), ("square", b.op("mul", y, y)), ("picked", picked), ("at", at)])


def feeds() -> dict[str, Array]:
    return {"x": np.array([[1, 2, 3], [-1, 0.5, 2]], np.float32), "at": np.array([1, 0])}


def test_results_are_those_of_numpy() -> None:
    outputs = run_graph(graph(), feeds())
    y = np.maximum(feeds()["x"].astype(float) @ (np.arange(12.0).reshape(3, 4) - 5), 0)
    np.testing.assert_array_equal(outputs["y"], y)
    np.testing.assert_array_equal(outputs["square"], y * y)
    np.testing.assert_array_equal(outputs["picked"], y[::-1])
    np.testing.assert_array_equal(outputs["at"], [1, 0])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floats_are_of_the_precision_asked_for(dtype: str) -> None:
    outputs = run_graph(graph(), feeds(), dtype)
    assert {n: a.dtype.name for n, a in outputs.items()} == {
        "y": dtype, "square": dtype, "picked": dtype, "at": "int64",
    }  # fmt: skip


def test_double_precision_is_not_lost_on_the_way() -> None:
    b = GraphBuilder("g")
    x = b.input("x", TensorType(dtype="float32", shape=(1,)))
    value = b.op("mul", x, b.op("scalar", value=1 / 3, dtype="float32"))
    x64 = np.array([1 + 2.0**-40])
    (y,) = run_graph(b.finish([("y", value)]), {"x": x64}).values()
    assert abs(y[0] / np.float64(np.float32(1 / 3)) - x64[0]) < 2.0**-45


def test_missing_feed() -> None:
    with pytest.raises(FeedError, match="expected inputs"):
        run_graph(graph(), {"x": feeds()["x"]})


def test_unknown_feed() -> None:
    with pytest.raises(FeedError, match="'z'"):
        run_graph(graph(), {**feeds(), "z": np.zeros(1)})


def test_feed_of_another_shape() -> None:
    with pytest.raises(FeedError, match=r"'x' must be float32\[2,3\], got float32\[3,2\]"):
        run_graph(graph(), {**feeds(), "x": np.zeros((3, 2), np.float32)})


def test_feed_of_another_type() -> None:
    with pytest.raises(FeedError, match=r"'at' must be int64\[2\], got float64\[2\]"):
        run_graph(graph(), {**feeds(), "at": np.zeros(2)})
