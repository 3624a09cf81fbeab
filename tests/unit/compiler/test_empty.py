"""Tensors without elements: nothing computes them, and what reads them gets what numpy gives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from autotune.compiler.driver import compile_graph
from autotune.errors import ModelError
from autotune.graph.build import GraphBuilder
from autotune.graph.interp import run_graph
from autotune.target import host_target
from autotune.types import TensorType

IMAGE = {"strides": (1, 1), "pads": (1,) * 4, "dilations": (1, 1)}


class Empty(GraphBuilder):
    def feed(self, *shape: int, dtype: str = "float32") -> str:
        return self.input(f"x{len(self.types)}", TensorType(dtype=dtype, shape=shape))

    def weights(self, *shape: int) -> str:
        return self.constant(np.full(shape, 0.5, np.float32))


CASES: dict[str, Callable[[Empty], str]] = {
    "no images": lambda b: b.op("conv2d", b.feed(0, 5, 5, 4), b.weights(3, 3, 4, 8), **IMAGE),
    "no channels": lambda b: b.op("conv2d", b.feed(1, 5, 5, 4), b.weights(3, 3, 4, 0), **IMAGE),
    "no rows": lambda b: b.op("matmul", b.op("neg", b.feed(0, 5)), b.weights(5, 8)),
    "no depth": lambda b: b.op("relu", b.op("matmul", b.feed(3, 0), b.weights(0, 8))),
    "rows of nothing": lambda b: b.op("softmax", b.op("neg", b.feed(3, 0)), axis=1),
    "no part": lambda b: b.op("slice", b.feed(4, 3), starts=(1, 0), stops=(1, 3), steps=(1, 1)),
    "nothing before": lambda b: b.op(
        "concat", b.feed(2, 0, 3), b.op("neg", b.feed(2, 4, 3)), axis=1
    ),
    "nothing at both ends": lambda b: b.op(
        "concat", b.feed(0, 3), b.feed(4, 3), b.feed(1, 3), b.op("neg", b.feed(0, 3)), axis=0
    ),
    "all around nothing": lambda b: b.op("pad", b.feed(0, 3), pads=(2, 1, 0, 1), value=0.5),
    "no updates": lambda b: b.op(
        "scatter", b.feed(5, 3), b.feed(0, 1, dtype="int64"), b.feed(0, 3), reduction="none"
    ),
    "no places": lambda b: b.op("gather", b.feed(5, 3), b.feed(0, dtype="int64"), axis=0),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_models_with_tensors_without_elements(case: str, threads: int) -> None:
    b = Empty("n")
    value = CASES[case](b)
    graph = b.finish([("y", value), ("z", value)])
    feeds = {n: np.ones(t.shape, t.dtype) for n, t in graph.inputs}
    model = compile_graph(graph, host_target(threads), processes=1)
    assert graph.types[value].size or not model.image.kernels
    got, expected = model.run(feeds), run_graph(graph, feeds)
    for name, array in expected.items():
        np.testing.assert_allclose(got[name], array, atol=1e-6)


def test_a_convolution_over_no_channels_is_refused() -> None:
    b = Empty("n")
    with pytest.raises(ModelError, match="do not fit"):
        b.op("conv2d", b.feed(1, 5, 5, 0), b.weights(3, 3, 0, 8), **IMAGE)
