"""SoftThreshold of the ONNX domain "example". Beside the other parts, for boards without onnx."""

from __future__ import annotations

from autotune.frontend.onnx.context import NodeContext, importer
from soft_threshold.parts import NAME


@importer("example.SoftThreshold")
def soft_threshold(node: NodeContext) -> str:
    """y = x moved toward 0 by the attribute `limit`."""
    return node.op(NAME, node.input(0), limit=node.number("limit", 0.5))
