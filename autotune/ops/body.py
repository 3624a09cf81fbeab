"""Bodies of ops that are kernels of others, called again and again: nodes in an attribute."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.ops.base import OPS
from autotune.types import Array, Attrs, TaskNode, TensorType


def body_of(attrs: Attrs) -> tuple[TaskNode, ...]:
    """The nodes of a step, in order; the last one gives its result."""
    body = attrs["body"]
    assert isinstance(body, tuple)
    return tuple(
        TaskNode(op=op, inputs=inputs, outputs=(output,), attrs=given)
        for op, inputs, output, given in body
    )


def body_types(operands: Mapping[str, TensorType], attrs: Attrs) -> dict[str, TensorType]:
    """The types of the body's operands, which are given, and of its values."""
    known = dict(operands)
    for node in body_of(attrs):
        inputs = [known[i] for i in node.inputs]
        known[node.outputs[0]] = OPS.get(node.op).infer(inputs, dict(node.attrs))
    return known


def body_result(operands: Mapping[str, Array], attrs: Attrs) -> Array:
    """What one step makes of arrays."""
    known, nodes = dict(operands), body_of(attrs)
    for node in nodes:
        given = [known[i] for i in node.inputs]
        known[node.outputs[0]] = OPS.get(node.op).reference(given, dict(node.attrs))
    return known[nodes[-1].outputs[0]]
