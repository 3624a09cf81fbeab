"""Dimensions of a task as one. In: a task of open sizes. Out: an equal task whose leading
dimensions are 1 but for the last open one, which has the elements of all of them.

A product of every row with the same weights takes batch and sequence, or batch, height and width,
as one dimension: strips are then cut from one extent, not from each. Memory is the same, so a
kernel of the one task is one of the other.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from autotune.ops import OPS
from autotune.sizes import is_size
from autotune.types import Layout, Task, TaskNode, TaskValue

_Shape = tuple[int, ...]


def merged(task: Task) -> Task:
    """The task itself where its leading dimensions are not the same in all that it reads."""
    (output,) = task.by_role("output")
    shape = output.type.shape
    opened = [d for d, extent in enumerate(shape) if is_size(extent)]
    if not opened or opened[-1] == 0:
        return task
    leading = shape[: opened[-1] + 1]
    values = {v.name: v for v in task.values}
    if not all(_each_row(node, values, leading) for node in task.nodes):
        return task
    changed = {v.name: _changed(v, leading) for v in task.values if _leads(v, leading)}
    if any(v is None for v in changed.values()):
        return task
    return dataclasses.replace(task, values=tuple(changed.get(v.name) or v for v in task.values))


def _leads(value: TaskValue, leading: _Shape) -> bool:
    return value.type.shape[: len(leading)] == leading


def _each_row(node: TaskNode, values: Mapping[str, TaskValue], leading: _Shape) -> bool:
    """Whether a node does the same for every place in the leading dimensions, and nothing across
    them."""
    kind, attrs = OPS.get(node.op).kind, dict(node.attrs)
    made, read = values[node.outputs[0]], [values[name] for name in node.inputs]
    if not node.inputs:
        return not _leads(made, leading)
    if len(node.outputs) > 1 or not _leads(made, leading):
        return False
    rank = len(made.type.shape)
    if kind == "elementwise":
        return all(
            (_leads(v, leading) and len(v.type.shape) == rank) or _is_same(v, rank, leading)
            for v in read
        )
    if not _leads(read[0], leading) or any(_leads(v, leading) for v in read[1:]):
        return False
    if node.op == "matmul":
        return len(read[1].type.shape) == 2
    if node.op == "conv2d":
        pointwise = read[1].type.shape[:2] == (1, 1)
        plain = all(attrs.get(n, d) == d for n, d in (("strides", (1, 1)), ("pads", (0,) * 4)))
        return pointwise and plain
    return kind == "row" and attrs.get("axis", -1) in (-1, rank - 1) and len(leading) < rank


def _is_same(value: TaskValue, rank: int, leading: _Shape) -> bool:
    """Whether an operand of an elementwise op is the same at all leading places."""
    missing = rank - len(value.type.shape)
    return all(extent == 1 for extent in value.type.shape[: max(0, len(leading) - missing)])


def _changed(value: TaskValue, leading: _Shape) -> TaskValue | None:
    """The value with these dimensions as one; None where they are apart in memory."""
    shape, last = value.type.shape, len(leading) - 1
    new = (1,) * last + (math.prod(leading), *shape[last + 1 :])
    strides, halo = value.layout.strides, value.layout.halo
    dense = all(strides[d] == strides[d + 1] * shape[d + 1] for d in range(last))
    if not dense or any(h != (0, 0) for h in halo[: last + 1]):
        return None
    kind = dataclasses.replace(value.type, shape=new)
    if value.role == "local":
        return dataclasses.replace(value, type=kind, layout=Layout.dense(new))
    whole = strides[last] * new[last]
    layout = Layout(strides=(whole,) * last + strides[last:], halo=halo)
    return dataclasses.replace(value, type=kind, layout=layout)
