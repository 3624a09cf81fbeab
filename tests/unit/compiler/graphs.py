"""Small graphs for the compiler's tests."""

from __future__ import annotations

import numpy as np

from autotune.graph.build import GraphBuilder
from autotune.graph.ir import Graph
from autotune.types import TensorType


def mlp(layers: int = 2, width: int = 8, seed: int = 0) -> Graph:
    """Matmul + bias + relu, `layers` times; the layers' weights differ in content only."""
    rng = np.random.default_rng(seed)
    b = GraphBuilder("mlp")
    value = b.input("x", TensorType(dtype="float32", shape=(3, width)))
    for _ in range(layers):
        weights = b.constant(rng.standard_normal((width, width)).astype(np.float32))
        bias = b.constant(rng.standard_normal(width).astype(np.float32))
        value = b.op("relu", b.op("add", b.op("matmul", value, weights), bias))
    return b.finish([("y", value)])
