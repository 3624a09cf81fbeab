"""graph_text prints what a person needs to follow a model."""

from __future__ import annotations

import numpy as np

from autotune.graph.build import GraphBuilder
from autotune.graph.text import graph_text
from autotune.types import TensorType


def test_text() -> None:
    b = GraphBuilder("tiny")
    x = b.input("x", TensorType(dtype="float32", shape=(1, 8)))
    b.label = "fc"
    y = b.op("matmul", x, b.constant(np.zeros((8, 4), np.float32), "w"), transpose_b=False)
    b.label = "act"
    y = b.op("clip", y, max=6.0, min=0.0)
    b.label = ""
    y = b.op("reshape", y, shape=(4,))
    assert graph_text(b.finish([("y", y)])) == (
        "graph tiny\n"
        "  input  x: float32[1,8]\n"
        "  const  w: float32[8,4]\n"
        "  matmul_1: float32[1,4] = matmul(x, w) {transpose_b=False}  # fc\n"
        "  clip_1: float32[1,4] = clip(matmul_1) {max=6.0, min=0.0}  # act\n"
        "  reshape_1: float32[4] = reshape(clip_1) {shape=(4)}\n"
        "  output y = reshape_1\n"
    )
