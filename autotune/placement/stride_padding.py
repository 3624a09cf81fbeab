"""Stride padding: gaps between the points of an image, and what their lack costs.

In: a node that slides a window, the layout of what it reads, and the target's inner cache. Out:
how much it reads again. Points a large power of two apart share few sets of that cache, so what a
window reads again at its next row is gone by then. A few lines further apart they spread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autotune.graph.ir import Node
from autotune.machine.cpu import sets_met
from autotune.ops import OPS
from autotune.target import Target
from autotune.types import ITEM_BYTES, Attr, TaskNode, TensorType

_PADDING_LINES = 2
"""Cache lines left free between points, so that neighbours begin in other sets."""
_FEW_SETS, _MOST_SETS = 2, 4
"""Points that meet in more than a few sets are slower only where twice as many lie in a window as
the sets hold; in more than most of them they are measured to be no slower."""


def padding_of(dtype: str, target: Target) -> int:
    """Elements left free after the channels of a point."""
    return _PADDING_LINES * target.line_bytes // ITEM_BYTES[dtype]


def rows_together(node: Node | TaskNode, value: str, types: Mapping[str, TensorType]) -> int:
    """Rows that a node takes together of each channel of `value` alone, and goes on by fewer;
    else 1."""
    attrs: Mapping[str, Attr] = dict(node.attrs)
    if node.inputs[:1] != (value,) or len(types[value].shape) != 4:
        return 1
    if node.op in ("max_pool2d", "avg_pool2d"):
        size = attrs["kernel"]
    elif node.op == "conv2d" and types[node.inputs[1]].shape[2] == 1:
        size = types[node.inputs[1]].shape[:1]
    else:
        return 1
    steps = attrs.get("strides", (1, 1))
    assert isinstance(size, tuple)
    assert isinstance(steps, tuple)
    return int(size[0]) if int(size[0]) > int(steps[0]) else 1


def read_again_bytes(
    node: Node | TaskNode,
    value: str,
    types: Mapping[str, TensorType],
    strides: Sequence[int],
    target: Target,
) -> int:
    """What a node's window over `value`, with points so far apart, has to fetch again: 0 where the
    rows stay in the inner cache until the window has moved on."""
    rows, type_ = rows_together(node, value, types), types[value]
    if rows == 1 or type_.size == 0:
        return 0
    _, height, width, _ = type_.shape
    output = node.output if isinstance(node, Node) else node.outputs[0]
    again = max(0.0, rows * types[output].shape[1] / height - 1)
    sets = sets_met(target, strides[2] * ITEM_BYTES[type_.dtype])
    held = sets * target.l1_ways * (1 if sets <= _FEW_SETS else 2)
    lost = sets <= _MOST_SETS and min(rows, height) * width > held
    return int(type_.nbytes * again) if lost else 0


def keeps_points(op: str) -> bool:
    """Whether a view by this operator has points where the viewed value has them."""
    return op in ("concat", "slice") or OPS.get(op).kind != "view"
