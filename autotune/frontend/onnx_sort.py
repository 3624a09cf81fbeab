"""ONNX importer: the largest or smallest elements, in order. In: a node. Out: ranks and scatters.

An element's rank is the number of those ahead of it; of equal ones the first leads. All pairs are
compared, so long rows are cut into pieces first, and only what leads in its piece goes on.
"""

from __future__ import annotations

import math

import numpy as np

from autotune.errors import ModelError
from autotune.frontend.onnx_context import NodeContext, importer
from autotune.frontend.onnx_norm import positive_axis
from autotune.frontend.onnx_places import elements
from autotune.ops._common import highest, lowest

_GAIN = 2.0
"""Fewer comparisons by this factor make up for the passes over pieces."""


@importer("TopK")
def top_k(n: NodeContext) -> tuple[str, str]:
    x = n.input(0)
    count = n.required_ints(1)[0] if n.opset >= 10 else n.integer("k", 1)
    axis = positive_axis(n.integer("axis", -1), n.rank(x))
    shape, largest = n.shape(x), bool(n.integer("largest", 1))
    n.ignore("sorted")  # sorted is one of the orders that unsorted allows
    extent, order = shape[axis], [d for d in range(len(shape)) if d != axis] + [axis]
    if not 0 < count <= extent:
        raise ModelError(f"k is {count}, but there are {extent} elements")
    moved = n.transpose(x, order)
    outer = n.shape(moved)[:-1]
    rows = n.reshape(moved, (math.prod(outer), extent))
    values, places = _leading(n, rows, count, largest)
    back = [order.index(d) for d in range(len(shape))]
    values, places = (n.reshape(v, (*outer, count)) for v in (values, places))
    return n.transpose(values, back), n.transpose(places, back)


def _leading(n: NodeContext, rows: str, count: int, largest: bool) -> tuple[str, str]:
    """The first `count` of every row and their places, in order."""
    number, extent = n.shape(rows)
    piece = _piece(extent, count)
    if piece == extent:
        places = _ranked(n, rows, count, largest)
        return elements(n, rows, places, 1), places
    pieces = -(-extent // piece)
    last = (lowest if largest else highest)(n.dtype(rows))
    whole = rows
    if pieces * piece > extent:
        whole = n.op("pad", rows, pads=(0, 0, 0, pieces * piece - extent), value=last)
    parts = n.reshape(whole, (number * pieces, piece))
    inside = _ranked(n, parts, count, largest)
    first = np.arange(pieces, dtype=np.int64).reshape(1, pieces, 1) * piece
    found = n.op("add", n.reshape(inside, (number, pieces, count)), n.constant(first))
    left = (number, pieces * count)
    best, found = n.reshape(elements(n, parts, inside, 1), left), n.reshape(found, left)
    values, among = _leading(n, best, count, largest)
    return values, elements(n, found, among, 1)


def _piece(extent: int, count: int) -> int:
    """The length of pieces that takes the fewest comparisons; the whole row if that is as good."""
    best, least = extent, extent * extent / _GAIN
    for pieces in range(2, extent // (2 * count) + 1):
        piece = -(-extent // pieces)
        pairs = extent * piece + (pieces * count) ** 2
        if pairs < least:
            best, least = piece, pairs
    return best


def _ranked(n: NodeContext, rows: str, count: int, largest: bool) -> str:
    """Places of the first `count` of every row: each element is put where its rank says."""
    number, extent = n.shape(rows)
    one, other = n.reshape(rows, (number, extent, 1)), n.reshape(rows, (number, 1, extent))
    leads = n.op("gt" if largest else "lt", other, one)
    earlier = n.constant(np.tri(extent, k=-1, dtype=bool))
    ahead = n.op("or", leads, n.op("and", n.op("eq", other, one), earlier))
    rank = n.op("reduce_sum", n.cast(ahead, "float32"), axes=(2,), keepdims=False)
    own = np.broadcast_to(np.arange(extent, dtype=np.int64), (number, extent))
    put = (n.scalar(0, "int64"), n.cast(rank, "int64"), n.constant(own))
    sorted_ = n.op("scatter", *put, axis=1, extent=extent)
    if count == extent:
        return sorted_
    return n.op("slice", sorted_, starts=(0, 0), stops=(number, count), steps=(1, 1))
