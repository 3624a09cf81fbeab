"""Neighbouring dimensions of a task as one. In: a task of open sizes. Out: an equal task in which
dimensions that are always gone through together are 1 but for the last of them, which has the
elements of all: height and width of an image that is reduced, normalized, or scaled by channels.

Loops are then as long as a whole image, not as a row of it. Memory is the same, so a kernel of the
one task is one of the other; the number of dimensions is, too, so attributes keep their meaning. A
reshape, which has none, becomes a copy.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping

from autotune.ops import OPS
from autotune.sizes import any_size
from autotune.tasks.merged import merged
from autotune.types import Layout, Task, TaskNode, TaskValue

REDUCTIONS = ("reduce_max", "reduce_mean", "reduce_min", "reduce_prod", "reduce_sum")
ALONG_ONE = ("softmax", "log_softmax")

_Dims = range
_Values = Mapping[str, TaskValue]


def as_few(task: Task) -> Task:
    """The task with its places as one dimension, or else those that are together."""
    task = in_one_shape(task)
    found = merged(task)
    return joined(task) if found is task else found


def in_one_shape(task: Task) -> Task:
    """A reshape as a copy in the shape of the one side, where the other lies as a tensor of that
    shape could: its elements side by side, or its dimensions those of the one joined. No index is
    divided by a size then. Any other task as it is."""
    (node, *more), values = task.nodes, {v.name: v for v in task.values}
    if more or node.op != "reshape":
        return task
    source, made = values[node.inputs[0]], values[node.outputs[0]]
    for dense, other in ((made, source), (source, made)):
        shape = other.type.shape
        layout = _in_shape(dense, shape) if any_size(shape) else None
        if layout is None:
            continue
        kind = dataclasses.replace(dense.type, shape=shape)
        alike = dataclasses.replace(dense, type=kind, layout=layout)
        return dataclasses.replace(
            task,
            nodes=(dataclasses.replace(node, op="copy", attrs=()),),
            values=tuple(alike if v is dense else v for v in task.values),
        )
    return task


def _in_shape(value: TaskValue, shape: tuple[int, ...]) -> Layout | None:
    """How the value's elements lie as a tensor of another shape; None where strides cannot say it,
    as far as is seen here: some dimensions of the shape must make each one of the value's."""
    if value.layout == Layout.dense(value.type.shape):
        return Layout.dense(shape)
    left, strides, halo = list(shape), list[int](), list[tuple[int, int]]()
    layout = value.layout
    for extent, stride, around in zip(value.type.shape, layout.strides, layout.halo, strict=True):
        part = [left.pop(0)] if left else []
        while left and math.prod(part) != extent:
            part.append(left.pop(0))
        if math.prod(part) != extent or (len(part) > 1 and around != (0, 0)):
            return None
        strides += [stride * math.prod(part[d + 1 :]) for d in range(len(part))]
        halo += [around] * len(part)
    if left:
        return None
    return Layout(strides=tuple(strides), halo=tuple(halo))


def joined(task: Task) -> Task:
    """The task itself where no dimensions are always together, or none of these is open."""
    rank = max(len(v.type.shape) for v in task.values)
    last = rank - 1
    while last > 0:
        for first in range(last):
            found = _as_one(task, range(first, last + 1), rank)
            if found is not None:
                task, last = found, first
                break
        last -= 1
    return task


def _as_one(task: Task, dims: _Dims, rank: int) -> Task | None:
    """The task with these as one dimension; None where they are not together, or all but one of
    them are 1 already."""
    values = {v.name: v for v in task.values}
    whole = [v for v in task.values if len(v.type.shape) == rank]
    extents = [{v.type.shape[d] for v in whole} - {1} for d in dims]
    if any(len(found) > 1 for found in extents) or sum(map(len, extents)) < 2:
        return None
    full = tuple(next(iter(found), 1) for found in extents)
    if not any_size(full) or not all(_together(n, values, dims, rank) for n in task.nodes):
        return None
    changed = dict[str, TaskValue | None]()
    for v in whole:
        there = tuple(v.type.shape[d] for d in dims)
        if there == full:
            changed[v.name] = _changed(v, dims)
        elif any(extent != 1 for extent in there):
            return None
    if None in changed.values():
        return None
    return dataclasses.replace(task, values=tuple(changed.get(v.name) or v for v in task.values))


def _together(node: TaskNode, values: _Values, dims: _Dims, rank: int) -> bool:
    """Whether a node makes no difference between places along these dimensions."""
    made = values[node.outputs[0]]
    read = [values[name] for name in node.inputs]
    attrs = dict(node.attrs)
    if all(len(v.type.shape) < rank for v in (made, *read)):
        return True
    if node.op in REDUCTIONS:
        axes = attrs.get("axes", tuple(range(rank)))
        assert isinstance(axes, tuple)
        reduced = {int(axis) % rank for axis in axes}
        apart = reduced.isdisjoint(dims) and len(made.type.shape) == rank
        return reduced.issuperset(dims) or apart
    if node.op in ALONG_ONE:
        return int(str(attrs.get("axis", -1))) % rank not in dims
    alike = OPS.get(node.op).kind == "elementwise" and node.op != "causal"
    if not alike or any(isinstance(value, tuple) for value in attrs.values()):
        return False
    return len(made.type.shape) == rank and all(_is_aligned(v, dims, rank) for v in read)


def _is_aligned(value: TaskValue, dims: _Dims, rank: int) -> bool:
    """Whether an operand of fewer dimensions is the same along these."""
    missing = rank - len(value.type.shape)
    return not missing or all(value.type.shape[d - missing] == 1 for d in dims if d >= missing)


def _changed(value: TaskValue, dims: _Dims) -> TaskValue | None:
    """The value with these dimensions as one; None where they are apart in memory."""
    shape, strides, halo = value.type.shape, value.layout.strides, value.layout.halo
    there = [d for d in dims if shape[d] != 1]
    dense = all(strides[d] == strides[e] * shape[e] for d, e in itertools.pairwise(there))
    if not dense or any(halo[d] != (0, 0) for d in dims):
        return None
    first, last = dims[0], dims[-1]
    ones, size = (1,) * (last - first), math.prod(shape[d] for d in dims)
    kind = dataclasses.replace(value.type, shape=(*shape[:first], *ones, size, *shape[last + 1 :]))
    if value.role == "local":
        return dataclasses.replace(value, type=kind, layout=Layout.dense(kind.shape))
    step = strides[there[-1]]
    apart = (step * size,) * (last - first)
    layout = Layout(strides=(*strides[:first], *apart, step, *strides[last + 1 :]), halo=halo)
    return dataclasses.replace(value, type=kind, layout=layout)
