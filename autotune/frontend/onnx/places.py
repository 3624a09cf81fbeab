"""ONNX importers: elements picked by computed places, running sums.

Places of several dimensions become places in the flat tensor, so that all of them are gathers.
"""

from __future__ import annotations

import math

import numpy as np

from autotune.errors import LengthError, ModelError
from autotune.frontend.onnx.context import NodeContext, dtype_name, importer
from autotune.frontend.places import elements, row_places, rows
from autotune.frontend.views import counted_up, positive_axis
from autotune.sizes import any_size
from autotune.types import Array, dense_strides

UNSHAPED = (
    "how much it gives depends on the values it is given, and shapes are static here; export the "
    "model up to its inputs, and run it on the outputs"
)
"""Why operators are refused whose results have no size before a run."""


@importer("GatherElements")
def gather_elements(n: NodeContext) -> str:
    x, indices = n.input(0), n.input(1)
    return elements(n, x, indices, positive_axis(n.integer("axis", 0), n.rank(x)))


@importer("GatherND")
def gather_nd(n: NodeContext) -> str:
    x, indices = n.input(0), n.input(1)
    shape, places = n.shape(x), n.shape(indices)
    batch = n.integer("batch_dims", 0)
    if batch:
        # The coordinates within the batch are told by where an index lies.
        own = [n.reshape(_place(n, places[:-1], d), (*places[:-1], 1)) for d in range(batch)]
        indices = n.op("concat", *own, n.cast(indices, "int64"), axis=len(places) - 1)
    table, depth = rows(n, x, n.shape(indices))
    picked = n.op("gather", table, row_places(n, indices, shape[:depth]), axis=0)
    return n.reshape(picked, (*places[:-1], *shape[depth:]))


@importer("NonZero")
def non_zero(n: NodeContext) -> str:
    return n.constant(np.stack(np.nonzero(np.atleast_1d(_shaping(n, 0)))), "int64")


@importer("Compress")
def compress(n: NodeContext) -> str:
    """The elements that constants choose, along an axis or of all."""
    x, chosen, axis = n.input(0), _shaping(n, 1), n.attribute("axis")
    if axis is None:
        x, axis = n.reshape(x, (math.prod(n.shape(x)),)), 0
    at = positive_axis(int(axis), n.rank(x))
    return n.op("gather", x, n.constant(np.flatnonzero(chosen), "int64"), axis=at)


@importer("NonMaxSuppression", "Unique")
def counted(n: NodeContext) -> str:
    """Left to the run, of constants too."""
    raise LengthError(f"{n.operator}: {UNSHAPED}")


def _shaping(n: NodeContext, position: int) -> Array:
    """An input that decides how much there is."""
    array = n.evaluated(n.input(position))
    if array is None:
        raise LengthError(UNSHAPED)
    return array


@importer("EyeLike")
def eye_like(n: NodeContext) -> str:
    rows, columns = n.shape(n.input(0))
    dtype = n.dtype(n.input(0))
    if n.has("dtype"):
        dtype = dtype_name(n.integer("dtype", 0), "the type of the result")
    n.made(rows, columns)
    return n.constant(np.eye(rows, columns, n.integer("k", 0)), dtype)


@importer("ReverseSequence")
def reverse_sequence(n: NodeContext) -> str:
    """The first elements along one axis turned around; how many these are, the other says."""
    x, time, batch = n.input(0), n.integer("time_axis", 0), n.integer("batch_axis", 1)
    shape, counts = n.shape(x), n.cast(n.input(1), "int64")
    if sorted((time, batch)) != [0, 1] or n.shape(counts) != (shape[batch],):
        raise ModelError(
            f"{n.shape(counts)} lengths along axis {batch}, of elements along axis {time}, do not "
            f"fit data of {shape}"
        )
    counts = n.reshape(counts, (1, shape[1]) if batch else (shape[0], 1))
    counts = n.op("min", n.op("max", counts, n.like(0, counts)), n.like(shape[time], counts))
    own = _place(n, shape[:2], time)
    turned = n.op("sub", n.op("sub", counts, n.like(1, counts)), own)
    place = n.op("where", n.op("lt", own, counts), turned, own)
    strides = [n.constant(stride, "int64") for stride in dense_strides(shape[:2])]
    flat = n.op("mul", place, strides[time])
    flat = n.op("add", flat, n.op("mul", _place(n, shape[:2], batch), strides[batch]))
    return n.op("gather", n.reshape(x, (shape[0] * shape[1], *shape[2:])), flat, axis=0)


def _place(n: NodeContext, shape: tuple[int, ...], axis: int) -> str:
    """The coordinate of every element along an axis."""
    if not any_size(shape):
        return n.constant(np.indices(shape)[axis], "int64")
    extents = [extent if at == axis else 1 for at, extent in enumerate(shape)]
    return n.op("expand", n.reshape(counted_up(n, 0, shape[axis]), extents), shape=shape)


@importer("CumProd")
def cum_prod(n: NodeContext) -> str:
    return _scan(n, "prod")


@importer("CumSum")
def cum_sum(n: NodeContext) -> str:
    return _scan(n, "sum")


def _scan(n: NodeContext, combine: str) -> str:
    """What the elements up to each along an axis join to."""
    x = n.input(0)
    shape = n.shape(x)
    axis = positive_axis(n.required_ints(1)[0], n.rank(x))
    wide = n.reshape(x, (math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])))
    options = {name: n.integer(name, 0) for name in ("exclusive", "reverse")}
    return n.reshape(n.op("scan", wide, combine=combine, **options), shape)
