"""Sparse constants of TensorFlow Lite files, as arrays. In: a tensor's description of where its
numbers lie. Out: all of its elements, zeros among them.

Dimensions are walked in an order of the file's; some may be cut in blocks, whose insides are
walked after all others. Each is dense, or lists the places that have numbers, as compressed rows
do.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tflite

from autotune.errors import ModelError
from autotune.frontend.tflite.context import OperatorContext, tflite_importer
from autotune.types import Array

_VECTORS = {
    tflite.SparseIndexVector.Int32Vector: tflite.Int32Vector,
    tflite.SparseIndexVector.Uint16Vector: tflite.Uint16Vector,
    tflite.SparseIndexVector.Uint8Vector: tflite.Uint8Vector,
}
MOST_BYTES = 1 << 31
"""Bytes of all elements of a sparse tensor, at most: as many as a file may have."""


@tflite_importer("DENSIFY")
def densify(n: OperatorContext) -> str:
    """Constants are dense from the start."""
    return n.constant(n.array(0))


def dense_array(sparsity: Any, numbers: Array, shape: tuple[int, ...]) -> Array:
    """The elements of a tensor of that shape whose given `numbers` lie as `sparsity` says. Raises
    ModelError where it does not fit them."""
    rank = len(shape)
    order = np.asarray(sparsity.TraversalOrderAsNumpy(), np.int64).reshape(-1)
    blocked = (
        np.asarray(sparsity.BlockMapAsNumpy(), np.int64)
        if sparsity.BlockMapLength()
        else np.zeros(0, np.int64)
    ).reshape(-1)
    levels = [sparsity.DimMetadata(i) for i in range(sparsity.DimMetadataLength())]
    if sorted(order) != list(range(rank + len(blocked))) or len(levels) != len(order):
        raise ModelError(f"it is sparse in {len(levels)} dimensions, ordered {order.tolist()}")
    if math.prod(shape) * numbers.itemsize > MOST_BYTES:
        raise ModelError(f"shape {list(shape)} is of more than {MOST_BYTES} bytes, zeros included")
    # Places inside a dimension are numbers in the end, or rows of a sparse one: the file has them.
    most = min(math.prod(shape), max([numbers.size, *map(_rows, levels)]))
    places: list[Array] = [np.zeros(1, np.int64)] * len(order)
    sizes = [1] * len(order)
    count = 1
    for dim, level in zip(order.tolist(), levels, strict=True):
        repeats, at, sizes[dim] = _walked(level, count, most)
        places = [np.repeat(p, repeats) for p in places]
        places[dim], count = at, len(at)
    if count != numbers.size:
        raise ModelError(f"{count} places are listed for {numbers.size} numbers")
    for inside, dim in enumerate(blocked.tolist(), rank):
        places[dim] = places[dim] * sizes[inside] + places[inside]
    if any(((p < 0) | (p >= e)).any() for p, e in zip(places, shape, strict=False)):
        raise ModelError(f"places lie outside of shape {list(shape)}")
    made = np.zeros(shape, numbers.dtype)
    made[tuple(places[:rank])] = numbers
    return made


def _rows(level: Any) -> int:
    """Rows that a sparse dimension lists places of; 0 of a dense one."""
    if level.Format() == tflite.DimensionType.DENSE:
        return 0
    return len(_listed(level.ArraySegmentsType(), level.ArraySegments())) - 1


def _walked(level: Any, count: int, limit: int) -> tuple[Array | int, Array, int]:
    """One dimension inside `count` places of those before it: how many there are in each, where
    they are, and the dimension's size (of a sparse one 1: it has no blocks)."""
    if level.Format() == tflite.DimensionType.DENSE:
        size = level.DenseSize()
        if not 0 < size <= max(limit, 1) or count * size > max(limit, 1):
            raise ModelError(f"{count} times {size} places are more than {limit} elements")
        return size, np.tile(np.arange(size), count), size
    segments = _listed(level.ArraySegmentsType(), level.ArraySegments())
    at = _listed(level.ArrayIndicesType(), level.ArrayIndices())
    repeats = np.diff(segments)
    if len(repeats) != count or (repeats < 0).any() or segments[0] or segments[-1] != len(at):
        raise ModelError(f"segments of {len(at)} places do not fit {count} rows")
    return repeats, at, 1


def _listed(kind: int, table: Any) -> Array:
    if kind not in _VECTORS or table is None:
        raise ModelError("a sparse dimension lists no places")
    vector = _VECTORS[kind]()
    vector.Init(table.Bytes, table.Pos)
    return np.asarray(vector.ValuesAsNumpy(), np.int64).reshape(-1)
