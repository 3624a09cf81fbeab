"""ONNX importer: the first elements in order."""

from __future__ import annotations

import numpy as np

from autotune.errors import ModelError
from autotune.frontend.onnx.context import NodeContext, importer
from autotune.frontend.ordering import first
from autotune.frontend.views import positive_axis


@importer("TopK")
def top_k(n: NodeContext) -> tuple[str, str]:
    x = n.input(0)
    count = n.required_ints(1)[0] if n.opset >= 10 else n.integer("k", 1)
    axis = positive_axis(n.integer("axis", -1), n.rank(x))
    n.ignore("sorted")  # sorted is one of the orders that unsorted allows
    if not 0 <= count <= n.shape(x)[axis]:
        raise ModelError(f"k is {count}, but there are {n.shape(x)[axis]} elements")
    if not count:
        n.ignore("largest")
        shape = (*n.shape(x)[:axis], 0, *n.shape(x)[axis + 1 :])
        return n.constant(np.zeros(shape), n.dtype(x)), n.constant(np.zeros(shape), "int64")
    return first(n, x, count, axis, largest=bool(n.integer("largest", 1)))
