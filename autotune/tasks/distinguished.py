"""Dimensions of one extent told apart. In: a task whose output has an open extent twice, as
distances between all pairs of points. Out: the task with a symbol for each, so that a sample of it
may be longer along the one than along the other.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping

from autotune.errors import InputError, UndecidedError
from autotune.ops import OPS
from autotune.sizes import greatest, is_size, symbol
from autotune.types import Task, TensorType

MOST_WAYS = 64
"""Ways to read the operands' extents that are tried."""


def distinguished(task: Task) -> Task:
    """The task itself where no extent of its output is there twice, or where operands do not say
    which one they have. Its layouts stay those of the one symbol."""
    (output,) = task.by_role("output")
    shape = output.type.shape
    twice = {extent for extent in shape if is_size(extent) and shape.count(extent) > 1}
    if not twice:
        return task
    names = {
        extent: [
            symbol(f"{extent} of {dim}", 1, greatest(extent))
            for dim, other in enumerate(shape)
            if other == extent
        ]
        for extent in twice
    }
    left = {extent: iter(several) for extent, several in names.items()}
    wanted = tuple(next(left[extent]) if extent in left else extent for extent in shape)
    for inputs in itertools.islice(_ways(task, names), MOST_WAYS):
        types = _inferred(task, inputs)
        if types is not None and types[output.name].shape == wanted:
            values = (dataclasses.replace(v, type=types[v.name]) for v in task.values)
            return dataclasses.replace(task, values=tuple(values))
    return task


def _ways(task: Task, names: Mapping[int, list[int]]) -> Iterator[dict[str, TensorType]]:
    """Types of all that the task reads, with every choice of symbols for its extents."""
    made = {name for node in task.nodes for name in node.outputs}
    read = [value for value in task.values if value.name not in made]
    extents = [extent for value in read for extent in value.type.shape]
    for chosen in itertools.product(*(names.get(extent, [extent]) for extent in extents)):
        left = iter(chosen)
        yield {
            value.name: dataclasses.replace(
                value.type, shape=tuple(next(left) for _ in value.type.shape)
            )
            for value in read
        }


def _inferred(task: Task, inputs: Mapping[str, TensorType]) -> dict[str, TensorType] | None:
    """Types of all values; None where they do not fit together."""
    types = dict(inputs)
    try:
        for node in task.nodes:
            given = [types[name] for name in node.inputs]
            (made,) = node.outputs
            types[made] = OPS.get(node.op).infer(given, dict(node.attrs))
    except (InputError, UndecidedError, ValueError):
        return None
    return types
