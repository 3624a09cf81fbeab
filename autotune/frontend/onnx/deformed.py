"""ONNX importer: DeformConv, a convolution whose kernel's elements lie where the model computes.

In: a node. Out: gathers of what the kernel sees, as a matrix, and its product with the weights.
"""

from __future__ import annotations

from autotune.errors import UnsupportedOpError
from autotune.frontend.deformed import DeformedWindow, deformed_convolution
from autotune.frontend.onnx.context import NodeContext, importer
from autotune.frontend.onnx.image import read_window


@importer("DeformConv")
def deform_conv(n: NodeContext) -> str:
    """[batch, outputs, rows, columns]."""
    x, w = n.input(0), n.input(1)
    if n.rank(x) != 4:
        raise UnsupportedOpError(f"the input has shape {n.shape(x)}; only images are supported")
    n.ignore("kernel_shape")
    window = read_window(n, n.shape(x)[2:], n.shape(w)[2:], ceil=False)
    how = DeformedWindow(
        window=window, offsets=n.input(2), mask=n.optional(4),
        parts=n.integer("offset_group", 1), groups=n.integer("group", 1),
    )  # fmt: skip
    return deformed_convolution(n, x, w, how, n.optional(3))
