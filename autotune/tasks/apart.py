"""Outputs whose rows lie apart, gone through as if they did not. In: a task that does the same at
every place of a batch, height and width, whose output has gaps between its rows: a halo. Out: the
same with all places as one dimension, as `merged` has it of outputs without; and its programs,
with a table of where each place lies.

Strips of one extent leave less over at its end than strips of a height and a width do.
"""

from __future__ import annotations

import dataclasses
import math

from autotune.program import ir, rewrite
from autotune.sizes import is_size
from autotune.tasks.merged import merged
from autotune.types import Layout, Task, TaskValue, dense_strides

PLACES = "places"
"""The table: by place, how far its elements are from those of the first one, in places."""
_FAR = 1 << 40
"""More than a place is ever away."""


def together(task: Task) -> Task | None:
    """The task with an output without gaps, its places as one dimension. None where the output
    has none, or something else is in the way."""
    (output,) = task.by_role("output")
    if _distances(output) is None or merged(task) is not task:
        return None
    dense = dataclasses.replace(output, layout=Layout.dense(output.type.shape))
    values = tuple(dense if v.name == output.name else v for v in task.values)
    closed = dataclasses.replace(task, values=values)
    found = merged(closed)
    return None if found is closed else found


def in_places(program: ir.Program, task: Task) -> ir.Program:
    """A program of the task that `together` gives, for the task itself."""
    (output,) = task.by_role("output")
    distances = _distances(output)
    assert distances is not None  # `together` knows
    shape, last = output.type.shape, len(distances) - 1
    table = ir.Buffer.dense(PLACES, "int64", (math.prod(shape[: last + 1]),), "scratch")
    loops = [(f"{PLACES}{d}", extent) for d, extent in enumerate(shape[: last + 1])]
    number, place = ir.Index(), ir.Index()
    for (loop, extent), distance in zip(loops, distances, strict=True):
        number = number * extent + ir.index(loop)
        place = place + ir.index(loop) * distance
    fill = rewrite.in_loops(loops, (ir.Store(PLACES, (number,), ir.IndexValue(place, "int64")),))

    def moved(indices: tuple[ir.Index, ...]) -> tuple[ir.Index, ...]:
        there = ir.Index(((ir.LoadIndex(PLACES, (indices[last],), _FAR), 1),))
        return (*indices[:last], there, *indices[last + 1 :])

    params = tuple(_own(p, output) if p.name == output.name else p for p in program.params)
    body = rewrite.map_buffers(program.body, {output.name}, moved)
    return dataclasses.replace(program, params=params, body=(ir.Alloc(table, (*fill, *body)),))


def _distances(output: TaskValue) -> tuple[int, ...] | None:
    """By dimension up to the innermost open one, places from one element to the next; None where
    there are no gaps, or elements of a place do not lie side by side."""
    shape, strides = output.type.shape, output.layout.strides
    opened = [d for d, extent in enumerate(shape) if is_size(extent)]
    if not opened or opened[-1] == 0 or strides == dense_strides(shape):
        return None
    unit = strides[opened[-1]]
    if is_size(unit) or any(stride % unit != 0 for stride in strides[: opened[-1]]):
        return None
    return tuple(stride // unit for stride in strides[: opened[-1] + 1])


def _own(param: ir.Buffer, output: TaskValue) -> ir.Buffer:
    """The output's param as the task has it."""
    layout = output.layout
    return dataclasses.replace(
        param, shape=output.type.shape, strides=layout.strides, halo=layout.halo
    )
