"""How far apart the points of an image lie: layouts with padded strides, chosen by their cost.

In: a value, the nodes that read it, and the types. Out: elements to leave free after the channels
of a point. Points a large power of two apart share few sets of the inner cache, so what a sliding
window reads again at its next row is gone by then. Two lines further apart they spread over the
sets; everybody else who touches the value then moves that much more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from autotune.graph.ir import Node
from autotune.ops import OPS
from autotune.types import ITEM_BYTES, TensorType

GAP_BYTES = 128
_PERIOD_BYTES, _LINE_BYTES, _WAYS = 4096, 64, 8
"""Of an inner cache: addresses so far apart share a set, which holds a few lines."""
_FEW_SETS, _MOST_SETS = 2, 4
"""Points that meet in more than a few sets are slower only where twice as many lie in a window as
the sets hold; in more than most of them they are measured to be no slower."""


def useful_gap(value: str, readers: Sequence[Node], types: Mapping[str, TensorType]) -> int:
    """See the module; 0 where the points lie well, or where a view reads the value."""
    type_ = types[value]
    if len(type_.shape) != 4 or any(OPS.get(n.op).kind == "view" for n in readers):
        return 0
    _, rows, width, channels = type_.shape
    item = ITEM_BYTES[type_.dtype]
    sets = _PERIOD_BYTES // math.gcd(channels * item, _PERIOD_BYTES)
    windows = [w for n in readers if (w := _window(n, value, types)) > 1]
    held = sets * _WAYS * (1 if sets <= _FEW_SETS else 2)
    lost = [w for w in windows if min(w, rows) * width > held]
    if sets > _MOST_SETS or not lost:
        return 0
    again = type_.nbytes * sum(w - 1 for w in lost)
    more = GAP_BYTES * (type_.nbytes // (channels * item)) * (1 + len(readers))
    return GAP_BYTES // item if again > more else 0


def _window(node: Node, value: str, types: Mapping[str, TensorType]) -> int:
    """Rows that a reader takes together of each channel alone, and goes on by fewer; else 1."""
    if node.op in ("max_pool2d", "avg_pool2d"):
        size = node.attributes["kernel"]
    elif node.op == "conv2d" and types[node.inputs[1]].shape[2] == 1:
        size = types[node.inputs[1]].shape[:1]
    else:
        return 1
    steps = node.attributes.get("strides", (1, 1))
    assert isinstance(size, tuple)
    assert isinstance(steps, tuple)
    overlaps = node.inputs[0] == value and int(size[0]) > int(steps[0])
    return int(size[0]) if overlaps else 1
